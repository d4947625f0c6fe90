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


def entry(proof):
    """Return the index entry of a proof as Markdown: statement, premises, where it comes from, counts, "
    "what breaks it."""
    result = proof.prove()
    words = ["1 step" if result.machine_steps == 1 else f"{result.machine_steps} steps", "checked by machine,"]
    words += [f"{result.human_steps or 'none'} argued in words;"]
    words += [f"{result.mutants_rejected} of {result.mutants_total} wrong variants refuted."]
    lines = [proof.says, "", "*Premises*", ""]
    lines += [f"- {premise.words}" for premise in proof.premises] or ["- none"]
    lines += ["", f"*Status:* {proof.source}", "", f"*Account:* **{result.status}**, {' '.join(words)}"]
    shown = next((m for m in proof.mutants if m.rejected and m.verdict.values), proof.mutants[0])
    lines += ["", f"*Break it:* {shown.mistake}. Then {_fate(shown, latex=True)}."]
    lines += [f"\n*Without “{n.premise}”:* {n.why} {'✓' if n.holds() else '✗'}" for n in proof.needed]
    return "\n".join(lines)


def account(proofs):
    """Return the account of many proofs as one Markdown table, with the sums in its last row."""
    results = [proof.prove() for proof in proofs]
    lines = ["| theorem | by machine | in words | mutants refuted | status |", "|---|---:|---:|---:|---|"]
    lines += [
        f"| {proof.id}. {proof.title} | {r.machine_steps} | {r.human_steps} | {r.mutants_rejected} | {r.status} |"
        for proof, r in zip(proofs, results, strict=True)
    ]
    sums = [sum(getattr(r, key) for r in results) for key in ("machine_steps", "human_steps", "mutants_rejected")]
    proved = sum(r.status == "proved" for r in results)
    return "\n".join([*lines, f"| together | {' | '.join(map(str, sums))} | {proved} of {len(results)} proved |"])
