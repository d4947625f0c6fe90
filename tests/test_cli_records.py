"""The commands on records: exit codes, JSON by the schema files, any number of files a side, nothing heavy at start."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from specgain.cli import app
from specgain.cli_records import spread

DATA = Path(__file__).resolve().parent / "data"
SCHEMAS = Path(__file__).resolve().parent.parent / "specgain" / "schemas"
ENGINE = DATA / "engine"


def run(*arguments):
    """Return (exit code, output) of a command; with --json the output is parsed."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.output) if "--json" in arguments else result.output


def sides(plain, spec):
    names = {"plain": plain, "spec": spec}
    return [a for side, tags in names.items() for a in (f"--{side}", *(f for tag in tags for f in files(tag)))]


def files(tag):
    return [ENGINE / f"bench/{tag}.json", ENGINE / f"metrics/{tag}.after.txt", ENGINE / f"metrics/{tag}.before.txt"]


def schema(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text())


@pytest.mark.parametrize("path", sorted((DATA / "formats").glob("*.txt")), ids=lambda p: p.stem)
def test_read(path):
    code, found = run("read", path, "--json")
    jsonschema.validate(found, schema("read"))
    told = found["committed_length"] or found["committed_length_drafting_rounds"] or found["pooled_acceptance"]
    assert code == (0 if told else 1)
    code_, text = run("read", path)
    assert code_ == code and found["engine"] in text


def test_read_says_what_is_missing_and_takes_the_draft_length():
    path = DATA / "formats/vllm_v1_0.8.3_specdecoding_short.txt"
    assert "missing rounds" in run("read", path)[1]
    assert run("read", path, "--json", "--num-speculative-tokens", 3)[1]["rounds"] == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "none.json"], "No such file"), (["read", DATA], "directory"), (["read", DATA / "README.md"], "send a sample"),
        (["compare", "--plain", ENGINE / "bench/ngram3_repeat_c1.json", "--spec", "x"], "No such file"),
        (["gates", ENGINE / "bench/plain_repeat_c1.json", "--thresholds", DATA / "README.md"], "broken JSON"),
        (["audit", "--alpha", "x"], "is not a number as a table prints it"), (["audit", DATA / "README.md"], "README"),
        (["schedule", "check", "nofile"], "No such file"), (["schedule", "check", "[[1,2"], "broken JSON"),
        (["schedule", "check", "[]", "--engine", "vllm==0.1"], "not known here"),
        (["schedule", "derive", ENGINE / "bench/ngram3_repeat_c1.json"], "no plain run"),
        (["schedule", "emit", "[[1,4,0]]"], "all zeros"), (["schedule", "emit", "{}"], "would refuse"),
        (["schedule", "sweep", "--gammas", "a", "--concurrencies", "1"],
         "--gammas 'a' is not a list of whole numbers; give, for example, 1,3,5"),
        (["schedule", "sweep", "--gammas", "1", "--concurrencies", "1,,8"],
         "--concurrencies '1,,8' is not a list of whole numbers; give, for example, 1,8,32"),
        (["schedule", "sweep", "--gammas", "0,1", "--concurrencies", "1"], "of 1 or more"),
    ],
)  # fmt: skip
def test_bad_input_exits_with_2_and_one_line(arguments, message):
    code, found = run(*arguments, "--json")
    assert code == 2 and list(found) == ["error"] and message in found["error"]
    code, text = run(*arguments)
    assert code == 2 and message in text and "Traceback" not in text


def test_compare_takes_any_number_of_files_a_side():
    code, found = run("compare", *sides(["plain_repeat_c1", "plain_b_repeat_c1"], ["ngram3_repeat_c1"]), "--json")
    jsonschema.validate(found, schema("compare"))
    assert (code, found["verdict"], found["runs"]) == (0, "within-noise", {"plain": 2, "spec": 1})
    code, text = run("compare", *sides(["plain_b_repeat_c1"], ["draft26k3_repeat_c1"]))
    assert code == 0 and text.startswith("**Verdict: slower**")
    scrapes = ["--plain", *files("plain_repeat_c1")[1:], "--spec", *files("ngram3_repeat_c1")[1:]]
    code, found = run("compare", *scrapes, "--json")
    assert code == 1 and found["verdict"] == "cannot-tell" and "margin_interval_ms" in found["missing"]


def test_spread_leaves_other_options_alone():
    args = ["--json", "--plain", "a", "b", "--spec", "c", "--num-speculative-tokens", "3"]
    assert spread(args, ("--plain", "--spec")) == [
        "--json", "--plain", "a", "--plain", "b", "--spec", "c", "--num-speculative-tokens", "3",
    ]  # fmt: skip


def test_gates(tmp_path):
    limits = tmp_path / "limits.json"
    limits.write_text(json.dumps({"latency": {"load": {"max_concurrency": 1}}}))
    records = files("plain_b_repeat_c1") + files("draft26k3_repeat_c1")
    report = tmp_path / "report.md"
    code, found = run("gates", *records, "--thresholds", limits, "--report", report, "--json")
    assert (code, found["verdict"], found["failing_term"]) == (0, "fail", "latency")
    assert report.read_text().startswith("# Speculative decoding: fail")
    code, _ = run("gates", *files("plain_repeat_c1"), *files("ngram3_repeat_c1"), "--thresholds", limits)
    assert code == 1  # nothing fails, but much is not shown


def test_audit():
    code, found = run("audit", DATA / "published/eagle3_table1.csv", "--json")
    assert code == 0 and found["counts"] == {"consistent": 143, "not-against-this-baseline": 1}
    code, text = run("audit", "--alpha", "0.42", "--gamma", 8, "--tau", "4.33")
    assert code == 0 and "accepted over drafted tokens" in text
    assert run("audit", "--alpha", "0.42")[0] == 1


def test_schedules(tmp_path):
    good, bad = "[[1, 64, 3], [65, 128, 1]]", "[[1, 64, 3], [64, 128, 1]]"
    code, found = run("schedule", "check", good, "--max-num-seqs", 256, "--num-speculative-tokens", 3, "--json")
    jsonschema.validate(found, schema("schedule_check"))
    assert code == 0 and found["effective"] == [[1, 64, 3], [65, 256, 1]]
    code, found = run("schedule", "check", bad, "--json")
    jsonschema.validate(found, schema("schedule_check"))
    assert code == 1 and (found["ok"], found["stage"], found["errors"][0]["code"]) == (False, "lookup", "overlap")
    (tmp_path / "config.json").write_text(json.dumps({"method": "suffix", "num_speculative_tokens": 3,
                                                      "num_speculative_tokens_per_batch_size": json.loads(good)}))  # fmt: skip
    code, found = run("schedule", "check", tmp_path / "config.json", "--max-num-seqs", 128, "--json")
    assert code == 0 and "crash" in {w["code"] for w in found["warnings"]}
    assert "draft_len_schedule" in run("schedule", "emit", good, "--to", "tensorrt-llm")[1]
    code, text = run(
        "schedule", "sweep", "--gammas", "1,3", "--concurrencies", "1,8", "--output", tmp_path, "--method", "ngram"
    )
    assert code == 0 and len(json.loads((tmp_path / "serve_params.json").read_text())) == 4


def test_recipes_end_with_the_comparison_they_are_for():
    from specgain.recipes import RECIPES

    for engine in RECIPES:
        code, text = run("recipe", engine)
        assert code == 0 and text.rstrip().splitlines()[-1].startswith("specgain compare --plain plain.*")
    assert run("recipe", "none")[0] == 2
    assert "--no-async-scheduling" in RECIPES["vllm"] and "--save-detailed" in RECIPES["vllm"]


def test_the_files_of_the_vllm_recipe_are_put_together(tmp_path):
    """Three runs a side under the recipe's names: six results and twelve scrapes that count alike, told apart by time."""
    latency = re.compile(r"(vllm:inter_token_latency_seconds_sum{.*}) (.*)")
    for side, tag in (("plain", "plain_repeat_c1"), ("spec", "ngram3_repeat_c1")):
        bench, after, before = files(tag)
        start = float(latency.search(before.read_text())[2])
        for n, scale in enumerate((1.0, 1.1, 0.9), start=1):
            result = json.loads(bench.read_text())
            result["itls"] = [[gap * scale for gap in gaps] for gaps in result["itls"]]
            (tmp_path / f"{side}.{n}.json").write_text(json.dumps(result))
            (tmp_path / f"{side}.{n}.before.txt").write_text(before.read_text())
            end = latency.search(after.read_text())
            scaled = f"{end[1]} {start + scale * (float(end[2]) - start)!r}"
            (tmp_path / f"{side}.{n}.after.txt").write_text(after.read_text().replace(end[0], scaled))
    arguments = [a for side in ("plain", "spec") for a in (f"--{side}", *sorted(tmp_path.glob(f"{side}.*")))]
    code, found = run("compare", *arguments, "--json")
    assert code == 0 and found["committed_length"] == pytest.approx(188 / 111)
    assert found["runs"] == {"plain": 3, "spec": 3} and found["speedup_decode"] == pytest.approx(1.6954729)
    assert "plain_repeat" not in found["missing"]


def test_nothing_heavy_is_loaded_for_help_or_for_reading():
    heavy = "numpy scipy sympy torch matplotlib prometheus_client".split()
    code = (
        "import sys; from specgain.cli import app; from specgain.records.read import summary_of; "
        f"summary_of([{str(DATA / 'formats/llamacpp_server_log_2025.txt')!r}]); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
