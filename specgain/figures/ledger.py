"""Figures of the ledger: speedup over length, break-even, the account of a round, prediction against measurement."""

import html
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from specgain.figures.style import (
    ARROW,
    CSS,
    DRAFT,
    GAIN,
    INK,
    LOSS,
    MEASUREMENT,
    OTHER,
    PAPER,
    PREDICTION,
    SERIES,
    SMALL,
    VERIFY,
    Drawing,
    beside,
    checked_gammas,
    consecutive,
    label_axes,
    label_ends,
    signed,
    some,
    styled,
)
from specgain.gain import averaging_gap, break_even_acceptance, log_split, mean_of_rates, pooled_rate
from specgain.length import marginal_tokens

# ------------------------------------------------------------------------------------------ speedup over γ


@styled
def speedup_curves(ledgers, gammas):
    """Return S(γ) of each ledger in {name: Ledger} as predictions, with the break-even line and the best γ of each."""
    gammas, drawing, said = checked_gammas(gammas), Drawing(3.2), []
    ax = drawing.subplots()
    ax.hlines(1, gammas[0], gammas[-1], color=INK, linewidth=1)
    ends = [(gammas[-1], 1, "break-even", INK)]
    for (name, ledger), colour in zip(some(ledgers, "ledgers").items(), SERIES, strict=False):
        speedups = [ledger.speedup(g) for g in gammas]
        ax.plot(gammas, speedups, color=colour, **PREDICTION)
        top = max(range(len(gammas)), key=speedups.__getitem__)
        ax.plot(gammas[top], speedups[top], "o", color=colour, markersize=9, markerfacecolor="none", markeredgewidth=1)
        ax.annotate(
            f"{speedups[top]:.2f}",
            (gammas[top], speedups[top]),
            (0, 7) if top else (7, 4),  # a curve that only falls: beside it, clear of the axis
            textcoords="offset points",
            ha="center" if top else "left",
            color=colour,
        )
        ends.append((gammas[-1], speedups[-1], name, colour))
        said.append(
            f"{name}: best γ = {gammas[top]} with S = {speedups[top]:.2f}, S = {speedups[-1]:.2f} at γ = {gammas[-1]}"
        )
    label_axes(ax, "speculation length γ (tokens)", "speedup S (×)", gammas)
    label_ends(ax, ends)
    drawing.alt = f"Predicted speedup against speculation length, break-even at 1. {'. '.join(said)}."
    return drawing


@styled
def break_even_map(round_time, t_decode, gammas, point=None, levels=(1, 1.5, 2, 3)):
    """Return the map of γ and a: above the lowest line speculation is faster; each line is one speedup.

    `point` = (γ, a) marks where a setting stands.  A line ends where not even a = 1 reaches its speedup.
    """
    gammas, drawing, said = checked_gammas(gammas, least=1), Drawing(3.1), []
    ax = drawing.subplots()
    ends = []
    for level, width in zip(levels, (2.0, 1.0, 1.0, 1.0, 1.0), strict=False):
        line = [
            (g, break_even_acceptance(g, t_decode, level * round_time(g))) for g in gammas
        ]  # S = level at T is S = 1 at level·T
        line = [(g, a) for g, a in line if a is not None]
        if not line:
            continue
        colour = INK if level == 1 else GAIN
        ax.plot(*zip(*line, strict=True), color=colour, **PREDICTION | {"linewidth": width, "markersize": 3.6})
        ends.append((*line[-1], "break-even" if level == 1 else f"S = {level:g}", colour))
        said += [f"break-even a at γ = {g}: {a:.2f}" for g, a in line[:: max(1, len(line) - 1)] if level == 1]
        if level == 1:
            ax.fill_between(*zip(*line, strict=True), 1, color=GAIN, alpha=0.08, linewidth=0)
    if point:
        ax.plot(*point, "D", color=VERIFY, markersize=6)
        ax.annotate("here", point, (7, -3), textcoords="offset points", color=VERIFY)
    ax.set_ylim(0, 1.03)
    label_axes(ax, "speculation length γ (tokens)", "acceptance a (probability)", gammas)
    label_ends(ax, ends)
    drawing.alt = f"Acceptance needed, by speculation length. {'; '.join(said) or 'No length shown breaks even'}."
    return drawing


# ------------------------------------------------------------------------------------------ one round as a ledger


@styled
def ledger_bars(cases, note=""):
    """Return, for each {name: (Ledger, γ)}, what a round is worth (E[L]·t_D) above what it costs (T_round), in ms.

    The cost is split into draft, verify and other where the round time knows its parts.  The gap is the margin M.
    """
    some(cases, "cases")
    drawing, said = Drawing(0.6 + 0.95 * len(cases), note), []
    ax = drawing.subplots()
    for place, (name, (ledger, gamma)) in enumerate(cases.items()):
        row, y = ledger.row(gamma), -2.6 * place
        worth, cost = row.committed_length * ledger.t_decode * 1e3, row.t_round * 1e3
        ax.barh(y, worth, height=0.72, color=GAIN, alpha=0.85)
        beside(ax, worth, y, f"worth {worth:.1f}", GAIN)
        left = 0
        for part, t, colour in _parts(ledger.round_time, gamma):
            ax.barh(y - 0.8, t * 1e3, left=left, height=0.72, color=colour, alpha=0.85, edgecolor=PAPER, linewidth=0.8)
            if t * 1e3 > 0.14 * max(worth, cost) and part != "round":
                ax.text(left + t * 500, y - 0.8, part, ha="center", va="center", color=PAPER, size=SMALL)
            left += t * 1e3
        beside(ax, cost, y - 0.8, f"cost {cost:.1f}", VERIFY)
        word = "faster" if row.margin > 0 else "slower" if row.margin < 0 else "even"
        verdict = f"M = {signed(row.margin * 1e3)} ms: {word}"
        ax.text(0, y + 0.55, f"{name}, γ = {gamma}", weight="bold", va="bottom")
        ax.text(
            1,
            y + 0.55,
            verdict,
            va="bottom",
            ha="right",
            transform=ax.get_yaxis_transform(),
            color=GAIN if row.margin > 0 else LOSS,
        )
        said.append(f"{name}, γ = {gamma}: worth {worth:.1f} ms, cost {cost:.1f} ms, {verdict}")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_xlim(0, ax.get_xlim()[1] * 1.16)
    ax.grid(axis="x")
    ax.set_xlabel("time per round (ms)")
    drawing.alt = f"What a round is worth against what it costs. {'. '.join(said)}."
    return drawing


def _parts(round_time, gamma):
    """Return [(name, seconds, colour)] of a round: its three parts, or the whole where only that is known."""
    if round_time.curve is not None:
        return [("round", round_time(gamma), VERIFY)]
    parts = (
        ("draft", round_time.t_draft, DRAFT),
        ("verify", round_time.t_verify, VERIFY),
        ("other", round_time.t_other, OTHER),
    )
    return [(name, curve(gamma), colour) for name, curve, colour in parts]


@styled
def log_split_bars(cases):
    """Return, for each {name: (Ledger, γ)}, ln E[L] as an arrow from 0, then −ln(T_round/t_D), and ln S at the end."""
    drawing, said = Drawing(0.75 + 0.62 * len(some(cases, "cases"))), []
    ax = drawing.subplots()
    ends = [0]
    for place, (name, (ledger, gamma)) in enumerate(cases.items()):
        row, y = ledger.row(gamma), -1.7 * place
        tokens, cost = log_split(row.committed_length, ledger.t_decode, row.t_round)
        for start, stop, level, colour in ((0, tokens, y, GAIN), (tokens, tokens + cost, y - 0.45, DRAFT)):
            ax.annotate("", (stop, level), (start, level), arrowprops=ARROW | {"color": colour})
        ax.annotate(
            f"{name}, γ = {gamma}: tokens {signed(tokens, 2)}, cost {signed(cost, 2)}",
            (0, y),
            (3, 5),
            textcoords="offset points",
        )
        ax.plot(tokens + cost, y - 0.45, "o", color=INK, markersize=5, markerfacecolor=PAPER)
        ax.annotate(
            f"ln S = {signed(tokens + cost, 2)}",
            (tokens + cost, y - 0.45),
            (0, -6),
            textcoords="offset points",
            ha="center",
            va="top",
        )
        ends += [tokens, tokens + cost]
        said.append(
            f"{name}, γ = {gamma}: tokens {signed(tokens, 2)}, cost {signed(cost, 2)}, sum {signed(tokens + cost, 2)}"
        )
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set(xlim=(min(ends) - 0.2, max(ends) + 0.1), ylim=(-1.7 * len(cases) + 0.3, 0.6), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.set_xlabel("natural logarithm of a factor (no unit); right of 0 is faster")
    drawing.alt = f"The logarithm of the speedup as a token part and a cost part. {'. '.join(said)}."
    return drawing


# ------------------------------------------------------------------------------------------ marginal against average


@styled
def marginal_against_average(ledgers, gammas):
    """Return the tokens that candidate i adds, and per ledger in {name: Ledger} its rate against the round's rate.

    Candidate i pays while the bar (its tokens per ms of extra time) stands above the line (the round's tokens per ms
    without it): the step rule.  Lengths must be consecutive.  At length 0 the round is an ordinary step, t_D.
    """
    gammas, said = consecutive(gammas), []
    drawing = Drawing(1.75 * (1 + len(some(ledgers, "ledgers"))))
    axes = drawing.subplots(1 + len(ledgers), 1, sharex=True)
    law = next(iter(ledgers.values())).acceptance
    tokens = [marginal_tokens(law, g - 1) for g in gammas]
    bars = axes[0].bar(gammas, tokens, width=0.7, color=OTHER, alpha=0.55)
    axes[0].bar_label(bars, [f"{t:.2f}" for t in tokens], size=SMALL, padding=1)
    axes[0].set_ylim(0, 1.2 * max(tokens))
    label_axes(axes[0], "", "tokens added", gammas, title="What candidate number i adds")
    for ax, (name, ledger), colour in zip(axes[1:], ledgers.items(), SERIES, strict=False):
        times = [ledger.t_decode * 1e3 if g == 0 else ledger.round_time(g) * 1e3 for g in [gammas[0] - 1, *gammas]]
        rates = [
            marginal_tokens(ledger.acceptance, g - 1) / (t - before)
            for g, (before, t) in zip(gammas, pairwise(times), strict=True)
        ]
        average = [ledger.acceptance.committed_length(g - 1) / before for g, before in zip(gammas, times, strict=False)]
        stop = next((g for g, r, m in zip(gammas, rates, average, strict=True) if r <= m), None)
        for g, rate in zip(gammas, rates, strict=True):
            pays = stop is None or g < stop
            ax.bar(
                g,
                rate,
                width=0.7,
                facecolor=colour if pays else "none",
                edgecolor=colour,
                hatch="" if pays else "////",
                linewidth=0.8,
            )
        ax.plot(gammas, average, color=INK, **PREDICTION)
        ax.set_ylim(0, 1.18 * max(*average, sorted(rates)[-2] if len(rates) > 2 else max(rates)))
        _note_bar_tops(ax, gammas, rates)
        label_axes(ax, "", "tokens per ms", gammas, title=f"{name}: candidate (bar) against round so far (○)")
        said.append(
            f"{name}: the first candidate that does not pay is number {stop}"
            if stop
            else f"{name}: every candidate shown pays"
        )
    axes[-1].set_xlabel("candidate number i (tokens)")
    drawing.alt = f"Tokens added by each candidate fall from {tokens[0]:.2f} to {tokens[-1]:.2f}. {'. '.join(said)}."
    return drawing


def _note_bar_tops(ax, places, heights):
    """Write the height of every bar that leaves the top of the axes beside its cut end."""
    top = ax.get_ylim()[1]
    for place, height in zip(places, heights, strict=True):
        if height > top:
            ax.annotate(
                f"↑ {height:.2f}",
                (place + 0.35, top),
                (3, -1),
                textcoords="offset points",
                va="top",
                size=SMALL,
            )


# ------------------------------------------------------------------------------------------ many rounds


@styled
def staircase(accepted, gamma):
    """Return the rounds as columns of accepted tokens, longest first, with the count of every row at its right end.

    Counting by columns gives the sum of K, counting by rows gives the rounds with K ≥ i: the tail sum.
    """
    ks, drawing = sorted(some(accepted, "accepted"), reverse=True), Drawing(2.9)
    ax = drawing.subplots()
    rows = [sum(k >= i for k in ks) for i in range(1, gamma + 1)]
    ax.bar(range(1, len(ks) + 1), ks, width=1.0, color=GAIN, alpha=0.3, linewidth=0)
    for i, count in enumerate(rows, start=1):
        if count:
            ax.plot([0.5, count + 0.5], [i, i], color=GAIN, linewidth=1.1, solid_capstyle="butt")
        beside(ax, count + 0.5, i - 0.5, f"K ≥ {i}: {count}", INK)
    ax.set_xlim(0.5, len(ks) * 1.2 + 0.5)
    ax.set_ylim(0, gamma + 0.4)
    label_axes(ax, "round, the longest prefix first (number)", "accepted prefix K (tokens)", None)
    ax.grid(visible=False)
    drawing.alt = (
        f"{len(ks)} rounds as columns of accepted tokens. By columns: {sum(ks)} tokens. "
        f"By rows, rounds with K ≥ i for i = 1 to {gamma}: {', '.join(map(str, rows))}; together {sum(rows)}."
    )
    return drawing


@styled
def averaging(committed, times, note=""):
    """Return rounds as dots (time in ms, tokens per ms), with both averages; the tilt of the cloud is their gap."""
    pooled, mean, gap = (f(committed, times) / 1e3 for f in (pooled_rate, mean_of_rates, averaging_gap))
    drawing = Drawing(3.0, note)
    ax = drawing.subplots()
    ms = [t * 1e3 for t in times]
    rates = [tokens / t for tokens, t in zip(committed, ms, strict=True)]
    ax.plot(ms, rates, "o", color=VERIFY, markersize=3.4, alpha=0.55, markeredgewidth=0)
    lines = [(pooled, "total over total", INK, "-"), (mean, "mean of rates", LOSS, ":")]
    for (value, name, colour, style), va, away in zip(
        sorted(lines, key=lambda line: -line[0]), ("bottom", "top"), (3, -3), strict=True
    ):
        ax.axhline(value, color=colour, linestyle=style, linewidth=1.4)
        place = {"xy": (1, value), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate(f"{name} {value:.3f}", xytext=(0, away), **place, ha="right", va=va, color=colour)
    ax.set_ylim(0, 1.08 * max(rates))
    ax.set_xlim(0, 1.45 * max(ms))  # room for the two labels
    label_axes(ax, "time of the round (ms)", "tokens per ms", None)
    drawing.alt = (
        f"{len(times)} rounds. Tokens per ms: total over total {pooled:.3f}, mean of the rounds' rates {mean:.3f}, "
        f"gap {signed(gap, 3)}, which is minus the covariance of time and rate over the mean time."
    )
    return drawing


@styled
def round_times(samples, expected, note=""):
    """Return the measured round times {K: [seconds, …]} with 95 % intervals, against one expected time in seconds.

    Above stands what each such round commits, K + 1 tokens.
    """
    drawing, ks = Drawing(3.3, note), sorted(some(samples, "samples"))
    above, below = drawing.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    above.bar(ks, [k + 1 for k in ks], width=0.7, color=GAIN, alpha=0.6)
    label_axes(above, "", "tokens", ks, title="What the round brings: K + 1 committed")
    means, halves = _means([[1e3 * t for t in samples[k]] for k in ks])
    place = {"xy": (1, expected * 1e3), "xycoords": ("axes fraction", "data")}
    below.axhline(expected * 1e3, color=INK, linestyle=PREDICTION["linestyle"], linewidth=1.3)
    below.annotate("expected", **place, xytext=(3, 0), textcoords="offset points", va="center")
    below.errorbar(ks, means, halves, color=VERIFY, **MEASUREMENT | {"linestyle": "none"})
    below.set_ylim(0, 1.35 * max(expected * 1e3, *means))
    label_axes(below, "accepted prefix K (tokens)", "round time (ms)", ks, title="What the round costs")
    found = ", ".join(f"K = {k}: {m:.2f} ms" for k, m in zip(ks, means, strict=True))
    drawing.alt = f"Round time by accepted prefix, expected {expected * 1e3:.2f} ms. {found}."
    return drawing


@styled
def verify_cost(samples, note=""):
    """Return verification times {positions n: [seconds, …]} over the mean one-position time, with 95 % intervals.

    Two lines bound the picture: free verification (1) and no reuse of the weights at all (n).
    """
    drawing, ns = Drawing(3.0, note), sorted(some(samples, "samples"))
    if ns[0] != 1:
        raise ValueError(
            f"samples has no entry for n = 1 (it starts at {ns[0]}); the ratio needs the one-position time"
        )
    ax, one = drawing.subplots(), sum(samples[1]) / len(samples[1])
    ratios, halves = _means([[t / one for t in samples[n]] for n in ns])
    top = 1.6 * max(ratios)
    corner, away = min(ns[-1], top), {"textcoords": "offset points"}
    ax.plot([1, ns[-1]], [1, 1], color=GAIN, linestyle=PREDICTION["linestyle"])
    ax.plot([1, corner], [1, corner], color=LOSS, linestyle=PREDICTION["linestyle"])
    ax.annotate("no reuse: n one-position passes", (corner, corner), (4, -2), **away, va="top", color=LOSS)
    ax.annotate("free", (ns[-1], 1), (0, -3), **away, ha="right", va="top", color=GAIN)
    ax.errorbar(ns, ratios, halves, color=VERIFY, **MEASUREMENT)
    ax.annotate(f"measured: {ratios[-1]:.2f}", (ns[-1], ratios[-1]), (0, 7), **away, ha="right", color=VERIFY)
    ax.set_ylim(0, top)
    label_axes(ax, "positions verified in one pass, n = γ + 1 (tokens)", "time over one-position time (×)", ns)
    found = ", ".join(f"n = {n}: {ratio:.2f}" for n, ratio in zip(ns, ratios, strict=True))
    drawing.alt = f"Verification time over one-position time. {found}."
    return drawing


def _means(groups):
    """Return (means, half widths of the normal 95 % intervals) of groups of numbers; 0 where there is one number."""
    means = [fmean(group) for group in groups]
    halves = [1.96 * stdev(group) / len(group) ** 0.5 if len(group) > 1 else 0.0 for group in groups]
    return means, halves


# ------------------------------------------------------------------------------------------ prediction and measurement


class Prediction(NamedTuple):
    """One speedup predicted and measured; `low`/`high` bound the measured one, `least`/`most` the predicted one."""

    name: str
    predicted: float
    measured: float
    low: float = None
    high: float = None
    least: float = None
    most: float = None

    @property
    def residual(self):
        """predicted / measured − 1."""
        return self.predicted / self.measured - 1


def predictions(cells, draft):
    """Return {domain: [Prediction, …]} of one draft, from the cells of `lab.committed()` or `lab.live()`."""
    groups = {}
    for cell in cells:
        if cell["draft"] == draft and cell["gamma"]:
            ends = (*cell["measured_interval"], *cell["speedup_interval"])
            row = Prediction(f"γ = {cell['gamma']}", cell["speedup"], cell["measured_speedup"], *ends)
            groups.setdefault(cell["domain"], []).append(row)
    return some(groups, f"cells of draft {draft!r}")


@styled
def predicted_against_measured(groups, note=""):
    """Return {group: [Prediction, …]} as rows: predicted ○ and measured ● speedup, and the residual in percent."""
    rows = [(group, c) for group, members in some(groups, "groups").items() for c in members]
    drawing = Drawing(0.8 + 0.22 * (len(rows) + 1.2 * len(groups)), note)
    left, right = drawing.subplots(1, 2, sharey=True, width_ratios=(5, 3))
    ticks, y = [], 0.0
    for group, members in groups.items():
        ticks.append((y, group, "bold"))
        for c in members:
            y -= 1
            _comparison(left, right, c, y)
            ticks.append((y, c.name, "normal"))
        y -= 1.2
    left.axvline(1, color=INK, linewidth=0.8)
    right.axvline(0, color=INK, linewidth=0.8)
    left.set_yticks([t[0] for t in ticks], [t[1] for t in ticks])
    for label, (_, _, weight) in zip(left.get_yticklabels(), ticks, strict=True):
        label.set_weight(weight)
    left.set_ylim(y + 0.5, 0.8)
    for ax, label, title in (
        (left, "speedup S (×)", "predicted ○  measured ●"),
        (right, "residual (%)", "pred. / meas. − 1"),
    ):
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.set_xlabel(label)
        ax.set_title(title, weight="normal", size=8.5)
    sizes = sorted(abs(c.residual) for _, c in rows)
    middle = (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2
    drawing.alt = (
        f"{len(rows)} predicted and measured speedups; residual {middle:.1%} in the median, {sizes[-1]:.1%} at most. "
        + "; ".join(f"{group} {c.name}: predicted {c.predicted:.2f}, measured {c.measured:.2f}" for group, c in rows)
    )
    return drawing


def _comparison(left, right, c, y):
    """Draw one row: two whiskers with their dots, and the residual as a bar from zero."""
    for value, least, most, fill, shift in (
        (c.predicted, c.least, c.most, PAPER, 0.14),
        (c.measured, c.low, c.high, VERIFY, -0.14),
    ):
        if least is not None:
            left.plot(
                [least, most],
                [y + shift] * 2,
                color=VERIFY,
                linewidth=1.1,
                linestyle="-" if fill == VERIFY else (0, (3, 1.5)),
            )
        left.plot(value, y + shift, "o", color=VERIFY, markersize=4.8, markerfacecolor=fill)
    right.barh(y, 100 * c.residual, height=0.55, color=OTHER, alpha=0.6)


# ------------------------------------------------------------------------------------------ how long, how wide


@styled
def tokens_over_time(ledger, gammas):
    """Return every length as a point (time of its round in ms, tokens it commits); speed is the slope from the origin.

    One ray is plain decoding (one token per t_D): points above it win.  The other, green, goes through the best length
    shown.  Lengths must be consecutive; each point bears its γ.
    """
    gammas, drawing = consecutive(gammas), Drawing(3.2)
    ax, step = drawing.subplots(), ledger.t_decode * 1e3
    rows = [ledger.row(g) for g in gammas]
    times, tokens = [row.t_round * 1e3 for row in rows], [row.committed_length for row in rows]
    best = max(rows, key=lambda row: row.speedup)
    right, top = 1.12 * max(*times, step), 1.18 * max(tokens)
    for slope, colour, name in ((1 / step, INK, "plain decoding"), (best.speedup / step, GAIN, f"γ = {best.gamma}")):
        x = min(right, top / slope)
        ax.plot([0, x], [0, slope * x], color=colour, linewidth=1.1)
        side = {"ha": "right", "va": "bottom"} if x < right else {"ha": "left", "va": "center"}
        ax.annotate(
            name, (x, slope * x), (3, 0), textcoords="offset points", color=colour, annotation_clip=False, **side
        )
    ax.plot(times, tokens, color=VERIFY, **PREDICTION)
    ax.plot(best.t_round * 1e3, best.committed_length, "o", color=GAIN, markersize=9, markerfacecolor="none")
    for number, (g, x, y) in enumerate(zip(gammas, times, tokens, strict=True)):
        if len(gammas) < 10 or number % 2 == 0:
            ax.annotate(str(g), (x, y), (2, -6), textcoords="offset points", va="top", size=SMALL, color=VERIFY)
    ax.set(xlim=(0, right), ylim=(0, top))
    label_axes(ax, "time of the round (ms)", "tokens committed, E[L] (tokens)", None)
    places = "; ".join(f"γ = {r.gamma}: {r.t_round * 1e3:.1f} ms, {r.committed_length:.2f} tokens" for r in rows)
    drawing.alt = (
        f"Tokens of a round over its time, with the ray of plain decoding. The steepest ray meets γ = {best.gamma}, "
        f"speedup {best.speedup:.2f}. {places}."
    )
    return drawing


@styled
def trees(drafts):
    """Return, for each {name: {path: survival}}, the drafted nodes level by level; a circle's area is the survival.

    A path is a tuple of ranks, one per level: (0, 1) is the second choice behind the first choice.
    """
    sizes = [max(2, sum(len(path) == depth for path in tree)) for tree in some(drafts, "drafts").values()
             for depth in [max(map(len, tree))]]  # fmt: skip
    drawing, said = Drawing(2.7), []
    panels = drawing.subplots(1, len(drafts), sharey=True, width_ratios=[4 + size for size in sizes], squeeze=False)[0]
    for ax, (name, tree) in zip(panels, drafts.items(), strict=True):
        x = _across(tree)
        for path, survival in tree.items():
            ax.plot([x[path[:-1]], x[path]], [len(path) - 1, len(path)], color=OTHER, linewidth=0.8, zorder=1)
            ax.scatter(x[path], len(path), s=130 * float(survival), color=GAIN, zorder=2)
        ax.scatter(x[()], 0, s=40, marker="s", color=INK, zorder=2)
        ax.set(xticks=[], yticks=range(max(map(len, tree)) + 1), title=name)
        ax.margins(0.18, 0.1)
        ax.spines["bottom"].set_visible(False)
        length = float(1 + sum(tree.values()))
        ax.set_xlabel(f"{len(tree)} nodes\n{length:.2f}\n(tokens)")
        said.append(f"{name}: depth {max(map(len, tree))}, {len(tree)} nodes, {length:.2f} tokens per round")
    panels[0].set_ylabel("depth (tokens)")
    panels[0].invert_yaxis()
    drawing.alt = f"Drafts as trees; the larger a circle, the likelier its path is accepted. {'. '.join(said)}."
    return drawing


def _across(tree):
    """Return {path: x}, the root () included: leaves side by side, a parent in the middle of its children."""
    places, free = {}, iter(range(len(tree) + 1))

    def place(path):
        below = [place(child) for child in sorted(tree) if len(child) == len(path) + 1 and child[:-1] == path]
        places[path] = sum(below) / len(below) if below else next(free)
        return places[path]

    place(())
    return places


@styled
def verified_positions(ranges):
    """Return the positions B·(γ + 1) that one step verifies under a schedule [[first, last, γ], …], and B·γ below it."""
    drawing, said = Drawing(3.0), []
    ax = drawing.subplots()
    top = max(last * (gamma + 1) for _, last, gamma in some(ranges, "ranges"))
    for first, last, gamma in ranges:
        ax.plot([first, last], [first * (gamma + 1), last * (gamma + 1)], color=VERIFY, linewidth=1.8)
        ax.plot([first, last], [first * gamma, last * gamma], color=DRAFT, linewidth=1.3, linestyle=(0, (1, 1.4)))
        ax.annotate(f"{last * (gamma + 1)}", (last, last * (gamma + 1)), (0, 3), textcoords="offset points", ha="center",
                    color=VERIFY, size=SMALL)  # fmt: skip
        ax.axvline(last, color=INK, linewidth=0.6, alpha=0.25)
        if last - first > 0.05 * ranges[-1][1]:
            ax.text((first + last) / 2, 1.22 * top, f"γ = {gamma}", ha="center", va="top")
        said.append(f"B = {first} to {last}: γ = {gamma}, at most {last * (gamma + 1)} positions")
    first, last, gamma = ranges[-1]
    middle, away = (first + last) / 2, {"textcoords": "offset points", "ha": "right", "va": "bottom"}
    ax.annotate("B(γ + 1)", (middle, middle * (gamma + 1)), (-4, 2), **away, color=VERIFY)
    ax.annotate("Bγ", (middle, middle * gamma), (-4, 2), **away, color=DRAFT)
    ax.set(xlim=(0, 1.02 * last), ylim=(-0.02 * top, 1.25 * top))
    label_axes(ax, "requests in the step, B (number)", "positions verified (tokens)", None)
    drawing.alt = f"Positions verified per step by batch size. {'. '.join(said)}."
    return drawing


@styled
def length_by_text(cells, draft, note=""):
    """Return one small panel per kind of text: predicted ○ and measured ● speedup over γ, the best of each ringed.

    `cells` are those of `lab.committed()`; γ = 0 is plain decoding, S = 1 by definition.
    """
    groups, said = predictions(cells, draft), []
    high = (len(groups) + 1) // 2
    drawing = Drawing(0.5 + 1.45 * high, note)
    panels = drawing.subplots(high, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, (domain, rows) in zip(panels, groups.items(), strict=False):
        said.append(f"{domain}: {_speedups_over_length(ax, rows)}")
        label_axes(ax, "", "", None, title=domain)
    for ax in panels[len(groups) :]:
        ax.remove()
    for place, ax in enumerate(panels[: len(groups)]):
        ax.set_ylabel("" if place % 2 else "S (×)")
        ax.set_xlabel("length γ (tokens)" if place >= len(groups) - 2 else "")
        ax.tick_params(labelbottom=place >= len(groups) - 2)
    drawing.alt = (
        f"Speedup over length for every kind of text, predicted (open) and measured (filled). {'. '.join(said)}."
    )
    return drawing


def _speedups_over_length(ax, rows):
    """Draw S(γ) of the `Prediction` rows, with γ = 0 as 1; return in words which length is best."""
    gammas, said = [0, *(int(row.name.removeprefix("γ = ")) for row in rows)], []
    ax.axhline(1, color=INK, linewidth=0.8)
    whiskers = [[0, *(row.measured - row.low for row in rows)], [0, *(row.high - row.measured for row in rows)]]
    for key, style, colour, shift, around in (
        ("predicted", PREDICTION, OTHER, -0.07, None),
        ("measured", MEASUREMENT, VERIFY, 0.07, whiskers),
    ):
        values = [1.0, *(getattr(row, key) for row in rows)]
        x = [place + shift for place in range(len(values))]
        ax.errorbar(x, values, around, color=colour, **style)
        top = max(range(len(values)), key=values.__getitem__)
        ax.plot(x[top], values[top], "o", color=colour, markersize=10, markerfacecolor="none", markeredgewidth=1)
        said.append(f"{key} best γ = {gammas[top]} with S = {values[top]:.2f}")
    ax.set_xticks(range(len(gammas)), gammas)
    return ", ".join(said)


# ------------------------------------------------------------------------------------------ tokens of a round


class TokenRounds:
    """Rounds as rows of tokens: `_repr_html_` for pages, plain text elsewhere.  Built by `token_rounds`."""

    SIGNS = {"accepted": "✓", "rejected": "✗", "unread": "·", "own": "+"}

    def __init__(self, rounds):
        self.rounds = [_round_roles(drafted, target) for drafted, target in some(rounds, "rounds")]

    def _heads(self):
        for number, roles in enumerate(self.rounds, start=1):
            k = sum(role == "accepted" for role, _ in roles)
            yield f"Round {number}: K = {k} accepted, L = {k + 1} committed", roles

    def __repr__(self):
        lines = [
            f"{head}\n  " + " ".join(f"{self.SIGNS[role]}{_shown(token)}" for role, token in roles)
            for head, roles in self._heads()
        ]
        return "\n".join(lines)

    def _repr_html_(self):
        blocks = []
        for head, roles in self._heads():
            items = "".join(
                f'<li class="{role}">{self.SIGNS[role]} {html.escape(_shown(token))}</li>' for role, token in roles
            )
            blocks.append(f"<p>{head}</p><ol>{items}</ol>")
        return f'<div class="sg-rounds"><style>{CSS}</style>{"".join(blocks)}</div>'


def token_rounds(rounds):
    """Return rounds given as (drafted tokens, the target's own token at each of the γ + 1 places) as a `TokenRounds`.

    ✓ accepted, ✗ the first guess that misses, · guesses behind it, which are never judged, + the target's own token.

    >>> token_rounds([(["the", " cat", " sat"], ["the", " dog", " ran", "."])])
    Round 1: K = 1 accepted, L = 2 committed
      ✓the ✗␣cat ·␣sat +␣dog
    """
    return TokenRounds(rounds)


def _round_roles(drafted, target):
    """Return [(role, token)] of one greedy round: guesses up to the first miss, those behind it, the target's own."""
    if len(target) != len(drafted) + 1:
        raise ValueError(
            f"target has {len(target)} tokens for {len(drafted)} candidates; one pass gives γ + 1 = {len(drafted) + 1}"
        )
    k = next((i for i, (guess, own) in enumerate(zip(drafted, target, strict=False)) if guess != own), len(drafted))
    roles = ["accepted"] * k + ["rejected", *["unread"] * len(drafted)][: len(drafted) - k]
    return [*zip(roles, drafted, strict=True), ("own", target[k])]


def _shown(token):
    """Return a token with its blanks visible: ␣ for a space, ⏎ for a line break."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
