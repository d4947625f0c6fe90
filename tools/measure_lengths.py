"""The committed live measurement of lengths: first the plan, then, after the plan was committed, the run.

    python tools/measure_lengths.py plan
    git add notebooks && git commit -m "Plan of the measurement of lengths"
    python tools/measure_lengths.py run

`run` takes about a quarter of an hour; let the machine be idle. It needs the confidence head of tools/train_confidence.py, and
writes lengths.json beside the plan. With `--name lengths-alone` the same is done for one request at a time, in nine
minutes, and written to lengths-alone.json; with `--name lengths-block` for a draft that writes its block in one pass, the
multi-token heads, in three quarters of an hour. What is measured is in specgain/lab/lengths.py.
"""

import argparse
import json
from pathlib import Path

from measure_round_timing import FOLDER, show, write

from specgain import lab
from specgain.lab.lengths import lengths, make_plan
from specgain.lab.pair import weights_hash

ALONE = {"rows": (1,), "repeats": 3, "fixed": (0, 1, 2, 3, 4, 6, 8), "requests": 24, "uniform_requests": 16, "cost_rows": 8, "turn": 64,
         "loads": {"json and func": ("json", "func"), "json and prose": ("json", "prose"), "json": ("json",),
                   "viet": ("viet",)}}  # fmt: skip
BLOCK = {"draft": "multi", "rows": (4, 8, 16), "fixed": (0, 1, 2, 3, 4, 6, 8), "requests": 48, "uniform_requests": 32,
         "stagger": 15, "context": 96, "repeats": 5, "adaptive": ("budget", "budget by head"),
         "loads": {"json and prose": ("json", "prose"), "func and prose": ("func", "prose"),
                   "json and func": ("json", "func"), "json": ("json",), "func": ("func",), "viet": ("viet",),
                   "prose": ("prose",)}}  # fmt: skip
PLANS = {"lengths": {"repeats": 3}, "lengths-alone": ALONE, "lengths-block": BLOCK}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["plan", "run"])
    parser.add_argument("--name", choices=PLANS, default="lengths")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    plan = arguments.folder / f"{arguments.name}-plan.json"
    made = {"reproduce": f"python tools/measure_lengths.py {arguments.stage} --name {arguments.name}"}
    if arguments.stage == "plan":
        return write(plan, made | make_plan(weights_hash(), **PLANS[arguments.name]))
    planned = json.loads(plan.read_text(encoding="utf-8"))
    result = {"claims": ["C3.4", "C3.5"]} | made | lengths(planned, lab.load_pair([planned["draft"]]), progress=show)
    write(arguments.folder / f"{arguments.name}.json", result)
    for arm, kinds in result["summary"].items():
        print(arm, json.dumps(kinds))


if __name__ == "__main__":
    main()
