"""Machine-checked proofs of the ledger's theorems: `all_proofs()`, `get("P1")`, `prove("P1")`, `to_json()`."""

from specgain.proofs import acceptance, batch, gain, length, quantization, sampling, streaming, tree  # noqa: F401  (each module registers its theorems)
from specgain.proofs.kernel import Proof, Result, all_proofs, get, prove, to_json

__all__ = ["Proof", "Result", "all_proofs", "get", "prove", "to_json"]
