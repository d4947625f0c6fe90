"""List for each objective its questions, exercises and pages, and fail on a hole. Standard library only.

    python3 tools/learning_check.py

An objective needs three questions of two types or more, an exercise, a page that names it in its front matter, and a
question in the entry test and in the exit test. Every exercise has to be checked by a cell of a published page (its
executed solution), and an option without feedback is a hole too.
"""

import json
import re
import sys
from pathlib import Path

from coverage_claims import front_matter_list, pages, read_json

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS, TYPES, EXERCISES = 3, 2, 1
CELL = re.compile(r"^```\{code-cell\}.*?^```$", re.MULTILINE | re.DOTALL)


def entries(root, part):
    """Return all questions or all "exercises" of the banks."""
    return [entry for path in sorted((root / "book/quizzes").glob("*.json")) for entry in read_json(path)[part]]


def solved(texts):
    """Return the ids that a cell of a page checks."""
    cells = [cell for text in texts.values() for cell in CELL.findall(text)]
    return {name for cell in cells for name in re.findall(r'check\(\s*"([\w-]+)"', cell)}


def objective_row(root, objective, texts):
    """Return {"questions", "types", "exercises", "pages", "entry", "exit"} of an objective."""
    asked = [entry for entry in entries(root, "questions") if entry["objective"] == objective]
    tests = {name: read_json(root / f"book/quizzes/tests/{name}.json")["questions"] for name in ("entry", "exit")}
    return {
        "questions": len(asked),
        "types": sorted({entry["type"] for entry in asked}),
        "exercises": sum(entry["objective"] == objective for entry in entries(root, "exercises")),
        "pages": [name for name, text in texts.items() if objective in front_matter_list(text, "objectives")],
        **{name: sum(entry["id"] in ids for entry in asked) for name, ids in tests.items()},
    }


def row_holes(row):
    """Return what an objective's row lacks."""
    checks = {
        f"{row['questions']} of {QUESTIONS} questions": row["questions"] >= QUESTIONS,
        f"questions of one type alone ({', '.join(row['types'])})": len(row["types"]) >= TYPES,
        f"{row['exercises']} of {EXERCISES} exercise": row["exercises"] >= EXERCISES,
        "no chapter names it": bool(row["pages"]),
        "not in the entry test": row["entry"] > 0,
        "not in the exit test": row["exit"] > 0,
    }
    return [text for text, holds in checks.items() if not holds]


def other_holes(root, texts):
    """Return the exercises that no page solves, the options without feedback, and unknown ids in the tests."""
    done, asked = solved(texts), entries(root, "questions")
    found = [f"{e['id']}: no page has a solution that runs" for e in entries(root, "exercises") if e["id"] not in done]
    found += [f"{e['id']}: an option without feedback" for e in asked if not all(a.get("feedback") for a in e["answers"])]
    for path in sorted((root / "book/quizzes/tests").glob("*.json")):
        ids = json.loads(path.read_text(encoding="utf-8"))["questions"]
        found += [f"{path.stem} test: no question {i}" for i in ids if i not in {e["id"] for e in asked}]
        found += [f"{path.stem} test: {i} twice" for i in sorted(set(ids)) if ids.count(i) > 1]
    return found


def main(root=ROOT):
    texts = pages(root)
    missing = []
    print("objective  questions  types  exercises  entry  exit  pages")
    for objective in read_json(root / "book/evidence/claims.json")["objectives"]:
        row = objective_row(root, objective, texts)
        missing += [f"{objective}: {hole}" for hole in row_holes(row)]
        counts = row["questions"], len(row["types"]), row["exercises"], row["entry"], row["exit"]
        print(f"{objective:9}  {counts[0]:9}  {counts[1]:5}  {counts[2]:9}  {counts[3]:5}  {counts[4]:4}  {', '.join(row['pages'])}")
    missing += other_holes(root, texts)
    print(*missing, sep="\n")
    print(f"{len(entries(root, 'questions'))} questions, {len(entries(root, 'exercises'))} exercises, {len(missing)} holes")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
