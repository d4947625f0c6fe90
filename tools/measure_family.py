"""The committed family portraits: every draft on the one target (see specgain/lab/family.py).

    python tools/measure_family.py          # the portrait, in five minutes on two idle cores: family-short.json
    python tools/measure_family.py judge    # three times the prompts, on texts that no portrait had judged: family.json

Both are written to notebooks/measurements/cpu-2core/.
"""

import argparse
import json

import torch
from measure_round_timing import FOLDER, show, write

from specgain.lab.family import family, longer

TIMES, CONTEXT = 3, 96  # a prompt and half of the next one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["portrait", "judge"], nargs="?", default="portrait")
    judge = parser.parse_args().which == "judge"
    plan = longer(TIMES) | {"judges": range(128), "context": CONTEXT} if judge else {}
    torch.set_num_threads(1)
    result = {"claims": ["C3.2", "C3.5"]} | family(progress=show, **plan)
    write(FOLDER / ("family.json" if judge else "family-short.json"), result)
    print(json.dumps(result["summary"]), len(result["different_output"]), result["seconds"], "s")
    for method, found in result["by_method"].items():
        medians = [found[f"{name}_median_percent"] for name in ("residual", "cost_error", "acceptance_error")]
        print(f"{method:8}", *(f"{median:5.1f}" for median in medians), f"{found['covered']}/{found['cells']}")


if __name__ == "__main__":
    main()
