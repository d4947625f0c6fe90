"""How to record an honest comparison, engine by engine: commands to copy, and which files to hand to `compare`.

The rules are the same everywhere: one change between the sides; fresh servers; a warm-up with other prompts; the sides
take turns; at least three runs each; the real mix of prompts at the load that matters; greedy or the same sampling.

Flags: documentation of `vllm bench serve` and `vllm serve` 0.32.0; SGLang's Bench Serving Guide;
`tensorrt_llm/bench/benchmark/throughput.py` (NVIDIA/TensorRT-LLM at 000a01d); tools/server of llama.cpp.
"""

from specgain.records.source import RecordError

RULES = """\
For every side and every repeat N = 1, 2, 3, in turns
(plain.1, spec.1, spec.2, plain.2, plain.3, spec.3):
start a fresh server, warm it up with other prompts, record, stop it."""

VLLM = """\
# plain
vllm serve MODEL --port 8000
# plain against n-gram, suffix, Medusa or custom drafts on 0.32.0: these switch
# asynchronous scheduling off, so the baseline must run without it too
# (record it with it as well: that is what you would give up)
vllm serve MODEL --port 8000 --no-async-scheduling
# speculative
vllm serve MODEL --port 8000 --speculative-config \\
  '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'

# warm up: the command below with other prompts, without the two --save options
curl -s localhost:8000/metrics > SIDE.N.before.txt
vllm bench serve --model MODEL --port 8000 --dataset-name custom \\
  --dataset-path prompts.jsonl --disable-shuffle --num-prompts 64 \\
  --max-concurrency 8 --temperature 0 --seed 0 \\
  --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,95,99 \\
  --save-result --save-detailed --result-filename SIDE.N.json
curl -s localhost:8000/metrics > SIDE.N.after.txt

specgain compare --plain plain.*.json plain.*.txt --spec spec.*.json spec.*.txt"""

SGLANG = """\
# plain
python -m sglang.launch_server --model-path MODEL --port 30000
# speculative (the accept length it reports runs since the start: a fresh server for every run)
python -m sglang.launch_server --model-path MODEL --port 30000 --speculative-algorithm EAGLE3 \\
  --speculative-draft-model-path DRAFT --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4

python -m sglang.bench_serving --backend sglang --port 30000 --dataset-name sharegpt --dataset-path PROMPTS.json \\
  --num-prompts 64 --max-concurrency 8 --warmup-requests 8 --flush-cache --extra-request-body '{"temperature": 0}' \\
  --output-file SIDE.N.jsonl --output-details

specgain compare --plain plain.*.jsonl --spec spec.*.jsonl"""

TENSORRT = """\
# plain
trtllm-bench --model MODEL throughput --dataset prompts.jsonl --backend pytorch --streaming --concurrency 8 --warmup 8 \\
  --request_json plain.N.json
# speculative: speculation.yaml holds speculative_config with decoding_type, max_draft_len and what the method needs
trtllm-bench --model MODEL throughput --dataset prompts.jsonl --backend pytorch --streaming --concurrency 8 --warmup 8 \\
  --extra_llm_api_options speculation.yaml --request_json spec.N.json

# give compare the requests, not --report_json beside them: that would count the same run twice
specgain compare --plain plain.*.json --spec spec.*.json"""

LLAMACPP = """\
# plain
llama-server -m TARGET.gguf --port 8080 -lv 4 > plain.N.log 2>&1
# speculative (level 4 adds the statistics lines: rounds with a draft, and the time that drafting took)
llama-server -m TARGET.gguf -md DRAFT.gguf --draft-max 8 --port 8080 -lv 4 > spec.N.log 2>&1

# send the same prompts, one at a time; the log holds the timings of each request
specgain compare --plain plain.*.log --spec spec.*.log"""

LOOP = """\
Write one JSON object per round and line, times in ms, γ = 0 for the plain side:
{"request": "a", "round": 0, "num_candidates": 4, "n_matches": 2, "n_new": 3, "draft_ms": 1.2, "verify_ms": 9.8, "other_ms": 0.4}
The last round of a request that a limit or EOS cut: add "truncated_by": "max_new_tokens".

specgain compare --plain plain.*.jsonl --spec spec.*.jsonl"""

RECIPES = {"vllm": VLLM, "sglang": SGLANG, "tensorrt-llm": TENSORRT, "llama.cpp": LLAMACPP, "own-loop": LOOP}


def recipe(engine):
    """Return the recipe for an engine as text; raises RecordError for one that has none."""
    if engine not in RECIPES:
        raise RecordError(f"engine = {engine!r} has no recipe; there are {', '.join(RECIPES)}")
    return f"{RULES}\n\n{RECIPES[engine]}"
