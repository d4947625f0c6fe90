"""vLLM's `bench sweep`: `summary.csv` and `summary.json` (vllm/benchmarks/sweep/serve.py), one benchmark result a row.

A row holds the keys of a `bench serve` result, the parameters of its combination under their own names (such as
`max_concurrency` or `speculative_config.num_speculative_tokens`) and `run_number`.
"""

import re

from specgain.records.source import RecordError, csv_rows, parse_json
from specgain.records.vllm_results import STATISTIC, bench

RESULT_KEYS = set(
    "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency "
    "ramp_up_strategy ramp_up_start_rps ramp_up_end_rps duration completed failed total_input_tokens "
    "total_output_tokens request_throughput request_goodput output_throughput total_token_throughput latencies "
    "queue_times max_output_tokens_per_s max_concurrent_requests rtfx input_lens output_lens start_times ttfts itls "
    "generated_texts errors server_queue_times server_ttfts goodput".split()
)
GAMMA = re.compile(r"num[-_]speculative[-_]tokens$|spec[-_]tokens$")


def parameters(row):
    """Return the swept parameters of a row: what is neither part of a result nor an index."""
    return {
        key: value
        for key, value in row.items()
        if key and key not in RESULT_KEYS and key != "run_number" and not STATISTIC.match(key)
        and not key.startswith("spec_decode_") and not key.startswith("Unnamed")
    }  # fmt: skip


def is_sweep(value):
    """Return True for one row of `summary.json`."""
    return isinstance(value, dict) and "run_number" in value and "total_output_tokens" in value


def row(value, name):
    """Return the Record of one row, with its parameters in details."""
    record = bench(value, name)
    record.format, record.details["parameters"] = "vllm-bench-sweep", parameters(value)
    return record


def rows(text, name):
    """Return one Record per row of `summary.csv`."""
    return [
        row({key: _cell(value) for key, value in cells.items() if value != ""}, f"{name}, row {number}")
        for number, cells in enumerate(csv_rows(text, name), start=2)
    ]


def _cell(text):
    """Return a cell as a number or list where it is one, else as text."""
    if text[:1] in "[{-0123456789":
        try:
            return parse_json(text)
        except RecordError:
            return text
    return text


def settings(record):
    """Return (γ, batch) of a row: its draft length (0 without speculation) and max_concurrency, or None for each."""
    given = record.details["parameters"]
    gammas = [value for key, value in given.items() if GAMMA.search(key)]
    gamma = gammas[0] if len(gammas) == 1 and isinstance(gammas[0], int) else record.gamma
    batch = record.workload.get("max_concurrency")
    return gamma, batch if isinstance(batch, int) else None
