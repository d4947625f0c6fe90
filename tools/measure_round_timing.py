"""The committed round-timing measurement: first the plan, then, after the plan was committed, the run.

    python tools/measure_round_timing.py plan
    git add notebooks && git commit -m "Plan of the round-timing measurement"
    python tools/measure_round_timing.py run

`run` takes about eight minutes; let the machine be idle. It writes round-timing.json beside the plan.
"""

import argparse
import json
from pathlib import Path

from specgain import lab

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
CLAIMS = ["C1.2", "C2.2", "C2.5", "C2.6", "C2.8"]


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
        return write(plan, lab.make_plan(lab.load_pair(), threads=arguments.threads))
    result, _ = lab.round_timing(lab.read_plan(plan), progress=show)
    write(arguments.folder / "round-timing.json", {"claims": CLAIMS} | result)
    for name in ("summary", "summary_before", "summary_tight", "t_decode_by_block_ms", "different_output"):
        print(name, json.dumps(result[name]))


if __name__ == "__main__":
    main()
