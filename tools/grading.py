"""Write exercises as assignments for nbgrader and for Otter-Grader, and try both tools on three submissions.

    python3 tools/grading.py [ID ...]     `make grading-check`; default: one exercise of each kind

Both tools go into an environment of their own, _build/grading/venv, in the versions of tools/grading-requirements.txt.
The assignments are left in _build/grading/nbgrader and _build/grading/otter, ready to be copied. The exit status is 1
if a tool does not give full marks to the right submission, and none to the wrong one and to the one left empty.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build" / "grading"
VENV = BUILD / "venv"
PINS = ROOT / "tools" / "grading-requirements.txt"
NAME = "specgain"
DEFAULT = ("02-log", "02-table", "drill-verify", "drill-closed", "08-gate-decide")
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def install(pip_arguments):
    """Make the environment unless it is there, and install both tools; this package is found by its path."""
    if not (VENV / "bin" / "python").exists():
        venv.create(VENV, with_pip=True)
    run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PINS, *pip_arguments)


def run(program, *arguments, **options):
    """Run a program of the environment; return what it printed. Ends this program with its messages if it fails."""
    path = os.pathsep.join([str(VENV / "bin"), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"}
    command = [VENV / "bin" / program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    if done.returncode:
        sys.exit(f"{program} {' '.join(map(str, arguments))} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


# --- what an exercise becomes ---------------------------------------------------------------------------------------


def right_answer(entry):
    """Return Python source of the exercise's right answer."""
    if entry["kind"] in ("numeric", "list"):
        return f"evaluate({entry['expression']!r})"
    return repr({"choice": entry.get("answer"), "derivation": entry.get("solution")}.get(entry["kind"], entry.get("expression")))


def wrong_answer(entry):
    """Return Python source of a wrong answer of the right form."""
    if entry["kind"] == "choice":
        return repr(next(word for word in entry["choices"] if word != entry["answer"]))
    wrong = {"list": [-1, -1], "expression": "1", "derivation": ["1", "2"]}
    return repr(wrong.get(entry["kind"], -1))


def parts(entry):
    """Return (text, name, test) of an exercise: its question, the variable of the answer, the source of the test."""
    name = "answer_" + entry["id"].replace("-", "_")
    text = f"**{entry['id']}** ({entry['objective']}, {entry['minutes']} minutes). {entry['question']}\n\nPut it into `{name}`."
    return text, name, f'verdict = check("{entry["id"]}", {name})\nassert verdict.correct, verdict.message'


def cell(kind, source, **metadata):
    """Return a notebook's cell."""
    code = {"outputs": [], "execution_count": None} if kind == "code" else {}
    name = f"c{abs(hash((kind, source))):x}"[:16]
    return {"cell_type": kind, "id": name, "source": source, "metadata": metadata, **code}


def notebook(cells):
    return json.dumps({"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}, indent=1)


IMPORTS = "from specgain.quiz import check, evaluate"


SUBMISSIONS = {"right": right_answer, "wrong": wrong_answer, "empty": None}


def given(student, entries):
    """Return {variable: source of the answer} of a student's submission; none where nothing was filled in."""
    answer = SUBMISSIONS[student]
    return {parts(entry)[1]: answer(entry) for entry in entries} if answer else {}


# --- nbgrader -------------------------------------------------------------------------------------------------------


def nbgrader_source(entries):
    """Return the instructor's notebook in nbgrader's format: marked solutions, locked tests with points."""
    cells = [cell("markdown", "# Exercises"), cell("code", IMPORTS)]
    for entry in entries:
        text, name, test = parts(entry)
        base = {"schema_version": 3, "task": False}
        solution = base | {"grade": False, "solution": True, "locked": False, "grade_id": name}
        graded = base | {"grade": True, "solution": False, "locked": True, "grade_id": f"test_{name}", "points": 1}
        marked = f"### BEGIN SOLUTION\n{name} = {right_answer(entry)}\n### END SOLUTION"
        cells += [cell("markdown", text), cell("code", marked, nbgrader=solution), cell("code", test, nbgrader=graded)]
    return notebook(cells)


def fill(released, answers):
    """Return a released notebook's text with the answers put into its solution cells: a submission."""
    content = json.loads(released)
    for part in content["cells"]:
        name = part["metadata"].get("nbgrader", {}).get("grade_id")
        if name in answers:
            part["source"] = f"{name} = {answers[name]}"
    return json.dumps(content)


def try_nbgrader(entries):
    """Release, submit, grade; return {student: points} as nbgrader's gradebook has them."""
    course = fresh(BUILD / "nbgrader")
    source = course / "source" / NAME
    source.mkdir(parents=True)
    (source / f"{NAME}.ipynb").write_text(nbgrader_source(entries), encoding="utf-8")
    (course / "nbgrader_config.py").write_text('c = get_config()\nc.CourseDirectory.course_id = "specgain"\n')
    run("nbgrader", "generate_assignment", NAME, "--create", cwd=course)
    released = (course / "release" / NAME / f"{NAME}.ipynb").read_text(encoding="utf-8")
    assert "evaluate('" not in released.replace(IMPORTS, ""), "a solution is left in the released notebook"
    for student in SUBMISSIONS:
        folder = course / "submitted" / student / NAME
        folder.mkdir(parents=True)
        (folder / f"{NAME}.ipynb").write_text(fill(released, given(student, entries)), encoding="utf-8")
    run("nbgrader", "autograde", NAME, "--create", cwd=course)
    run("nbgrader", "export", "--to", "grades.csv", cwd=course)
    rows = [line.split(",") for line in (course / "grades.csv").read_text(encoding="utf-8").splitlines()]
    student, score = rows[0].index("student_id"), rows[0].index("score")
    return {row[student]: float(row[score]) for row in rows[1:]}


# --- Otter-Grader ---------------------------------------------------------------------------------------------------


def otter_source(entries):
    """Return the instructor's notebook in Otter Assign's format: raw cells around questions, solutions and tests."""
    config = f"# ASSIGNMENT CONFIG\nname: {NAME}\ninit_cell: false\nexport_cell: false\nsolutions_pdf: false\ntests:\n  files: true\n"
    cells = [cell("raw", config), cell("markdown", "# Exercises"), cell("code", IMPORTS)]
    for entry in entries:
        text, name, test = parts(entry)
        cells += [cell("raw", f"# BEGIN QUESTION\nname: {name}\npoints: 1"), cell("markdown", text)]
        cells += [cell("raw", "# BEGIN SOLUTION"), cell("code", f"{name} = {right_answer(entry)} # SOLUTION"), cell("raw", "# END SOLUTION")]
        # Otter's tests are doctests: a test is right if it prints what it printed for the solution
        cells += [cell("raw", "# BEGIN TESTS"), cell("code", test), cell("raw", "# END TESTS"), cell("raw", "# END QUESTION")]
    return notebook(cells)


def otter_submission(student, answers):
    """Return the student's notebook of Otter with the answers put in."""
    content = json.loads(student)
    for part in content["cells"]:
        source = "".join(part["source"])
        name = source.partition(" = ")[0]
        if name in answers:
            part["source"] = f"{name} = {answers[name]}"
    return json.dumps(content)


def try_otter(entries):
    """Assign, submit, run the autograder; return {student: points} from Otter's results.json."""
    folder = fresh(BUILD / "otter")
    (folder / f"{NAME}.ipynb").write_text(otter_source(entries), encoding="utf-8")
    run("otter", "assign", "--no-pdfs", f"{NAME}.ipynb", "dist", cwd=folder)
    student = (folder / "dist" / "student" / f"{NAME}.ipynb").read_text(encoding="utf-8")
    grader = next((folder / "dist" / "autograder").glob("*.zip"))
    points = {}
    for who in SUBMISSIONS:
        place = fresh(folder / "submitted" / who)
        (place / f"{NAME}.ipynb").write_text(otter_submission(student, given(who, entries)), encoding="utf-8")
        run("otter", "run", "--no-logo", "-a", grader, "-o", place, place / f"{NAME}.ipynb", cwd=place)
        results = json.loads((place / "results.json").read_text(encoding="utf-8"))
        points[who] = sum(test.get("score", 0) for test in results["tests"])
    return points


def fresh(folder):
    """Return a new empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def main():
    sys.path.insert(0, str(ROOT))
    from specgain.quiz import exercise

    arguments = sys.argv[1:]
    pip_arguments = arguments.pop(arguments.index("--pip-arguments") + 1).split() if "--pip-arguments" in arguments else []
    entries = [exercise(name) for name in [a for a in arguments if not a.startswith("--")] or DEFAULT]
    install(pip_arguments)
    status = 0
    for tool, attempt in (("nbgrader", try_nbgrader), ("otter", try_otter)):
        points = attempt(entries)
        good = points == {"right": len(entries), "wrong": 0, "empty": 0}
        status |= not good
        print(f"{tool}: points of {len(entries)}: {points}: {'ok' if good else 'NOT AS IT SHOULD BE'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
