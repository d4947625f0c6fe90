"""The committed family portrait: every draft on the one target (see specgain/lab/family.py).

    python tools/measure_family.py

Takes less than five minutes on two idle cores. It writes notebooks/measurements/cpu-2core/family.json.
"""

import json

import torch
from measure_round_timing import FOLDER, show, write

from specgain.lab.family import family


def main():
    torch.set_num_threads(1)
    result = {"claims": ["C3.2", "C3.5"]} | family(progress=show)
    write(FOLDER / "family.json", result)
    print(json.dumps(result["summary"]), len(result["different_output"]), result["seconds"], "s")
    for method, found in result["by_method"].items():
        medians = [found[f"{name}_median_percent"] for name in ("residual", "cost_error", "acceptance_error")]
        print(f"{method:8}", *(f"{median:5.1f}" for median in medians), f"{found['covered']}/{found['cells']}")


if __name__ == "__main__":
    main()
