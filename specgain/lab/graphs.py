"""The same rounds with static shapes: draft, verification and acceptance stay on the device; the host waits once a round.

On CUDA the three phases of a round are three graphs, captured once per speculation length and span of the cache and
replayed after that, so no Python and no launch of a kernel stands between two matrix products. On CPU the same functions
run as they are, which is how they are tested. What makes the shapes static:

- all rows feed the same number of tokens, and rows that are done go on idly;
- the draft always feeds the last two tokens: the older one again, in case the round before ended on the draft's last
  guess, which it never fed. Writing a token's keys and values twice changes nothing;
- attention looks at a whole span of the cache, a mask hides what lies beyond each row's length, and the span grows in
  steps of an eighth.
"""

from functools import partial
from time import perf_counter

import torch
import torch.nn.functional as F

from specgain import _checks
from specgain.lab.loop import Round, check_request, finished
from specgain.lab.model import Cache, Place
from specgain.lab.sampling import GREEDY

FEWEST_SLOTS = 64  # of a span


def span_bucket(slots, capacity):
    """Return the span for `slots` positions: at most an eighth more (from 512 on), at most `capacity`."""
    step = max(FEWEST_SLOTS, 2 ** (slots.bit_length() - 4))
    return min(-(-slots // step) * step, capacity)


def batch_bucket(rows):
    """Return the next power of two: the rows of the graphs that a batch of this size runs in."""
    return 1 << (rows - 1).bit_length()


class StaticCache(Cache):
    """A cache whose `length` may be a tensor on the device: then no shape depends on it, and each pass sees `span` slots.

    While `length` is a list this is an ordinary cache; that is how prompts are fed. `mix` {n: attention function}
    overrides the model's attention in passes over n tokens.
    """

    def __init__(self, model, batch, capacity):
        super().__init__(model, batch, capacity)
        self.span, self.mix, self.group = capacity, {}, model.config.heads // model.config.kv_heads
        self.usual_mix = model.mix

    def place(self, n, widths=None, tree=None):
        """Return the `Place` of the next n tokens. Past the capacity all share the last slot, which no real token needs."""
        if isinstance(self.length, list):
            return super().place(n, widths, tree)
        batch, device = len(self.length), self.keys.device
        slots = (self.length[:, None] + torch.arange(n, device=device)).clamp(max=self.capacity - 1)
        rows = torch.arange(batch, device=device)[:, None].expand(batch, n).flatten()
        return Place(
            batch, n, rows, None, slots.flatten(), slots.flatten(), None, self.span, None, mix=self._mix(slots)
        )

    def _mix(self, slots):
        """Return the attention of this pass. Its mask is made once, as numbers to add, and serves all layers."""
        hidden = ~self._mask(slots, self.span, None, None).repeat(1, 1, self.group, 1)
        bias = torch.zeros(hidden.shape, dtype=self.keys.dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)
        attention = self.mix.get(slots.shape[1], self.usual_mix)
        return lambda queries, keys, values, attn_mask: attention(queries, keys, values, attn_mask=bias)

    def advance(self, n, widths=None):
        """Count the tokens of a prefill; on the device each pass sets `length` itself."""
        if isinstance(self.length, list):
            super().advance(n, widths)


class Clock:
    """Marks on the time line of the device (CUDA events; on CPU the wall clock)."""

    def __init__(self, device):
        self.device, self.cuda, self.marks = device, device.type == "cuda", []

    def head_start(self):
        """Keep the device busy for some milliseconds: the host queues what follows, and no lap waits for a launch."""
        if self.cuda:
            with torch.cuda.device(self.device):
                torch.cuda._sleep(4_000_000)  # cycles

    def mark(self):
        """Mark the end of the work queued so far."""
        if not self.cuda:
            return self.marks.append(perf_counter())
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        self.marks.append(event)

    def laps(self):
        """Wait for the last mark; return the seconds between the marks. The last one begins the next lap."""
        pairs = list(zip(self.marks, self.marks[1:], strict=False))
        if self.cuda:
            self.marks[-1].synchronize()  # the only place where the host waits
        seconds = [a.elapsed_time(b) / 1e3 if self.cuda else b - a for a, b in pairs]
        self.marks = self.marks[-1:]
        return seconds


class GraphLoop:
    """Speculative decoding of up to `rows` requests at a time (rounded up to a power of two) in static shapes.

    `capacity` is the longest text, prompt included, and `gamma` the greatest speculation length. `dial`, conditional
    acceptances a_1 … a_gamma, replaces the verdict: the guesses are verified and then kept with these chances, for
    timing models whose weights are random. With `capture=False` the phases run as they are on CUDA too. ValueError for
    sampling with block verification, which `loop.generate` knows.
    """

    def __init__(
        self,
        target,
        draft=None,
        rows=1,
        capacity=None,
        gamma=8,
        *,
        eos=None,
        sampling=GREEDY,
        dial=None,
        seed=0,
        capture=True,
    ):
        if sampling.verification != "token" and not sampling.greedy:
            raise ValueError(
                f"verification = {sampling.verification!r} is not built in static shapes; use 'token' here, or lab.generate"
            )
        self.target, self.draft = target, getattr(draft, "model", draft)
        self.rows, self.gamma, self.eos, self.sampling = batch_bucket(rows), _checks.whole("gamma", gamma), eos, sampling
        self.capacity = target.config.context if capacity is None else capacity
        self.device = device = target.device
        self.cache = StaticCache(target, self.rows, self.capacity)
        self.draft_cache = None if self.draft is None else StaticCache(self.draft, self.rows, self.capacity)
        whole = partial(torch.zeros, dtype=torch.long, device=device)
        self.text = whole(self.rows, self.capacity + self.gamma + 1)
        self.length, self.end = whole(self.rows) + 1, whole(self.rows) + 1  # a row is idle when it is at its end
        self.report = whole(4, self.rows)
        self.on_host = torch.zeros(4, self.rows, dtype=torch.long, pin_memory=device.type == "cuda")
        self.every = torch.arange(self.rows, device=device)
        self.dial = None if dial is None else torch.tensor(dial, dtype=torch.float32, device=device)
        self.rng = torch.Generator(device).manual_seed(seed)
        self.clock, self.phases, self.buffers = Clock(device), {}, {}
        self.pool = self.stream = None
        if capture and device.type == "cuda":
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    @torch.inference_mode()
    def generate(self, prompts, max_tokens, gamma=0):
        """Return the `Run` of continuing each prompt; as `loop.generate`, whose tokens it repeats, but all at once.

        The last rounds cost as much as any other, since the draft always proposes γ; `drafted` counts what could still
        be used.
        """
        prompts = [list(prompt) for prompt in prompts]
        check_request(self.target, prompts, max_tokens, None, None)
        if len(prompts) > self.rows:
            raise ValueError(
                f"{len(prompts)} prompts do not fit into {self.rows} rows; make the loop with rows={len(prompts)}"
            )
        self.start(prompts, max_tokens)
        rounds, active, lengths = [], list(range(len(prompts))), [len(prompt) for prompt in prompts]
        while active:
            (drafted, accepted, committed, room), times = self.round(gamma, max(lengths[r] for r in active))
            of = [[column[r] for r in active] for column in (drafted, accepted, committed)]
            rounds.append(Round(active, *of, *times))
            for row in active:
                lengths[row] += committed[row]
            active = [row for row in active if room[row]]
        texts = [row[:n] for row, n in zip(self.text.tolist(), lengths, strict=False)]
        finish = ["stop" if text[-1] == self.eos and self.eos is not None else "length" for text in texts]
        return finished(prompts, dict(enumerate(zip(texts, finish, strict=True))), rounds, gamma)

    @torch.inference_mode()
    def start(self, prompts, max_tokens):
        """Feed the prompts, all but the last token of each, and give each row `max_tokens` to commit."""
        longest = max(map(len, prompts))
        if longest + max_tokens > self.capacity:
            raise ValueError(
                f"{longest} prompt tokens and max_tokens = {max_tokens} need {longest + max_tokens} positions; "
                f"this loop has capacity = {self.capacity}"
            )
        table = torch.zeros(self.rows, longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            table[row, : len(prompt)] = torch.tensor(prompt)
        self.text[:, :longest] = table.to(self.device)
        lengths = torch.ones(self.rows, dtype=torch.long)
        lengths[: len(prompts)] = torch.tensor([len(prompt) for prompt in prompts])
        self.length.copy_(lengths)
        self.end.copy_(lengths)
        self.end[: len(prompts)] += max_tokens
        for model, cache in ((self.target, self.cache), (self.draft, self.draft_cache)):
            if cache is not None and longest > 1:
                cache.length = [0] * self.rows
                model.hidden(self.text[:, : longest - 1], cache)  # a shorter row overwrites what lies beyond it
        self.clock.marks.clear()
        self.clock.mark()

    @torch.inference_mode()
    def pretend(self, context, max_tokens, seed=0):
        """Begin `rows` requests of `context` tokens whose keys and values are random numbers: for timing, no prefill."""
        if context + max_tokens > self.capacity:
            raise ValueError(f"context = {context} and max_tokens = {max_tokens} exceed capacity = {self.capacity}")
        rng = torch.Generator(self.device).manual_seed(seed)
        for cache in filter(None, (self.cache, self.draft_cache)):
            for store in (cache.keys, cache.values):
                for layer in store:
                    layer.normal_(generator=rng)
        self.text.random_(0, self.target.config.vocab, generator=rng)
        self.length.fill_(context)
        self.end.fill_(context + max_tokens)
        self.clock.marks.clear()
        self.clock.mark()

    @torch.inference_mode()
    def round(self, gamma, longest):
        """Run one round; return ((drafted, accepted, committed, room left), (t_draft, t_verify, t_other)).

        The first four are lists by row, the times seconds.  `longest`: the tokens of the longest text that is not done.
        """
        if gamma > self.gamma or (gamma and self.draft is None):
            raise ValueError(f"gamma = {gamma}: this loop was made for 0 to {self.gamma if self.draft else 0}")
        clock = self.clock
        draft, verify, accept = self._phases(gamma, span_bucket(longest + gamma, self.capacity))
        if not clock.marks:
            clock.mark()
        clock.mark()
        draft()
        clock.mark()
        verify()
        clock.mark()
        accept()
        self.on_host.copy_(self.report, non_blocking=True)
        clock.mark()
        host, t_draft, t_verify, t_accept = clock.laps()
        return self.on_host.tolist(), (t_draft, t_verify, host + t_accept)

    # --- the three phases; each reads and writes buffers of fixed shape and place ------------------------------------

    def _draft(self, guesses, probs, span):
        cache, two = self.draft_cache, torch.arange(2, device=self.device)
        cache.span, cache.length = span, (self.length - 2).clamp(min=0)
        last = self.length - 1 - cache.length  # 1, or 0 in a row of one token
        x, _ = self.draft.hidden(self.text.gather(1, cache.length[:, None] + two), cache)
        x = x.view(self.rows, 2, -1)[self.every, last]
        for i in range(guesses.shape[1]):
            guesses[:, i] = token = self._choose(self.draft.logits(x), probs[0], i)
            if i + 1 < guesses.shape[1]:
                cache.length = self.length + i
                x, _ = self.draft.hidden(token[:, None], cache)

    def _verify(self, guesses, choices, probs, span):
        self.cache.span, self.cache.length = span, self.length - 1
        tokens = torch.cat((self.text.gather(1, self.length[:, None] - 1), guesses), dim=1)
        logits = self.target.logits(self.target.hidden(tokens, self.cache)[0]).view(*tokens.shape, -1)
        if self.sampling.greedy:
            choices.copy_(logits.argmax(dim=-1))
        else:
            probs[1].copy_(self.sampling.probs(logits))

    def _accept(self, guesses, choices, probs):
        """Count accepted guesses and commit, no further than the row's end and its first end token."""
        gamma, room = guesses.shape[1], self.end - self.length
        if self.sampling.greedy:
            hits, new = guesses == choices[:, :-1], choices
        else:
            hits, new = self._keep(guesses, *probs), None
        if self.dial is not None:
            hits = torch.rand(hits.shape, generator=self.rng, device=self.device) < self.dial[:gamma]
        drafted = (room - 1).clamp(0, gamma)
        kept = hits.long().cumprod(1).sum(1)
        accepted = torch.minimum(kept, drafted)
        new = self._drawn(guesses, kept, *probs) if new is None else new
        count = torch.minimum(accepted + 1, room)
        if self.eos is not None:
            first = ((new == self.eos).long().cumsum(1) == 0).sum(1) + 1  # tokens up to the end token
            self.end.copy_(torch.where(first <= count, self.length + first, self.end))
            count = torch.minimum(count, first)
        columns = torch.arange(gamma + 1, device=self.device)
        places = self.length[:, None] + columns
        self.text.scatter_(1, places, torch.where(columns < count[:, None], new, self.text.gather(1, places)))
        self.length += count
        self.report.copy_(torch.stack((drafted, accepted, count, self.end - self.length)))

    # --- sampling ----------------------------------------------------------------------------------------------------

    def _choose(self, logits, probs, i):
        if self.sampling.greedy:
            return logits.argmax(dim=-1)
        probs[:, i] = self.sampling.probs(logits)
        return self._draw(probs[:, i])

    def _draw(self, weights):
        """Return one index per row, with chances in proportion to `weights`: the first to arrive in a race of clocks."""
        arrivals = torch.empty_like(weights).exponential_(generator=self.rng).clamp_(min=1e-30)
        return (weights / arrivals).argmax(dim=-1)

    def _keep(self, guesses, q, p):
        chance = torch.rand(guesses.shape, generator=self.rng, device=self.device, dtype=p.dtype)
        q, p = (x[:, : guesses.shape[1]].gather(2, guesses[:, :, None])[:, :, 0] for x in (q, p))
        return chance * q < p

    def _drawn(self, guesses, kept, q, p):
        """The guesses, and behind those kept a token of the residual (p − q)₊; q is 0 behind the last guess."""
        p, q = p[self.every, kept], q[self.every, kept]
        rest = (p - q).clamp_(min=0.0)
        new = F.pad(guesses, (0, 1))
        new[self.every, kept] = self._draw(torch.where(rest.sum(dim=1, keepdim=True) > 0, rest, p))
        return new

    # --- capture -----------------------------------------------------------------------------------------------------

    def _phases(self, gamma, span):
        """Return three functions that run the phases of a round: draft, verify, accept."""
        if (gamma, span) not in self.phases:
            guesses, choices, probs = self._buffers(gamma)
            bodies = [
                partial(self._draft, guesses, probs, span) if gamma else _nothing,
                partial(self._verify, guesses, choices, probs, span),
                partial(self._accept, guesses, choices, probs),
            ]
            if self.device.type == "cuda":
                self._choose_attention(gamma, span)
            if self.pool:
                bodies = [body if body is _nothing else self._capture(body) for body in bodies]
            self.phases[gamma, span] = bodies
            self.clock.marks.clear()  # the time of a capture belongs to no round
        return self.phases[gamma, span]

    def _buffers(self, gamma):
        """Return (guesses (rows, γ), choices (rows, γ + 1), (q, p) or Nones, each (rows, γ + 1, vocab)) of one γ."""
        if gamma not in self.buffers:
            whole = partial(torch.zeros, dtype=torch.long, device=self.device)
            shape = (self.rows, gamma + 1, self.target.config.vocab)
            dtype = torch.float64 if self.target.dtype == torch.float64 else torch.float32
            probs = (
                (None, None)
                if self.sampling.greedy
                else [torch.zeros(shape, dtype=dtype, device=self.device) for _ in "qp"]
            )
            self.buffers[gamma] = whole(self.rows, gamma), whole(self.rows, gamma + 1), probs
        return self.buffers[gamma]

    def _capture(self, body):
        """Return the replay of a CUDA graph of `body`, after two runs to warm up; what they changed is put back.

        All graphs of a loop are captured on its own stream. cuBLAS keeps a workspace for each stream, and where PyTorch
        drops it with the first graph captured there that dies, the graphs of another loop would go on to use it.
        """
        state = [self.text, self.length, self.end]
        saved, current = [tensor.clone() for tensor in state], torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            body()
            body()
        current.wait_stream(self.stream)
        graph, random = torch.cuda.CUDAGraph(), self.dial is not None or not self.sampling.greedy
        if random and hasattr(graph, "register_generator_state"):  # from PyTorch 2.14 on it does nothing
            graph.register_generator_state(self.rng)
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            body()
        for tensor, old in zip(state, saved, strict=True):
            tensor.copy_(old)
        return graph.replay

    def _choose_attention(self, gamma, span):
        """For each pass of a round take the faster of the two attention functions at this shape, if the kernel of the
        model brings none of its own."""
        passes = [(self.cache, self.target, gamma + 1)]
        passes += [(self.draft_cache, self.draft, n) for n in (1, 2)] if gamma else []
        for cache, model, n in passes:
            if model.mix is F.scaled_dot_product_attention:
                cache.mix[n] = faster_attention(model, cache, n, span)


def _nothing():
    """The draft phase of γ = 0."""


def split_attention(queries, keys, values, attn_mask, chunk=1024):
    """Return attention by matrix products, the sum over the values cut into pieces of `chunk` slots.

    A fused kernel gives one block of the GPU to each head of each row. A long context at batch 1 then keeps a handful of
    its hundred processors busy; here the pieces share the work. Shapes as F.scaled_dot_product_attention;
    `attn_mask` is added to the scores.
    """
    scores = (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)
    weights = scores.add_(attn_mask).softmax(dim=-1)
    chunk = next(
        (c for c in (chunk, chunk // 2, chunk // 4, chunk // 8) if weights.shape[-1] % c == 0), weights.shape[-1]
    )
    parts = weights.unflatten(-1, (-1, chunk)).transpose(2, 3) @ values.unflatten(-2, (-1, chunk))
    return parts.sum(dim=2)


def faster_attention(model, cache, n, span, calls=5, most_bytes=1e9):
    """Return the attention function that is faster for n tokens over `span` slots, timed on the cache's first layer.

    Launches do not count, since a graph has none.
    """
    c, batch = model.config, len(cache.keys[0])
    rows = c.heads // c.kv_heads * n
    if model.device.type != "cuda" or batch * c.kv_heads * rows * span * cache.keys.element_size() > most_bytes:
        return F.scaled_dot_product_attention
    queries = torch.randn(batch, c.kv_heads, rows, c.head_width, dtype=model.dtype, device=model.device)
    mask = torch.zeros(batch, 1, rows, span, dtype=model.dtype, device=model.device)
    keys, values = (store[0, :, :, :span] for store in (cache.keys, cache.values))
    seconds = {}
    for attention in (F.scaled_dot_product_attention, split_attention):
        clock = Clock(model.device)
        attention(queries, keys, values, attn_mask=mask)
        clock.head_start()
        clock.mark()
        for _ in range(calls):
            attention(queries, keys, values, attn_mask=mask)
        clock.mark()
        seconds[attention] = sum(clock.laps())
    return min(seconds, key=seconds.get)


def generate_static(target, prompts, max_tokens, draft=None, gamma=0, *, eos=None, sampling=GREEDY, seed=0):
    """Return the `Run` of `loop.generate` for these arguments, made by a `GraphLoop` of just this size."""
    if draft is not None and draft.vocab != target.config.vocab:
        raise ValueError(
            f"draft and target must share a vocabulary; the draft has {draft.vocab} tokens, the target {target.config.vocab}"
        )
    prompts = [list(prompt) for prompt in prompts]
    if draft is None and _checks.whole("gamma", gamma):
        raise ValueError(f"gamma = {gamma} needs a draft; pass draft=ModelDraft(...) or use gamma = 0")
    check_request(target, prompts, max_tokens, draft, None)
    loop = GraphLoop(target, draft, len(prompts), max(map(len, prompts)) + max_tokens, gamma, eos=eos,
                     sampling=sampling, seed=seed)  # fmt: skip
    return loop.generate(prompts, max_tokens, gamma)
