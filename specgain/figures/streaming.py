"""Figures of chapter 7: one scheduler step and its requests, chunks on a time line, the burst paradox, the buffer, queues."""

import numpy as np

from specgain.figures.style import (
    DRAFT,
    GAIN,
    INK,
    LOSS,
    OTHER,
    PAPER,
    PREDICTION,
    SERIES,
    SMALL,
    VERIFY,
    Drawing,
    label_axes,
    label_ends,
    some,
    styled,
)

# ------------------------------------------------------------------------------------------ one step


@styled
def scheduler_round(step, engine, shown=None):
    """Return one simulated `Step`: above how it divides the token budget, below what each decoding request made of it.

    `shown` are the ids of the requests to draw (default: all that decode).  A cell is one position and its cache slot.
    """
    rows = {i: row for row, i in enumerate(step.ids) if step.granted[row] and not step.prefill[row]}
    shown = [i for i in rows if shown is None or i in shown]
    drawing, said = Drawing(1.25 + 0.52 * len(some(shown, "shown"))), []
    top, bottom = drawing.subplots(2, 1, height_ratios=[1, 0.75 * len(shown)])
    _budget(top, step, engine)
    for place, identifier in enumerate(shown):
        row = rows[identifier]
        drafted, accepted = step.drafted[row], step.accepted[row]
        _cells(bottom, place, step, row)
        said.append(
            f"request {identifier}: {drafted} candidates, {accepted} accepted, {step.committed[row]} tokens "
            f"committed, {drafted - accepted} slots rolled back"
        )
    bottom.set(xlim=(-3.1, max(step.drafted) + 4.6), ylim=(len(shown) - 0.4, -0.6))
    bottom.axis("off")
    used = sum(step.granted)
    drawing.alt = (
        f"One scheduler step: {used} of {engine.max_num_batched_tokens} tokens of the budget (positions) used by "
        f"{sum(g > 0 for g in step.granted)} requests. {'; '.join(said)}."
    )
    return drawing


def _budget(ax, step, engine):
    """Draw the token budget as a bar: the positions of each request, those of prefills hatched, the rest empty."""
    left = 0
    for identifier, prefill, granted in zip(step.ids, step.prefill, step.granted, strict=True):
        colour = OTHER if prefill else VERIFY
        ax.barh(0, granted, left=left, color=colour, alpha=0.85, edgecolor=PAPER, hatch="///" if prefill else None)
        if granted > 0.05 * engine.max_num_batched_tokens:
            name = f"{identifier}: prefill" if prefill and granted > 9 else f"{identifier}"
            box = {"facecolor": colour, "edgecolor": "none", "pad": 2} if prefill else None
            ax.text(left + granted / 2, 0, name, ha="center", va="center", color=PAPER, size=SMALL, bbox=box)
        left += granted
    budget = engine.max_num_batched_tokens
    ax.barh(0, budget - left, left=left, color="none", edgecolor=INK, linewidth=0.8)
    ax.set(xlim=(0, budget), yticks=[], xlabel="token budget of the step (positions)")
    ax.spines["left"].set_visible(False)


def _cells(ax, place, step, row):
    """Draw the positions of one request: read token, candidates, and the target's own token that has no slot yet."""
    drafted, accepted, committed = step.drafted[row], step.accepted[row], step.committed[row]
    kinds = ["read"] + ["accepted"] * accepted + ["rolled back"] * (drafted - accepted)
    looks = {"read": (VERIFY, "last"), "accepted": (GAIN, "✓"), "rolled back": (LOSS, "✗")}
    ax.text(-3.05, place, f"request {step.ids[row]}", va="center", weight="bold")
    ax.text(-0.65, place, f"{step.context[row]} ▸", va="center", ha="right", color=OTHER)
    for x, kind in enumerate(kinds):
        colour, mark = looks[kind]
        thrown = kind == "rolled back"
        ax.barh(
            place, 0.9, left=x - 0.45, height=0.62, color="none" if thrown else colour, alpha=1 if thrown else 0.85,
            edgecolor=colour, linestyle="--" if thrown else "-",
        )  # fmt: skip
        ax.text(x, place, mark, ha="center", va="center", size=SMALL, color=colour if thrown else PAPER)
    if committed == accepted + 1:
        ax.barh(place, 0.9, left=drafted + 0.75, height=0.62, color="none", edgecolor=VERIFY, linewidth=2)
        ax.text(drafted + 1.2, place, "+1", ha="center", va="center", color=VERIFY, weight="bold")
    ax.text(drafted + 1.9, place, f"commits {committed}", va="center")


# ------------------------------------------------------------------------------------------ gaps


@styled
def chunk_timeline(streams, until=None):
    """Return the chunks of each {name: Stream} on one clock from the first chunk on: a bar per chunk, as high as its
    tokens.  `until` cuts the time line, in seconds.
    """
    drawing, said = Drawing(0.5 + 0.8 * len(some(streams, "streams"))), []
    axes = np.atleast_1d(drawing.subplots(len(streams), 1, sharex=True, sharey=True))
    highest = max(max(stream.tokens) for stream in streams.values())
    for ax, (name, stream), colour in zip(axes, streams.items(), SERIES, strict=False):
        times = np.asarray(stream.times) - stream.times[0]
        kept = times <= (until if until is not None else times[-1])
        ax.vlines(1e3 * times[kept], 0, np.asarray(stream.tokens)[kept], color=colour, linewidth=2.4)
        ax.set_ylim(0, highest + 0.5)
        ax.set_ylabel("tokens")
        ax.set_yticks(range(0, highest + 1, 1 + highest // 4))
        ax.set_title(name, color=colour)
        said.append(
            f"{name}: {stream.tpot * 1e3:.1f} ms per token, {1e3 * stream.chunk_gaps().mean():.1f} ms between chunks"
        )
    axes[-1].set_xlabel("time after the first token (ms)")
    drawing.alt = f"Chunks over time, a bar per chunk. {'. '.join(said)}."
    return drawing


@styled
def burst_paradox(rows, note="", measured=False):
    """Return TPOT, P95 gap and longest gap over γ, in ms, of rows (γ, tpot, p95, longest) in seconds.

    Drawn as a prediction unless `measured`.
    """
    rows, drawing = some(list(rows), "rows"), Drawing(2.9, note)
    look = {"marker": "o", "markersize": 4.2, "linewidth": 1.2} if measured else PREDICTION
    ax = drawing.subplots()
    gammas, *columns = zip(*rows, strict=True)
    ends = []
    names = ("TPOT: mean per token", "P95 of the gaps", "longest gap")
    for name, column, colour in zip(names, columns, (GAIN, DRAFT, LOSS), strict=True):
        ms = [1e3 * value for value in column]
        ax.plot(gammas, ms, color=colour, **look)
        ends.append((gammas[-1], ms[-1], name, colour))
    ax.set_ylim(0, None)
    label_axes(ax, "speculation length γ (tokens)", "time (ms)", list(gammas))
    label_ends(ax, ends)
    first, last = rows[0], rows[-1]
    drawing.alt = (
        f"From γ = {first[0]} to {last[0]} TPOT goes from {first[1] * 1e3:.1f} to {last[1] * 1e3:.1f} ms, the P95 gap "
        f"per token from {first[2] * 1e3:.1f} to {last[2] * 1e3:.1f} ms, the longest gap from {first[3] * 1e3:.1f} to "
        f"{last[3] * 1e3:.1f} ms."
    )
    return drawing


@styled
def smoothing(trades):
    """Return the longest gap that the reader sees against the delay of the first token, both in ms: {name: delay_trade}."""
    drawing, said = Drawing(2.8), []
    ax = drawing.subplots()
    for (name, rows), colour in zip(some(trades, "trades").items(), SERIES, strict=False):
        delays, longest = ([1e3 * row[i] for row in rows] for i in (0, 1))
        ax.plot(delays, longest, color=colour, **PREDICTION | {"markersize": 3.6})
        ax.annotate(name, (delays[0], longest[0]), (2, 4), textcoords="offset points", color=colour)
        said.append(f"{name}: {longest[0]:.0f} ms without delay, {longest[-1]:.0f} ms with {delays[-1]:.0f} ms")
    ax.set_ylim(0, None)
    label_axes(ax, "the buffer's delay of the first token (ms)", "longest gap shown (ms)", None)
    drawing.alt = f"Longest gap shown against the delay of a smoothing buffer. {'. '.join(said)}."
    return drawing


# ------------------------------------------------------------------------------------------ requests over time


@styled
def request_timeline(result, shown=None):
    """Return the life of requests as bars over time: waiting, prefill, decoding, and each preemption marked.

    `shown` are ids (default: the first twelve that finished).  Below, if the cache has an end, its free blocks.
    """
    shown = sorted(shown if shown is not None else [r.id for r in result.requests[:12]])
    served = {r.id: r for r in result.requests}
    ends = result.engine.num_blocks is not None
    drawing = Drawing(0.9 + 0.2 * len(some(shown, "shown")) + 0.9 * ends)
    axes = np.atleast_1d(
        drawing.subplots(1 + ends, 1, sharex=True, height_ratios=[len(shown), 5][: 1 + ends] if ends else None)
    )
    for place, identifier in enumerate(shown):
        request = served[identifier]
        axes[0].barh(place, request.last - request.arrival, left=request.arrival, height=0.14, color=OTHER)
    spans, struck = _spans(result, shown)
    for (place, prefill), pieces in spans.items():
        axes[0].broken_barh(
            pieces, (place - 0.38, 0.76), color=DRAFT if prefill else VERIFY, linewidth=0,
        )  # fmt: skip
    axes[0].plot(*zip(*struck, strict=True), "x", color=LOSS, markersize=6, markeredgewidth=1.8) if struck else None
    axes[0].set(yticks=range(len(shown)), yticklabels=shown, ylim=(len(shown) - 0.4, -0.6), ylabel="request (number)")
    axes[0].set_title("■ prefill", color=DRAFT)
    axes[0].set_title("■ decoding   ", color=VERIFY, loc="center")
    axes[0].set_title("✗ preempted", color=LOSS, loc="right")
    if ends:
        axes[1].fill_between(
            [step.end for step in result.steps], [step.free_blocks for step in result.steps], step="pre", color=GAIN, alpha=0.5,
        )  # fmt: skip
        axes[1].set_ylabel("free (blocks)")
        axes[1].set_ylim(0, None)
    axes[-1].set_xlabel("time (s)")
    waited = max(served[i].queue for i in shown)
    drawing.alt = (
        f"{len(shown)} requests over time: {len(struck)} preemptions, longest wait before being scheduled {waited:.2f} s, "
        f"slowest request {max(served[i].latency for i in shown):.2f} s."
    )
    return drawing


def _spans(result, shown):
    """Return ({(place, prefill): [(start, duration)]}, [(moment, place) of preemptions]), touching spans joined."""
    place_of, spans, struck = {identifier: place for place, identifier in enumerate(shown)}, {}, []
    for step in result.steps:
        for identifier, prefill, granted in zip(step.ids, step.prefill, step.granted, strict=True):
            if granted and identifier in place_of:
                pieces = spans.setdefault((place_of[identifier], bool(prefill)), [])
                if pieces and abs(sum(pieces[-1]) - step.start) < 1e-9:
                    pieces[-1] = (pieces[-1][0], step.end - pieces[-1][0])
                else:
                    pieces.append((step.start, step.end - step.start))
        struck += [(step.start, place_of[i]) for i in step.preempted if i in place_of]
    return spans, struck
