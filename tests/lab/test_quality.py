"""The rules that judge generated text: every document of the corpora is right, and small damage is seen."""

import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from specgain.lab.quality import RIGHT, judge, right_json, right_python, right_story, whole_documents

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import corpora  # noqa: E402


@pytest.mark.parametrize("domain", RIGHT)
def test_every_document_of_the_corpus_is_right(domain):
    documents = corpora.documents(domain, 60_000)
    assert len(documents) > 100
    wrong = [text for text in documents if not RIGHT[domain](text)]
    assert not wrong, wrong[0]


def test_most_documents_cut_or_mixed_are_wrong():
    rng = random.Random(1)
    for domain, least in (("json", 1.0), ("func", 0.3), ("viet", 0.5)):
        documents = corpora.documents(domain, 60_000)
        halves = [text[: len(text) // 2] for text in documents]
        swapped = [
            a[: len(a) // 2] + b[len(b) // 2 :]
            for a, b in zip(documents, rng.sample(documents, len(documents)), strict=True)
        ]
        damaged = swapped if domain == "viet" else halves
        assert sum(not RIGHT[domain](text) for text in damaged) >= least * len(damaged)


@pytest.mark.parametrize(
    "text, right",
    [
        ('{"name": "Anna Miller", "email": "anna.miller@example.org"}', True),
        ('{"name": "Anna Miller", "email": "anna.novak@example.org"}', False),
        ('{"items": [{"name": "Ben Tran", "email": "ben.tran@example.com"}]}', False),
        ('{"name": "Anna Miller"}', True),
        ("[1, 2]", False),
        ('{"a": 1', False),
    ],
)
def test_json(text, right):
    assert right_json(text) is right


def test_python():
    assert right_python("def f(x):\n    return x\n") and right_python("class A:\n    pass\n")
    assert not right_python("def f(x:\n    return x\n") and not right_python("x = 1\n") and not right_python("\0")


def test_story():
    story = "Lan sống ở Hà Nội, gần hồ Gươm. Mỗi sáng, Lan dậy sớm và ôn bài cũ. Giờ ra chơi, Lan và An cùng nhau đá bóng.\n"
    assert right_story(story)
    assert not right_story(story.replace("Mỗi sáng, Lan", "Mỗi sáng, Minh"))
    assert not right_story("Mỗi sáng, Lan dậy sớm.\n")


def test_only_whole_documents_count():
    assert whole_documents([5, 6, 0, 7, 8, 0, 9], 0) == [[7, 8]]
    assert whole_documents([0, 7, 0, 0, 8], 0) == [[7], []] and whole_documents([1, 2], 0) == []
    texts = {1: "def f():\n    pass\n", 2: "def g(:\n"}
    pair = SimpleNamespace(eos=0, tokenizer=SimpleNamespace(decode=lambda ids: "".join(texts[i] for i in ids)))
    found = judge(pair, {"func": [[1, 0, 1, 0, 2, 0, 1], [2, 2]], "json": [[1]]})
    assert found["func"] == {"documents": 2, "right": 1, "share": 0.5}
    assert found["json"] == {"documents": 0, "right": 0, "share": None}
    with pytest.raises(ValueError, match=r"domains = \['prose'\] have no rule"):
        judge(pair, {"prose": []})
