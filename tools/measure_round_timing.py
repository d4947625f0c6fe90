"""The committed round-timing measurement: first the plan, then, after the plan was committed, the run.

    python tools/measure_round_timing.py plan
    git add notebooks && git commit -m "Plan of the round-timing measurement"
    python tools/measure_round_timing.py run

`run` takes about 35 minutes; let the machine be idle. It writes round-timing.json beside the plan. The first part
of the plan is one request at a time, greedy; `more` are batches, sampled text and longer prompts.
"""

import argparse
import json
from pathlib import Path

from specgain import lab

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
CLAIMS = ["C1.2", "C2.2", "C2.5", "C2.6", "C2.8", "C4.2", "C5.1"]
CLEAN, NATURAL = ["json", "func", "viet"], ["stdlib", "prose"]  # greedy natural text loops, so it is sampled there
SHAPE = {"cost_prompts": 24, "run_prompts": 48, "acceptance_prompts": 128, "blocks": 24}
BATCH = {"cost_prompts": 48, "run_prompts": 96, "domains": CLEAN, "gammas": [0, 2, 6]}
MORE = [
    {"temperature": 1.0, "domains": [*NATURAL, "func"], "gammas": [0, 2, 6], "cost_prompts": 36, "run_prompts": 72},
    {"rows": 4} | BATCH,
    {"rows": 16} | BATCH,
    {"rows": 16, "temperature": 1.0} | BATCH | {"domains": NATURAL},
    {"context": 320, "domains": ["json", "viet"], "gammas": [0, 2, 6]},
]


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
        planned = lab.make_plan(lab.load_pair(["weak", "strong"]), **SHAPE, threads=arguments.threads, more=MORE)
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
