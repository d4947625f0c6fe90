"""Figures of the drafters: which tree is fastest, what controllers gain and lose, whether a draft's confidence is true."""

from specgain.figures.style import (
    GAIN,
    INK,
    LOSS,
    MEASUREMENT,
    OTHER,
    PREDICTION,
    SERIES,
    VERIFY,
    Drawing,
    label_axes,
    label_ends,
    some,
    styled,
)


@styled
def tree_speeds(shapes, t_decode, note=""):
    """Return S over the nodes verified for families of trees, {family: [tree.Row, …]}; the best of each is ringed.

    Rows are predictions: open circles on dashed lines.  `t_decode` is the ordinary step in seconds, drawn as S = 1.
    """
    drawing, said, ends = Drawing(2.9, note), [], []
    ax = drawing.subplots()
    ax.axhline(1, color=INK, linewidth=0.8)
    for (name, rows), colour in zip(some(shapes, "shapes").items(), (GAIN, VERIFY, LOSS, OTHER), strict=False):
        x, y = [row.nodes for row in some(rows, name)], [row.committed_length * t_decode / row.t_round for row in rows]
        ax.plot(x, y, color=colour, **PREDICTION)
        best = max(range(len(y)), key=y.__getitem__)
        ax.plot(x[best], y[best], "o", color=colour, markersize=10, markerfacecolor="none", markeredgewidth=1)
        ends.append((x[-1], y[-1], name, colour))
        row = rows[best]
        said.append(f"{name}: best S = {y[best]:.2f} with {row.nodes} nodes verified and depth {row.depth}")
    label_axes(ax, "nodes verified (per round)", "speedup S (×)", None)
    label_ends(ax, ends)
    drawing.alt = f"Predicted speedup over the nodes verified per round. {'. '.join(said)}."
    return drawing


@styled
def controllers(loads, note="", measured=False):
    """Return, per load, the speed of each controller over that of the best fixed length, with its interval.

    `loads` is {load: {controller: (value, low, high)}}; low and high may be None (a bound has no interval).  Open circles
    for a replay on recorded rounds, filled ones if `measured`.
    """
    rows = sum(len(some(members, load)) for load, members in some(loads, "loads").items())
    drawing = Drawing(0.7 + 0.2 * (rows + 1.3 * len(loads)), note)
    ax, ticks, y, said = drawing.subplots(), [], 0.0, []
    for load, members in loads.items():
        ticks.append((y, load, "bold"))
        for name, (value, low, high) in members.items():
            y -= 1
            colour = OTHER if low is None else GAIN if low > 1 else LOSS if high < 1 else VERIFY
            if low is not None:
                ax.plot([low, high], [y, y], color=colour, linewidth=1.2, linestyle="-" if measured else (0, (3, 1.5)))
            face = colour if measured else "none"
            ax.plot(value, y, "o" if low is not None else "|", color=colour, markersize=5.5, markerfacecolor=face)
            ticks.append((y, name, "normal"))
            said.append(f"{load}, {name}: {value:.3f}" + (f" ({low:.3f} to {high:.3f})" if low is not None else ""))
        y -= 1.3
    ax.axvline(1, color=INK, linewidth=0.8)
    ax.set_yticks([t[0] for t in ticks], [t[1] for t in ticks])
    for label, (_, _, weight) in zip(ax.get_yticklabels(), ticks, strict=True):
        label.set_weight(weight)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.set(xlabel="speed over the best fixed length (×)", ylim=(y + 0.6, 0.8))
    drawing.alt = f"Speed of controllers over that of the best fixed length. {'; '.join(said)}."
    return drawing


@styled
def reliability(curves, note=""):
    """Return the share accepted over the estimate, {name: [calibration.Bin, …]}, with whiskers and the diagonal."""
    drawing, said = Drawing(3.1, note), []
    ax = drawing.subplots()
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8)
    for (name, bins), colour in zip(some(curves, "curves").items(), SERIES[1:], strict=False):
        seen = [b.observed for b in some(bins, name)]
        x, y = [b.predicted for b in bins], [entry.value for entry in seen]
        whiskers = [[e.value - e.low for e in seen], [e.high - e.value for e in seen]]
        ax.errorbar(x, y, whiskers, color=colour, label=name, **MEASUREMENT)
        worst = max(bins, key=lambda b: abs(b.predicted - b.observed.value))
        said.append(f"{name}: farthest at {worst.predicted:.2f}, where {worst.observed.value:.2f} come true")
    ax.legend(frameon=False, loc="upper left")
    label_axes(ax, "estimated chance of acceptance (probability)", "accepted (share)", None)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    drawing.alt = f"Share of candidates accepted over their estimate; the diagonal is true. {'. '.join(said)}."
    return drawing


@styled
def family_portrait(groups, note=""):
    """Return S of every way of drafting, predicted (open) and measured (filled), {title: [cell, …]}, a panel each.

    Cells as `lab.family` makes them: of one text and length, one per method. The best measured one comes first.
    """
    most = max(len(some(cells, title)) for title, cells in some(groups, "groups").items())
    drawing, said = Drawing(0.6 + len(groups) * (0.42 + 0.19 * most), note), []
    panels = drawing.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (title, cells) in zip(panels, groups.items(), strict=True):
        ranked = sorted(cells, key=lambda cell: cell["measured_speedup"])
        for y, cell in enumerate(ranked):
            low, high = cell["measured_interval"]
            value, colour = cell["measured_speedup"], GAIN if cell["measured_speedup"] > 1 else LOSS
            ax.plot([low, high], [y, y], color=colour, linewidth=1.2)
            ax.plot(value, y, "o", color=colour, markersize=4.2)
            ax.plot(cell["speedup"], y, "o", color=INK, markerfacecolor="none", markersize=6.5, markeredgewidth=0.9)
        ax.axvline(1, color=INK, linewidth=0.8)
        ax.set_yticks(range(len(ranked)), [cell["draft"] for cell in ranked])
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
        ax.set_title(title)
        found = ", ".join(f"{c['draft']} {c['measured_speedup']:.2f} (predicted {c['speedup']:.2f})" for c in ranked[::-1])
        said.append(f"{title}: {found}")
    panels[-1].set_xlabel("speedup S (×)")
    drawing.alt = f"Speedup by method. {'. '.join(said)}."
    return drawing


@styled
def draft_times(methods, note=""):
    """Return T_draft over γ, measured, for {method: {gamma: milliseconds}}: a line that rises, or one that stays flat."""
    drawing, ends, said = Drawing(2.8, note), [], []
    ax = drawing.subplots()
    for (name, times), colour in zip(some(methods, "methods").items(), (*SERIES, INK), strict=False):
        x = sorted(some(times, name))
        ax.plot(x, [times[g] for g in x], color=colour, linestyle="-", marker="o", markersize=4.2, linewidth=1.2)
        ends.append((x[-1], times[x[-1]], name, colour))
        said.append(f"{name}: {times[x[0]]:.2f} ms at γ = {x[0]}, {times[x[-1]]:.2f} ms at γ = {x[-1]}")
    ax.set_ylim(0)
    label_axes(ax, "speculation length γ (tokens)", "T_draft (ms)", sorted({g for t in methods.values() for g in t}))
    label_ends(ax, ends)
    drawing.alt = f"Time of drafting over the length. {'; '.join(said)}."
    return drawing
