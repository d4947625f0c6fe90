"""Chapter 6: its cells are run here, and what its prose says about them is held against what they print."""

import contextlib
import io
import itertools
import json
import re
from fractions import Fraction
from pathlib import Path

import jupytext
import pytest

from specgain import Acceptance, Ledger
from specgain.hardware import A100, H100, LLAMA_31_8B
from specgain.roofline import Roofline

BOOK = Path(__file__).resolve().parents[2] / "book"
LAW, HEAD = Acceptance.constant(0.7), LLAMA_31_8B.cut(1, vocab=32000)


@pytest.fixture(scope="module")
def chapter():
    """Return (names, printed): the chapter's variables after its last cell, and all that its cells printed."""
    names, printed = {"__name__": "chapter"}, io.StringIO()
    with contextlib.chdir(BOOK), contextlib.redirect_stdout(printed):
        for cell in jupytext.read("06-quantization.md").cells:
            if cell.cell_type == "code" and "remove-input" not in cell.metadata.get("tags", []):
                exec(compile(cell.source, "<chapter 6>", "exec"), names)
    return names, printed.getvalue()


@pytest.mark.claims("C6.0", "C6.1")
def test_the_text_follows_the_model_that_verifies(chapter):
    """The four printed lines: same output for the same target; quantizing the draft moves the last column only."""
    names, printed = chapter
    lines = re.findall(r"output (\S+) (\S+) (\S+)  guess kept (\S+)", printed)
    laws, kept = [tuple(map(Fraction, line[:3])) for line in lines], [Fraction(line[3]) for line in lines]
    assert laws == [tuple(names["p"])] * 2 + [tuple(names["p_rough"])] * 2 and laws[0] != laws[2]
    assert kept[1] < kept[0] and kept[2] != kept[0]


@pytest.mark.claims("C6.2")
def test_what_shifted_features_cost_stands_beside_the_whiskers(chapter):
    """8 and 4 bits stay inside those of the original target, on every text; short training moves less than they are wide."""
    cells, heads, domains = chapter[0]["cells"], chapter[0]["heads"], ("json", "prose", "viet")
    seen = {(c["target"], c["draft"], c["domain"]): c for c in cells if c["features"] == "own" and "trained_on" not in c}
    for head, domain in itertools.product(heads, domains):
        low, high = seen["fp32", head, domain]["interval"]
        assert all(low <= seen[bits, head, domain]["committed_length"] <= high for bits in ("int8", "4 bits"))
        (on_coarse, on_fine) = (
            next(c for c in cells if (c["draft"], c["domain"], c.get("trained_on")) == (head, domain, source))
            for source in ("3 bits", "fp32")
        )
        moved = abs(on_coarse["committed_length"] - on_fine["committed_length"])
        assert moved < on_fine["interval"][1] - on_fine["interval"][0]


def runs(accelerator, batch, format="int4", draft=HEAD, arithmetic="fp16"):
    """Return (quantized, speculative, both) over plain fp16 at γ = 3."""
    plain = Roofline(accelerator, LLAMA_31_8B, draft, draft_format="fp16", arithmetic="fp16")
    rough = Roofline(accelerator, LLAMA_31_8B, draft, format=format, draft_format="fp16", arithmetic=arithmetic)
    t_decode = plain.t_decode(batch, 500)
    quantized = t_decode / rough.t_decode(batch, 500)
    return quantized, *(Ledger(LAW, r.round_time(batch, 500), t_decode).speedup(3) for r in (plain, rough))


@pytest.mark.claims("C6.3")
@pytest.mark.parametrize("accelerator", [H100, A100])
def test_on_paper_the_product_is_never_reached_and_misses_more_under_load(accelerator):
    reached = {}
    for batch in (1, 16, 32, 64, 128):
        for draft in (HEAD, None):
            quantized, speculative, both = runs(accelerator, batch, draft=draft)
            assert both < 1.000001 * quantized * speculative
            reached[batch, draft] = both / (quantized * speculative)
    assert 0.7 < reached[1, HEAD] < 0.8 and reached[1, None] > 0.99  # the draft's price alone
    assert reached[64, HEAD] < 0.7 > reached[64, None]  # and the arithmetic


@pytest.mark.claims("C6.3")
def test_under_load_speculation_adds_nothing_to_quantization():
    quantized, speculative, both = runs(H100, 128)
    assert both / quantized == pytest.approx(1, abs=0.05) and min(quantized, speculative) > 1.5


@pytest.mark.claims("C6.3")
def test_faster_arithmetic_is_outside_the_theorem():
    quantized, speculative, both = runs(H100, 128, "fp8", arithmetic="fp8")
    assert both > quantized * speculative
    quantized, speculative, both = runs(H100, 128, "fp8")
    assert both < quantized * speculative


@pytest.mark.claims("C6.3")
def test_smaller_weights_leave_room(chapter):
    fp16, int4 = (int(n.replace(",", "")) for n in re.findall(r"(?:fp16|int4):\s+([\d,]+) tokens", chapter[1]))
    assert int4 > 2 * fp16


@pytest.mark.claims("C6.2")
def test_the_unconfirmed_note_is_marked_as_such():
    rows = {r["id"]: r for r in json.loads((BOOK / "evidence" / "documented.json").read_text(encoding="utf-8"))}
    assert rows["vllm-nvfp4-zero"]["statement"].startswith("Not confirmed")
    text = (BOOK / "06-quantization.md").read_text(encoding="utf-8")
    assert "*not confirmed*" in text
    for number in re.findall(r"[\d.]+ %", rows["vllm-mtp-conversion"]["statement"])[:2]:
        assert number in text
