"""Decoding, plain and speculative, of one request or many at a time, in one loop that times its own phases.

One round: the draft proposes, the target verifies all candidates of all rows in one pass, and each row commits its
accepted prefix plus the target's own next token. Rows have their own lengths, acceptances and ends; a row that ends
makes room for the next request. The output is that of plain decoding: token for token when greedy (only rounding of two
logits that tie could tell them apart), in distribution when sampling. With γ = 0 the same loop is plain decoding.
"""

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from numbers import Integral
from os.path import commonprefix
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
import torch

from specgain import _checks
from specgain.control import Controller, Fixed
from specgain.lab.model import Cache
from specgain.lab.sampling import GREEDY, uniform, verify_greedy
from specgain.records.roundlog import RequestLog


class Proposal(NamedTuple):
    """What a draft offers: to row r the first `widths[r]` of the list `tokens[r]`.

    If it sampled them, `probs[i]` (rows, vocab) is the distribution that the rows' tokens i were drawn from.
    """

    tokens: list
    widths: list
    probs: Sequence | None = None


class Draft(Protocol):
    """What the loop needs from a draft. A draft may remember what it likes: the loop tells it everything it committed."""

    vocab: int

    def begin(self, batch, rows):
        """Get ready for the new requests in `rows` of the `Batch`."""

    def propose(self, batch, wanted, sampling, rng):
        """Return a `Proposal` of at most `wanted[row]` tokens to follow each row's text, fewer if it has no more.

        `rng` is an iterator of random numbers in [0, 1), see `specgain.lab.sampling.uniform`.
        """


@dataclass(frozen=True)
class Stop:
    """What ends a request early: the token `eos`, or one of `strings` in its text (`text` turns token ids into a str).

    The token that completes the end is the last one committed. A stop string may span tokens, and begin in the prompt.
    """

    eos: int | None = None
    strings: tuple = ()
    text: object = None

    def cut(self, text, n, new):
        """Return how many of the tokens `new` (a list) to commit after the first n of `text` (an array); None if there is
        no end."""
        ends = [new.index(self.eos) + 1] if self.eos in new else []
        if self.strings:
            reach = max(len(s.encode()) for s in self.strings)  # a token holds at least one byte
            before = text[max(0, n - reach) : n].tolist()
            if self._found(before, new):
                ends.append(next(n for n in range(1, len(new) + 1) if self._found(before, new[:n])))
        return min(ends, default=None)

    def _found(self, before, new):
        """True if a string ends in the `new` tokens; where a character was only half there before, it counts as new."""
        whole = self.text(before + new)
        start = len(commonprefix((self.text(before), whole)))
        return any(string in whole[max(0, start - len(string) + 1) :] for string in self.strings)


class Batch:
    """The texts of all rows on their way: `text` (rows, capacity) token ids, `length[r]` of them, prompt included.

    `request[r]` is the number of the request in row r, None if the row is empty; `room[r]` the tokens that it may still
    commit. A request that ends leaves its row; `ends[request]` is then (its whole text, finish).
    """

    def __init__(self, rows, capacity, max_tokens):
        self.text = np.zeros((rows, capacity), np.int64)
        self.tokens = torch.from_numpy(self.text)  # the same memory
        self.columns = self.tokens.split(1, dim=1) if rows == 1 else ()  # a row alone is fed views, made once
        self.length, self.room, self.request = [1] * rows, [0] * rows, [None] * rows
        self.max_tokens, self.ends = max_tokens, {}

    def admit(self, queue):
        """Put waiting requests, pairs (number, prompt), into the empty rows; returns those rows."""
        empty = [r for r, request in enumerate(self.request) if request is None][: len(queue)]
        for row in empty:
            self.request[row], prompt = queue.popleft()
            self.text[row, : len(prompt)] = prompt
            self.length[row], self.room[row] = len(prompt), self.max_tokens
        return empty

    @property
    def active(self):
        """The rows that hold a request."""
        return [r for r, request in enumerate(self.request) if request is not None]

    def tail(self, widths):
        """The last `widths[r]` tokens of each row, (rows, greatest width), zeros behind."""
        return self._stretch([n - w for n, w in zip(self.length, widths, strict=True)], widths)

    def offer(self, guesses, widths):
        """Write `widths[r]` guesses (lists) behind each text; returns them and the last token before, as `tail` does."""
        for row, (n, guess, w) in enumerate(zip(self.length, guesses, widths, strict=True)):
            if w > 0:
                self.text[row, n : n + w] = guess[:w]  # not counted yet: what the round commits is written over them
        return self._stretch([n - 1 for n in self.length], [w + 1 for w in widths])

    def guess(self, guesses, i, widths):
        """Write the guess `guesses[r][i]` behind the text where `widths[r]` is 1; returns these (rows, 1), zeros elsewhere."""
        for row, w in enumerate(widths):
            if w:
                self.text[row, self.length[row] + i] = guesses[row][i]
        return self._stretch([n + i for n in self.length], widths)

    def _stretch(self, starts, widths):
        """The `widths[r]` tokens from `starts[r]` on of each row; for a row alone a view of its text."""
        if len(widths) == 1:
            return self.columns[starts[0]] if widths[0] == 1 else self.tokens.narrow(1, starts[0], widths[0])
        found = np.zeros((len(widths), max(widths)), np.int64)
        for row, (start, w) in enumerate(zip(starts, widths, strict=True)):
            found[row, :w] = self.text[row, start : start + w]
        return torch.from_numpy(found)

    def commit(self, row, new, stop):
        """Append the list `new` to a row as far as its end, which frees the row; returns how many tokens it took."""
        n = self.length[row]
        end = None if stop is NOTHING else stop.cut(self.text[row], n, new)
        count = len(new) if end is None else end
        self.text[row, n : n + count] = new[:count]
        self.length[row] += count
        self.room[row] -= count
        if end is not None or self.room[row] == 0:
            whole = self.text[row, : self.length[row]].tolist()
            self.ends[self.request[row]] = whole, "length" if end is None else "stop"
            self.request[row] = None
        return count


class ModelDraft:
    """A draft that is a small model with a cache of its own. It samples as the target does, unless `sample` is False.

    With `stop`, the `control.StopRule` that the loop must get as `gamma` too, the draft asks after each pass which rows
    make another. The rule sees what earlier rounds accepted and how sure the draft was of this round's candidates up to
    here: `confidence(x, logits, greedy)` per row from the model's last output, by default its highest probability. All
    of these candidates are verified, and the next one is not drawn yet, so no choice looks at the token that it decides
    about; each candidate is verified as under a fixed length, and the output keeps its law.
    """

    def __init__(self, model, sample=True, stop=None, confidence=None):
        self.model, self.vocab, self.sample, self.batch = model, model.config.vocab, sample, None
        self.stop, self.confidence = stop, confidence or highest_probability

    def begin(self, batch, rows):
        """Prefill all but the last token of the new prompts."""
        if batch is not self.batch:
            self.batch, self.cache = batch, Cache(self.model, *batch.text.shape)
        prefill(self.model, self.cache, batch, rows)

    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of the model's own continuation of each row by `wanted[row]` tokens, fewer with `stop`."""
        sampling = sampling if self.sample else GREEDY
        cache, widths = self.cache, list(wanted)
        cache.length = [min(a, n - 1) for a, n in zip(cache.length, batch.length, strict=True)]  # forget the rejected
        # one token is new, or two after a full acceptance, since the last guess was never fed
        step = [n - a if w else 0 for n, a, w in zip(batch.length, cache.length, wanted, strict=True)]
        fed, probs, tokens, sure = batch.tail(step), [], [[] for _ in wanted], [[] for _ in wanted]
        while True:
            x, logits = self.model.last(fed, cache, step)
            rows = [r for r, f in enumerate(step) if f]
            chosen, q = sampling.choose(logits, rng)
            for row, token in zip(rows, chosen, strict=True):
                tokens[row].append(token)
            probs.append(q if q is None else spread(q, rows, len(wanted)))
            if self.stop is not None:
                self._shorten(widths, batch, sure, rows, self.confidence(x, logits, sampling.greedy).tolist())
            depth = len(probs)
            if depth >= max(widths):
                return Proposal(tokens, widths, None if sampling.greedy else probs)
            step = [int(w > depth) for w in widths]
            fed = batch.guess(tokens, depth - 1, step)

    def _shorten(self, widths, batch, sure, rows, confidences):
        """End the draft of those `rows` where the rule says, after these confidences, that another pass does not pay."""
        for row, confidence in zip(rows, confidences, strict=True):
            sure[row].append(confidence)
            done = len(sure[row])
            if done < widths[row] and not self.stop.goes_on(len(batch.active), batch.request[row], sure[row]):
                widths[row] = done


def highest_probability(x, logits, greedy):
    """Return the probability of the likeliest token (rows,), as a draft's confidence in what it proposes."""
    return logits.softmax(dim=-1).amax(dim=-1)


def spread(values, rows, total):
    """Return (total, …) with `values` (len(rows), …) in these rows, zeros in the others."""
    if len(rows) == total:
        return values
    whole = values.new_zeros(total, *values.shape[1:])
    whole[rows] = values
    return whole


def prefill(model, cache, batch, rows):
    """Feed all but the last token of these rows' prompts, from the first position on."""
    for row in rows:
        cache.length[row] = 0
    widths = [batch.length[r] - 1 if r in rows else 0 for r in range(len(batch.length))]
    if max(widths):
        model.hidden(batch.tokens[:, : max(widths)], cache, widths)


class Round(NamedTuple):
    """One round of all rows: per row of `rows` what `requests[r]` drafted, accepted and committed; times in seconds."""

    requests: list
    drafted: list
    accepted: list
    committed: list
    t_draft: float
    t_verify: float
    t_other: float

    @property
    def time(self):
        """T_round in seconds."""
        return self.t_draft + self.t_verify + self.t_other


@dataclass
class Decoded:
    """The tokens after the prompt, and the round-by-round record."""

    tokens: list
    log: RequestLog


@dataclass
class Run:
    """`outputs`, one `Decoded` per request, and the `rounds` of the whole batch in order."""

    outputs: list
    rounds: list

    @property
    def time(self):
        """Seconds of all rounds together (decode phase only, no prefill)."""
        return sum(r.time for r in self.rounds)

    @property
    def tokens(self):
        """Tokens committed by all rounds."""
        return sum(sum(r.committed) for r in self.rounds)


NOTHING = Stop()


def generate(target, prompts, max_tokens, draft=None, gamma=0, *, rows=None, sampling=GREEDY, stop=NOTHING, seed=0):
    """Return the `Run` of continuing each of `prompts` (lists of token ids) by `max_tokens` tokens, or up to its end.

    At most `rows` requests (default: all) share a pass; the others wait for a free row. `gamma` is the speculation
    length, or a `specgain.control.Controller` that decides it step by step. Prefills are not timed;
    every token comes from a round. γ shrinks at the end so that the length is exact.
    """
    loop = stepwise(target, prompts, max_tokens, draft, gamma, rows=rows, sampling=sampling, stop=stop, seed=seed)
    return in_turns([loop])[0]


@torch.inference_mode()
def stepwise(target, prompts, max_tokens, draft=None, gamma=0, *, rows=None, sampling=GREEDY, stop=NOTHING, seed=0):
    """Yield, after each round of `generate`, how many tokens it committed; return the `Run`."""
    prompts = [list(prompt) for prompt in prompts]
    lengths = gamma if isinstance(gamma, Controller) else Fixed(gamma)
    check_request(target, prompts, max_tokens, draft, rows)
    if draft is None and gamma != 0:
        raise ValueError("a speculation length above 0 needs a draft; pass draft=ModelDraft(...) or use gamma = 0")
    rows = min(rows or len(prompts), len(prompts))
    batch = Batch(rows, max(map(len, prompts)) + max_tokens, max_tokens)
    cache, queue = Cache(target, *batch.text.shape), deque(enumerate(prompts))
    rng, clock, rounds, nothing = uniform(seed), device_clock(target.device), [], [[]] * rows
    while True:
        if queue and (fresh := batch.admit(queue)):
            prefill(target, cache, batch, fresh)
            if draft is not None:
                draft.begin(batch, fresh)
            t0 = clock()
        if not (active := batch.active):
            return finished(prompts, batch.ends, rounds, gamma=None if lengths is gamma else gamma)
        requests, wanted = [batch.request[row] for row in active], [0] * rows
        for row, length in zip(active, lengths.gammas(len(active), requests), strict=True):
            wanted[row] = min(length, batch.room[row] - 1)
        proposal = draft.propose(batch, wanted, sampling, rng) if any(wanted) else Proposal(nothing, wanted)
        t1 = clock()
        widths = [w if r is not None else -1 for w, r in zip(proposal.widths, batch.request, strict=True)]
        logits = target(batch.offer(proposal.tokens, widths), cache, [w + 1 for w in widths])
        t2 = clock()
        if sampling.greedy:
            accepted, table = verify_greedy(logits, proposal.tokens, widths)
        else:
            accepted, table = sampling.verify(logits, proposal.tokens, widths, proposal.probs, rng)
        committed = []
        for row, request in zip(active, requests, strict=True):
            committed.append(batch.commit(row, table[row][: accepted[row] + 1], stop))
            cache.length[row] = batch.length[row] - 1  # roll back; the last token is fed by the next round
            lengths.observe(request, widths[row], accepted[row])
            if request in batch.ends:
                lengths.finish(request)
        drafted, accepted = [widths[row] for row in active], [accepted[row] for row in active]
        t3 = clock()
        rounds.append(Round(requests, drafted, accepted, committed, t1 - t0, t2 - t1, t3 - t2))
        yield sum(committed)
        t0 = clock()


TURN = 16  # tokens; what a change of loops costs (other weights lie in the cache) is spread over as many


def in_turns(loops, turn=TURN):
    """Return the `Run` of each of these `stepwise` loops, which take turns of `turn` tokens, the shortest text first.

    So all of them meet the same moments of a machine whose speed wanders. They must not share a draft: see `private`.
    """
    waiting, runs = [(0, place) for place in range(len(loops))], [None] * len(loops)
    while waiting:
        tokens, place = heappop(waiting)
        try:
            end = tokens + turn
            while tokens < end:
                tokens += next(loops[place])
            heappush(waiting, (tokens, place))
        except StopIteration as ended:
            runs[place] = ended.value
    return runs


def private(draft):
    """Return a copy of a draft that shares its weights but nothing that it remembers, for a loop of its own."""
    own = copy(draft)
    if hasattr(own, "target"):
        own.target = copy(own.target)  # the target of a head keeps the features of the last pass
    if hasattr(own, "paying"):
        own.paying = private(own.paying)
    if hasattr(own, "reset"):
        own.reset()
    return own


def decode(target, prompt, max_tokens, /, draft=None, gamma=0, eos=None, **labels):
    """Return the `Decoded` greedy continuation of one `prompt` by `max_tokens` tokens, or up to and with `eos`.

    `labels` (id, arm, domain, prompt, repeat) go into its record. For more, see `generate`.
    """
    run = generate(target, [prompt], max_tokens, draft, gamma, stop=NOTHING if eos is None else Stop(eos))
    decoded = run.outputs[0]
    for name, value in labels.items():
        setattr(decoded.log, name, value)
    return decoded


def device_clock(device):
    """A function that returns the time in seconds, after all work handed to the device is done."""
    if device.type != "cuda":
        return perf_counter

    def clock():
        torch.cuda.synchronize(device)
        return perf_counter()

    return clock


def finished(prompts, ends, rounds, gamma):
    """Return the `Run` of these rounds; `ends` is {request: (its whole text, finish)}, `gamma` None if it varied."""
    columns = {request: {name: [] for name in (*Round._fields[1:], "batch")} for request in ends}
    for r in rounds:
        times = (r.t_draft, r.t_verify, r.t_other, len(r.requests))
        for request, *counts in zip(r.requests, r.drafted, r.accepted, r.committed, strict=True):
            for column, value in zip(columns[request].values(), (*counts, *times), strict=True):
                column.append(value)
    outputs = []
    for request, prompt in enumerate(prompts):
        (text, finish), rows = ends[request], columns[request]
        longest = max(rows["drafted"]) if gamma is None else gamma
        rows["batch"] = rows["batch"] if max(rows["batch"]) > 1 else []
        log = RequestLog(id=f"request {request}", arm=f"gamma {longest}" if longest else "plain", gamma=longest,
                         prompt_tokens=len(prompt), output_tokens=len(text) - len(prompt), prefill_tokens=0,
                         finish=finish, **rows)  # fmt: skip
        outputs.append(Decoded(text[len(prompt) :], log))
    return Run(outputs, rounds)


def check_request(target, prompts, max_tokens, draft, rows):
    """Raise ValueError if a prompt, the cap, the rows or the draft do not fit the target; the message says which."""
    vocab, context = target.config.vocab, target.config.context
    _checks.whole("max_tokens", max_tokens, least=1)
    if rows is not None:
        _checks.whole("rows", rows, least=1)
    if not prompts:
        raise ValueError("prompts is empty; give at least one list of token ids")
    for prompt in prompts:
        whole = all(isinstance(token, Integral) and not isinstance(token, bool) for token in prompt)
        if not prompt or not whole or not all(0 <= token < vocab for token in prompt):
            raise ValueError(f"a prompt must hold one or more token ids, whole numbers from 0 to {vocab - 1}")
        if len(prompt) + max_tokens > context:
            raise ValueError(
                f"{len(prompt)} prompt tokens and max_tokens = {max_tokens} need {len(prompt) + max_tokens} positions; "
                f"this model has {context}"
            )
    if draft is not None and draft.vocab != vocab:
        raise ValueError(
            f"draft and target must share a vocabulary; the draft has {draft.vocab} tokens, the target {vocab}"
        )
