"""How a proof looks: Markdown with LaTeX for the book and notebooks, plain text for the terminal."""

import re
from textwrap import indent

import sympy as sp
from sympy.printing.pretty.pretty_symbology import greek_unicode

MARK = {"proved": "✓", "refuted": "✗ refuted", "undecided": "✗ not shown"}
LATEX_SIGNS = {"≠": "\\ne", "<": "<", "≤": "\\le"}
SHOWN = 6  # values of a counter-example that are printed; the others are counted
SIGNS = {
    "ge": "≥", "le": "≤", "ne": "≠", "to": "→", "sum": "Σ", "prod": "Π", "mid": "|", "dots": "…", "cdot": "·",
    "in": "∈", "infty": "∞", "sim": "~", "propto": "∝", "approx": "≈", "lfloor": "⌊", "rfloor": "⌋", "times": "×",
    "mathrm": "", "text": "", "left": "", "right": "", "bigl": "", "bigr": "", "displaystyle": "", "hat": "",
}  # fmt: skip


def markdown(proof):
    """Return the proof as Markdown with $…$ formulas (never HTML), checked while it is rendered."""
    lines = [f"**{proof.id}. {proof.title}.** {proof.says}", "", "*Premises*", ""]
    lines += [f"- {part.words}" for part in proof.parts if hasattr(part, "words")] or ["- none"]
    lines += ["", "*Proof*", "", *_in_order(proof, _markdown_step, lambda route: f"\n*Route: {route.title}*\n"), ""]
    lines += [f"- Without “{n.premise}”: {n.why} {'✓' if n.holds() else '✗'}" for n in proof.needed]
    return "\n".join([*lines, "", *_markdown_foot(proof)])


def _in_order(proof, show_step, show_route):
    """Return the lines of the steps, numbered, with the headings of the routes between them."""
    verdicts = {id(step): (number, step, verdict) for number, (step, verdict) in enumerate(proof.check().verdicts, 1)}
    shown = [part for part in proof.parts if id(part) in verdicts or hasattr(part, "title")]
    return [show_step(*verdicts[id(part)]) if id(part) in verdicts else show_route(part) for part in shown]


def _markdown_step(number, step, verdict):
    by = type(step).__name__ if step.machine else "in words, not checked by machine"
    reason = f": {verdict.reason}" if verdict.reason else ""
    why, formula = step.why, ""
    if hasattr(step, "relation"):
        why += "" if why[-1] in ".,:;" else ":"
        formula = _formula(step.relation()) + " "
    return f"{number}. {why} {formula}*({by} {MARK[verdict.status]}{reason})*"


def _formula(relation):
    """Return a relation as two formulas, so that a narrow page can break the line before its sign."""
    left, right = (sp.latex(side) for side in relation.args)
    sign = sp.latex(relation).removeprefix(left).removesuffix(right)
    return f"$\\displaystyle {left}$ $\\displaystyle{sign}{right}$"


def _markdown_foot(proof):
    lines = [f"*Source:* {proof.source}", ""]
    lines += [f"*Note:* {proof.notes}", ""] if proof.notes else []
    lines += ["| if you break it | the checker says |", "|---|---|"]
    return lines + [f"| {m.mistake} | {_fate(m, latex=True)} |" for m in proof.mutants]


def _fate(mutant, latex):
    if not mutant.rejected:
        return f"NOT rejected: {mutant.verdict.reason}"
    show = (lambda e: f"${sp.latex(e)}$") if latex else lambda e: f"{e.lhs} = {e.rhs}".replace("gamma", "γ")
    values = [show(sp.Eq(name, value, evaluate=False)) for name, value in mutant.verdict.values]
    more = f" (and {len(values) - SHOWN} more)" if len(values) > SHOWN else ""
    point = f" at {', '.join(values[:SHOWN])}{more}" if values else ""
    reason = _left_over(mutant.verdict.reason) if latex else mutant.verdict.reason
    return f"step {mutant.step} is false{point}: {reason}"


def _left_over(reason):
    """Return what a false step leaves over, such as "-1/4 < 0", as a formula: its stars are no Markdown."""
    value, sign, zero = reason.rsplit(" ", 2)
    return f"${sp.latex(sp.sympify(value))} {LATEX_SIGNS[sign]} {zero}$"


def plain(words):
    """Return prose with $…$ formulas as readable text: $a_i\\le1$ becomes a_i≤1."""
    words = re.sub(r"\\[dt]?frac(\d)(\d)", r"\1/\2", words)
    words = re.sub(r"\\[dt]?frac\s*\{?([^{}]*)\}?\{([^{}]*)\}", r"(\1)/(\2)", words)
    words = re.sub(r"\\([a-zA-Z]+)", lambda m: SIGNS.get(m[1], greek_unicode.get(m[1], m[1])), words)
    words = re.sub(r"\\\W|\$", "", words)
    return re.sub(r"([_^])\{(\w)\}", r"\1\2", words).replace("{", "(").replace("}", ")")


def _pretty(relation):
    greek = {s: sp.Symbol("γ") for s in relation.free_symbols if s.name == "gamma"}
    return sp.pretty(relation.xreplace(greek), wrap_line=False)


def text(proof):
    """Return the proof as plain text for a terminal."""
    lines = [f"{proof.id}  {proof.title}", f"    {proof.plain}"]
    lines += [f"    given: {plain(premise.words)}" for premise in proof.premises]
    lines += _in_order(proof, _text_step, lambda route: f"  {route.title}:")
    lines += [f"    without “{plain(n.premise)}”: {plain(n.why)} {'✓' if n.holds() else '✗'}" for n in proof.needed]
    lines += [f"  mutant: {m.mistake}: {_fate(m, latex=False)}" for m in proof.mutants]
    return "\n".join([*lines, f"    source: {proof.source}"])


def _text_step(number, step, verdict):
    formula = "\n" + indent(_pretty(step.relation()), " " * 8) if hasattr(step, "relation") else ""
    by = "" if step.machine else " [in words]"
    return f"  {number:2d}. {plain(step.why)}{formula}\n       {MARK[verdict.status]}{by} {verdict.reason}".rstrip()


def entry(proof):
    """Return the index entry of a proof as Markdown: statement, premises, where it comes from, counts, what breaks it."""
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
