"""The letters of the proofs, one meaning each; the assumptions written here are the ones SymPy works with."""

import sympy as sp


def positive(*names):
    """Return positive symbols."""
    return sp.symbols(names, positive=True)


gamma = sp.Symbol("gamma", integer=True, nonnegative=True)  # γ, candidates per round
n, h = sp.symbols("n h", integer=True, nonnegative=True)
i, j, k = sp.symbols("i j k", integer=True, nonnegative=True)  # positions, or numbers of rounds

p = sp.IndexedBase("p", nonnegative=True)  # p_k = Pr(K = k), or the target's probabilities
q = sp.IndexedBase("q", nonnegative=True)  # the draft's probabilities
a_ = sp.IndexedBase("a", nonnegative=True)  # a_i, conditional acceptance at position i
s_ = sp.IndexedBase("s", nonnegative=True)  # s_i = Pr(K >= i), survival
a = sp.Symbol("a", nonnegative=True)  # one acceptance at every position
E = sp.Function("E", positive=True)  # E(γ), the mean committed length at γ

t_D, T, c = positive("t_D", "T", "c")  # a plain step, one round, the draft's cost ratio
c_hat = sp.Symbol("chat", nonnegative=True)  # operations of a draft step over those of a target position
T_of = sp.Function("T", real=True)  # T(γ), the round time at γ; that it is positive is a premise
S_of = sp.Function("S", positive=True)  # S(γ), the speedup at γ
D_of = sp.Function("D", real=True)  # D(γ), the step rule's difference

T_ = sp.IndexedBase("T", positive=True)  # T_r, the time of round r
L_ = sp.IndexedBase("L", positive=True)  # L_r, the tokens of round r
w_ = sp.IndexedBase("w", nonnegative=True)  # weights of rounds, adding up to one
u_ = sp.IndexedBase("u", positive=True)  # positive numbers, to build weights from
