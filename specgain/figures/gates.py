"""Figures of chapter 8: the four gates with every value and its limit, and the fault tree with the path that was taken."""

import textwrap

from specgain.figures.style import GAIN, INK, LOSS, OTHER, PAPER, SMALL, Drawing, some, styled
from specgain.gates import FAIL, PASS, cheaper_load, too_dear, unmeasured_target

SIGN = {True: "✓", False: "✗", None: "?"}
COLOUR = {True: GAIN, False: LOSS, None: OTHER, PASS: GAIN, FAIL: LOSS, "insufficient": OTHER}
LEFT, BAR, RIGHT = 0.36, 0.24, 0.64  # of the width: where bars begin, where their limit lies behind that, the values
MOST = 1.05  # a bar longer than this many limits is cut there, with an arrow head


# ------------------------------------------------------------------------------------------ the gates as a table


@styled
def gates_table(report):
    """Return the gates of a `Report`: per check its sign, the value as a bar against its limit (the line), and both.

    A check that no number decides has no bar.  Green holds, red fails, grey is not shown by the evidence.
    """
    lines = [line for gate in some(report.gates, "report.gates") for line in (gate, *gate.checks)]
    drawing = Drawing(0.26 * len(lines) + 0.1)
    ax = drawing.add_axes((0, 0, 1, 1))
    drawing.set_layout_engine("none")
    ax.set(xlim=(0, 1), ylim=(len(lines) - 0.4, -0.7))
    ax.axis("off")
    said = []
    for y, line in enumerate(lines):
        if isinstance(line, dict):
            _check_row(ax, y, line)
            said[-1] += f"; {_name(line)} {SIGN[line['ok']]} {line['text']}"
        else:
            ax.axhline(y - 0.5, color=INK, linewidth=0.6, alpha=0.35)
            ax.text(0, y, line.name.capitalize(), weight="bold", va="center")
            ax.text(1, y, line.verdict, weight="bold", va="center", ha="right", color=COLOUR[line.verdict])
            said.append(f"{line.name} {line.verdict}")
    drawing.alt = f"Four gates, together: {report.verdict}. {'. '.join(said)}."
    return drawing


def _check_row(ax, y, check):
    colour = COLOUR[check["ok"]]
    ax.text(0.012, y, SIGN[check["ok"]], color=colour, va="center", weight="bold")
    ax.text(0.05, y, _name(check), va="center")
    value, limit = check["value"], check["limit"]
    if _is_number(value) and _is_number(limit) and limit > 0 and check["name"] != "load":
        share = min(value / limit, MOST)
        ax.barh(y, share * BAR, left=LEFT, height=0.44, color=colour, alpha=0.85)
        if value / limit > MOST:
            ax.plot(LEFT + MOST * BAR, y, ">", color=colour, markersize=4, clip_on=False)
        ax.plot([LEFT + BAR] * 2, [y - 0.42, y + 0.42], color=INK, linewidth=1.2)
    ax.text(RIGHT, y, _said(check), va="center", color=colour if check["ok"] is False else INK)


def _name(check):
    """Return the check's name as it is read: TTFT and its kin in capitals."""
    words = check["name"].replace("_", " ").replace("drop of the agreed", "drop of the").split(" ")
    return " ".join(word.upper() if word in ("ttft", "tpot", "itl", "e2el") else word for word in words)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _said(check):
    """Return value and limit in few words, such as "105 ms (want ≤ 100)"."""
    text = check["text"]
    if check["value"] is None and check["ok"] is None:
        return "not known"
    if not _is_number(check["value"]) or check["name"] == "load":
        return {"load": check["limit"] or ""}.get(check["name"], str(check["value"]).lower().replace("true", "yes"))
    unit = next((u for u in (" ms", "×") if f"{u}, " in text), "")
    sign = "≤" if "at most" in text else "≥"
    number = [f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.3g}" for v in (check["value"], check["limit"])]
    return f"{number[0]}{unit} (want {sign} {number[1]})"


# ------------------------------------------------------------------------------------------ the fault tree

PHASES = (("draft", "draft"), ("verification", "verify"), ("sampling", "other"))


@styled
def fault_tree(comparison, speedups=(), target=None):
    """Return the fault tree as boxes, the path that `comparison` takes drawn strong; arguments as `gates.fault_tree`.

    Questions stand on the left, what to do on the right.  The four places to look show their times where the record
    has them; the one that costs most beyond a plain step is named.  A target that was not measured is noted below.
    """
    drawing = Drawing(4.5, unmeasured_target(speedups, target))
    ax = drawing.add_axes((0, 0, 1, 1))
    drawing.set_layout_engine("none")
    ax.set(xlim=(0, 100), ylim=(98, 0))
    ax.axis("off")
    taken, dearest = _path(comparison, speedups, target), _dearest(comparison)
    for name, (x, y, wide, high, text) in _boxes(comparison, speedups).items():
        _box(ax, x, y, wide, high, text, name in taken, name == dearest)
    for (start, end, word), points in ARROWS.items():
        _arrow(ax, points, word, start in taken and end in taken)
    drawing.alt = f"Fault tree. The path taken: {'; then '.join(taken[name] for name in taken)}."
    return drawing


def _path(comparison, speedups, target):
    """Return {box: what it says} along the path taken, in order."""
    if comparison.verdict == "faster":
        return {"faster": "faster at the target load: yes", "keep": "keep it and watch the gates"}
    path = {"faster": f"faster at the target load: {comparison.verdict}"}
    if comparison.verdict == "cannot-tell":
        return path | {"record": "record both sides again"}
    if comparison.verdict == "within-noise":
        path["record"] = "record both sides again"
    length = f"{comparison.committed_length:.2f}" if comparison.committed_length else "unknown"
    path["tokens"] = f"a round commits more than 1.1 tokens: {length}"
    if too_dear(comparison):
        path |= {f"phase {key}": f"look at {name}" for name, key in PHASES} | {"phase cache": "look at cache upkeep"}
    else:
        path["acceptance"] = "another draft or method, or none"
    path["idle"] = "faster at a smaller load"
    low = cheaper_load(speedups, target)
    return path | ({"by load": "speculate by load"} if low else {"off": "no speculation"})


def _dearest(comparison):
    """Return the box of the phase that costs most beyond a plain step, or None where the phases are not timed."""
    times = comparison.parts
    if None in times.values() or comparison.t_decode is None:
        return None
    excess = times | {"verify": times["verify"] - comparison.t_decode}
    return f"phase {max(excess, key=excess.get)}"


def _boxes(comparison, speedups):
    """Return {box: (x, y, width, height, text)} in the 100 × 98 field, y downwards."""
    times = comparison.parts
    length = f": {comparison.committed_length:.2f}" if comparison.committed_length else ""
    boxes = {
        "faster": (1, 3, 44, 10, f"Faster at the target load? {comparison.verdict.replace('-', ' ')}"),
        "keep": (58, 1, 41, 8, "Keep it. Judge again with each release."),
        "record": (58, 11, 41, 11, "Not sure? Record both sides again, in turn, three runs each."),
        "tokens": (1, 25, 44, 10, f"More than 1.1 tokens a round? E[L]{length}"),
        "acceptance": (58, 24, 41, 12, "Acceptance: first rule out a fault, then another draft or none."),
        "idle": (1, 86, 44, 10, f"Faster at a smaller load? {_loads(speedups)}"),
        "by load": (58, 79, 41, 8, "Speculate by load, or step down."),
        "off": (58, 89, 41, 8, "Fix it first, or leave it off."),
    }
    for place, (name, key) in enumerate(PHASES):
        spent = "" if times[key] is None else f": {times[key] * 1e3:.2f} ms a round"
        boxes[f"phase {key}"] = (1, 41 + 10 * place, 44, 8, name + spent)
    boxes["phase cache"] = (1, 71, 44, 8, "cache upkeep")
    return boxes


def _loads(speedups):
    return ", ".join(f"{speedups[load]:.2f}× at {load}" for load in sorted(speedups)) if speedups else ""


# (from, to, word): the points of the arrow
ARROWS = {
    ("faster", "keep", "yes"): [(45, 6), (58, 5)],
    ("faster", "record", ""): [(45, 10), (58, 15)],
    ("faster", "tokens", "no"): [(23, 13), (23, 25)],
    ("tokens", "acceptance", "no"): [(45, 30), (58, 30)],
    ("tokens", "phase draft", "yes: the round is too dear"): [(23, 35), (23, 41)],
    ("phase draft", "phase verify", ""): [(23, 49), (23, 51)],
    ("phase verify", "phase other", ""): [(23, 59), (23, 61)],
    ("phase other", "phase cache", ""): [(23, 69), (23, 71)],
    ("phase cache", "idle", ""): [(23, 79), (23, 86)],
    ("acceptance", "idle", ""): [(78, 36), (78, 76), (51, 76), (51, 82), (38, 82), (38, 86)],
    ("idle", "by load", "yes"): [(45, 89), (58, 84)],
    ("idle", "off", "no"): [(45, 93), (58, 93)],
}


def _box(ax, x, y, wide, high, text, taken, dearest):
    edge = LOSS if dearest else INK
    ax.add_patch(_rounded(x, y, wide, high, edgecolor=edge, linewidth=2.0 if taken else 0.7, alpha=1 if taken else 0.5))
    if dearest:
        mark = "◀ costs most\n     beyond a plain step"
        ax.text(x + wide + 1.5, y + high / 2 + 1, mark, color=LOSS, va="center", size=SMALL, linespacing=1.3)
    ax.text(x + 1.6, y + high / 2, textwrap.fill(text, 25), va="center", size=SMALL, linespacing=1.2,
            alpha=1 if taken else 0.75, weight="bold" if taken else "normal")  # fmt: skip


def _rounded(x, y, wide, high, **style):
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((x, y), wide, high, boxstyle="round,pad=0,rounding_size=1.2", facecolor=PAPER, **style)


def _arrow(ax, points, word, taken):
    style = {"color": INK, "linewidth": 2.0 if taken else 0.7, "alpha": 1 if taken else 0.5}
    xs, ys = zip(*points[:-1], strict=True)
    ax.plot(xs, ys, **style)
    ax.annotate("", points[-1], points[-2], arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0} | style)
    if word:
        (x0, y0), (x1, y1) = points[:2]
        across = abs(x1 - x0) > abs(y1 - y0)
        ax.text((x0 + x1) / 2 + (0 if across else 1.2), (y0 + y1) / 2 - (1.2 if across else 0), word, size=SMALL,
                ha="center" if across else "left", va="bottom" if across else "center", alpha=1 if taken else 0.75)  # fmt: skip
