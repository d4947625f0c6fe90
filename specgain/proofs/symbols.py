"""The letters of the proofs, one meaning each; the assumptions written here are the ones SymPy works with."""

import sympy as sp

gamma = sp.Symbol("gamma", integer=True, nonnegative=True)  # γ, candidates per round
n = sp.Symbol("n", integer=True, nonnegative=True)
i, j, k = sp.symbols("i j k", integer=True, nonnegative=True)

p = sp.IndexedBase("p", nonnegative=True)  # p_k = Pr(K = k), or any non-negative weights
a_ = sp.IndexedBase("a", nonnegative=True)  # a_i, conditional acceptance at position i
s_ = sp.IndexedBase("s", nonnegative=True)  # s_i = Pr(K >= i), survival
a = sp.Symbol("a", nonnegative=True)  # one acceptance at every position
E = sp.Function("E", positive=True)  # E(γ), the mean committed length at γ
