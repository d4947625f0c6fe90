"""What OpenVINO GenAI's speculative samples print (continuous batching): the block that begins with MAIN MODEL.

Layout: `text_generation/speculative_decoding_lm` in samples/cpp and samples/python of openvinotoolkit/openvino.genai
at da1db86; what the numbers count: `perf_metrics.cpp` and `continuous_batching/fast_draft_strategy.cpp` in
`src/cpp/src/speculative_decoding`. The iterations hold the prompt's pass; the accepted tokens are those delivered
beyond one a round, after that pass. The times printed are of the main model's passes alone, the prompt's among them,
so they are no time of a round.
"""

import re

from specgain.records.source import RecordError, count
from specgain.records.summary import COUNTERS, Record, check

LINE = re.compile(
    r"^\s+(Num generated token|Total iteration number|Num accepted token): (\d{1,15})(?: tokens)?\s*$", re.MULTILINE
)
COUNTED = "the tokens drafted and accepted per round, which these samples do not print"


def sample(text, name):
    """Return the Record of the printed block; raises RecordError if it was cut or comes from another back end."""
    main, draft, rest = text.partition("DRAFT MODEL")
    found = {key: count(int(number), key) for key, number in LINE.findall(main)}
    if len(found) < 3 or not draft:
        raise RecordError(f"{name}: the block was cut before its draft model")
    tokens, steps, beyond = (found[k] for k in ("Num generated token", "Total iteration number", "Num accepted token"))
    if steps < 1 or tokens != steps + beyond:
        raise RecordError(f"{name}: {tokens} tokens are not {steps} iterations and {beyond} accepted ones, as continuous "
                          "batching counts them; the stateful back end counts otherwise, please send a sample")  # fmt: skip
    record = Record("OpenVINO GenAI", "openvino-genai-sample", "samples as of 2026-08", "per run", name)
    record.rounds = record.rounds_all = steps - 1
    record.drafting_known, record.committed = False, tokens - 1
    record.details = {"requests": 1, "generation_tokens": tokens}
    later = dict(LINE.findall(rest))
    if "Num generated token" in later:
        record.details["draft_model_tokens"] = count(int(later["Num generated token"]), "Num generated token")
    record.missing |= dict.fromkeys(COUNTERS, COUNTED)
    return check(record)
