"""A scripted draft: it knows the answer and is wrong as often as it is told. For timing, where a must be a dial."""

import numpy as np

from specgain.acceptance import Acceptance
from specgain.lab.loop import Proposal, generate


class Scripted:
    """A draft whose i-th guess is right with probability a_i, if those before it were: K follows the dialled law exactly.

    `acceptance` is an `Acceptance`, one probability for all positions, or a list a_1, a_2, … The draft knows the target's
    greedy text: given as `answers` {number of the request: token ids}, or asked of the `target` when a request begins
    (the time of that is not part of any round). So it says nothing about a real draft's acceptance; it makes rounds of a
    chosen acceptance to time. `paying`, another draft, is run for its time only. Where rounding lets the text part from
    the answer (a tie of two logits), the target is asked again, and `strayed` counts it.
    """

    def __init__(self, target, acceptance, answers=None, paying=None, seed=0):
        if not isinstance(acceptance, Acceptance):
            listed = isinstance(acceptance, (list, tuple))
            acceptance = Acceptance(list(acceptance)) if listed else Acceptance.constant(acceptance)
        self.target, self.acceptance, self.answers, self.paying = target, acceptance, answers, paying
        self.vocab, self.rng, self.strayed, self.texts = target.config.vocab, np.random.default_rng(seed), 0, {}

    def begin(self, batch, rows):
        """Get the answers of the new requests."""
        if self.paying is not None:
            self.paying.begin(batch, rows)
        prompts = [batch.text[r, : batch.length[r]] for r in rows]
        if self.answers is None:
            outputs = generate(self.target, [p.tolist() for p in prompts], batch.max_tokens, gamma=0).outputs
            answers = [output.tokens for output in outputs]
        else:
            answers = [self._given(batch.request[r]) for r in rows]
        for row, prompt, answer in zip(rows, prompts, answers, strict=True):
            self.texts[row] = np.concatenate((prompt, np.asarray(answer, np.int64)))

    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of the answer's next tokens, some of them wrong on purpose."""
        if not sampling.greedy:
            raise ValueError("a scripted draft knows only the greedy text; use temperature 0")
        if self.paying is not None:
            self.paying.propose(batch, wanted, sampling, rng)
        n = max(wanted)
        tokens = np.zeros((len(wanted), n), np.int64)
        for row, w in enumerate(wanted):
            if w:
                tokens[row, :w] = self._answer(batch, row)[batch.length[row] : batch.length[row] + w]
        wrong = self.rng.random(tokens.shape) >= np.array(self.acceptance.conditional(n), float)
        return Proposal(((tokens + wrong) % self.vocab).tolist(), list(wanted))

    def _given(self, request):
        if request not in self.answers:
            raise ValueError(f"answers lacks request {request}; give the target's greedy text of every request")
        return self.answers[request]

    def _answer(self, batch, row):
        """Return the row's whole text as it will be; asks again where it has come otherwise."""
        length, own = batch.length[row], batch.text[row]
        if not np.array_equal(self.texts[row][:length], own[:length]):
            self.strayed += 1
            rest = generate(self.target, [own[:length].tolist()], batch.room[row], gamma=0).outputs[0].tokens
            self.texts[row] = np.concatenate((own[:length], rest))
        return self.texts[row]
