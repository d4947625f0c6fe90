"""Sampling with speculation follows the target's distribution: exactly on a toy vocabulary, and by χ² on real models.

The exact tests hand `verify_sampled` every cell of a grid of random numbers once. All thresholds min(1, p/q) are
multiples of one cell, so the share of the cells is the probability, as a fraction and without error.
"""

import os
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from specgain.control import Controller
from specgain.lab import measure, sampling
from specgain.lab.drafts import Bigram, Lookup, Suffix
from specgain.lab.loop import ModelDraft, generate
from specgain.lab.model import Cache
from specgain.lab.pair import load_pair
from specgain.lab.prediction import rounds_of, strings_of
from specgain.lab.sampling import Sampling, verify_sampled

VOCAB, CELLS = 3, 8
LONG = bool(os.environ.get("SPECGAIN_LONG"))


# --- a toy world in eighths ----------------------------------------------------------------------------------------

P = [(1, 3, 4), (8, 0, 0), (2, 6, 0), (5, 1, 2), (3, 3, 2)]  # eighths; zeros and certainty included
Q = [(4, 2, 2), (2, 4, 2), (4, 4, 0), (8, 0, 0), (0, 4, 4)]  # quarters and halves, so that p/q is whole eighths


def law(table, prefix):
    """The distribution after `prefix` as fractions; it depends on every token of it."""
    row = table[sum((i + 1) * (token + 1) for i, token in enumerate(prefix)) % len(table)]
    return [Fraction(n, 8) for n in row]


def guess_law(prefix, greedy_draft):
    """The draft's distribution: of a sampling draft, or all on one token."""
    if not greedy_draft:
        return law(Q, prefix)
    return [Fraction(int(token == sum(prefix) % VOCAB)) for token in range(VOCAB)]


def paths(width, greedy_draft):
    """All guesses of this width with their probability under the draft."""
    for path in product(range(VOCAB), repeat=width):
        q = np.prod([guess_law(path[:i], greedy_draft)[x] for i, x in enumerate(path)], initial=Fraction(1))
        if q:
            yield path, q


def enumerate_rounds(monkeypatch, widths, greedy_draft):
    """Return {width: {(committed tokens, K): probability}} of `verify_sampled`, all widths as rows of one call."""
    rows, n = [], max(widths)
    for width in widths:
        for path, weight in paths(max(width, 0), greedy_draft):
            for cell in product((np.arange(CELLS) + 0.5) / CELLS, repeat=max(width, 0)):
                rows.append((width, path, weight / CELLS ** len(cell), cell))
    numbers = torch.zeros(len(rows), n, dtype=torch.float64)  # 0 would accept: behind a row's width it must not count
    guesses, p, q = (
        torch.zeros(len(rows), n, dtype=torch.long),
        [],
        torch.zeros(len(rows), n, VOCAB, dtype=torch.float64),
    )
    for r, (width, path, _, cell) in enumerate(rows):
        numbers[r, : len(cell)], guesses[r, : len(path)] = torch.tensor(cell), torch.tensor(path)
        p += [[float(v) for v in law(P, path[:i])] for i in range(width + 1)]
        for i in range(len(path)):
            q[r, i] = torch.tensor([float(v) for v in guess_law(path[:i], greedy_draft)])
    seen = []
    monkeypatch.setattr(sampling.torch, "rand", lambda *shape, **_: numbers)
    monkeypatch.setattr(
        sampling.torch, "multinomial", lambda rest, *_, **__: seen.append(rest) or rest.argmax(1)[:, None]
    )
    widths_of = [width for width, *_ in rows]
    accepted, table = verify_sampled(
        torch.tensor(p, dtype=torch.float64), guesses, widths_of, None if greedy_draft else q, None
    )
    monkeypatch.undo()
    laws = {width: Counter() for width in widths if width >= 0}
    for (width, path, weight, _), k, rest, committed in zip(rows, accepted, seen[0].tolist(), table, strict=True):
        if width < 0:
            continue
        assert committed[:k].tolist() == list(path[:k]) and committed[k] == np.argmax(rest)
        total = sum(map(Fraction, rest))
        for token, mass in enumerate(rest):
            if mass:
                laws[width][(*path[:k], token), int(k)] += weight * Fraction(mass) / total
    return laws


def target_probability(tokens, before=()):
    """Pr(tokens | before) under the target."""
    return np.prod([law(P, (*before, *tokens[:i]))[x] for i, x in enumerate(tokens)], initial=Fraction(1))


@pytest.fixture(params=[False, True], ids=["probabilistic draft", "greedy draft"], scope="module")
def rounds(request):
    """The exact law of a round for three widths in one ragged call, with a row that takes no part among them."""
    with pytest.MonkeyPatch.context() as patch:
        return request.param, enumerate_rounds(patch, [2, -1, 0, 3, 1], request.param)


@pytest.mark.claims("C0.5", "C6.0")
def test_the_output_follows_the_target_exactly(rounds):
    """A round, then ordinary sampling up to γ + 1 tokens: the joint distribution is the target's, as fractions."""
    for width, outcomes in rounds[1].items():
        whole = Counter()
        for (committed, _), probability in outcomes.items():
            for rest in product(range(VOCAB), repeat=width + 1 - len(committed)):
                whole[*committed, *rest] += probability * target_probability(rest, committed)
        for text in product(range(VOCAB), repeat=width + 1):
            assert whole[text] == target_probability(text), (width, text)


@pytest.mark.claims("C2.2")
def test_a_sampled_text_tells_the_law_of_its_rounds_exactly(rounds):
    """Given the text x, the guess at each of its tokens was accepted with probability min(1, q(x)/p(x)), independently.

    So one plain sampled run and one pass of the draft over it give the rounds of every γ.
    """
    greedy_draft, laws = rounds
    for width, outcomes in laws.items():
        for (committed, k), probability in outcomes.items():
            kept = [
                min(Fraction(1), guess_law(committed[:i], greedy_draft)[x] / law(P, committed[:i])[x])
                for i, x in enumerate(committed)
            ]
            last = 1 - kept[k] if k < width else 1
            assert probability == target_probability(committed) * np.prod(kept[:k], initial=Fraction(1)) * last
        assert sum(outcomes.values()) == 1


def test_a_wrong_rule_is_caught_by_the_enumeration(monkeypatch):
    """The check can fail: drawing a rejected position from p itself, not from the residual, is seen at once."""
    true = enumerate_rounds(monkeypatch, [2], False)[2]
    multinomial_from_p = Counter()
    for (committed, k), probability in true.items():
        if k == 2:
            multinomial_from_p[committed, k] = probability
    for (path, k), mass in _rejections(true).items():
        for token, p in enumerate(law(P, path)):
            multinomial_from_p[(*path, token), k] += mass * p
    first = Counter()
    for (committed, _), probability in multinomial_from_p.items():
        first[committed[0]] += probability
    assert sum(first.values()) == 1 and [first[token] for token in range(VOCAB)] != law(P, ())


def _rejections(outcomes):
    """Probability of being rejected behind each accepted path."""
    found = Counter()
    for (committed, k), probability in outcomes.items():
        if k < 2:
            found[committed[:-1], k] += probability
    return found


# --- temperature, top-k, top-p -------------------------------------------------------------------------------------


def naive_probs(logits, temperature, top_k, top_p):
    """The definition, token by token."""
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    order = order[: top_k or len(order)]
    mass = {i: np.exp((logits[i] - logits[order[0]]) / temperature) for i in order}
    total, before, kept = sum(mass.values()), 0.0, []
    for i in order:
        if before < top_p:
            kept.append(i)
        before += mass[i] / total
    whole = sum(mass[i] for i in kept)
    return [mass[i] / whole if i in kept else 0.0 for i in range(len(logits))]


@pytest.mark.parametrize(
    "temperature, top_k, top_p",
    [(1, 0, 1), (0.3, 0, 1), (2, 5, 1), (1, 0, 0.7), (0.8, 7, 0.5), (1, 1, 1), (1, 0, 1e-9)],
)
def test_the_distribution_is_the_defined_one(temperature, top_k, top_p):
    logits = torch.randn(20, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
    probs = Sampling(temperature, top_k, top_p).probs(logits)
    expected = [naive_probs(row, temperature, top_k, top_p) for row in logits.tolist()]
    assert np.allclose(probs.numpy(), expected, atol=1e-12)


# --- χ² with many seeds, small vocabulary: the joint law of four tokens --------------------------------------------

SMALL, TOKENS, PROMPT = 5, 4, [1, 3, 0]


@pytest.fixture(scope="module")
def small(make_pair):
    target, draft = make_pair(0, torch.float64, noise=0.3, vocab=SMALL)
    return target, draft


def joint_law(target, sampling):
    """Probability of every text of TOKENS tokens after PROMPT, (SMALL ** TOKENS,), from whole-sequence passes."""
    texts = torch.tensor(list(product(range(SMALL), repeat=TOKENS)))
    fed = torch.cat((torch.tensor(PROMPT).expand(len(texts), -1), texts[:, :-1]), dim=1)
    probs = sampling.probs(target(fed, Cache(target, len(fed), fed.shape[1]))[:, len(PROMPT) - 1 :])
    return probs.gather(2, texts[:, :, None])[:, :, 0].prod(dim=1).numpy()


class Mixed(Controller):
    """Lengths that differ from request to request and round to round."""

    def gamma(self, batch_size, request):
        self.asked = getattr(self, "asked", 0) + 1
        return (3, 0, 1, 2)[self.asked % 4]


TABLE = [2, 0, 4, 1, 3]
HOT, COOL, NUCLEUS = Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.3, top_p=0.8)
WAYS = {
    "model": (lambda draft: ModelDraft(draft), 3, {}, HOT),
    "model, greedy": (lambda draft: ModelDraft(draft, sample=False), 3, {}, HOT),
    "model, top-k": (lambda draft: ModelDraft(draft), 2, {}, COOL),
    "model, top-p, ragged": (lambda draft: ModelDraft(draft), Mixed(), {}, NUCLEUS),
    "model, rows come and go": (lambda draft: ModelDraft(draft), Mixed(), {"rows": 50}, HOT),
    "lookup": (lambda draft: Lookup(SMALL), 3, {}, HOT),
    "suffix, rows come and go": (lambda draft: Suffix(SMALL), 3, {"rows": 100}, COOL),
    "bigram, ragged": (lambda draft: Bigram(TABLE), Mixed(), {}, NUCLEUS),
}


def p_values(target, draft, gamma, options, how, repeats, requests=240):
    """One χ² p-value per seed: counts of the texts against their exact law, rare texts put together."""
    law = joint_law(target, how)
    order = np.argsort(-law)
    bins = np.zeros(len(law), int)
    bins[order] = np.floor(
        np.minimum(law[order].cumsum() * requests, requests - 1e-6) / 12
    )  # about 12 expected in each
    expected = np.bincount(bins, law) * requests
    values = []
    for seed in range(repeats):
        run = generate(target, [PROMPT] * requests, TOKENS, draft, gamma, sampling=how, seed=seed, **options)
        codes = np.array([o.tokens for o in run.outputs]) @ SMALL ** np.arange(TOKENS)[::-1]
        assert law[codes].min() > 0
        used = expected > 0
        counts = np.bincount(bins[codes], minlength=len(expected))[used]
        values.append(stats.chisquare(counts, expected[used]).pvalue)
    return np.array(values)


def test_the_rule_of_a_draft_that_does_not_sample_is_exact_for_one_that_does(small, monkeypatch):
    """Forgetting q costs acceptance, not exactness: whatever the guess, x is kept with p(x), else comes from the others."""
    target, model = small

    def forgetful(probs, guesses, widths, draft_probs, rng):
        return verify_sampled(probs, guesses, widths, None, rng)

    monkeypatch.setattr("specgain.lab.loop.verify_sampled", forgetful)
    values = p_values(target, ModelDraft(model), 3, {}, HOT, repeats=8)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claims("C0.5")
def test_p_values_over_seeds_are_uniform(small, way):
    target, model = small
    make, gamma, options, how = WAYS[way]
    values = p_values(target, make(model), gamma, options, how, repeats=300 if LONG else 10)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


def test_a_wrong_rule_is_caught_by_the_p_values(small, monkeypatch):
    target, model = small

    def wrong(probs, guesses, widths, draft_probs, rng):
        q = None if draft_probs is None else draft_probs / 2  # keeps guesses twice as readily
        return verify_sampled(probs, guesses, widths, q, rng)

    monkeypatch.setattr("specgain.lab.loop.verify_sampled", wrong)
    values = p_values(target, ModelDraft(model), 3, {}, HOT, repeats=4)
    assert stats.kstest(values, "uniform").pvalue < 1e-6, values


# --- the committed pair: every token's place in the target's own distribution is uniform ---------------------------


def places(target, draft, prompt, texts, how, rng):
    """Return one number per token of `texts` (rows, n), uniform on [0, 1] if and only if each token follows the target.

    Tokens are sorted by q − p, so that any lean towards the draft piles up at one end.
    """
    fed = torch.cat((torch.tensor(prompt).expand(len(texts), -1), texts[:, :-1]), dim=1)
    p, q = (how.probs(m(fed, Cache(m, len(fed), fed.shape[1]))[:, len(prompt) - 1 :]) for m in (target, draft))
    order = (q - p).argsort(dim=-1)
    p, at = p.gather(2, order).double(), (order == texts[:, :, None]).long().argmax(dim=-1, keepdim=True)
    own, upto = p.gather(2, at)[:, :, 0].numpy(), p.cumsum(-1).gather(2, at)[:, :, 0].numpy()
    assert own.min() > 0
    return (upto - own * rng.random(own.shape)).ravel()


@pytest.mark.parametrize(
    "name, sample, gamma, how, domain",
    [
        ("strong", True, 4, Sampling(1.0), "prose"),
        ("weak", False, 2, Sampling(0.8, top_k=40), "stdlib"),
        ("lookup", True, 4, Sampling(1.0, top_p=0.9), "json"),
    ],
)
@pytest.mark.claims("C0.5")
def test_sampled_tokens_of_the_committed_pair_follow_the_target(name, sample, gamma, how, domain):
    pair = load_pair(["strong", "weak", "lookup"])
    draft, other = pair.drafts[name], pair.drafts["weak" if name == "weak" else "strong"].model
    if not sample:
        draft.sample = False
    prompt, rng, values = pair.prompts("test")[domain][0].tolist(), np.random.default_rng(0), []
    for seed in range(60 if LONG else 4):
        run = generate(pair.target, [prompt] * 16, 10, draft, gamma, sampling=how, seed=seed)
        texts = torch.tensor([o.tokens for o in run.outputs])
        u = places(pair.target, other, prompt, texts, how, rng)
        values.append(stats.chisquare(np.histogram(u, 10, (0, 1))[0]).pvalue)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


# --- the rounds of a sampled run, foretold from plain sampled texts ------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.claims("C2.2", "C2.6")
def test_the_loop_has_the_rounds_that_plain_texts_foretell(make_pair, gamma):
    target, model = make_pair(1, torch.float64, noise=0.02)
    how, prompts = Sampling(1.0), torch.tensor([[7, 3]]).repeat(200, 1)
    plain = generate(target, prompts.tolist(), 18, sampling=how, seed=1)
    texts = torch.tensor([output.tokens for output in plain.outputs])
    found = measure.agreement(model, prompts, texts, target, how)
    told = [np.mean([len(rounds_of(s, gamma)) for s in strings_of(a, i)]) for i, a in enumerate(found)]
    run = generate(target, prompts.tolist(), 18, ModelDraft(model), gamma, sampling=how, seed=2)
    seen = [output.log.rounds for output in run.outputs]
    error = np.sqrt(np.var(told) / len(told) + np.var(seen) / len(seen))
    assert abs(np.mean(told) - np.mean(seen)) < 3.3 * error  # once in a thousand seeds
    assert np.mean(seen) < 0.97 * 18 and error < 0.03 * np.mean(seen)
