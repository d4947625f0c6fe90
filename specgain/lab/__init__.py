"""The lab: a real pair of models, an exact speculative loop that times itself, and measurements.

Importing this package does not import torch. A name that needs it is loaded on first use.
"""

from importlib import import_module

from specgain.lab.prediction import Cost, Setting, predict, rounds_of, summary
from specgain.lab.quick import NEEDED, committed, live

__all__ = ["Cost", "Setting", "committed", "live", "predict", "rounds_of", "summary"]
_MODULE_OF = {
    **dict.fromkeys(["Decoded", "Draft", "ModelDraft", "Proposal", "Run", "Stop", "decode", "generate"], "loop"),
    **dict.fromkeys(["GREEDY", "Sampling"], "sampling"),
    **dict.fromkeys(["GraphLoop", "generate_static"], "graphs"),
    "device_defaults": "device",
    **dict.fromkeys(["Cache", "Config", "Model", "WeightsError", "load"], "model"),
    **dict.fromkeys(["DOMAINS", "DRAFTS", "Pair", "load_pair", "load_prompts", "weights_hash"], "pair"),
    **dict.fromkeys(["load_gguf", "load_smollm2"], "gguf_file"),
    **dict.fromkeys(["PAIRS", "load_hub", "load_hub_pair"], "hub"),
    "shape_pair": "shapes",
    **dict.fromkeys(["QUANTIZED", "Int8", "divergence"], "quantize"),
    "judge": "quality",
    **dict.fromkeys(["environment", "make_plan", "read_plan", "round_timing", "run_rounds"], "measure"),
    **dict.fromkeys(["measure_acceptance", "measure_cost", "measure_cost_tight", "measure_run", "plain_steps"], "measure"),
}


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'specgain.lab' has no attribute {name!r}")
    try:
        return getattr(import_module(f"specgain.lab.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in NEEDED:
            raise
        raise ImportError(
            f"specgain.lab.{name} needs {', '.join(NEEDED)}, and {missing} is missing: `pip install specgain[lab]` "
            "(on Linux the usual torch is a CUDA build of several GB; a CPU build does as well)"
        ) from error


def __dir__():
    return sorted([*__all__, *_MODULE_OF])
