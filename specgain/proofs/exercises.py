"""Three theorems left for the reader: the statement and the scaffolding stand, the marked slots are empty.

An exercise is built like a theorem (`kernel`), with its slots as arguments, so that a reader's answer is checked
by the same code as the proofs of the book.
"""

from dataclasses import dataclass, field

from sympy import Rational, Sum, denom, together

from specgain.acceptance import fill_rate
from specgain.gain import speedup
from specgain.proofs.acceptance import LENGTH, PROBABILITIES, SURVIVAL
from specgain.proofs.kernel import AtLeast, Given, Identity, Induction, Lemma, SameSign
from specgain.proofs.symbols import E, a, c, gamma, i, j, s_

WITHOUT_FRACTION = (
    lambda e: denom(together(e)).is_number,
    "Write it without a fraction: what divides belongs to the factor.",
)
NAMES = {"gamma": gamma, "i": i, "j": j, "a": a, "c": c, "s": s_, "E": E, "Sum": Sum, "Rational": Rational}


@dataclass(frozen=True)
class Exercise:
    """A theorem with slots; `build(**answers)` yields (names of the slots a step needs, step) pairs."""

    id: str
    title: str
    says: str
    plain: str
    stars: int
    build: object
    slots: dict  # {slot name: what belongs there}
    hints: dict  # {slot name: {a plausible wrong answer: what to think about}}
    solution: dict  # {slot name: formula in text}
    forms: dict = field(default_factory=dict)  # {slot name: (test of the formula, what to say if it fails)}


EXERCISES = {}


def exercise(id, title, **about):
    """Register the decorated function as an exercise."""

    def register(build):
        EXERCISES[id] = Exercise(id, title, build=build, **about)
        return EXERCISES[id]

    return register


@exercise(
    "X1",
    "What a round drafts in vain",
    says=r"A round throws away $\gamma-\mathrm E[K]=\sum_{i=1}^{\gamma}(1-s_i)$ drafted tokens on average. "
    r"Prove it by induction on $\gamma$, "
    r"starting from $\mathrm E[K]=\sum_{i=1}^{\gamma}s_i$ (P1).",
    plain="tokens drafted in vain: gamma - (s_1 + ... + s_gamma); write it as one sum, by induction on gamma",
    stars=1,
    slots={
        "X1_base": "the value of gamma - Sum(s[i], (i, 1, gamma)) at gamma = 0",
        "X1_step": "what it grows by when gamma becomes gamma + 1",
        "X1_sum": "the whole as one sum over i",
    },
    hints={
        "X1_base": {"1": "That would count the bonus token. It is not drafted."},
        "X1_step": {
            "1 - s[gamma]": "Off by one: which position does the new candidate stand at?",
            "s[gamma + 1]": "That is the chance that the new candidate is kept. It is in vain otherwise.",
        },
        "X1_sum": {
            "Sum(1 - s[i], (i, 0, gamma))": "Position 0 is not drafted; its term happens to be zero only if s_0 = 1. "
            "Start at 1.",
            "Sum(s[i], (i, 1, gamma))": "That is E[K], what was kept.",
        },
    },
    solution={"X1_base": "0", "X1_step": "1 - s[gamma + 1]", "X1_sum": "Sum(1 - s[i], (i, 1, gamma))"},
)
def in_vain(X1_base, X1_step, X1_sum):
    vain = gamma - Sum(s_[i], (i, 1, gamma))
    yield (), Given(r"$s_i=\Pr(K\ge i)$.", s_[i] <= 1, each=i)
    yield ("X1_base",), Identity("No candidates, nothing in vain.", vain.subs(gamma, 0), X1_base)
    yield ("X1_step",), Identity("One more candidate.", vain.subs(gamma, gamma + 1) - vain, X1_step)
    yield ("X1_sum",), Induction("All together, by induction.", gamma, vain, X1_sum)
    yield ("X1_sum",), AtLeast("It is never negative.", vain, 0, because=X1_sum)


@exercise(
    "X2",
    "When the second candidate pays",
    says=r"Constant acceptance $a$, $T(\gamma)=t_D(1+c\gamma)$. Show that $S(2)>S(1)$ if and only if $c$ is below a "
    r"threshold, and find it.",
    plain="with S(1) = (1 + a)/(1 + c) and S(2) = (1 + a + a^2)/(1 + 2c): "
    "S(2) > S(1) exactly if c is below a threshold",
    stars=2,
    slots={
        "X2_factor": "a positive factor: S(2) - S(1) = factor * difference",
        "X2_difference": "the difference that decides the sign",
        "X2_threshold": "the threshold for c, a formula in a",
    },
    hints={
        "X2_difference": {
            "a**2 - c*(1 + a)": "The denominators differ: the new token is divided by the longer time, "
            "the old ones are too."
        },
        "X2_threshold": {
            "a": "That decides whether the first candidate pays (P11).",
            "a**2": "The second candidate must also make up for the time that it adds to the tokens already there.",
        },
    },
    solution={
        "X2_factor": "1/((1 + c)*(1 + 2*c))",
        "X2_difference": "a**2*(1 + c) - c*(1 + a)",
        "X2_threshold": "a**2/(1 + a - a**2)",
    },
    forms={
        "X2_difference": WITHOUT_FRACTION,
        "X2_threshold": (lambda e: e.free_symbols <= {a}, "A threshold for c is a formula in a alone."),
    },
)
def second_candidate(X2_factor, X2_difference, X2_threshold):
    yield (), Given(r"$0\le a\le1$, $c>0$.", a <= 1)
    S = [speedup(sum(a**m for m in range(g + 1)), 1, 1 + c * g) for g in (1, 2)]
    yield ("X2_factor", "X2_difference"), SameSign("Over one denominator.", S[1] - S[0], X2_difference, X2_factor)
    ours = a**2 * (1 + c) - c * (1 + a)
    yield ("X2_threshold",), SameSign("Solve for c.", ours, X2_threshold - c, 1 + a * (1 - a))


@exercise(
    "X3",
    "The fill rate never rises",
    says=r"For every acceptance law the share of verified positions that commit a token, $E(\gamma)/(\gamma+1)$, "
    r"never rises with $\gamma$. "
    r"Bring the difference of two neighbours over one denominator, "
    r"and write the numerator as a sum of terms that cannot be negative: "
    r"you may use $s_i\ge s_{i+1}$ (P5).",
    plain="E(gamma)/(gamma + 1) >= E(gamma + 1)/(gamma + 2) for every acceptance law",
    stars=3,
    slots={
        "X3_factor": "a positive factor: E(gamma)/(gamma + 1) - E(gamma + 1)/(gamma + 2) = factor * numerator",
        "X3_numerator": "the numerator, in E(gamma), s[gamma + 1] and gamma",
        "X3_sum": "the numerator as one sum over j of non-negative terms, each with a factor s[j] - s[j + 1]",
    },
    hints={
        "X3_numerator": {
            "E(gamma) - (gamma + 2)*s[gamma + 1]": "Count again: γ + 1 positions commit E(γ), one more adds s_{γ+1}."
        },
        "X3_sum": {
            "Sum(s[j] - s[j + 1], (j, 0, gamma))": "That telescopes to 1 - s_{γ+1}. "
            "How often does each fall s_j − s_{j+1} count?",
            "Sum(j*(s[j] - s[j + 1]), (j, 0, gamma))": "Off by one: the fall after position 0 counts once, not never.",
        },
    },
    solution={
        "X3_factor": "1/((gamma + 1)*(gamma + 2))",
        "X3_numerator": "E(gamma) - (gamma + 1)*s[gamma + 1]",
        "X3_sum": "Sum((j + 1)*(s[j] - s[j + 1]), (j, 0, gamma))",
    },
    forms={"X3_numerator": WITHOUT_FRACTION},
)
def fill_rate_falls(X3_factor, X3_numerator, X3_sum):
    for part in (PROBABILITIES, SURVIVAL, LENGTH, Lemma("Survival never rises.", "P5", s_[i] >= s_[i + 1], each=i)):
        yield (), part
    rates = [fill_rate(E(gamma + m), gamma + m) for m in (0, 1)]
    yield ("X3_factor", "X3_numerator"), SameSign("Over one denominator.", rates[0] - rates[1], X3_numerator, X3_factor)
    ours = E(gamma) - (gamma + 1) * s_[gamma + 1]
    yield ("X3_sum",), Induction("As a sum of falls, by induction.", gamma, ours, X3_sum)
    yield ("X3_sum",), AtLeast("Every term is non-negative.", ours, 0, because=X3_sum)
