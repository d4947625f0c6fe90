"""Drafting under a grammar, in small: candidates that the grammar forbids are cancelled before anything is verified.

A grammar is a dict {state: {token: next state}}; a text may only take the moves of its state.  The state advances with
every candidate, and it must go back when the candidate does.
"""

from typing import NamedTuple


class Round(NamedTuple):
    """What a constrained round did; `state` is the grammar's after the committed tokens, and after these only."""

    committed: tuple
    state: str
    drafted: int
    cancelled: int
    accepted: int


def allowed_prefix(grammar, state, candidates):
    """Return how many candidates the grammar takes in a row from `state` on: 0 … len(candidates).

    >>> allowed_prefix({"start": {"a": "end"}, "end": {}}, "start", ["a", "a"])
    1
    """
    for place, token in enumerate(candidates):
        if token not in grammar[state]:
            return place
        state = grammar[state][token]
    return len(candidates)


def constrained_round(grammar, state, text, candidates, rank):
    """Return the `Round` that verifies `candidates` behind `text` greedily.

    `rank(text)` lists tokens from the target's best to its worst; the target
    takes the best that the state allows.  Cancelled candidates are no drafts:
    they are neither verified nor counted.  A state without moves ends the text.
    """
    kept = candidates[: allowed_prefix(grammar, state, candidates)]
    committed, accepted = [], 0
    for place in range(len(kept) + 1):
        moves, here = grammar[state], (*text, *committed)
        if not moves:
            break
        choice = next((token for token in rank(here) if token in moves), None)
        if choice is None:
            raise ValueError(f"rank({here}) lists no token of {sorted(moves)}")
        committed.append(choice)
        state = moves[choice]
        if place == len(kept) or choice != kept[place]:
            break
        accepted += 1
    cancelled = len(candidates) - len(kept)
    return Round(tuple(committed), state, len(kept), cancelled, accepted)


def constrained_text(grammar, state, draft, rank, gamma, longest=100):
    """Return (text, rounds) of a whole greedy text: `draft(text, gamma)` proposes and knows nothing of the grammar.

    γ = 0 is constrained decoding without a draft.  Ends where the grammar has no move, or after `longest` tokens.
    """
    text, rounds = (), []
    while grammar[state] and len(text) < longest:
        done = constrained_round(grammar, state, text, list(draft(text, gamma)), rank)
        text, state = (*text, *done.committed), done.state
        rounds.append(done)
    return text[:longest], rounds
