"""Figures of chapter 4: tokens per round by kind of work, repetition against E[L], acceptance over temperature.

They take the committed `workloads.json` as a dict: its `cells`, its `texts`, and `sampling["first_acceptance"]`;
`timed_work` takes the cells of `workloads-time.json`.
"""

from statistics import fmean

from specgain.figures.ledger import Prediction, predicted_against_measured
from specgain.figures.style import (
    DRAFT,
    GAIN,
    INK,
    LOSS,
    MEASUREMENT,
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

COLOURS = {"lookup": VERIFY, "suffix, cold": DRAFT, "suffix, warm": GAIN}


def _chosen(result, **wanted):
    """Return the cells with these values, in the order of the plan; ValueError if there are none."""
    cells = [c for c in result["cells"] if all(c[key] == value for key, value in wanted.items())]
    return some(cells, " and ".join(f"cells with {key} = {value!r}" for key, value in wanted.items()))


def distinct(result, kind, temperature):
    """Return the mean share (0 to 1) of distinct 4-grams over the texts of a kind at a temperature."""
    return fmean(text["distinct_4grams"] for text in result["texts"][f"{temperature:g}"][kind])


@styled
def work_lengths(result, gamma=8, note=""):
    """Return E[L] of every kind of work and draft, greedy and at temperature 1; beside it how much of the text is new."""
    temperatures, kinds = (0.0, 1.0), list(result["plan"]["kinds"])
    drawing, said = Drawing(0.9 + 0.62 * len(kinds), note), []
    axes = drawing.subplots(1, 2, sharey=True, sharex=True)
    for ax, temperature in zip(axes, temperatures, strict=True):
        for place, kind in enumerate(kinds):
            for step, (draft, colour) in enumerate(COLOURS.items()):
                (cell,) = _chosen(result, kind=kind, temperature=temperature, draft=draft, gamma=gamma)
                mean, (low, high) = cell["committed_length"], cell["interval"]
                y = place + 0.24 * (step - 1)
                ax.errorbar(mean, y, xerr=[[mean - low], [high - mean]], color=colour, **MEASUREMENT | {"linewidth": 0})
                ax.plot([low, high], [y, y], color=colour, linewidth=1.2)
                said.append(f"{kind}, T = {temperature:g}, {draft}: {mean:.2f}")
                if place == 0 and ax is axes[1]:
                    ax.annotate(draft, (high, y), (5, 0), textcoords="offset points", va="center", color=colour)
            new = f"{distinct(result, kind, temperature):.0%} new"
            ax.text(0.98, place, new, transform=ax.get_yaxis_transform(), va="center", ha="right", fontsize=SMALL)
        ax.axvline(1, color=INK, linewidth=1)
        label_axes(ax, "E[L] (tokens per round)", "", None, "greedy" if temperature == 0 else f"T = {temperature:g}")
        ax.grid(axis="x")
        ax.set_xlim(0.6, gamma + 1.5)
    axes[0].set_yticks(range(len(kinds)), kinds)
    axes[0].invert_yaxis()
    drawing.alt = f"Mean committed length at γ = {gamma} by kind of work, with 95 % intervals. {'; '.join(said)}."
    return drawing


@styled
def repetition(result, draft="lookup", gamma=8, temperature=0.0):
    """Return one dot per request: the share of its 4-grams that are new against its E[L]. Random prompts stand out."""
    drawing = Drawing(3.1)
    ax, shares = drawing.subplots(), []
    for cell in _chosen(result, draft=draft, gamma=gamma, temperature=temperature):
        texts = result["texts"][f"{temperature:g}"][cell["kind"]]
        random = cell["kind"] == "random"
        x = [100 * text["distinct_4grams"] for text in texts]
        ax.plot(x, cell["by_request"], "o", color=LOSS if random else VERIFY, markersize=5 if random else 4)
        shares += zip(x, cell["by_request"], strict=True)
    label_axes(ax, "distinct 4-grams of the output (%)", "E[L] of the request (tokens)", range(0, 101, 20))
    ax.text(0.02, 0.04, "random prompts", color=LOSS, transform=ax.transAxes)
    ax.text(0.98, 0.92, "real prompts", color=VERIFY, transform=ax.transAxes, ha="right")
    ax.set_xlim(0, 102)
    ax.set_ylim(0.5, gamma + 1)
    half = [[e for share, e in shares if (share < 50) == low] for low in (True, False)]
    means = [f"{fmean(e):.2f} over {len(e)} requests" if e else "no request" for e in half]
    drawing.alt = (
        f"E[L] of each request with {draft} at γ = {gamma} against the share of distinct 4-grams of its text. Below half "
        f"distinct: mean {means[0]}; above: mean {means[1]}."
    )
    return drawing


@styled
def told_and_counted(predicted, counted, intervals):
    """Return a prediction (open circle) above what was counted (dot, 95 % interval) for each {kind: E[L]}.

    `predicted` and `intervals`, {kind: (low, high)}, have the kinds of `counted`; ValueError if they do not.
    """
    if not set(some(counted, "counted")) == set(predicted) == set(intervals):
        raise ValueError(f"predicted, counted and intervals must have the same kinds: {', '.join(counted)}")
    drawing, said = Drawing(0.8 + 0.42 * len(counted)), []
    ax = drawing.subplots()
    for place, kind in enumerate(counted):
        mean, (low, high) = counted[kind], intervals[kind]
        ax.errorbar(mean, place + 0.14, xerr=[[mean - low], [high - mean]], color=VERIFY, **MEASUREMENT)
        ax.plot(predicted[kind], place - 0.14, color=DRAFT, **PREDICTION)
        said.append(f"{kind}: predicted {predicted[kind]:.2f}, counted {mean:.2f} ({low:.2f} to {high:.2f})")
    ax.set_yticks(range(len(counted)), list(counted))
    ax.invert_yaxis()
    label_axes(ax, "E[L] (tokens per round)", "", None)
    ax.grid(axis="x")
    ax.axvline(1, color=INK, linewidth=1)
    drawing.alt = f"Predicted and counted E[L]. {'; '.join(said)}."
    return drawing


def timed_work(cells, note=""):
    """Return the predicted ○ and measured ● speedup of each timed cell, grouped by kind of work."""
    groups = {}
    for cell in some(cells, "cells"):
        row = f"{cell['draft']}, γ = {cell['gamma']}", cell["predicted_speedup"], cell["measured_speedup"]
        groups.setdefault(cell["kind"], []).append(Prediction(*row, *cell["measured_interval"]))
    return predicted_against_measured(groups, note)


@styled
def acceptance_over_temperature(first_acceptance, domains, drafts):
    """Return a_1 over the temperature, one panel per domain and one line per draft (five at most), as measured.

    `first_acceptance` maps domain, draft and setting, such as "T = 0.5", to a_1; settings with top-p are left out.
    """
    if len(drafts) > len(SERIES):
        raise ValueError(f"{len(drafts)} drafts are too many: there are colours for {len(SERIES)}")
    drawing, said = Drawing(2.7), []
    axes = drawing.subplots(1, len(some(domains, "domains")), sharey=True, squeeze=False)[0]
    for ax, domain in zip(axes, domains, strict=True):
        ends = []
        for draft, colour in zip(some(drafts, "drafts"), SERIES, strict=False):
            points = {s: a for s, a in first_acceptance[domain][draft].items() if "top-p" not in s}
            x = [float(setting.removeprefix("T = ")) for setting in points]
            y = list(points.values())
            ax.plot(x, y, color=colour, **{k: v for k, v in MEASUREMENT.items() if k != "capsize"})
            ends.append((x[-1], y[-1], draft, colour))
            said.append(f"{domain}, {draft}: {y[0]:.2f} at T = {x[0]:g}, {y[-1]:.2f} at T = {x[-1]:g}")
        label_axes(ax, "temperature (no unit)", "first acceptance a₁ (probability)" if ax is axes[0] else "", [0, 0.5, 1, 1.5], domain)
        ax.set_ylim(0, 1.02)
        label_ends(ax, ends)
    drawing.alt = f"First acceptance over temperature on the tiny pair. {'; '.join(said)}."
    return drawing
