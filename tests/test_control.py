"""Controllers: budgets against brute force, what a choice may see, learning, and replay on the recorded requests."""

import json
from fractions import Fraction as F
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import gain
from specgain.control import (
    Budget,
    ByBatch,
    Controller,
    Fixed,
    MovingAverage,
    OnlineAcceptance,
    Spread,
    StepRule,
    StopRule,
    best_lengths,
    cut_lengths,
    foresight,
    replay,
    rounds_by_request,
)
from specgain.lab.prediction import Cost, rounds_of
from specgain.lab.recorded import recorded
from specgain.schedule import effective
from specgain.verification import output_law, round_law, strings

RECORD = Path(__file__).parents[1] / "notebooks" / "measurements" / "cpu-2core" / "round-timing.json"
LENGTHS = range(9)


def rows(draw_from, most=3):
    """Survival estimates of one to three requests, each falling."""
    return st.lists(st.lists(draw_from, max_size=most).map(lambda r: sorted(r, reverse=True)), min_size=1, max_size=3)


SURVIVALS = rows(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0]))


# ------------------------------------------------------------------------------------------ simple controllers


def test_the_interface_in_its_simplest_forms():
    assert Fixed(3).gamma(7, "a") == 3 and Fixed(3).gammas(2, ["a", "b"]) == [3, 3]
    table = [[1, 16, 3], [32, 128, 2], [256, 512, 0]]
    lookup = ByBatch(table)
    for first, last, length in effective(table, 600, 3):  # what the engine makes of it, from its own rules
        assert {lookup.gamma(batch, "a") for batch in range(first, last + 1)} == {length}
    average = MovingAverage(8)
    for _ in range(40):
        average.observe("a", 8, 0)
        average.observe("b", 8, 8)
    assert average.gammas(2, ["a", "b", "new"]) == [1, 8, 5]
    average.finish("a")
    assert average.gamma(1, "a") == 5
    forgetful = MovingAverage(8, memory=0.0)
    forgetful.observe("a", 8, 2)
    assert forgetful.gamma(1, "a") == 3, "the last round alone decides"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Fixed(-1), "gamma = -1"),
        (lambda: ByBatch([[2, 4, 1]]), "rise from 1"),
        (lambda: ByBatch([[1, 4, 1], [4, 8, 0]]), "without overlap"),
        (lambda: ByBatch([]), "rise from 1"),
        (lambda: MovingAverage(0), "longest = 0"),
        (lambda: StepRule(lambda g, b: 1.0, [0]), "no length above 0"),
        (lambda: OnlineAcceptance(1.2, 1.0, 1.0), "prior = 1.2"),
        (lambda: OnlineAcceptance(0.5, 1.0, 1.0).observe(2, 3), "accepted = 3 of drafted = 2"),
        (lambda: best_lengths([[0.5, 0.6]], lambda d, n: 1.0), r"survivals\[0\]"),
        (lambda: replay(Fixed(2), {"a": "10x"}), "'a' holds"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------------ the budget of a step


def rate(survivals, lengths, t_step):
    tokens = len(survivals) + sum(sum(row[:g]) for row, g in zip(survivals, lengths, strict=True))
    return tokens / t_step(max(lengths, default=0), len(survivals) + sum(lengths))


@pytest.mark.claims("C3.4", "C3.5")
@given(SURVIVALS, st.integers(0, 10**6), st.booleans())
def test_the_budget_is_as_good_as_brute_force_under_any_cost(survivals, seed, stairs):
    """All choices of lengths for up to three requests; costs of any shape that rise with depth."""
    rng = np.random.default_rng(seed)
    draft, verify = np.cumsum(rng.uniform(0, 0.3, 12)), rng.uniform(0.5, 2, 20)
    verify = verify if stairs else np.sort(verify)
    t_step = lambda depth, positions: draft[depth] + verify[positions]  # noqa: E731
    best = max(rate(survivals, g, t_step) for g in product(*(range(len(row) + 1) for row in survivals)))
    assert rate(survivals, best_lengths(survivals, t_step), t_step) == pytest.approx(best, rel=1e-12)


@pytest.mark.claims("C3.4")
@given(SURVIVALS, st.floats(0, 0.5), st.floats(0, 0.2))
def test_cutting_is_optimal_for_a_convex_time_although_it_never_looks_back(survivals, slope, bend):
    t_verify = lambda n: 1 + slope * n + bend * n * n  # noqa: E731
    t_step = lambda depth, positions: t_verify(positions)  # noqa: E731
    best = max(rate(survivals, g, t_step) for g in product(*(range(len(row) + 1) for row in survivals)))
    assert rate(survivals, cut_lengths(survivals, t_verify), t_step) == pytest.approx(best, rel=1e-12)


class Unseen(list):
    """A row of estimates that says how far it was read."""

    def __init__(self, row):
        super().__init__(row)
        self.read = 0

    def __iter__(self):
        for value in list.__iter__(self):
            self.read += 1
            yield value


@given(SURVIVALS, st.floats(0.01, 0.5))
def test_cutting_reads_no_estimate_behind_the_first_candidate_left_out(survivals, slope):
    rows = [Unseen(row) for row in survivals]
    chosen = cut_lengths(rows, lambda n: 1 + slope * n)
    assert all(row.read <= g + 1 for row, g in zip(rows, chosen, strict=True))


def model(seed, size=2):
    """Return a random model over prefixes of up to 4 tokens, with fractions."""
    rng = np.random.default_rng(seed)
    table = {}
    for prefix in (p for n in range(5) for p in product(range(size), repeat=n)):
        weights = [int(w) for w in rng.integers(1, 9, size)]
        table[prefix] = [F(w, sum(weights)) for w in weights]
    return table.__getitem__


def estimates(path, confidence):
    """Return the survivals that the draft estimates as it goes: each from the candidates before it."""
    found, alive = [], 1.0
    for i in range(len(path)):
        alive *= confidence[path[:i]]
        found.append(alive)
    return found


@pytest.mark.claims("C3.4")
def test_only_the_cut_keeps_the_output_exact():
    """60 random pairs with random confidences: the law of the output is the target's to the last fraction for the cut,
    and is changed, at least sometimes, by a choice that uses every estimate, later ones included."""
    changed = 0
    for seed in range(60):
        target, draft, rng = model(seed), model(seed + 1000), np.random.default_rng(seed)
        confidence = {p: float(rng.uniform()) for n in range(3) for p in product((0, 1), repeat=n)}
        stairs = lambda n: 1.0 + 0.3 * (n > 1) + 0.6 * (n > 3)  # noqa: E731
        for rule in ("token", "block"):
            cut = lambda path: cut_lengths([estimates(path, confidence)], stairs)[0]  # noqa: B023, E731
            law = round_law(target, draft, 3, rule, verified=cut)
            assert output_law(law, target, 4) == strings(target, 4)
            every = lambda path: best_lengths([estimates(path, confidence)], lambda d, n: stairs(n))[0]  # noqa: B023, E731
            changed += output_law(round_law(target, draft, 3, rule, verified=every), target, 4) != strings(target, 4)
    assert changed > 0


# ------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("a", [0.2, 0.6, 0.95])
def test_an_online_law_finds_a_constant_acceptance(a):
    rng, law = np.random.default_rng(4), OnlineAcceptance(0.5, 4.0, 1.0)
    for k in np.minimum(rng.geometric(1 - a, 4000) - 1, 4):
        law.observe(4, int(k))
    assert law.mean == pytest.approx(a, abs=0.02) and law.conditional(2) == pytest.approx([a] * 2, abs=0.05)
    assert law.survival(3)[2] == pytest.approx(np.prod(law.conditional(3)))


def test_requests_without_candidates_count_in_time_and_tokens():
    def step(depth, positions):
        return 10 + positions

    assert best_lengths([[0.5]], step) == [1] and best_lengths([[0.5]], step, 16) == [0]
    assert best_lengths([[0.5]] + [[0.0]] * 15, step) == [0] * 16
    assert best_lengths([[0.9]], step, 16) == [1] and best_lengths([[0.9]] + [[0.0]] * 15, step)[0] == 1


def test_it_forgets_what_is_long_ago():
    law = OnlineAcceptance(0.5, 2.0, 0.9)
    for _ in range(100):
        law.observe(1, 1)
    before = law.mean
    for _ in range(20):
        law.observe(1, 0)
    assert before > 0.9 and law.mean < 0.25


def test_a_new_request_has_the_loads_law_and_its_own_rounds_move_it():
    load = OnlineAcceptance(0.5, 2.0, 1.0)
    for _ in range(200):
        load.observe(2, 1)  # the first candidate is always right, the second never
    own = OnlineAcceptance(load, 8.0, 1.0)
    assert own.conditional(2) == pytest.approx(load.conditional(2), abs=1e-9)
    own.observe(2, 2)
    assert own.conditional(2)[1] > load.conditional(2)[1]


def test_the_spread_of_requests_is_found():
    """Requests drawn from a Beta law of weight 6, and requests all alike."""
    rng = np.random.default_rng(0)
    mixed, alike = Spread(), Spread()
    for a in rng.beta(3, 3, 3000):
        mixed.add(int(rng.binomial(40, a)), 40)
        alike.add(int(rng.binomial(40, 0.5)), 40)
    assert mixed.weight == pytest.approx(6, rel=0.15) and alike.weight > 100
    assert Spread().weight == Spread().start


def test_a_request_leaves_the_loads_length_only_for_a_margin():
    """The load accepts half of its candidates, one request all of them: more than twice the rate, not a hundred times."""
    lengths = {}
    for margin in (0.05, 100.0):
        rule = StepRule(lambda g, b: 1 + 0.3 * g, LENGTHS, margin=margin, errors=0.0)
        for k in (0, 1) * 300:
            rule.observe(k, 1, k)
        for _ in range(50):
            rule.observe("easy", 4, 4)
        lengths[margin] = rule.gammas(2, ["easy", "new"])
    assert lengths[0.05][0] > lengths[0.05][1] == lengths[100.0][0] == lengths[100.0][1]


def test_a_request_that_is_not_drafted_is_tried_again():
    """After `patience` rounds, and after twice as many each time that the try is in vain."""
    dear = StepRule(lambda g, b: 1.0 if g == 0 else 3.0 + g, LENGTHS, patience=3)
    asked = []
    for _ in range(30):
        asked.append(dear.gamma(1, "a"))
        dear.observe("a", asked[-1], 0)
    assert [round for round, g in enumerate(asked) if g] == [0, 4, 11, 24]


def test_a_try_that_convinces_ends_the_waiting():
    rule = StepRule(lambda g, b: 1 + 0.1 * g, LENGTHS, patience=2)
    due = []
    for drafted in (1, 0, 0, 4, 4, 0, 0, 0):  # chosen, left, due and tried, chosen again, left
        due.append(rule.due("a"))
        rule.observe("a", drafted, drafted)
    assert due == [True, False, False, True, False, False, False, True]


def test_the_length_grows_until_what_lies_behind_it_is_known():
    """Rounds of two candidates say that the second is easier than the first; of a third they say nothing."""
    wary, keen = (StepRule(lambda g, b: 1 + 0.36 * g, LENGTHS, errors=errors) for errors in (0.0, 0.5))
    for k in (0, 2) * 300:
        wary.observe(k, 2, k)
        keen.observe(k, 2, k)
    raised = [a - b for a, b in zip(keen.load.conditional(4, 0.5), keen.load.conditional(4), strict=True)]
    assert raised[0] < raised[1] + 0.01 < raised[2] == pytest.approx(raised[3])
    assert wary.gamma(1, "new") == 2 and keen.gamma(1, "new") == 3
    for _ in range(300):
        keen.observe("longer", 3, 2)  # now it is known that the third is always wrong
    assert keen.gamma(1, "new") == 2


class Oracle(Controller):
    """Candidates for the first request only: to see what a loop asks."""

    def gammas(self, batch_size, requests):
        return [2] + [0] * (len(requests) - 1)


def test_a_controller_may_define_only_the_joint_choice():
    assert Oracle().gamma(1, "a") == 2 and Oracle().gammas(2, ["a", "b"]) == [2, 0]


def test_a_budget_learns_which_request_is_easy():
    budget = Budget(lambda depth, positions: 1 + 0.05 * depth + 0.1 * positions, 6)
    for _ in range(30):
        for request, g in zip("ab", budget.gammas(2, ["a", "b"]), strict=True):
            budget.observe(request, g, g if request == "a" else 0)
    easy, hard = budget.gammas(2, ["a", "b"])
    assert easy >= 4 and hard == 0


def test_a_draft_goes_on_while_it_is_sure():
    rule = StopRule(lambda g, b: 1 + 0.1 * g, 6)
    assert rule.gamma(1, "a") == 6
    assert rule.goes_on(1, "a", [0.99]) and not rule.goes_on(1, "a", [0.99, 0.02])
    assert not StopRule(lambda g, b: 1 + 0.1 * g, 6, calibrate=lambda c: 0.02).goes_on(1, "a", [0.99])


# ------------------------------------------------------------------------------------------ replay


@given(st.lists(st.text("01", min_size=1, max_size=30), min_size=1, max_size=4), st.integers(0, 5), st.integers(1, 3))
def test_a_fixed_length_replays_as_the_lab_does(texts, gamma, rows):
    agreements = dict(enumerate(texts))
    steps = replay(Fixed(gamma), agreements, rows=rows)
    assert rounds_by_request(steps) == {r: rounds_of(text, gamma) for r, text in agreements.items()}
    assert max(map(len, steps)) <= rows


@given(st.text("01", min_size=1, max_size=12), st.integers(0, 1000))
def test_foresight_is_the_best_of_all_choices(text, seed):
    """Against brute force over every sequence of lengths."""
    rng = np.random.default_rng(seed)
    times = {(g, full): float(rng.uniform(0.5, 2)) for g in range(3) for full in (False, True)}

    def brute(at, full):
        if at == len(text):
            return 0.0
        options = []
        for g in {min(g, len(text) - at - 1) for g in range(3)}:
            k = next((i for i in range(g) if text[at + i] == "0"), g)
            options.append(times[g, full] + brute(at + k + 1, g == k > 0))
        return min(options)

    assert foresight(text, lambda g, full: times[g, full], range(3)) == pytest.approx(brute(0, False))


# ------------------------------------------------------------------------------------------ the recorded requests


@pytest.fixture(scope="module")
def cost():
    return Cost.from_json(json.loads(RECORD.read_text(encoding="utf-8"))["cost"])


def seconds(cost, rounds):
    return np.array([cost.request(r) for r in rounds])


def against_best_fixed(cost, domains, draft):
    """Return seconds per request of the step rule and of the best fixed length, and the bound of foresight."""
    agreements = {name: one.agreement for name, one in recorded(draft, domains, half=1).items()}
    curves = {full: [cost.round_time(full)(g) for g in LENGTHS] for full in (0.0, 0.3, 1.0)}
    found = rounds_by_request(replay(StepRule(lambda g, b: curves[0.3][g], LENGTHS), agreements))
    fixed = [seconds(cost, [rounds_of(text, g) for text in agreements.values()]) for g in LENGTHS]
    bound = sum(foresight(text, lambda g, full: curves[float(full)][g], LENGTHS) for text in agreements.values())
    return seconds(cost, [found[r] for r in agreements]), min(fixed, key=sum), bound


@pytest.mark.claims("C3.4", "C3.5")
@pytest.mark.parametrize("domains", [("json", "stdlib"), ("json", "prose"), ("viet", "prose")])
def test_a_length_per_request_beats_the_best_fixed_one_on_a_mixed_load(cost, domains):
    own, fixed, bound = against_best_fixed(cost, domains, "weak")
    ratios = gain.bootstrap([np.stack([fixed, own], axis=1)], lambda s: s[:, 0] / s[:, 1])
    assert gain.interval(ratios)[0] > 1 and bound <= own.sum()


@pytest.mark.claims("C3.5")
@pytest.mark.parametrize("draft", ["weak", "strong"])
@pytest.mark.parametrize("domain", ["json", "func", "viet", "stdlib", "prose"])
def test_it_loses_little_on_a_load_of_one_kind(cost, domain, draft):
    """Within 2 % of the best fixed length, on prompts that no setting of the rule was chosen on; 5 % where the text has a
    rhythm, see below."""
    own, fixed, bound = against_best_fixed(cost, (domain,), draft)
    allowed = 1.05 if (domain, draft) == ("json", "weak") else 1.02
    assert own.sum() <= allowed * fixed.sum() and bound <= min(own.sum(), fixed.sum())


@pytest.mark.claims("C3.5")
@pytest.mark.parametrize("domain", ["json", "func", "viet", "stdlib", "prose"])
def test_on_one_text_no_law_of_acceptances_explains_the_best_length(domain):
    """A sixth candidate adds at most s_5 tokens, unless the length changes what rounds begin with: so it is on json."""
    texts = [one.agreement for one in recorded("weak", (domain,), half=1).values()]
    full = {g: [k for text in texts for d, k in rounds_of(text, g) if d == g] for g in (5, 6)}
    added = np.mean(full[6]) - np.mean(full[5])
    reach = np.mean(np.equal(full[5], 5))
    assert (added > 1.1 * reach) == (domain == "json") or added < 0.01
