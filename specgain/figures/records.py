"""Figures of engine records: the account of a measured round, what each number claims, gain against load.

They take what `specgain.compare` and `specgain.schedule_derive.points` return.
"""

from specgain.figures.style import (
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
    label_axes,
    label_ends,
    signed,
    some,
    styled,
)

PHASES = {"draft": DRAFT, "verify": VERIFY, "other": OTHER}
WORD_COLOUR = {"faster": GAIN, "slower": LOSS}


@styled
def round_account(comparisons):
    """Return, for each {name: Comparison}, the break-even time E[L]·t_D above the measured T_round, in ms.

    The whisker is the 95 % interval of the margin, laid from the end of the round: where it crosses that line, the
    verdict is `within-noise`. The round is split into its parts where the record times them.
    """
    some(comparisons, "comparisons")
    drawing, said = Drawing(0.6 + 1.05 * len(comparisons)), []
    ax = drawing.subplots()
    for place, (name, found) in enumerate(comparisons.items()):
        if found.margin is None:
            raise ValueError(f"{name}: the margin is not known; missing: {', '.join(found.to_json()['missing'])}")
        said.append(_account(ax, -2.9 * place, name, found))
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.set_ylim(-2.9 * len(comparisons) + 1.5, 1.3)
    ax.set_xlim(0, ax.get_xlim()[1] * 1.2)
    ax.grid(axis="x")
    ax.set_xlabel("time per round (ms)")
    drawing.alt = f"What a measured round may cost against what it costs. {'. '.join(said)}."
    return drawing


def _account(ax, y, name, found):
    """Draw one account at height `y`; return it in words."""
    worth, cost = found.committed_length * found.t_decode * 1e3, found.t_round * 1e3
    ax.barh(y, worth, height=0.72, color=GAIN, alpha=0.85)
    left = 0.0
    for part, seconds, colour in _phases(found):
        ax.barh(
            y - 0.85, seconds * 1e3, left=left, height=0.72, color=colour, alpha=0.85, edgecolor=PAPER, linewidth=0.8
        )
        if part != "round" and seconds * 1e3 > 0.14 * max(worth, cost):
            ax.text(left + seconds * 500, y - 0.85, part, ha="center", va="center", color=PAPER, size=SMALL)
        left += seconds * 1e3
    ax.plot([cost, cost], [y - 1.3, y + 0.45], color=INK, linewidth=1)
    end, text = worth, "no interval"
    if found.margin_interval:
        low, high = (1e3 * edge for edge in found.margin_interval)
        reach = [[worth - (cost + low)], [cost + high - worth]]
        ax.errorbar([worth], [y], xerr=[[max(0.0, d) for d in side] for side in reach], color=INK, **MEASUREMENT)
        end, text = max(worth, cost, cost + high), f"{signed(low)} to {signed(high)}"
    beside(ax, end, y, f"may cost {worth:.1f}", GAIN)
    beside(ax, cost, y - 0.85, f"costs {cost:.1f}", VERIFY)
    ax.text(0, y + 0.6, name, weight="bold", va="bottom")
    verdict = f"M = {signed(worth - cost)} ms ({text}): {found.verdict}"
    right = {"transform": ax.get_yaxis_transform(), "ha": "right", "va": "bottom"}
    ax.text(1, y + 0.6, verdict, color=WORD_COLOUR.get(found.verdict, INK), **right)
    return f"{name}: may cost {worth:.1f} ms, costs {cost:.1f} ms, {verdict}"


def _phases(found):
    """Return [(name, seconds, colour)] that add up to the round: its timed parts and the rest, or the whole."""
    timed = [(name, seconds, PHASES[name]) for name, seconds in found.parts.items() if seconds is not None]
    if not timed:
        return [("round", found.t_round, VERIFY)]
    rest = found.t_round - sum(seconds for _, seconds, _ in timed)
    return [*timed, ("rest", rest, OTHER)] if rest > 1e-6 * found.t_round else timed


@styled
def speedups_claimed(comparison):
    """Return what each number of two records claims as the speedup: side by side, the ledger's with its 95 % interval.

    The counters' value is a prediction (open circle): it takes every round for a drafting one. The others are measured.
    """
    known = {how: s for how, s in comparison.speedups.items() if s is not None}
    if not known:
        raise ValueError(f"no speedup is known; missing: {', '.join(comparison.to_json()['missing'])}")
    drawing, names = Drawing(0.75 + 0.34 * len(known)), list(known)
    ax = drawing.subplots()
    ax.axvline(1, color=INK, linewidth=1)
    for place, (how, s) in enumerate(known.items()):
        if how == "E[L] over all rounds" and comparison.speedup_interval:
            low, high = comparison.speedup_interval
            ax.axvspan(low, high, color=GAIN, alpha=0.1, linewidth=0)
            ax.errorbar([s], [-place], xerr=[[s - low], [high - s]], color=GAIN, **MEASUREMENT)
        elif how.startswith("1 +"):
            ax.plot([s], [-place], color=LOSS, **PREDICTION)
        else:
            ax.plot([s], [-place], "o", color=VERIFY, markersize=MEASUREMENT["markersize"])
        ax.annotate(f"{s:.2f}", (s, -place), (0, 5), textcoords="offset points", ha="center")
    ax.set_ylim(0.6 - len(known), 0.7)
    ax.set_xlim(0, max(*known.values(), *(comparison.speedup_interval or (1,)), 1) * 1.1)
    label_axes(ax, "speedup claimed (×); right of 1 is faster", "", None)
    ax.set_yticks([-place for place in range(len(names))], names)
    ax.grid(visible=False)
    interval = (
        "no interval" if not comparison.speedup_interval else "{:.2f} to {:.2f}".format(*comparison.speedup_interval)
    )
    listed = ", ".join(f"{how} {s:.2f}" for how, s in known.items())
    drawing.alt = f"Speedups claimed: {listed}. The 95 % interval of the ledger's is {interval}."
    return drawing


@styled
def gain_against_load(points):
    """Return the measured S over the batch size, one line per draft length, of the points of a sweep.

    Whiskers reach over the repeats: the fastest plain run against the slowest speculative one, and the reverse.
    """
    plain = {point.batch: point for point in some(list(points), "points") if point.gamma is None}
    rows = {}
    for point in sorted((p for p in points if p.gamma is not None), key=lambda p: p.batch):
        if point.batch not in plain:
            raise ValueError(f"no plain run at batch size {point.batch}; S needs both sides at the same load")
        rows.setdefault(point.gamma, []).append(point)
    drawing, ends, said = Drawing(3.0), [], []
    ax = drawing.subplots()
    ax.set_xscale("log", base=2)
    ax.axhline(1, color=INK, linewidth=1)
    for gamma, colour in zip(sorted(some(rows, "points with a draft length")), SERIES * len(rows), strict=False):
        row = rows[gamma]
        batches, speedups = [p.batch for p in row], [plain[p.batch].seconds / p.seconds for p in row]
        reach = [_reach(plain[p.batch], p) for p in row]
        errors = [[max(0.0, s - low) for s, (low, _) in zip(speedups, reach, strict=True)],
                  [max(0.0, high - s) for s, (_, high) in zip(speedups, reach, strict=True)]]  # fmt: skip
        ax.errorbar(batches, speedups, yerr=errors, color=colour, **MEASUREMENT)
        ends.append((batches[-1], speedups[-1], f"γ = {gamma}", colour))
        said.append(f"γ = {gamma}: " + ", ".join(f"{s:.2f} at {b}" for b, s in zip(batches, speedups, strict=True)))
    label_axes(ax, "load: concurrent requests B (requests)", "speedup of decoding S (×)", None)
    ax.set_xticks(sorted(plain), [str(batch) for batch in sorted(plain)])
    ax.minorticks_off()
    label_ends(ax, ends)
    drawing.alt = f"Measured speedup by load, break-even at 1. {'; '.join(said)}."
    return drawing


def _reach(plain, spec):
    """Return (least, most) of S over the repeats of both sides."""
    a, b = (point.repeats or (point.seconds,) for point in (plain, spec))
    return min(a) / max(b), max(a) / min(b)
