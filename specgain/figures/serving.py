"""Figures of a server: gain against load, break-even over load and context, the memory, fitted passes."""

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
    checked_gammas,
    label_axes,
    label_ends,
    some,
    styled,
)

BATCH = "requests in a step B (requests)"


def _batches(batches, name="batches"):
    """Return `batches` as a list; ValueError unless they are rising numbers above 0."""
    found = list(some(list(batches), name))
    if sorted(set(found)) != found or found[0] <= 0:
        raise ValueError(f"{name} = {found} must be rising numbers above 0")
    return found


def _powers(ax, axis, values):
    """Give a logarithmic axis of base 2 plain numbers as ticks."""
    ticks = [2**k for k in range(40) if values[0] <= 2**k <= values[-1]]
    ticks = ticks if len(ticks) < 8 else ticks[:: len(ticks) // 5]
    names = [f"{t // 1024}k" if t >= 1024 and t % 1024 == 0 else str(t) for t in ticks]
    getattr(ax, f"set_{axis}scale")("log", base=2)
    getattr(ax, f"set_{axis}ticks")(ticks, names)
    getattr(ax, f"set_{axis}lim")(values[0], values[-1])
    ax.minorticks_off()


def _spread(values, count=12):
    """Return the places of about `count` values, evenly spread by ratio."""
    wanted = [values[0] * (values[-1] / values[0]) ** (i / (count - 1)) for i in range(count)]
    return sorted({min(range(len(values)), key=lambda i: abs(values[i] - x)) for x in wanted})


@styled
def gain_over_load(ledger_of, batches, gammas, schedule=None):
    """Return the predicted S of each length over the batch size, and the ranges of a Dynamic-SD schedule on it.

    `ledger_of(batch)` gives the Ledger at a batch size.  The broad line follows the length that `schedule` chooses.
    """
    gammas, batches = checked_gammas(gammas, least=1), _batches(batches)
    drawing, ends, said = Drawing(3.2), [], []
    ax = drawing.subplots()
    ledgers = {batch: ledger_of(batch) for batch in batches}
    ax.axhline(1, color=INK, linewidth=1)
    for gamma in gammas:
        colour = SERIES[(gamma - 1) % len(SERIES)]
        gains = [ledger.speedup(gamma) for ledger in ledgers.values()]
        ax.plot(batches, gains, color=colour, clip_on=False, **PREDICTION | {"markevery": _spread(batches)})
        ends.append((batches[-1], gains[-1], f"γ = {gamma}", colour))
        said.append(f"γ = {gamma}: S = {gains[0]:.2f} at {batches[0]}, {gains[-1]:.2f} at {batches[-1]}")
    label_axes(ax, BATCH, "speedup S (×)", None)
    _powers(ax, "x", batches)
    ax.set_ylim(0, ax.get_ylim()[1] * 1.12)
    for first, last, gamma in schedule or ():
        inside = [batch for batch in batches if first <= batch <= last]
        if not inside:
            continue
        gains = [ledgers[batch].speedup(gamma) if gamma else 1.0 for batch in inside]
        ax.plot(inside, gains, color=GAIN, linewidth=7, alpha=0.25, solid_capstyle="butt")
        if first > batches[0]:
            ax.axvline(first - 0.5, color=OTHER, linewidth=0.8, linestyle=":")
        middle = (max(first, batches[0]) * min(last, batches[-1])) ** 0.5
        ax.text(middle, 0.98, f"γ = {gamma}", ha="center", va="top", transform=ax.get_xaxis_transform(), color=GAIN)
        said.append(f"schedule: length {gamma} from {first} to {last} requests")
    label_ends(ax, ends)
    drawing.alt = f"Predicted speedup over the batch size, break-even at 1. {'; '.join(said)}."
    return drawing


@styled
def break_even_contour(ledger_of, gamma, batches, contexts, capacity_tokens=None, levels=(1.5, 2, 2.5, 3)):
    """Return the map of context and batch size: S = 1 as the heavy line, other `levels` light, losses shaded.

    `ledger_of(batch, context)` gives the Ledger.  Above the hatched edge `capacity_tokens` of cache do not suffice.
    """
    batches, contexts = _batches(batches), _batches(contexts, "contexts")
    checked_gammas([gamma], least=1)
    grid = [[ledger_of(batch, context).speedup(gamma) for context in contexts] for batch in batches]
    least, most = min(map(min, grid)), max(map(max, grid))
    drawing = Drawing(3.4)
    ax = drawing.subplots()
    label_axes(ax, "context per request (tokens)", BATCH, None)
    _powers(ax, "x", contexts)
    _powers(ax, "y", batches)
    if least < 1:
        ax.contourf(contexts, batches, grid, levels=[least - 1, 1], colors=[LOSS], alpha=0.12)
    if most > 1:
        ax.contourf(contexts, batches, grid, levels=[1, most + 1], colors=[GAIN], alpha=0.10)
    for shown, colour, width in (([1], INK, 2.0), ([x for x in levels if least < x < most], GAIN, 1.0)):
        if shown and least < shown[0] < most:
            lines = ax.contour(
                contexts, batches, grid, levels=shown, colors=[colour], linewidths=width, linestyles="--"
            )
            paths = [path.vertices for path in lines.get_paths() if len(path.vertices)]
            places = [tuple(vertices[len(vertices) // 3]) for vertices in paths]
            ax.clabel(lines, fmt=lambda s: f"S = {s:g}", fontsize=SMALL, manual=places)
    if capacity_tokens is not None:
        edge = [capacity_tokens / context for context in contexts]
        ax.plot(contexts, edge, color=OTHER, linewidth=1.6)
        ax.fill_between(contexts, edge, batches[-1], where=[e < batches[-1] for e in edge], facecolor="none",
                        edgecolor=OTHER, hatch="//", linewidth=0, alpha=0.5)  # fmt: skip
        ax.text(0.98, 0.97, "does not fit", transform=ax.transAxes, ha="right", va="top", color=OTHER,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})  # fmt: skip
    corners = ", ".join(
        f"{grid[i][j]:.2f} at {batches[i]} requests and {contexts[j]} tokens" for i in (0, -1) for j in (0, -1)
    )
    fits = f" {capacity_tokens} tokens of cache fit." if capacity_tokens is not None else ""
    drawing.alt = f"Predicted speedup for γ = {gamma} over context and batch size: S = {corners}.{fits}"
    return drawing


@styled
def memory_bars(splits, tokens=None):
    """Return one bar per {name: MemorySplit} in GB: weights, what is reserved, caches; `tokens` {name: cache tokens}."""
    drawing, said = Drawing(0.9 + 0.72 * len(some(splits, "splits"))), []
    ax = drawing.subplots()
    for place, (name, split) in enumerate(splits.items()):
        left, y = 0.0, -1.5 * place
        for part, size, colour, hatch in (
            ("weights", split.target_weights, VERIFY, ""),
            ("draft", split.draft_weights, DRAFT, ""),
            ("other", split.reserved, OTHER, ""),
            ("cache", split.target_kv, GAIN, ""),
            ("draft's cache", split.draft_kv, DRAFT, "///"),
        ):
            if size:
                ax.barh(y, size / 1e9, left=left, height=0.6, color=colour, alpha=0.85, edgecolor=PAPER, hatch=hatch,
                        linewidth=0.8)  # fmt: skip
                if size > 0.0165 * len(part) * sum(split):
                    ax.text(left + size / 2e9, y, part, ha="center", va="center", color=PAPER, size=SMALL)
                else:
                    ax.text(left + size / 2e9, y - 0.34, part, ha="center", va="top", color=colour, size=SMALL)
                said.append(f"{name}: {part} {size / 1e9:.1f} GB")
            left += size / 1e9
        ax.text(0, y + 0.38, name, weight="bold", va="bottom")
        if tokens:
            beside(ax, left, y, f"{tokens[name]:,} tokens", GAIN)
            said.append(f"{name}: {tokens[name]:,} tokens of cache")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    ax.set_xlabel("memory (GB)")
    ax.set_ylim(-1.5 * len(splits) + 0.72, 0.75)
    if tokens:
        ax.set_xlim(0, ax.get_xlim()[1] * 1.2)
    drawing.alt = f"What an accelerator's memory holds. {'; '.join(said)}."
    return drawing


@styled
def pass_times(groups):
    """Return T(n) of one pass, measured ● and predicted ○, for each {name: [(positions n, measured s, predicted s)]}."""
    drawing, said, ends = Drawing(3.2), [], []
    ax = drawing.subplots()
    for (name, rows), colour in zip(some(groups, "groups").items(), SERIES, strict=False):
        rows = sorted(rows)
        n, seen, told = ([row[i] for row in rows] for i in range(3))
        ax.errorbar(n, [1e3 * t for t in seen], color=colour, **MEASUREMENT)
        ax.plot(n, [1e3 * t for t in told], color=colour, **PREDICTION)
        ends.append((n[-1], 1e3 * seen[-1], name, colour))
        worst = max(abs(p / m - 1) for m, p in zip(seen, told, strict=True))
        said.append(f"{name}: {1e3 * seen[0]:.0f} to {1e3 * seen[-1]:.0f} ms, worst residual {worst:.1%}")
    label_axes(
        ax,
        "positions per request n (tokens)",
        "time of one pass (ms)",
        sorted({r[0] for g in groups.values() for r in g}),
    )
    ax.set_ylim(0)
    label_ends(ax, ends)
    drawing.alt = (
        f"Time of one pass over n positions per request, measured (filled) and predicted (open). {'; '.join(said)}."
    )
    return drawing


@styled
def latency_over_rate(lines):
    """Return, for each {name: [(requests per second, seconds)]}, the simulated mean time from arrival to last token."""
    drawing, said, ends = Drawing(3.0), [], []
    ax = drawing.subplots()
    for (name, rows), colour in zip(some(lines, "lines").items(), (OTHER, LOSS, GAIN, *SERIES), strict=False):
        rates, seconds = zip(*sorted(some(rows, name)), strict=True)
        ax.plot(rates, seconds, color=colour, **PREDICTION)
        ends.append((rates[-1], seconds[-1], name, colour))
        said.append(
            f"{name}: {seconds[0]:.1f} s at {rates[0]:g} requests per second, {seconds[-1]:.1f} s at {rates[-1]:g}"
        )
    label_axes(ax, "load (requests per second)", "time to the last token (s)", None)
    ax.set_ylim(0)
    label_ends(ax, ends)
    drawing.alt = f"Mean time from a request's arrival to its last token, over the load. {'; '.join(said)}."
    return drawing
