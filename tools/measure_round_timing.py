"""The committed round-timing measurements: first a plan, then, after the plan was committed, the run.

    python tools/measure_round_timing.py plan
    git add notebooks && git commit -m "Plan of the round-timing measurement"
    python tools/measure_round_timing.py run

`run` takes about an hour; let the machine be idle. It writes round-timing.json beside the plan. The first part
of the plan is one request at a time, greedy; `more` are sampled text, longer prompts and batches.
"""

import argparse
import json
from pathlib import Path

from specgain import lab

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
CLAIMS = ["C1.2", "C2.2", "C2.5", "C2.6", "C2.8", "C4.2", "C5.1"]
CLEAN, NATURAL = ["json", "func", "viet"], ["stdlib", "prose"]  # greedy natural text loops, so it is sampled there
BATCH = {"context": 128, "domains": CLEAN, "gammas": [0, 2, 6]}
LARGE = BATCH | {"rows": 16, "cost_prompts": 128, "run_prompts": 128}
PLAN = {
    "cost_prompts": 44, "run_prompts": 88, "acceptance_prompts": 128, "blocks": 22,
    "more": [
        {"temperature": 1.0, "domains": [*NATURAL, "func"], "gammas": [0, 2, 6], "cost_prompts": 48, "run_prompts": 96},
        {"context": 320, "domains": ["json", "viet"], "gammas": [0, 2, 6]},
        BATCH | {"rows": 4, "cost_prompts": 96, "run_prompts": 96},
        LARGE,
        LARGE | {"temperature": 1.0, "domains": NATURAL},
    ],
}  # fmt: skip


def show(done, total, text):
    print(f"\r{text} {done}/{total}     ", end="" if done < total else "\n", flush=True)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {path.name}, {path.stat().st_size / 1e3:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["plan", "run"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (plan only)")
    arguments = parser.parse_args()
    plan = arguments.folder / "round-timing-plan.json"
    if arguments.stage == "plan":
        pair = lab.load_pair(["weak", "strong"])
        planned = lab.make_plan(pair, threads=arguments.threads, **PLAN)
        print(sum(len(part["cells"]) for part in (planned, *planned["more"])), "cells")
        return write(plan, planned)
    planned = lab.read_plan(plan)
    pair = lab.load_pair(sorted({name for part in (planned, *planned["more"]) for name in part["drafts"]}))
    result, _ = lab.round_timing(planned, pair, progress=show)
    write(arguments.folder / "round-timing.json", {"claims": CLAIMS} | result)
    for name in ("summary", "summary_judged", "summary_before", "summary_tight", "t_decode_by_block_ms"):
        print(name, json.dumps(result.get(name)))


if __name__ == "__main__":
    main()
