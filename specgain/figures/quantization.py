"""Figures of chapter 6: quantization and speculation together, and heads on a quantized target.

They take parts of the committed `quantization.json`.
"""

from specgain.figures.style import (
    DRAFT,
    GAIN,
    INK,
    MEASUREMENT,
    OTHER,
    PAPER,
    PREDICTION,
    SERIES,
    SMALL,
    VERIFY,
    Drawing,
    label_axes,
    some,
    styled,
)


@styled
def four_runs(cells):
    """Return one row per cell: each gain alone, what their product promises ○, and both together ●, with whiskers.

    `cells` {name: cell}; a cell holds `quantized`, `speculative`, `product` and `both`, each with its `_interval`.
    """
    drawing, said = Drawing(0.9 + 0.42 * len(some(cells, "cells"))), []
    ax = drawing.subplots()
    rows = (
        ("quantized", "■ quantized", DRAFT, "s", 0.24),
        ("speculative", "◆ speculative", VERIFY, "D", 0.08),
        ("product", "○ their product", GAIN, "o", -0.08),
        ("both", "● both together", GAIN, "o", -0.24),
    )
    for place, (name, cell) in enumerate(cells.items()):
        for key, _, colour, marker, shift in rows:
            (low, high), y = cell[f"{key}_interval"], -place + shift
            told = key == "product"
            ax.plot(
                [low, high], [y, y], color=colour, linewidth=1.1, linestyle=PREDICTION["linestyle"] if told else "-"
            )
            ax.plot(cell[key], y, marker, color=colour, markersize=4.6, markerfacecolor=PAPER if told else colour)
        said.append(
            f"{name}: quantized {cell['quantized']:.2f}, speculative {cell['speculative']:.2f}, "
            f"product {cell['product']:.2f}, both {cell['both']:.2f}"
        )
    for line, (_, label, colour, *_) in enumerate(reversed(rows)):
        ax.annotate(label, (0.98, 0), (0, 6 + 12 * line), "axes fraction", "offset points", ha="right", color=colour)
    ax.axvline(1, color=INK, linewidth=0.8)
    label_axes(ax, "speedup S over plain, unquantized (×)", "", None)
    ax.set_yticks([-i for i in range(len(cells))], list(cells))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.set_xlim(left=0)
    drawing.alt = f"Gains alone, their product, and both together. {'; '.join(said)}."
    return drawing


@styled
def passes_by_format(verify):
    """Return one panel per model with a line per format (five at most): the time of a pass over n positions.

    `verify` {model: {format: {positions: ms}}}.
    """
    drawing, said = Drawing(2.7), []
    for ax, (model, formats) in zip(drawing.subplots(1, len(some(verify, "verify")), squeeze=False)[0], verify.items(),
                                    strict=True):  # fmt: skip
        if len(formats) > len(SERIES):
            raise ValueError(f"{len(formats)} formats of {model!r} are too many: there are colours for {len(SERIES)}")
        for (name, row), colour in zip(formats.items(), SERIES, strict=False):
            n, times = [int(x) for x in row], list(row.values())
            ax.plot(n, times, color=colour, **{k: v for k, v in MEASUREMENT.items() if k != "capsize"})
            below = times[-1] < max(list(other.values())[-1] for other in formats.values())
            ax.annotate(name, (n[-1], times[-1]), (0, -5 if below else 5), textcoords="offset points", ha="right",
                        va="top" if below else "bottom", color=colour)  # fmt: skip
            said.append(f"{model}, {name}: {times[0]:.2f} ms for 1, {times[-1]:.2f} ms for {n[-1]}")
        label_axes(ax, "positions n (tokens)", "time of a pass (ms)", n, model)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
    drawing.alt = f"Time of a pass over the positions in it. {'; '.join(said)}."
    return drawing


@styled
def feature_shift(cells, domain):
    """Return a panel per draft: E[L] from fine to coarse targets, with own features ●, the original's ■, retrained ◆.

    `cells` as in `quantization.json`; the whiskers are 95 % intervals by request.
    """
    cells = some([c for c in cells if c["domain"] == domain], f"cells of {domain!r}")
    targets, drafts = list(dict.fromkeys(c["target"] for c in cells)), list(dict.fromkeys(c["draft"] for c in cells))
    high = (len(drafts) + 2) // 3
    drawing, said = Drawing(0.6 + 1.6 * high), []
    panels = drawing.subplots(high, 3, sharey=True, squeeze=False).ravel()
    for ax, draft in zip(panels, drafts, strict=False):
        own = [c for c in cells if c["draft"] == draft and "trained_on" not in c]
        for features, colour, marker in (("original", OTHER, "s"), ("none", VERIFY, "o"), ("own", VERIFY, "o")):
            line = {c["target"]: c for c in own if c["features"] == features}
            _lengths(ax, line, targets, colour, marker, -0.08 if features == "original" else 0)
        for c in (c for c in cells if c["draft"] == draft and c.get("trained_on") == c["target"] != "fp32"):
            _lengths(ax, {c["target"]: c}, targets, GAIN, "D", 0.16)
        said.append(f"{draft}: " + ", ".join(f"{c['target']} {c['committed_length']:.2f}" for c in own
                                             if c["features"] != "original"))  # fmt: skip
        label_axes(ax, "", "E[L] (tokens)" if draft in drafts[::3] else "", None, draft)
        ax.set_xticks(range(len(targets)), targets, rotation=40, ha="right", size=SMALL)
        ax.set_xlabel("target (bits)")
    for ax in panels[len(drafts) :]:
        ax.remove()
    drawing.alt = f"Mean committed length on {domain} by the precision of the target. {'; '.join(said)}."
    return drawing


def _lengths(ax, line, targets, colour, marker, shift):
    """Draw the cells {target: cell} of one line with their whiskers."""
    x = [targets.index(t) + shift for t in line]
    y = [c["committed_length"] for c in line.values()]
    around = [[v - c["interval"][0] for v, c in zip(y, line.values(), strict=True)],
              [c["interval"][1] - v for v, c in zip(y, line.values(), strict=True)]]  # fmt: skip
    if x:
        ax.errorbar(x, y, around, color=colour, **MEASUREMENT | {"marker": marker, "markersize": 4})
