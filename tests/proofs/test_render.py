"""How proofs look: Markdown that a notebook typesets, text that a terminal shows."""

import re

import pytest

from specgain.proofs import all_proofs, get, render


@pytest.mark.parametrize("proof", all_proofs(), ids=lambda proof: proof.id)
def test_text_holds_no_latex_and_markdown_no_html(proof):
    text, markdown = str(proof), proof._repr_markdown_()
    assert "\\" not in text and "$" not in text
    assert not re.search(r"</?[a-z]+>", markdown) and markdown.count("$") % 2 == 0
    for shown in (text, markdown):
        assert all(mutant.mistake in shown for mutant in proof.mutants) and proof.source in shown
    assert "✗" not in text and "NOT rejected" not in text


def test_steps_are_numbered_through_and_routes_are_named():
    markdown = get("P9")._repr_markdown_()
    numbers = [int(n) for n in re.findall(r"^(\d+)\. ", markdown, re.M)]
    assert numbers == list(range(1, len(get("P9").steps) + 1))
    assert all(title in markdown for title in get("P9").routes)
    assert markdown.count("in words, not checked by machine") == get("P9").prove().human_steps


def test_plain_words():
    assert render.plain(r"$a_i\le1$, $\tfrac12\gamma^{2}$ and $\frac{1}{1-a}$") == "a_i≤1, 1/2γ^2 and (1)/(1-a)"
