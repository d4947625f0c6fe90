"""Count which claims and objectives of the course are covered, and list every hole. Standard library only.

    python3 tools/coverage_claims.py

A claim is covered when a page of the table of contents names it in its front matter and each of its kinds holds:
proved (a proof object), computed (a test), measured (a committed measurement with its notebook), documented (a row
with version, date, source and how to check again). An objective is covered by three questions and an exercise.
Ids and kinds stand in book/evidence/claims.json. The exit status is 1 if anything is missing.
"""

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = ("claim", "engine", "version", "date", "statement", "source", "recheck")
MISSING = {
    "text": "no page in _toc.yml names it",
    "proved": "no proof object in specgain/proofs",
    "computed": "no test is marked with it",
    "measured": "no committed measurement with a notebook",
    "documented": "no complete row in book/evidence/documented.json",
}


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def front_matter_list(text, key):
    """Return the ids of `key: [A, B]` or of the list under `key:` in a page's front matter."""
    head = text.split("\n---", 1)[0] if text.startswith("---") else ""
    found = re.search(rf"^{key}:[ ]*(\[[^\]]*\]|[^\n]*(?:\n[ ]*- [^\n]*)*)", head, re.MULTILINE)
    return re.findall(r"[CO]\d+(?:\.\d+)?", found.group(1)) if found else []


def pages(root):
    """Return {page: text} of the published pages, those in _toc.yml."""
    names = re.findall(r"(?:root|file):\s*(\S+)", (root / "_toc.yml").read_text(encoding="utf-8"))
    paths = {name.removeprefix("book/"): root / f"{name}.md" for name in names}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.exists()}


def literals(node):
    """Return every string literal inside a syntax tree."""
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def proof_claims(source):
    """Return the ids in every `claims=...` keyword of a proof module."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [s for call in calls for word in call.keywords if word.arg == "claims" for s in literals(word.value)]


def test_claims(source):
    """Return the ids in every `pytest.mark.claims(...)` of a test module."""
    marks = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [s for m in marks if isinstance(m.func, ast.Attribute) and m.func.attr == "claims" for s in literals(m)]


def measured_claims(root):
    """Return the ids that a committed measurement supports: named in its JSON or in its notebook's metadata.

    The notebook of measurements/<device>/<lab>.json is <lab>.ipynb, or NN-<lab>.ipynb with a number before it.
    """
    found = set()
    for path in (root / "notebooks" / "measurements").glob("*/*.json"):
        labs = [p for p in (root / "notebooks").glob("*.ipynb") if re.sub(r"^\d+-", "", p.stem) == path.stem]
        for notebook in labs or (root / "notebooks").glob(f"{path.stem}.ipynb"):
            found |= set(read_json(path).get("claims", []))
            found |= set(read_json(notebook)["metadata"].get("claims", []))
    return found


def scan(root, folder, find):
    """Return all that `find` finds in the Python files under a folder."""
    return {i for path in sorted((root / folder).rglob("*.py")) for i in find(path.read_text(encoding="utf-8"))}


def evidence(root):
    """Return {kind: set of claim ids} for the text and for every kind of evidence."""
    documented = read_json(root / "book" / "evidence" / "documented.json")
    return {
        "text": {i for text in pages(root).values() for i in front_matter_list(text, "claims")},
        "proved": scan(root, "specgain/proofs", proof_claims),
        "computed": scan(root, "tests", test_claims),
        "measured": measured_claims(root),
        "documented": {row["claim"] for row in documented if all(row.get(key) for key in ROW)},
    }


def exercise_counts(root):
    """Return (questions, exercises): how many name each objective."""
    counts = {"questions": Counter(), "exercises": Counter()}
    for path in sorted((root / "book" / "quizzes").glob("*.json")):
        for part, entries in read_json(path).items():
            counts[part].update(entry["objective"] for entry in entries)
    return counts["questions"], counts["exercises"]


def holes(root):
    """Return {id: list of what is missing} over all claims and objectives; an empty list means covered."""
    course = read_json(root / "book" / "evidence" / "claims.json")
    found, missing = evidence(root), defaultdict(list)
    for claim, about in course["claims"].items():
        missing[claim] = [MISSING[kind] for kind in ["text", *about["kinds"]] if claim not in found[kind]]
    for kind, ids in found.items():
        for unknown in sorted(ids - set(course["claims"])):
            missing[unknown].append(f"unknown claim, named as {kind}")
    questions, exercises = exercise_counts(root)
    for objective in course["objectives"]:
        counts = ((questions[objective], 3, "questions"), (exercises[objective], 1, "exercise"))
        missing[objective] = [f"{have} of {need} {what}" for have, need, what in counts if have < need]
    return missing, course


def main(root=ROOT):
    missing, course = holes(root)
    for identifier, lacks in missing.items():
        if lacks:
            print(f"{identifier:5} {'; '.join(lacks)}")
    covered = {part: sum(not missing[i] for i in course[part]) for part in course}
    print(", ".join(f"{covered[part]}/{len(course[part])} {part}" for part in course))
    return int(any(missing.values()))


if __name__ == "__main__":
    sys.exit(main())
