"""The pages around the chapters: their numbers, names, references and dated statements, without building the book."""

import ast
import itertools
import json
import re
from datetime import date
from fractions import Fraction
from pathlib import Path

import jupytext
import pytest

from specgain import Acceptance, Ledger, RoundTime
from specgain.acceptance import committed_length_constant, conditional, fill_rate
from specgain.length import best_gamma
from specgain.round_time import Quadratic

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


def page(name):
    return (BOOK / f"{name}.md").read_text(encoding="utf-8")


def says(name, *texts):
    """Assert that a page holds each text; the texts are formatted from computed values."""
    text = page(name)
    for wanted in texts:
        assert wanted in text, f"{name}.md does not say {wanted!r}"


def front_matter(text, key):
    """Return the ids of a front-matter list such as `objectives: [O1, O3]`."""
    found = re.search(rf"^{key}: \[([^\]]*)\]", text.split("\n---", 1)[0], re.MULTILINE)
    return re.findall(r"[CO]\d+(?:\.\d+)?", found.group(1)) if found else []


# --- the opening ------------------------------------------------------------------------------------------------------


def counters(name):
    """Return {metric{labels}: value after the run minus before} of a captured pair of /metrics texts."""
    sides = []
    for when in ("before", "after"):
        text = (ROOT / "tests" / "data" / "engine" / "metrics" / f"{name}.{when}.txt").read_text(encoding="utf-8")
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        sides.append({re.sub(r'engine="0",model_name="[^"]*",?', "", key): float(value) for key, value in lines})
    before, after = sides
    return {key: value - before.get(key, 0) for key, value in after.items()}


@pytest.mark.claims("C0.1")
def test_the_opening_run_is_what_the_engine_counted():
    run = json.loads((BOOK / "evidence" / "opening.json").read_text(encoding="utf-8"))
    spec, plain = counters("draft26k3_repeat_c1"), counters("plain_b_repeat_c1")
    other = counters("plain_repeat_c1")
    per_position = [spec[f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}}'] for i in range(3)]
    count, total = "vllm:inter_token_latency_seconds_count{}", "vllm:inter_token_latency_seconds_sum{}"
    assert run["accepted_per_position"] == per_position
    assert run["rounds"] == spec[count] == spec["vllm:spec_decode_num_drafts_total{}"]
    requests = 4  # the first token of each came from its prefill
    assert run["committed"] == spec["vllm:generation_tokens_total{}"] - requests
    assert run["plain_steps"] == plain[count] == other[count]
    assert run["t_rounds_ms"] == pytest.approx(spec[total] * 1e3)
    assert run["t_plain_steps_ms"] == pytest.approx(plain[total] * 1e3)
    assert run["t_other_plain_run_ms"] == pytest.approx(other[total] * 1e3)
    assert spec["vllm:spec_decode_num_draft_tokens_total{}"] == run["gamma"] * run["rounds"]

    length = run["committed"] / run["rounds"]
    steps = (run["gamma"] * run["draft_layers"] + run["target_layers"]) / run["target_layers"]
    t_round, t_decode = run["t_rounds_ms"] / run["rounds"], run["t_plain_steps_ms"] / run["plain_steps"]
    says("index", f"You pay for {steps:.2f} steps and get {length:.2f} tokens", f"A round took {t_round:.1f} ms")
    says("index", f"an ordinary step {t_decode:.1f} ms, a ratio of {t_round / t_decode:.2f}")
    says("index", f"took {run['t_other_plain_run_ms'] / run['plain_steps']:.1f} ms per step")
    assert 0.75 < run["accepted_per_position"][0] / run["rounds"] < 0.85  # "four times out of five"
    assert 0.78 < length / steps < 0.82  # "slower by a fifth", counted …
    assert 0.78 < length * t_decode / t_round < 0.82  # … and measured
    assert length * run["t_other_plain_run_ms"] / run["plain_steps"] > t_round  # "would look faster"


@pytest.mark.claims("C0.3")
def test_one_acceptance_has_two_best_lengths():
    law = Acceptance.constant(0.8)
    cheap = Ledger(law, RoundTime.of(Quadratic(0.010, 0.0007, 0.0001)), 0.010)
    dear = Ledger(law, RoundTime.of(Quadratic(0.010, 0.005, 0.0008)), 0.010)
    assert (best_gamma(cheap), best_gamma(dear)) == (4, 1)
    assert cheap.speedup(4) > 1 > dear.speedup(4)
    says("index", "Four guesses are best with the cheap draft, and with the dear one they make decoding slower.")


@pytest.mark.claims("C0.1")
def test_the_public_report_on_the_opening_page():
    row = next(row for row in documented() if row["id"] == "angelslim-163")
    says("index", "from 218.89 to 185.64 tokens per second", "2.54 tokens")
    for number in ("2.542", "218.89", "185.64"):
        assert number in row["statement"]


def test_the_table_of_objectives_names_the_chapters_that_cover_them():
    """A chapter is named for an objective if and only if its front matter lists the objective."""
    course = json.loads((BOOK / "evidence" / "claims.json").read_text(encoding="utf-8"))
    chapters = {}  # a chapter may have several pages
    for path in sorted(BOOK.glob("[0-9][0-9]-*.md")):
        pages = chapters.setdefault(int(path.name[:2]), [])
        pages += front_matter(path.read_text(encoding="utf-8"), "objectives")
    rows = dict(re.findall(r"^\| (O\d+) \| .* \| ([^|]+) \|$", page("index"), re.MULTILINE))
    assert list(rows) == list(course["objectives"])
    for objective, where in rows.items():
        covering = [number for number, found in chapters.items() if objective in found]
        assert [int(n) for n in re.findall(r"\d+", where)] == covering, objective
        assert ("to come" in where) == (not covering)


# --- the recap --------------------------------------------------------------------------------------------------------

TARGET = [[Fraction(n, 6) for n in row] for row in ((3, 2, 1), (1, 4, 1), (0, 1, 5))]  # TARGET[before][next]
DRAFT = [[Fraction(n, 12) for n in row] for row in ((3, 1, 8), (6, 3, 3), (4, 4, 4))]


def round_law(start, gamma):
    """Return {committed tokens: probability} of one round of exact speculative sampling, by exhaustive enumeration."""
    law = {}
    for drafted in itertools.product(range(3), repeat=gamma):
        alive, before, done = Fraction(1), start, ()
        for token in drafted:
            alive *= DRAFT[before][token]
            before = token
        before = start
        for token in drafted:
            p, q = TARGET[before], DRAFT[before]
            kept = min(Fraction(1), p[token] / q[token]) if q[token] else Fraction(0)
            missing = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
            for correction, part in enumerate(missing):
                if part:
                    end = (*done, correction)
                    law[end] = law.get(end, 0) + alive * (1 - kept) * part / sum(missing)
            alive, before, done = alive * kept, token, (*done, token)
        for bonus, probability in enumerate(TARGET[before]):
            law[(*done, bonus)] = law.get((*done, bonus), 0) + alive * probability
    return law


@pytest.mark.claims("C0.5")
@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_round_of_any_length_has_the_targets_law(start, gamma):
    """Complete each round to γ + 1 tokens with the target: the text then has exactly the target's distribution."""
    text_law = {}
    for committed, probability in round_law(start, gamma).items():
        for rest in itertools.product(range(3), repeat=gamma + 1 - len(committed)):
            chance, before = probability, committed[-1]
            for token in rest:
                chance, before = chance * TARGET[before][token], token
            text_law[committed + rest] = text_law.get(committed + rest, 0) + chance
    for text in itertools.product(range(3), repeat=gamma + 1):
        chance, before = Fraction(1), start
        for token in text:
            chance, before = chance * TARGET[before][token], token
        assert text_law.get(text, 0) == chance
    assert all(1 <= len(committed) <= gamma + 1 for committed in round_law(start, gamma))


@pytest.mark.claims("C0.5")
def test_the_recaps_own_numbers():
    """Its cells are run here with the text that the prose claims about them."""
    names = {}
    for cell in jupytext.read(BOOK / "recap.md").cells:
        if cell.cell_type == "code" and not cell.metadata.get("tags"):
            exec(compile(cell.source, "<recap>", "exec"), names)
    assert names["output_law"](names["p"], names["q"]) == names["p"]
    assert sum(map(min, names["p"], names["q"])) == Fraction(1, 2)
    assert names["output_law"](names["p_rough"], names["q"]) != names["p"]
    ratio = names["reading"] / names["computing"]
    says("recap", f"long before {ratio:.0f} positions", "idle for more than 99 % of the time")
    assert 1 / ratio < 0.01
    assert (names["chain"], names["tree"]) == pytest.approx((1.96, 2.28))


# --- the glossary -----------------------------------------------------------------------------------------------------


@pytest.mark.claims("C0.4")
def test_the_conversions_of_the_worked_example():
    law, gamma = Acceptance.constant(0.8), 8
    length, pooled = law.committed_length(gamma), law.pooled_acceptance(gamma)
    wrong = committed_length_constant(pooled, gamma)
    assert round(pooled, 4) == 0.4161 and round(fill_rate(length, gamma), 4) == 0.4810
    assert round(wrong / length - 1, 2) == -0.60  # "it loses sixty percent of the tokens"
    assert 1 + gamma * pooled == pytest.approx(length) and (gamma + 1) * fill_rate(length, gamma) == pytest.approx(
        length
    )
    says("glossary", f"$\\mathrm E[L] = (1-0.8^9)/(1-0.8) = {length:.4f}$", f"${length - 1:.4f}/8 = {pooled:.4f}$")


@pytest.mark.claims("C0.4")
def test_the_log_lines_of_the_glossary():
    """The tail sum on a public vLLM log line, and the older engine that counts what stands behind a rejection."""
    rates = [0.739, 0.478, 0.261, 0.174, 0.130, 0.087, 0.043]
    row = next(row for row in documented() if row["id"] == "vllm-ascend-13640")
    assert " ".join(f"{rate:.3f}" for rate in rates) in row["statement"]
    assert str(rates).replace("13,", "130,") in page("glossary")
    assert round(1 + sum(rates), 2) == round(1 + 44 / (161 / 7), 2) == 2.91
    assert 161 / 7 == 23  # "with 23 rounds behind them"
    a = conditional(rates)
    assert sorted(a, reverse=True) != list(a)  # "neither constant nor steadily falling"
    rounds = 13311 / 3
    assert rounds == 4437 and round(8547 / 13311, 3) == 0.642
    assert round(fill_rate(10616 / rounds, 3), 3) == 0.598
    assert round((1 + 8547 / rounds) - 10616 / rounds, 1) == 0.5  # "off by half a token"


def test_every_word_of_the_glossary_has_its_vietnamese():
    before, table = page("glossary").split("## Tiếng Việt – English")
    words = re.findall(r"^([A-Za-z][\w –-]*)\n {2}\S", before.split("```{glossary}")[1].split("```")[0], re.MULTILINE)
    rows = re.findall(r"^\| ([^|]+) \| \{term\}`([^`]+)` \|", table, re.MULTILINE)
    assert words == sorted(words, key=str.lower) and len(set(words)) == len(words)
    assert sorted(words) == sorted(english for _, english in rows)
    assert len({vietnamese for vietnamese, _ in rows}) == len(rows)


# --- notation ---------------------------------------------------------------------------------------------------------


def identifiers():
    """Return every name that the library defines or takes as an argument."""
    names = set()
    for path in (ROOT / "specgain").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {getattr(node, "name", None), getattr(node, "arg", None)}
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


def test_every_code_name_of_the_notation_exists():
    table = page("notation").split("## The same things in engines")[0]
    names = re.findall(r"^\| \$[^|]+\| `([a-z_]+)(?:\[i-1\])?` \|", table.replace(r"\mid", ""), re.MULTILINE)
    assert len(names) == 16
    assert set(names) <= identifiers()


def test_every_engine_name_of_the_notation_is_in_a_captured_record():
    """The names given for vLLM occur in what vLLM 0.32.0 itself printed."""
    data = ROOT / "tests" / "data"
    seen = "".join(path.read_text(encoding="utf-8") for path in (data / "engine" / "metrics").glob("*.txt"))
    table = page("notation").split("### vLLM 0.32.0")[1].split("###")[0]
    metrics = re.findall(r"`(vllm:\w+)`", table)
    assert len(metrics) == 6
    assert [name for name in metrics if name not in seen] == []


# --- references and dated statements ----------------------------------------------------------------------------------

MUST_BE_CITED = ("leviathan2023", "chen2023", "vllm-speculative", "vllm-dynamic", "vllm-adaptive")
MUST_BE_CITED += ("vllm-metrics", "vllm-release", "vllm-scheduler")


def test_the_references_hold_what_the_pages_cite():
    known = set(re.findall(r"^@\w+\{([\w-]+),", (BOOK / "references.bib").read_text(encoding="utf-8"), re.MULTILINE))
    assert known >= set(MUST_BE_CITED)
    for path in BOOK.glob("*.md"):
        cited = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8"))
        assert known >= {key.strip() for keys in cited for key in keys.split(",")}, path.name


def documented():
    return json.loads((BOOK / "evidence" / "documented.json").read_text(encoding="utf-8"))


def test_every_dated_statement_is_complete():
    claims = json.loads((BOOK / "evidence" / "claims.json").read_text(encoding="utf-8"))["claims"]
    rows = documented()
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"id", "claim", "engine", "version", "date", "statement", "source", "recheck"}, row["id"]
        assert all(isinstance(value, str) and value.strip() for value in row.values()), row["id"]
        assert row["claim"] in claims, row["id"]
        assert date(2022, 1, 1) < date.fromisoformat(row["date"]) <= date.today(), row["id"]


@pytest.mark.claims("C0.2")
def test_a_page_names_only_versions_that_a_dated_statement_stands_for():
    stands = {f"{row['engine']} {row['version']}" for row in documented()}
    for path in BOOK.glob("*.md"):
        checked = re.search(r"^checked: (.*)$", path.read_text(encoding="utf-8").split("\n---", 1)[0], re.MULTILINE)
        for version in re.findall(r"[\w.-]+ [\w.]+", checked.group(1) if checked else ""):
            assert version in stands, f"{path.name}: {version}"
    says("index", "v0.32.0", "2026-10-18", "v0.33.0", "2026-11-02")
    for engine in ("vLLM 0.32.0", "vLLM 0.6.3", "SGLang 0.5.23", "llama.cpp b11434", "TensorRT-LLM (a98a906)"):
        assert engine.replace("(", "").replace(")", "") in stands
        says("glossary", engine)
