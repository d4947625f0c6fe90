"""Sampling with speculation follows the target's distribution: exactly on a toy vocabulary, and by χ² on real models.

The exact tests hand `verify_sampled` every cell of a grid of random numbers once. By token verification all chances are
multiples of one cell, so the share of the cells is the probability, as a fraction and without error. By block
verification the cells end where `specgain.verification` says that the chances lie.
"""

import importlib.util
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from specgain import verification
from specgain.control import Controller, StopRule
from specgain.lab import measure, sampling
from specgain.lab.drafts import Bigram, Lookup, Suffix
from specgain.lab.heads import BLOCK, KINDS, Tapped
from specgain.lab.loop import ModelDraft, generate
from specgain.lab.model import Cache, Config, Model
from specgain.lab.pair import load_pair
from specgain.lab.prediction import rounds_of, strings_of
from specgain.lab.sampling import GREEDY, Sampling, judge, uniform, verify_sampled
from specgain.records.measured import problems

VOCAB, CELLS = 3, 8
TOOLS = Path(__file__).resolve().parents[2] / "tools"
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


def cells(path, greedy_draft, rule):
    """[(random number, its share)] of one row: one number per cell, so that each K comes up as often as it should."""
    if rule == "token":  # chances are products of one-cell steps
        count = CELLS ** len(path)
        return [((i + 0.5) / count, Fraction(1, count)) for i in range(count)]
    law_of_k = verification.RULES[rule](partial(law, P), partial(guess_law, greedy_draft=greedy_draft), path)
    edges = [sum(chance for chance, _ in law_of_k[k:]) for k in range(len(law_of_k) + 1)]  # Pr(K ≥ k), from 1 down to 0
    return [(float(lower + upper) / 2, upper - lower) for upper, lower in pairwise(edges) if upper > lower]


def rows_of(widths, greedy_draft, rule):
    """[(width, guesses, probability, random number)] of all rows that `verify_sampled` shall judge."""
    return [
        (width, path, weight * share, number)
        for width in widths
        for path, weight in paths(max(width, 0), greedy_draft)
        for number, share in cells(path, greedy_draft, rule)
    ]


def judged(patch, rows, greedy_draft, rule):
    """(K, the weights that the row's own token is drawn with, tokens) of each row, all rows in one ragged call."""
    n, p, seen = max(width for width, *_ in rows), [], []
    q = torch.full((len(rows), n, VOCAB), 1 / VOCAB, dtype=torch.float64)  # behind a row's width it must not count
    for r, (width, path, _, _) in enumerate(rows):
        p += [[float(v) for v in law(P, path[:i])] for i in range(width + 1)]
        for i in range(len(path)):
            q[r, i] = torch.tensor([float(v) for v in guess_law(path[:i], greedy_draft)])
    rng = iter([number for *_, number in rows] + [0.5] * len(rows))
    patch.setattr(
        sampling, "pick", lambda sums, number: seen.append(np.diff(sums, prepend=0)) or int(seen[-1].argmax())
    )
    p, q = torch.tensor(p, dtype=torch.float64), None if greedy_draft else q.unbind(1)
    accepted, table = verify_sampled(p, [path for _, path, *_ in rows], [width for width, *_ in rows], q, rng, rule)
    patch.undo()
    return zip(accepted, seen, table, strict=True)


def enumerate_rounds(patch, widths, greedy_draft, rule="token"):
    """Return {width: {(committed tokens, K): probability}} of `verify_sampled`."""
    rows = rows_of(widths, greedy_draft, rule)
    laws = {width: Counter() for width in widths if width >= 0}
    for (width, path, weight, _), (k, rest, committed) in zip(
        rows, judged(patch, rows, greedy_draft, rule), strict=True
    ):
        if width < 0:
            continue
        assert committed[:k] == list(path[:k]) and committed[k] == np.argmax(rest)
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
        return request.param, enumerate_rounds(patch, WIDTHS, request.param)


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_chances_add_up_though_logits_have_16_bits(dtype):
    logits = torch.randn(8, 5000, generator=torch.Generator().manual_seed(0)).to(dtype)
    for kind in (Sampling(1.0), Sampling(0.7, top_k=40), Sampling(1.3, top_p=0.95)):
        probs = kind.probs(logits)
        assert torch.equal(probs, kind.probs(logits.float())) and probs.sum(dim=1).sub(1).abs().max() < 1e-5


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


WIDTHS = [2, -1, 0, 3, 1]


@pytest.mark.parametrize("greedy_draft", [False, True])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_round_has_the_law_that_all_cases_counted_give(monkeypatch, rule, greedy_draft):
    """Every string of committed tokens, in ragged rows, with the chance that `specgain.verification` counts for it.

    With guesses that are not drawn, both rules have one law: there is nothing to make up for.
    """
    draft = partial(guess_law, greedy_draft=greedy_draft)
    for width, outcomes in enumerate_rounds(
        monkeypatch, WIDTHS, greedy_draft, "token" if greedy_draft else rule
    ).items():
        exact = verification.round_law(partial(law, P), draft, width, rule)
        found = {committed: float(chance) for (committed, _), chance in outcomes.items() if chance > 1e-12}
        assert found == pytest.approx({tokens: float(chance) for tokens, chance in exact.items()}, abs=1e-12)


def test_block_verification_keeps_more_of_the_same_guesses(monkeypatch):
    mean = {}
    for rule in ("token", "block"):
        laws = enumerate_rounds(monkeypatch, WIDTHS, False, rule)
        mean[rule] = {width: sum(k * chance for (_, k), chance in laws[width].items()) for width in laws}
    assert mean["block"][0] == mean["token"][0] == 0 and mean["block"][1] == pytest.approx(mean["token"][1])
    assert all(mean["block"][width] > mean["token"][width] + 0.001 for width in (2, 3))


@pytest.mark.parametrize("seed", range(5))
def test_block_verification_never_expects_fewer_tokens(seed):
    """All guesses of three tokens of a random pair, weighed by the draft: the mean K by either rule, without chance."""
    generator = torch.Generator().manual_seed(seed)
    tables = [torch.randn(VOCAB**3, VOCAB, generator=generator, dtype=torch.float64).mul(2).softmax(1) for _ in "pq"]
    guesses = torch.tensor(list(product(range(VOCAB), repeat=3)))
    place = torch.tensor(
        [
            [sum((x + 1) * 4**j for j, x in enumerate(path[:i])) % VOCAB**3 for i in range(4)]
            for path in guesses.tolist()
        ]
    )
    p, q = tables[0][place], tables[1][place[:, :3]]
    weight = q.gather(2, guesses[:, :, None]).prod(1)[:, 0]
    kept = [weight @ judge(p.flatten(0, 1), guesses, [3] * len(guesses), q, rule)[0] for rule in ("token", "block")]
    assert weight.sum() == pytest.approx(1) and (kept[1] - kept[0]).min() > -1e-12 and kept[1].sum() > kept[0].sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sampled", [True, False], ids=["probabilistic draft", "draft without q"])
def test_row_by_row_on_the_host_says_what_the_tensors_say(monkeypatch, dtype, sampled):
    """Other devices and types take the path in PyTorch: the same numbers give the same K and the same tokens."""
    generator, widths, kept = torch.Generator().manual_seed(4), [3, -1, 0, 4, 2] * 200, set()
    tokens, n = sum(w + 1 for w in widths), max(widths)
    for sharpness in (0.5, 3.0):
        p = (torch.randn(tokens, VOCAB, generator=generator, dtype=dtype) * sharpness).softmax(1)
        q = (torch.randn(len(widths), n, VOCAB, generator=generator, dtype=dtype) * sharpness).softmax(2)
        guesses = torch.multinomial(q.flatten(0, 1), 1, generator=generator).view(len(widths), n)
        found = []
        for host in (True, False):
            monkeypatch.setattr(sampling, "on_host", lambda x, host=host: host)
            rng = uniform(5)
            accepted, table = verify_sampled(p, guesses.tolist(), widths, q.unbind(1) if sampled else None, rng)
            found.append([(k, row[: k + 1]) for k, row, w in zip(accepted, table, widths, strict=True) if w >= 0])
        assert found[0] == found[1]
        kept |= {k for k, _ in found[0]}
    assert kept == {0, 1, 2, 3, 4}


def test_a_draft_of_another_type_than_the_target_is_judged():
    p, q = (torch.full((n, 4), 0.25, dtype=dtype) for n, dtype in ((2, torch.float32), (1, torch.bfloat16)))
    assert verify_sampled(p, [[3]], [1], [q], uniform(0))[0] == [1]


def test_a_seed_below_0_is_refused():
    with pytest.raises(ValueError, match="seed = -1"):
        uniform(-1)


def test_with_a_sharp_target_both_rules_judge_alike():
    """Temperature 0 as a distribution: all mass of the target on one token, whatever the draft; nothing is lost."""
    generator = torch.Generator().manual_seed(2)
    q = torch.rand(500, 4, VOCAB, generator=generator).softmax(2)
    guesses = torch.multinomial(q.flatten(0, 1), 1, generator=generator).view(500, 4)
    choices = torch.where(torch.rand(500, 5, generator=generator) < 0.7, F.pad(guesses, (0, 1)), 2)
    p = F.one_hot(choices.flatten(), VOCAB).float()
    token, block = (judge(p, guesses, [4] * 500, q, rule)[0] for rule in ("token", "block"))
    assert torch.equal(token, block) and set(token.sum(1).tolist()) == {0, 1, 2, 3, 4}


def test_where_both_rules_must_agree_the_loop_writes_the_same(small):
    """Greedy, one guess, and drafts that do not sample: the same rounds and tokens by either rule, number by number."""
    target, model = small
    cases = [(ModelDraft(model), 3, GREEDY), (ModelDraft(model), 1, HOT), (ModelDraft(model, sample=False), 3, HOT)]
    for draft, gamma, how in cases:
        runs = [
            generate(target, [PROMPT] * 40, 12, draft, gamma, sampling=replace(how, verification=rule), seed=3)
            for rule in ("token", "block")
        ]
        assert len({str([(o.tokens, o.log.accepted) for o in run.outputs]) for run in runs}) == 1


def test_the_loop_needs_fewer_rounds_by_block(small):
    """By more than four standard errors of the rounds that a text of 24 tokens takes."""
    target, model = small
    token, block = (
        [
            output.log.rounds
            for output in generate(
                target, [PROMPT] * 400, 24, ModelDraft(model), 5, sampling=Sampling(1.0, verification=rule), seed=1
            ).outputs
        ]
        for rule in ("token", "block")
    )
    error = np.sqrt((np.var(token) + np.var(block)) / 400)
    assert np.mean(token) - np.mean(block) > 4 * error


@pytest.mark.parametrize("value", ["blocks", None, 1])
def test_an_unknown_rule_is_named(value):
    with pytest.raises(ValueError, match=f"verification = {value!r} unknown; choose from token, block"):
        Sampling(1.0, verification=value)


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
STOPS = StopRule(lambda gamma, batch_size: 1 + 0.05 * gamma, 3, patience=1)  # learns from text to text
HOT, COOL, NUCLEUS = Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.3, top_p=0.8)
HOT_BLOCK, NUCLEUS_BLOCK = (replace(how, verification="block") for how in (HOT, NUCLEUS))
WAYS = {
    "model": (lambda draft: ModelDraft(draft), 3, {}, HOT),
    "model, greedy": (lambda draft: ModelDraft(draft, sample=False), 3, {}, HOT),
    "model, top-k": (lambda draft: ModelDraft(draft), 2, {}, COOL),
    "model, top-p, ragged": (lambda draft: ModelDraft(draft), Mixed(), {}, NUCLEUS),
    "model, rows come and go": (lambda draft: ModelDraft(draft), Mixed(), {"rows": 50}, HOT),
    "model, block": (lambda draft: ModelDraft(draft), 3, {}, HOT_BLOCK),
    "model, block, top-p, ragged": (lambda draft: ModelDraft(draft), Mixed(), {"rows": 100}, NUCLEUS_BLOCK),
    "model, stops by itself": (lambda draft: ModelDraft(draft, stop=STOPS), STOPS, {"rows": 80}, HOT),
    "model, stops by itself, block": (lambda draft: ModelDraft(draft, stop=STOPS), STOPS, {}, NUCLEUS_BLOCK),
    "lookup": (lambda draft: Lookup(SMALL), 3, {}, HOT),
    "lookup, block": (lambda draft: Lookup(SMALL), 3, {}, HOT_BLOCK),
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

    def forgetful(probs, guesses, widths, draft_probs, *rest):
        return verify_sampled(probs, guesses, widths, None, *rest)

    monkeypatch.setattr("specgain.lab.sampling.verify_sampled", forgetful)
    values = p_values(target, ModelDraft(model), 3, {}, HOT, repeats=8)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claims("C0.5")
def test_p_values_over_seeds_are_uniform(small, way):
    target, model = small
    make, gamma, options, how = WAYS[way]
    values = p_values(target, make(model), gamma, options, how, repeats=300 if LONG else 10)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


class Peeks(ModelDraft):
    """Drops its last candidate when it sees which one it is."""

    def propose(self, batch, wanted, sampling, rng):
        found = super().propose(batch, wanted, sampling, rng)
        widths = [w - (w > 0 and found.tokens[r][w - 1] == 2) for r, w in enumerate(found.widths)]
        return found._replace(widths=widths)


def test_a_draft_that_stops_itself_has_many_lengths_and_one_that_peeks_is_caught(small):
    target, model = small
    run = generate(target, [PROMPT] * 200, TOKENS, ModelDraft(model, stop=STOPS), STOPS, sampling=HOT)
    assert {d for r in run.rounds for d in r.drafted} == {0, 1, 2, 3}
    values = p_values(target, Peeks(model), 1, {}, HOT, repeats=4, requests=3000)
    assert stats.kstest(values, "uniform").pvalue < 1e-6, values


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("how", [HOT, NUCLEUS_BLOCK])
def test_a_one_pass_draft_whose_rows_share_a_budget_is_exact(make_weights, how):
    """What it foretells depends on the committed text, so rows get unequal lengths, in some rounds none."""
    config, rng = Config(SMALL, 32, 4, 48, 8, context=128), torch.Generator().manual_seed(2)
    target = Tapped(Model(config, make_weights(config, 0), torch.float64))
    weights = {"join": torch.cat((torch.eye(32), 0.05 * torch.randn(32, 32, generator=rng)), dim=1),
               "heads": 0.1 * torch.randn(BLOCK * 32, 32, generator=rng)}  # fmt: skip
    foretold = lambda x, greedy: x[:, :BLOCK].sigmoid().cumprod(dim=1)  # noqa: E731
    head = KINDS["multi"]("multi", weights, target).budgeted(foretold, lambda depth, positions: 40 + positions)
    run = generate(head.target, [PROMPT] * 80, TOKENS, head, 3, sampling=how, rows=20)
    assert {d for r in run.rounds for d in r.drafted} >= {0, 1, 2} and any(len(set(r.drafted)) > 1 for r in run.rounds)
    values = p_values(head.target, head, 3, {"rows": 60}, how, repeats=10)
    assert stats.kstest(values, "uniform").pvalue > 0.001, values


@pytest.mark.parametrize("how", [Sampling(1.0), Sampling(1.0, verification="block")])
def test_a_wrong_rule_is_caught_by_the_p_values(small, monkeypatch, how):
    target, model = small

    def wrong(probs, guesses, widths, draft_probs, *rest):
        q = None if draft_probs is None else [q / 2 for q in draft_probs]  # keeps guesses twice as readily
        return verify_sampled(probs, guesses, widths, q, *rest)

    monkeypatch.setattr("specgain.lab.sampling.verify_sampled", wrong)
    values = p_values(target, ModelDraft(model), 3, {}, how, repeats=4)
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
        ("weak", True, 4, Sampling(1.0, verification="block"), "viet"),
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


# --- the committed count of what block verification adds -----------------------------------------------------------


@pytest.fixture(scope="module")
def counter():
    """The tool that counts it, as a module."""
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location("measure_block", TOOLS / "measure_block.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(TOOLS))
    del sys.modules[spec.name]


def test_the_count_judges_the_rounds_that_the_loop_had(counter, tiny_pair):
    found = counter.measured(tiny_pair, ["viet", "json"], ["weak"], [1, 4], prompts=3, new_tokens=30)
    assert json.dumps(found, allow_nan=False)
    assert [(c["domain"], c["gamma"]) for c in found["cells"]] == [("viet", 1), ("viet", 4), ("json", 1), ("json", 4)]
    for rows in (found["cells"], found["pooled"]):
        for one in rows:
            for how in ("same_candidates", "own_loops"):
                assert 1 <= one[how]["token"] <= one["gamma"] + 1 and 1 <= one[how]["block"] <= one["gamma"] + 1
        ones = [one for one in rows if one["gamma"] == 1]
        assert all(one["same_candidates"]["gain_percent"] == pytest.approx(0, abs=1e-4) for one in ones)
        assert all(one["own_loops"]["gain_percent"] == 0 for one in ones)  # number by number the same rounds
    total = [sum(c["rounds"][0] for c in found["cells"] if c["gamma"] == gamma) for gamma in (1, 4)]
    assert total == [one["rounds"][0] for one in found["pooled"]]


def test_what_a_rule_expects_is_what_the_loop_keeps(counter, tiny_pair):
    """Over many rounds: expected and counted K differ by chance only, by either rule in its own loop."""
    repeats = {"viet": tiny_pair.prompts("test")["viet"][[0] * 150]}
    pair = SimpleNamespace(target=tiny_pair.target, drafts=tiny_pair.drafts, prompts=lambda _: repeats)
    for column, rule in enumerate(("token", "block"), start=1):
        found = counter.totals(pair, "viet", "strong", 4, rule, 150, 24)
        apart = found[:, 3] - found[:, column]
        assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(150) and found[:, 0].min() > 0


def test_the_committed_count_loses_nothing(counter):
    """No cell loses more than chance explains, and most gain; the loop with the switch set finds what was foretold."""
    record = json.loads((counter.FOLDER / "block-verification.json").read_text(encoding="utf-8"))
    assert problems(record) == [] and len(record["cells"]) == 5 * len(record["pooled"])
    for one in record["pooled"]:
        low, high = one["same_candidates"]["interval_percent"]
        assert low <= one["same_candidates"]["gain_percent"] <= high and high > 0
    for draft in {one["draft"] for one in record["cells"]}:  # what chapter 3 says of it
        rows = [one for one in record["cells"] if one["draft"] == draft]
        gain = {(one["domain"], one["gamma"]): one["same_candidates"]["gain_percent"] for one in rows}
        assert all(gain[text, 2] < gain[text, 4] < gain[text, 8] for text in ("stdlib", "prose"))
        sure = max(gain[text, gamma] for text in ("json", "func", "viet") for gamma in (2, 4, 8))
        assert sure < 1 < 2 < min(gain[text, gamma] for text in ("stdlib", "prose") for gamma in (4, 8))
