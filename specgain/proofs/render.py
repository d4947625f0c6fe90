"""How a proof looks: Markdown with LaTeX for the book and notebooks, plain text for the terminal."""

import re
from textwrap import indent

import sympy as sp

SIGNS = {
    r"\mathrm E": "E", r"\Pr": "Pr", r"\ge": "≥", r"\le": "≤", r"\ne": "≠", r"\to": "→", r"\sum": "Σ", r"\prod": "Π",
    r"\mid": "|", r"\dots": "…", r"\gamma": "γ", r"\cdot": "·", r"\infty": "∞", r"\lambda": "λ", r"\ln": "ln",
}  # fmt: skip
MARK = {"proved": "✓", "refuted": "✗ refuted", "undecided": "✗ not shown"}


def markdown(proof):
    """Return the proof as Markdown with $…$ formulas (never HTML), checked while it is rendered."""
    checked = proof.check()
    lines = [f"**{proof.id}. {proof.title}.** {proof.says}", "", "*Premises*", ""]
    lines += [f"- {part.words}" for part in proof.parts if hasattr(part, "words")] or ["- none"]
    lines += ["", "*Proof*", ""]
    lines += [_markdown_step(step, verdict) for step, verdict in checked.verdicts]
    lines += [f"- Without “{n.premise}”: {n.why} {'✓' if n.holds() else '✗'}" for n in proof.needed]
    return "\n".join([*lines, "", *_markdown_foot(proof)])


def _markdown_step(step, verdict):
    by = type(step).__name__ if step.machine else "in words, not checked by machine"
    reason = f": {verdict.reason}" if verdict.reason else ""
    return f"1. {step.why} {_display(step)}*({by} {MARK[verdict.status]}{reason})*"


def _display(step):
    return f"$\\displaystyle {sp.latex(step.relation())}$ " if hasattr(step, "relation") else ""


def _markdown_foot(proof):
    lines = [f"*Source:* {proof.source}"]
    lines += [f"*Note:* {proof.notes}"] if proof.notes else []
    lines += ["", "| if you break it | the checker says |", "|---|---|"]
    lines += [f"| {m.mistake} | {_fate(m, latex=True)} |" for m in proof.mutants]
    return lines


def _fate(mutant, latex):
    if not mutant.rejected:
        return f"NOT rejected: {mutant.verdict.reason}"
    show = (lambda e: f"${sp.latex(e)}$") if latex else lambda e: f"{e.lhs} = {e.rhs}".replace("gamma", "γ")
    point = ", ".join(show(sp.Eq(name, value, evaluate=False)) for name, value in mutant.verdict.values)
    return f"step {mutant.step} is false{' at ' + point if point else ''}: {mutant.verdict.reason}"


def plain(words):
    """Return prose with $…$ formulas as readable text: $a_i\\le1$ becomes a_i≤1."""
    for tex, word in SIGNS.items():
        words = re.sub(re.escape(tex) + r"(?![a-zA-Z])", word, words)
    words = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", words)
    return (
        re.sub(r"_\{(\w)\}", r"_\1", re.sub(r"\\[,;]|\$|\\left|\\right", "", words)).replace("{", "(").replace("}", ")")
    )


def _pretty(relation):
    return sp.pretty(
        relation.xreplace({s: sp.Symbol("γ") for s in relation.free_symbols if s.name == "gamma"}), wrap_line=False
    )


def text(proof):
    """Return the proof as plain text for a terminal."""
    checked = proof.check()
    lines = [
        f"{proof.id}  {proof.title}",
        f"    {proof.plain}",
        *(f"    given: {plain(p.words)}" for p in proof.premises),
    ]
    for number, (step, verdict) in enumerate(checked.verdicts, 1):
        formula = "\n" + indent(_pretty(step.relation()), " " * 8) if hasattr(step, "relation") else ""
        by = "" if step.machine else " [in words]"
        lines.append(
            f"  {number:2d}. {plain(step.why)}{formula}\n       {MARK[verdict.status]}{by} {verdict.reason}".rstrip()
        )
    lines += [f"    without “{n.premise}”: {n.why} {'✓' if n.holds() else '✗'}" for n in proof.needed]
    lines += [f"  mutant: {m.mistake}: {_fate(m, latex=False)}" for m in proof.mutants]
    return "\n".join([*lines, f"    source: {proof.source}"])
