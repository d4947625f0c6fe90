"""The prover's exercises: the solutions pass, mistakes are met with a point or a hint, and bad files with a clear message."""

import re
from fractions import Fraction

import pytest

from specgain.proofs.exercises import EXERCISES
from specgain.proofs.student import SLOTS, StudentFileError, check_student, template


@pytest.fixture
def check(tmp_path):
    def run(text):
        path = tmp_path / "answers.py"
        path.write_text(text, encoding="utf-8")
        return check_student(path)

    return run


def status(report):
    return {result.slot: result.status for result in report.results}


def message(report, slot):
    return next(result.message for result in report.results if result.slot == slot)


def test_the_solutions_pass(check):
    report = check(
        "\n".join(f"{slot} = {formula}" for ex in EXERCISES.values() for slot, formula in ex.solution.items())
    )
    assert report.passed and set(status(report)) == set(SLOTS)
    assert report.to_json()["passed"] and len(report.to_json()["slots"]) == len(SLOTS)


def test_every_known_mistake_is_refused_and_meets_its_hint(check):
    for ex in EXERCISES.values():
        for slot, hints in ex.hints.items():
            for wrong, hint in hints.items():
                report = check(
                    "\n".join(f"{name} = {wrong if name == slot else ex.solution[name]}" for name in ex.slots)
                )
                assert not report.passed and hint in message(report, slot), (slot, wrong)


def test_the_point_that_the_page_explains_has_a_rising_survival(check):
    said = message(check("X1_base = 0\nX1_step = 1 - s[gamma]"), "X1_step")
    first, second = (Fraction(value) for value in re.findall(r"s\[[12]\] = ([\d/]+)", said))
    assert first < second <= 1  # "That s_2 is above s_1 there is allowed", says book/prove-it.md


def test_a_wrong_answer_gets_a_point_and_not_the_solution(check):
    report = check("X2_factor = 1\nX2_difference = a\nX2_threshold = a**2/(1 + a)")
    assert status(report)["X2_difference"] == "wrong" and "at a =" in message(report, "X2_difference")
    assert all(solution not in str(report) for solution in EXERCISES["X2"].solution.values())


def test_a_true_answer_in_another_form_is_right(check):
    report = check(
        "X1_base = 1 - 1\nX1_step = -s[1 + gamma] + Rational(2, 2)\nX1_sum = gamma - Sum(s[j], (j, 1, gamma))"
    )
    assert status(report)["X1_base"] == status(report)["X1_step"] == "right"


def test_what_cannot_be_shown_is_said_to_be_unclear(check):
    report = check("X3_sum = E(gamma) - (gamma + 1)*s[gamma + 1]")
    assert status(report)["X3_sum"] == "unclear" and not report.passed


def test_answers_that_only_restate_the_question_do_not_pass(check):
    lazy = "X2_factor = 1\nX2_difference = (1 + a + a**2)/(1 + 2*c) - (1 + a)/(1 + c)\n"
    report = check(lazy + "X2_threshold = c + (a**2*(1 + c) - c*(1 + a))/(1 + a - a**2)")
    assert status(report)["X2_difference"] == status(report)["X2_threshold"] == "unclear"
    report = check("X1_base = 0\nX1_step = 1 - s[gamma + 1]\nX1_sum = gamma - Sum(s[j], (j, 1, gamma))")
    assert status(report)["X1_sum"] == "unclear"


def test_half_answered_exercises_say_what_is_missing(check):
    report = check("X2_factor = 1/((1 + c)*(1 + 2*c))\nX2_threshold = None")
    assert status(report) == {"X2_factor": "empty", "X2_difference": "empty", "X2_threshold": "empty"}
    assert "X2_difference" in message(report, "X2_factor")


def test_the_template_is_a_valid_file_without_answers(check):
    report = check(template())
    assert report.results == () and not report.passed
    assert all(f"{slot} = None" in template() for slot in SLOTS)


@pytest.mark.parametrize("text, says", [
    ("", "answers no slot"),
    ("X1_bas = 3", "did you mean X1_base"),
    ("Y9 = 3", "the slots are X1_base"),
    ("X1_base = 0.5", "0.5 is a decimal number"),
    ("X1_base = a^2", "a\\*\\*2, not a\\^2"),
    ("X1_base = q", "the names are gamma"),
    ("X1_base = s", "with an index"),
    ("X1_base = (", "line 1"),
    ("X1_base = 1\nX1_base = 2", "answered twice"),
    ("X1_base = 9**9**9", "larger than"),
    ("X1_base = 10**99", "larger than"),
    ("X1_base = 123456", "too large a number"),
    ("X1_base = 1/0", "divides by zero"),
    ("X1_base = True", "not part of a formula"),
    ("X1_base = __import__('os').getcwd()", "not part of a formula"),
    ("X1_base = (lambda: 1)()", "not part of a formula"),
    ("import os", "nothing here is run"),
    ("X1_base += 1", "nothing here is run"),
    ("print(1)", "nothing here is run"),
    ("X1_sum = Sum(s[i], (i, 1, gamma, 2))", "not part of a formula"),
    ("X1_base = 1\0", "line 1"),
])  # fmt: skip
def test_malformed_files_get_a_clear_message(check, text, says):
    with pytest.raises(StudentFileError, match=says):
        check(text)


def test_files_that_are_no_text_get_a_clear_message(tmp_path):
    with pytest.raises(StudentFileError, match="not a file"):
        check_student(tmp_path / "none.py")
    with pytest.raises(StudentFileError, match="not a file"):
        check_student(tmp_path)
    (tmp_path / "big.py").write_text("#" * 70_000)
    with pytest.raises(StudentFileError, match="larger than"):
        check_student(tmp_path / "big.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudentFileError, match="UTF-8"):
        check_student(tmp_path / "binary.py")


def test_nothing_in_the_file_is_run(check, tmp_path):
    with pytest.raises(StudentFileError):
        check(f"open({str(tmp_path / 'made')!r}, 'w')")
    assert not (tmp_path / "made").exists()
