"""The committed family portrait: every draft on the one target (see specgain/lab/family.py).

    python tools/measure_family.py

Takes about five minutes; let the machine be idle. It writes notebooks/measurements/cpu-2core/family.json.
"""

import json
from pathlib import Path

import torch

from specgain.lab.family import family

PATH = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core" / "family.json"


def show(done, total, text):
    print(f"\r{text} {done}/{total}     ", end="" if done < total else "\n", flush=True)


def main():
    torch.set_num_threads(1)
    result = {"claims": ["C3.2", "C3.5"]} | family(progress=show)
    PATH.write_text(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(json.dumps(result["summary"]), len(result["different_output"]))


if __name__ == "__main__":
    main()
