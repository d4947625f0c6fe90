"""The bar of the lab: generated cases of truncation and batching, in which no token differs from plain greedy decoding.

A two-layer random model in float64; 500 cases in `make test`, 10,000 in `make long` (SPECGAIN_LONG=1).
"""

import os

import numpy as np
import pytest
import torch

from specgain.control import Controller
from specgain.lab.drafts import Bigram, Lookup, Scripted, Suffix
from specgain.lab.loop import ModelDraft, Stop, generate
from specgain.lab.model import Cache

VOCAB, LONGEST, SEEDS = 61, 24, 4
PIECES = ("a", "b", "ab", "é", "ca", "c", "bb")  # what a token says: one or two letters, one or two bytes
BLOCKS, CASES = 10, 1000 if os.environ.get("SPECGAIN_LONG") else 50


def text(tokens):
    """Token ids as text."""
    return "".join(PIECES[token % 7] for token in tokens)


@pytest.fixture(scope="module")
def worlds(make_pair):
    """Per seed: (target, drafts, [(prompt, its plain greedy text)])."""
    return [world(make_pair, seed) for seed in range(SEEDS)]


def world(make_pair, seed):
    target, model = make_pair(seed, torch.float64, vocab=VOCAB)
    rng, pool = np.random.default_rng(seed), []
    for length in range(1, 10):
        prompts = torch.from_numpy(rng.integers(0, VOCAB, (8, length)))
        pool += zip(prompts.tolist(), plain(target, prompts), strict=True)
    drafts = {
        "model": ModelDraft(model),
        "itself": ModelDraft(target),
        "lookup": Lookup(VOCAB),
        "long lookup": Lookup(VOCAB, longest=5, shortest=2),
        "suffix": Suffix(VOCAB),  # warm: it has seen all earlier cases
        "bigram": Bigram(rng.integers(0, VOCAB, VOCAB)),
        "scripted": Scripted(target, 0.8, seed=seed),
    }
    return target, drafts, pool


def plain(target, prompts):
    """Greedy decoding written out: one token at a time, no loop of the lab."""
    store, step, columns = Cache(target, len(prompts)), prompts, []
    for _ in range(LONGEST):
        step = target(step, store)[:, -1:].argmax(dim=-1)
        columns.append(step)
    return torch.cat(columns, dim=1).tolist()


def ended(prompt, tokens, max_tokens, eos, strings):
    """What plain decoding commits, found by reading the text from its start for every length."""
    for n in range(1, max_tokens + 1):
        whole, before = text(prompt + tokens[:n]), len(text(prompt))
        said = any(whole.find(s, max(0, before - len(s) + 1)) >= 0 for s in strings)
        if tokens[n - 1] == eos or said:
            return tokens[:n], "stop"
    return tokens[:max_tokens], "length"


class Lengths(Controller):
    """A controller that goes through a list of lengths as it is asked."""

    def __init__(self, lengths):
        self.lengths, self.asked = lengths, 0

    def gamma(self, batch_size, request):
        self.asked += 1
        return self.lengths[self.asked % len(self.lengths)]

    def observe(self, request, drafted, accepted):
        assert 0 <= accepted <= drafted


def draw(rng, pool):
    """Return one case: requests, and the options of `generate`. Ends are taken from the texts, so that they come up."""
    requests = [pool[i] for i in rng.integers(len(pool), size=rng.integers(1, 7))]
    max_tokens = int(rng.integers(1, LONGEST + 1))
    eos = int(rng.choice(requests[0][1])) if rng.random() < 0.5 else None
    strings = []
    for _ in range(rng.integers(0, 3)):
        prompt, tokens = requests[rng.integers(len(requests))]
        whole, size = text(prompt + tokens), int(rng.integers(1, 6))
        start = int(rng.integers(max(1, len(whole) - size)))
        strings.append(whole[start : start + size])
    lengths = rng.integers(0, 8, size=rng.integers(1, 6)).tolist()
    gamma = Lengths(lengths) if len(lengths) > 1 else lengths[0]
    return requests, max_tokens, eos, tuple(strings), gamma, int(rng.integers(1, 7))


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.claims("C1.1", "C1.2", "C7.4")
def test_no_token_differs_from_plain_greedy_decoding(worlds, block):
    """EOS, stop strings across tokens, caps, rows, admission, mixed γ, every draft."""
    seen = {"stop": 0, "length": 0, "cut": 0}
    for case in range(block * CASES, (block + 1) * CASES):
        rng = np.random.default_rng([2026, case])
        target, drafts, pool = worlds[rng.integers(SEEDS)]
        requests, max_tokens, eos, strings, gamma, rows = draw(rng, pool)
        name = str(rng.choice(list(drafts)))
        stop, prompts = Stop(eos, strings, text), [prompt for prompt, _ in requests]
        run = generate(target, prompts, max_tokens, drafts[name], gamma, rows=rows, stop=stop)
        for (prompt, tokens), output in zip(requests, run.outputs, strict=True):
            expected = ended(prompt, tokens, max_tokens, eos, strings)
            assert (output.tokens, output.log.finish) == expected, (case, name, prompt)
            assert sum(output.log.committed) == len(output.tokens) and min(output.log.committed) >= 1
            seen[output.log.finish] += 1
            seen["cut"] += any(output.log.cut)
        assert max(len(r.requests) for r in run.rounds) <= rows
    assert all(count > CASES / 5 for count in seen.values()), seen  # the cases reach what they are for


def test_a_stop_string_may_begin_in_the_prompt_but_not_end_there():
    stop = Stop(strings=("ab",), text=text)
    before = np.array([5, 2])  # "c", "ab"
    assert stop.cut(before, len(before), [5, 5]) is None
    assert stop.cut(before, len(before), [5, 2, 5]) == 2
    assert stop.cut(np.array([5, 0]), 2, [1, 5]) == 1  # "a" then "b"


def test_a_stop_string_may_hold_a_character_that_two_tokens_share():
    """Byte tokens: half a character shows as a replacement sign until its second half comes."""

    def bytes_text(tokens):
        return bytes(tokens).decode(errors="replace")

    cafe = list("caféx".encode())
    stop = Stop(strings=("é",), text=bytes_text)
    assert stop.cut(np.array(cafe), 4, cafe[4:]) == 1
    assert stop.cut(np.array(cafe), 3, cafe[3:]) == 2
    assert Stop(strings=("fé",), text=bytes_text).cut(np.array(cafe), 4, cafe[4:]) == 1
    assert stop.cut(np.array(cafe), 5, cafe[5:]) is None
