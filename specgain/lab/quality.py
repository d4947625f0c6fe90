"""Is the generated text right? A task metric for the three domains of the tiny pair whose rules are known.

Only whole documents count: those that begin and end inside the text. A model of these domains can be wrong in ways that
a loss does not show: an address that belongs to another name, a function that is no Python, a story that swaps its child.
"""

import ast
import json
import re

CHILD = (  # where a story names its child
    r"^(\w+) sống ở", r"Mỗi sáng, (\w+) dậy", r"(\w+) có một con", r"Ở trường, (\w+) học", r"Giờ ra chơi, (\w+) và",
    r"nên (\w+) (?:ra|ở|đi|mặc)", r"kể cho (\w+) nghe", r"đi ngủ, (\w+) nói",
)  # fmt: skip


def judge(pair, rows):
    """Return {domain: {documents, right, share}} of `rows` {domain: rows of token ids, prompt and continuation}.

    `share` is right / documents, None without a whole document. The first document of a row counts only if the row
    follows an end-of-document token, since a prompt may begin anywhere.
    """
    if unknown := sorted(set(rows) - set(RIGHT)):
        raise ValueError(f"domains = {unknown} have no rule to judge by; choose from {', '.join(RIGHT)}")
    found = {}
    for domain, texts in rows.items():
        documents = [pair.tokenizer.decode(part) for tokens in texts for part in whole_documents(tokens, pair.eos)]
        right = sum(map(RIGHT[domain], documents))
        share = right / len(documents) if documents else None
        found[domain] = {"documents": len(documents), "right": right, "share": share}
    return found


def whole_documents(tokens, eos):
    """Return the parts of `tokens` (ids) that stand between two `eos`."""
    ends = [i for i, token in enumerate(tokens) if token == eos]
    return [list(map(int, tokens[a + 1 : b])) for a, b in zip(ends, ends[1:], strict=False)]


def right_json(text):
    """Return True for one JSON object in which every address follows from the name beside it."""
    try:
        record = json.loads(text)
    except ValueError:
        return False
    return isinstance(record, dict) and all(_address_fits(person) for person in _objects(record))


def right_python(text):
    """Return True for Python source that parses and defines something."""
    try:
        return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(text).body)
    except (SyntaxError, ValueError):
        return False


def right_story(text):
    """Return True for a Vietnamese story that says who it is about, and names the same child wherever the child acts."""
    names = [name for pattern in CHILD for name in re.findall(pattern, text)]
    return bool(re.search(CHILD[0], text)) and len(set(names)) == 1


RIGHT = {"json": right_json, "func": right_python, "viet": right_story}


def _objects(value):
    """All dicts in a JSON value."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


def _address_fits(person):
    """True unless the dict holds a name and an address that does not follow from it."""
    if "name" not in person or "email" not in person:
        return True
    return person["email"] == str(person["name"]).lower().replace(" ", ".") + "@example.org"
