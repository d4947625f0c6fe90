"""The theorem index holds every proof once, under its title, and what it prints comes from the proof objects."""

import re
from pathlib import Path

import pytest

from specgain.proofs import all_proofs, get, render
from specgain.proofs.exercises import EXERCISES
from specgain.proofs.student import check_student

BOOK = Path(__file__).resolve().parents[2] / "book"
TEXT = (BOOK / "theorems.md").read_text(encoding="utf-8")


def test_every_proof_stands_once_under_its_title():
    headings = re.findall(r"^\((P\d+)\)=\n### (P\d+)\. (.+)$", TEXT, re.MULTILINE)
    assert sorted(headings) == sorted((p.id, p.id, p.title) for p in all_proofs())


@pytest.mark.parametrize("name", [p.id for p in all_proofs()])
def test_a_proof_has_its_links_its_entry_and_its_steps(name):
    section = TEXT.split(f"({name})=\n")[1].split("\n(P")[0]
    for wanted in (f"```{{used-in}} {name}\n", f'\nentry("{name}")\n', f'\nget("{name}")\n'):
        assert section.count(wanted) == 1


@pytest.mark.parametrize("name", ["P1", "P7", "P15", "P21"])
def test_an_entry_says_what_the_proof_object_holds(name):
    proof, said = get(name), render.entry(get(name))
    result = proof.prove()
    for wanted in (proof.says, proof.source, *(p.words for p in proof.premises), *(n.why for n in proof.needed)):
        assert wanted in said
    assert f"{result.mutants_rejected} of {result.mutants_total} wrong variants refuted" in said
    assert any(m.mistake in said for m in proof.mutants)
    assert "\n\n\n" not in said and "<" not in re.sub(r"\$[^$]*\$", "", said)


def test_an_entry_tells_failure_from_success():
    class Failed:
        id, title, says, source, premises, needed = "P0", "t", "s", "src", (), ()
        mutants = get("P1").mutants

        def prove(self):
            return get("P1").prove().__class__("P0", "failed", 1, 0, 0, 3, 0.0)

    assert "**failed**, 1 step checked by machine, none argued in words; 0 of 3 wrong" in render.entry(Failed())
    assert render.account([Failed()]).endswith("| together | 1 | 0 | 0 | 0 of 1 proved |")


def test_the_provers_page_holds_every_exercise_and_its_solutions_pass(tmp_path):
    page = (BOOK / "prove-it.md").read_text(encoding="utf-8")
    headings = dict(re.findall(r"^### (X\d+)\. (.+)$", page, re.MULTILINE))
    assert headings == {ex.id: ex.title for ex in EXERCISES.values()}
    for ex in EXERCISES.values():
        answers = "\n".join(f"{slot} = {formula}" for slot, formula in ex.solution.items())
        assert all(f"{slot} = {formula}" in page.replace("\\n", "\n") for slot, formula in ex.solution.items())
        (tmp_path / "answers.txt").write_text(answers)
        assert check_student(tmp_path / "answers.txt").passed


def test_pages_that_show_a_proof_are_found():
    shown = {
        name for page in BOOK.glob("[0-9]*.md") for name in re.findall(r'get\("(P\d+)"\)', page.read_text("utf-8"))
    }
    assert shown and shown <= {p.id for p in all_proofs()}
