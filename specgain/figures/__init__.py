"""Every figure of the course, in one visual language.

A prediction is an open circle on a dashed line, a measurement a filled dot with whiskers on a solid line, always.
Colours name roles, the same as in the pages: draft orange, verify blue, other grey, gain and accepted teal, loss and
rejected vermillion.  A sign, a word or a line style says the same again.  A figure is one column wide, has a unit on
every axis, and shows itself as inline SVG in the page's own text colour: sharp at every size, readable in light and
dark.  Each function returns a `Drawing`, a matplotlib Figure whose `alt` says in words what can be seen.
"""

from specgain.figures.drafters import (  # noqa: F401
    controllers,
    draft_times,
    family_portrait,
    reliability,
    tree_speeds,
)
from specgain.figures.gates import fault_tree, gates_table  # noqa: F401
from specgain.figures.ledger import (  # noqa: F401
    Prediction,
    TokenRounds,
    averaging,
    break_even_map,
    ledger_bars,
    length_by_text,
    log_split_bars,
    marginal_against_average,
    predicted_against_measured,
    predictions,
    round_times,
    speedup_curves,
    staircase,
    token_rounds,
    tokens_over_time,
    trees,
    verified_positions,
    verify_cost,
)
from specgain.figures.quantization import feature_shift, four_runs, passes_by_format  # noqa: F401
from specgain.figures.records import gain_against_load, round_account, speedups_claimed  # noqa: F401
from specgain.figures.serving import (  # noqa: F401
    break_even_contour,
    gain_over_load,
    latency_over_rate,
    memory_bars,
    pass_times,
)
from specgain.figures.streaming import (  # noqa: F401
    burst_paradox,
    chunk_timeline,
    request_timeline,
    scheduler_round,
    smoothing,
)
from specgain.figures.style import Drawing  # noqa: F401
from specgain.figures.tables import PageTable  # noqa: F401
from specgain.figures.workloads import (  # noqa: F401
    acceptance_over_temperature,
    repetition,
    timed_work,
    told_and_counted,
    work_lengths,
)
