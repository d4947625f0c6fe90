"""The exact law of one round on a toy vocabulary: token verification and block verification, by enumeration.

A model is a function from a prefix (a tuple of tokens) to the probabilities of the next token, a sequence over the
vocabulary 0, 1, …  With `Fraction`s every result is exact.  The work grows as (vocabulary size)^γ.
"""

from collections import defaultdict
from itertools import product


def round_law(target, draft, gamma, rule="token", verified=None):
    """Return {committed tokens: probability} of one round: the accepted candidates and the target's own token.

    `rule` is "token" (Leviathan et al. 2023, Chen et al. 2023) or "block" (Sun et al. 2025).  `verified(candidates)`,
    if given, says how many of the γ candidates are kept for verification.  The output keeps the target's law if that
    choice is non-anticipating: whether candidate i is kept may depend on the candidates before it only.

    >>> from fractions import Fraction as F
    >>> law = round_law(lambda prefix: (F(1, 3), F(2, 3)), lambda prefix: (F(2, 3), F(1, 3)), gamma=2, rule="block")
    >>> committed_length(law) - 1
    Fraction(11, 9)
    """
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r} is not known; known are {' and '.join(RULES)}")
    law = defaultdict(int)
    for candidates, chance in strings(draft, gamma).items():
        kept = candidates if verified is None else candidates[: verified(candidates)]
        for k, (stays, extra) in enumerate(RULES[rule](target, draft, kept)):
            for token, probability in enumerate(extra if stays else ()):
                law[*kept[:k], token] += chance * stays * probability
    return {tokens: probability for tokens, probability in law.items() if probability}


def committed_length(law):
    """Return E[L], the mean number of tokens that a round with this law commits."""
    return sum(len(tokens) * probability for tokens, probability in law.items())


def accepted_pmf(law, gamma):
    """Return Pr(K = k) for k = 0…γ, where K = L − 1."""
    return tuple(sum(p for tokens, p in law.items() if len(tokens) == k + 1) for k in range(gamma + 1))


def output_law(law, target, length):
    """Return {string of `length` tokens: probability} of a round's tokens, continued by the target where they end."""
    found = defaultdict(int)
    for tokens, probability in law.items():
        for more, chance in strings(target, max(0, length - len(tokens)), tokens).items():
            found[(tokens + more)[:length]] += probability * chance
    return dict(found)


def strings(model, length, prefix=()):
    """Return {string of `length` tokens: probability} that `model` writes after `prefix`."""
    size, found = len(_checked(model(prefix), prefix)), {(): 1}
    for _ in range(length):
        found = {
            (*tokens, token): before * _checked(model(prefix + tokens), prefix + tokens)[token]
            for (tokens, before), token in product(found.items(), range(size))
        }
    return {tokens: probability for tokens, probability in found.items() if probability}


def _checked(probabilities, prefix):
    if any(p < 0 for p in probabilities) or abs(sum(probabilities) - 1) > 1e-9:
        raise ValueError(f"the probabilities {probabilities} after {prefix} must be 0 or more and sum to 1")
    return probabilities


# A rule returns, for k = 0…n, (Pr(exactly k candidates are accepted | candidates), the law of the token after them).


def _token(target, draft, candidates):
    """Accept candidate i with min(1, p/q); the first rejection ends the round."""
    found, alive = [], 1
    for k, token in enumerate(candidates):
        p, q = target(candidates[:k]), draft(candidates[:k])
        accepted = min(1, p[token] / q[token])
        found.append((alive * (1 - accepted), _residual(p, q)))
        alive *= accepted
    return [*found, (alive, target(candidates))]


def _block(target, draft, candidates):
    """Accept the longest prefix that passes a test of its own; w is the prefix's ratio p/q, cut at 1 on the way."""
    found, w = [], 1
    for k, token in enumerate(candidates):
        p, q = target(candidates[:k]), draft(candidates[:k])
        spare = sum(max(w * a - b, 0) for a, b in zip(p, q, strict=True))
        passes = 1 if k == 0 else spare / (spare + 1 - w) if spare else 0
        found.append((passes, _residual(p, q, w)))
        w = min(1, w * p[token] / q[token])
    found.append((w if candidates else 1, target(candidates)))
    later_fail, law = 1, []
    for passes, extra in reversed(found):
        law.append((passes * later_fail, extra))
        later_fail *= 1 - passes
    return law[::-1]


def _residual(p, q, w=1):
    """Return the law in proportion to (w·p − q)⁺; p itself where nothing is left (a case of probability 0)."""
    rest = [max(w * a - b, 0) for a, b in zip(p, q, strict=True)]
    total = sum(rest)
    return [value / total for value in rest] if total else p


RULES = {"token": _token, "block": _block}
