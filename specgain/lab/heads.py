"""Drafting heads that read the frozen target's features: EAGLE-style, multi-token (Medusa, MTP), and a parallel block.

Entry t of a head joins the target's features f_t with the embedding of the token that follows, e_{t+1}; it stands for
all that is known before token t + 2. The target has passed every token but the last, so entries up to the last but one
are true. `eagle` goes on from its own features, one step a token; `multi` reads all its tokens off one entry; `block`
drafts them side by side in one pass that looks at all entries (DFlash).
"""

from itertools import accumulate, islice
from numbers import Integral
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from specgain.control import StepTimes
from specgain.lab.loop import Proposal, private, spread
from specgain.lab.model import Cache, Config, Model, WeightsError, ends
from specgain.lab.pair import WEIGHTS, sha256
from specgain.lab.sampling import GREEDY
from specgain.lab.tensors import read_tensors

TAPS = (1, 4, 7)  # the layers whose outputs a head may read; the last one is the target's own last layer
LAYERS = {"eagle": 1, "eagle3": 1, "multi": 0, "block": 2}  # transformer layers of each kind of head
BLOCK = 8  # tokens that the multi-token heads and the block draft at most
REST, LONGEST_REST = 8, 64  # steps of one length for all rows, where a choice row by row does not pay


class Tapped(Model):
    """The target itself, but it keeps the features of every token it passes, for the heads: `features[row, slot]`."""

    def __init__(self, target):
        self.__dict__.update(target.__dict__)
        self.cache = None

    def hidden(self, tokens, cache, widths=None, tree=None, taps=None, inputs=None):
        """As `Model.hidden`."""
        own = dict.fromkeys((*TAPS, *(taps or ())))
        x, place = super().hidden(tokens, cache, widths, tree, own, inputs)
        if cache is not self.cache:
            shape = (len(cache.length), cache.capacity, len(TAPS) * self.config.width)
            self.cache, self.features = cache, torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.features[place.rows, place.slots] = torch.cat([own[layer] for layer in TAPS], dim=1)
        if taps is not None:
            taps.update({layer: own[layer] for layer in taps})
        return x, place


class Head:
    """What the kinds share: the entries, and the target's own norm and output head."""

    def __init__(self, kind, weights, target, sample=True, kernel=None):
        c = target.config
        context = c.context + BLOCK  # a block may stick out beyond the end of the text
        config = Config(c.vocab, c.width, c.heads, c.hidden, LAYERS[kind], context, c.rope_base, c.norm_eps)
        own = {name: w for name, w in weights.items() if name.startswith("layers.")}
        shared = {"embed": target.embed, "final_norm": target.final_norm}
        self.model = Model(config, own | shared, target.dtype, kernel, target.device)
        self.extra = {n: w.to(target.device, target.dtype) for n, w in weights.items() if n not in own}
        self.target, self.vocab, self.sample, self.batch, self.kind = target, c.vocab, sample, None, kind

    def begin(self, batch, rows):
        """Read the entries of the new prompts, all but the last one."""
        if batch is not self.batch:
            self.batch, self.true = batch, [0] * len(batch.length)
            slots, capacity = batch.text.shape
            self.cache = Cache(self.model, slots, capacity + BLOCK) if LAYERS[self.kind] else None
        for row in rows:
            self.true[row] = 0
        feed = [max(0, batch.length[r] - 2) if r in rows else 0 for r in range(len(batch.length))]
        if max(feed):
            self._read(batch, feed)

    def _known(self, batch, wanted):
        """Read all entries that became true and return the last output (rows that draft, width)."""
        feed = [n - 1 - true if w else 0 for n, true, w in zip(batch.length, self.true, wanted, strict=True)]
        if min(n for n, w in zip(batch.length, wanted, strict=True) if w) < 2:
            raise ValueError("a head needs prompts of two or more tokens: it reads the features of what came before")
        return ends(self._read(batch, feed), feed)

    def _entries(self, batch, rows, slots):
        """What the head reads of entries (rows[i], slots[i]): (entries, width)."""
        features, width = self.target.features[rows, slots], self.target.config.width
        if "fuse" in self.extra:
            features = F.linear(_unit(features.unflatten(1, (len(TAPS), width))).flatten(1), self.extra["fuse"])
        features = features[:, -width:]
        following = batch.tokens[rows.cpu(), slots.cpu() + 1].to(rows.device)
        return self._join(features, self.target.embed[following])

    def _join(self, features, embedded):
        return F.linear(torch.cat((_unit(features), _unit(embedded)), dim=1), self.extra["join"])


class EagleHead(Head):
    """One layer that predicts the next feature, token by token, from true features and then from its own."""

    def _read(self, batch, feed):
        self.cache.length = list(self.true)  # what it drafted from its own features gives way to the true ones
        shape = torch.zeros(len(feed), max(feed), dtype=torch.long)
        x, _ = self.model.hidden(
            shape, self.cache, feed, inputs=lambda place: self._entries(batch, place.rows, place.slots)
        )
        self.true = list(self.cache.length)
        return x

    @torch.inference_mode()
    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of `wanted[row]` tokens, one pass of the head for each."""
        sampling = sampling if self.sample else GREEDY
        last, probs, tokens = self._known(batch, wanted), [], [[] for _ in wanted]
        shape = torch.zeros(len(wanted), 1, dtype=torch.long)
        rows = [r for r, w in enumerate(wanted) if w]
        for i in range(max(wanted)):
            chosen, q = sampling.choose(self.model.logits(last), rng)
            for row, token in zip(rows, chosen, strict=True):
                tokens[row].append(token)
            probs.append(q if q is None else spread(q, rows, len(wanted)))
            going = [k for k, r in enumerate(rows) if wanted[r] > i + 1]
            rows = [rows[k] for k in going]
            if rows:
                own = self._join(last[going], self.target.embed[[chosen[k] for k in going]])
                step = [int(r in rows) for r in range(len(wanted))]
                last, _ = self.model.hidden(shape, self.cache, step, inputs=lambda place, own=own: own)
        return Proposal(tokens, wanted, None if sampling.greedy else probs)


class OnePass(Head):
    """Heads that draft all tokens at once; at most BLOCK. The rows may share a budget: see `budgeted`."""

    confidence = None

    def reset(self):
        """Forget what the budget has learnt."""
        self.margin, self.mean, self.equal, self.times = None, [], 0, {}
        self.choices, self.wait, self.rest = 0, 0, 0

    def begin(self, batch, rows):
        """Read the entries of the new prompts; a new batch begins cold."""
        if batch is not self.batch:
            self.reset()
        super().begin(batch, rows)

    def budgeted(self, confidence, t_step, t_ask=0.0, t_choose=0.0):
        """Return a private copy that gives each step's positions to the likeliest candidates of all rows (`best_lengths`).

        `confidence(x, greedy)` foretells the survivals (rows, BLOCK) from the entries, as `SurvivalHead` does;
        `t_step(depth, positions)` is the time of a step in seconds, `depth` the longest row's candidates. The loop's γ is
        then the most that a row may get. All is decided before a candidate is drawn, so the output keeps its law.
        Asking takes `t_ask` seconds, even if no candidate is worth its place, and foretelling and choosing `t_choose`.
        While that loses more than it gains (see `_judge`), the draft rests from it: it gives all rows one length.
        """
        own = private(self)
        own.confidence, own.t_step, own.t_ask, own.t_choose = confidence, t_step, t_ask, t_choose
        return own

    @torch.inference_mode()
    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of `wanted[row]` tokens, at most BLOCK, from one pass; fewer under a budget."""
        sampling, wanted = sampling if self.sample else GREEDY, [min(w, BLOCK) for w in wanted]
        if resting := self.rest > 0:
            self.rest, wanted = self.rest - 1, [min(w, self.equal) for w in wanted]
        if not any(wanted):
            return Proposal([[]] * len(wanted), wanted)
        last, rows = self._known(batch, wanted), [r for r, w in enumerate(wanted) if w]
        if self.confidence is not None and not resting:
            wanted = self.share(last, wanted, len(batch.active), sampling.greedy)
        n = max(wanted)
        if not n:
            return Proposal([[]] * len(wanted), wanted)
        i, columns = (torch.arange(n) < torch.tensor([wanted[r] for r in rows])[:, None]).nonzero(as_tuple=True)
        x = self._outputs(last, rows, n)[i * n + columns]  # of (rows · n, width), those that are there
        chosen, q = sampling.choose(self.model.logits(x), rng)
        chosen = iter(chosen)
        tokens = [list(islice(chosen, w)) for w in wanted]
        if q is None:
            return Proposal(tokens, wanted)
        probs = q.new_zeros(n, len(wanted), q.shape[-1]).index_put_((columns, torch.tensor(rows)[i]), q)
        return Proposal(tokens, wanted, probs.unbind())

    def share(self, last, wanted, batch_size, greedy):
        """Return the candidates that each row gets of the budget, after the entries of those that want any."""
        rows, n = [r for r, w in enumerate(wanted) if w], max(wanted)
        places = self.confidence(last, greedy)[:, :n].float().cpu().numpy()  # NumPy has no bfloat16
        if any(wanted[r] < n for r in rows):  # near the end of its text a row has fewer places
            places = np.where(np.arange(n) < np.array([[wanted[r]] for r in rows]), places, -np.inf)
        shape = len(rows), n, batch_size
        if shape not in self.times:
            t_equal = [float(self.t_step(g, batch_size * (g + 1))) for g in range(n + 1)]
            self.times[shape] = StepTimes(self._asked, *shape), t_equal
        times, t_equal = self.times[shape]
        lengths, tokens, seconds = times.best(places)
        self._judge(places, batch_size, t_equal, tokens, seconds)
        widths = [0] * len(wanted)
        for r, length in zip(rows, lengths, strict=True):
            widths[r] = length
        return widths

    def _judge(self, places, batch_size, t_equal, tokens, seconds):
        """Set how many steps to rest, by the gain margin of a choice over the best length for all rows alike.

        The choice promises `tokens` in `seconds`, and `t_equal[g]` is the time of a step with g candidates for every row. The
        length is the best for the mean survivals of the last steps; 0 is plain decoding. While the margin is below 0 on
        average, over `REST` choices at least, the draft rests for `REST` steps, and for twice as many each time, up to
        `LONGEST_REST`.
        """
        there = places >= 0
        now = (np.where(there, places, 0).sum(axis=0) / there.sum(axis=0)).tolist()
        known = [*self.mean, *now[len(self.mean) :]]
        self.mean = [0.9 * before + 0.1 * s for before, s in zip(known, [*now, *known[len(now) :]], strict=True)]
        rates = [one / t for one, t in zip(accumulate(self.mean, initial=1.0), t_equal, strict=False)]
        self.equal = g = rates.index(max(rates))
        equal = batch_size + float(places[:, :g][there[:, :g]].sum())
        saved = tokens / equal * t_equal[g] - seconds
        self.margin = saved if self.margin is None else 0.9 * self.margin + 0.1 * saved
        self.choices += 1
        rests = self.choices >= REST and self.margin < 0
        self.rest = self.wait = min(2 * self.wait or REST, LONGEST_REST) if rests else 0

    def _asked(self, depth, positions):
        """Seconds of a step in which the draft was asked; one that drafts has the asking in its time already."""
        nothing = isinstance(depth, Integral) and depth == 0
        return self.t_step(depth, positions) + self.t_choose + (self.t_ask if nothing else 0)


class MultiHead(OnePass):
    """A small residual matrix for each place of the draft, all reading the last entry."""

    def _read(self, batch, feed):
        rows = torch.tensor([r for r, f in enumerate(feed) if f])
        for r in rows.tolist():
            self.true[r] += feed[r]
        x = self._entries(batch, rows, torch.tensor([self.true[r] - 1 for r in rows]))
        repeats = torch.tensor([f for f in feed if f], device=x.device)
        return x.repeat_interleave(repeats, dim=0)  # one line per entry, as the others do

    def _outputs(self, last, rows, n):
        moved = F.silu(F.linear(last, self.extra["heads"][: n * last.shape[1]])).view(len(last), n, -1)
        return (last[:, None] + moved).flatten(0, 1)


class BlockHead(OnePass):
    """Layers in which the places of the draft look at all entries and at each other, in one pass."""

    def _read(self, batch, feed):
        cache = self.cache
        cache.length = list(self.true)
        place = cache.place(max(feed), feed)
        x = self._entries(batch, place.rows, place.slots)
        c, cos, sin = (
            self.model.config,
            self.model.cos[place.positions][:, None],
            self.model.sin[place.positions][:, None],
        )
        for i, (norm, qkv, *_) in enumerate(self.model.layers):  # the entries give keys and values to every layer
            heads = qkv(self.model._norm(x, norm)).view(len(x), -1, c.head_width)
            _, keys, values = heads.split((c.heads, c.kv_heads, c.kv_heads), dim=1)
            cache.write(i, self.model._rotate(keys, cos, sin), values, place)
        cache.advance(max(feed), feed)
        self.true = list(cache.length)
        return x

    def _outputs(self, last, rows, n):
        shape = torch.zeros(len(self.true), n, dtype=torch.long)
        x = (last[:, None] + self.extra["places"][:n]).flatten(0, 1)
        whole = spread(x.view(len(rows), n, -1), rows, len(self.true)).flatten(0, 1)
        square = (torch.arange(n), torch.ones(n, n, dtype=torch.bool))  # every place sees every other
        x, _ = self.model.hidden(shape, self.cache, tree=square, inputs=lambda place: whole)
        self.cache.length = list(self.true)
        return x.view(len(self.true), n, -1)[rows].flatten(0, 1)


KINDS = {"eagle": EagleHead, "eagle3": EagleHead, "multi": MultiHead, "block": BlockHead}


def load_head(kind, target, folder=WEIGHTS, sample=True, kernel=None):
    """Return the head of this kind, for a `Tapped` target; `kernel` as in `Model`.

    WeightsError if it was trained on another target.
    """
    if kind not in KINDS:
        raise ValueError(f"head {kind!r} unknown; there are {', '.join(KINDS)}")
    path = Path(folder) / f"head-{kind}.safetensors"
    weights, metadata = read_tensors(path)
    if metadata.get("target_sha256") != sha256(Path(folder) / "target.safetensors"):
        raise WeightsError(f"{path.name} was trained on another target than the one in {Path(folder).name}")
    return KINDS[kind](kind, weights, target, sample, kernel)


def save_head(path, weights, metadata):
    """Write a head as float16 safetensors, with the hash of the target that it was trained on."""
    from safetensors.torch import save_file

    metadata = metadata | {"target_sha256": sha256(WEIGHTS / "target.safetensors")}
    save_file({name: w.detach().to(torch.float16).contiguous() for name, w in weights.items()}, path, metadata)


def _unit(x):
    """Scale to root mean square 1, so that features and embeddings weigh alike."""
    return F.rms_norm(x, (x.shape[-1],))
