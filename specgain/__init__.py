"""specgain: does speculative decoding really make a model faster?

The ledger has two sides: E[L], the tokens that a round commits, and T_round, the time of the whole
round.  Speculation is faster if and only if the gain margin M = E[L]·t_D − T_round is positive.

`Acceptance` holds the first side, `RoundTime` the second, and `Ledger` puts them together.
"""

from specgain.acceptance import Acceptance
from specgain.gain import Ledger
from specgain.round_time import RoundTime

__version__ = "0.1.0"
__all__ = ["Acceptance", "Ledger", "RoundTime", "__version__"]
