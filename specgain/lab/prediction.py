"""From cost and acceptance, measured apart, to a predicted speedup; then the prediction held against a run.

Cost is a property of machine and models, acceptance of draft and text. Neither sees the run that they predict. Needs
NumPy, not torch. Times are seconds in memory and milliseconds (`_ms`) in JSON.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from specgain import gain
from specgain.records.roundlog import RequestLog, RoundLog
from specgain.round_time import RoundTime, Table


@dataclass(frozen=True)
class Setting:
    """What a measurement holds fixed: requests that share each pass, temperature, tokens of each prompt (0: as stored)."""

    rows: int = 1
    temperature: float = 0.0
    context: int = 0

    def to_json(self):
        """Return a JSON-ready dict."""
        return asdict(self)


BASE = Setting()
PARTS = ("draft_after_rejection", "draft_after_acceptance", "verify", "other")


@dataclass(frozen=True)
class Cost:
    """Mean time of each phase of a round by γ, each part a `Table` {γ: seconds}; `source` says how it was taken.

    The draft has two tables: after a fully accepted round it must first feed one more token.
    """

    t_decode: float
    draft_after_rejection: Table
    draft_after_acceptance: Table
    verify: Table
    other: Table
    source: str = "in the loop"
    rows: int = 1  # requests that share each pass

    def request(self, rounds):
        """Return the predicted seconds of one request with these (drafted, accepted) rounds."""
        return self.total(kinds_of(rounds))

    def total(self, kinds):
        """Return the seconds of rounds counted as {(drafted, whether the round before was fully accepted): count}.

        In a batch a row that shortens its last rounds saves little: all wait for the longest draft, and of a pass over
        `rows` rows it narrows its own share only.
        """
        longest, total = max((g for g, _ in kinds), default=0), 0.0
        for (g, full), count in kinds.items():
            draft = self.draft_after_acceptance if full else self.draft_after_rejection
            own, others = (self.verify(n) + self.other(n) for n in (g, longest))
            whole = (own + (self.rows - 1) * others) / self.rows
            total += count * (draft(longest if self.rows > 1 else g) + whole)
        return total

    def round_time(self, full=0.0):
        """Return the `RoundTime` of a workload in which the share `full` of all rounds is accepted to the end."""
        a, b = self.draft_after_rejection, self.draft_after_acceptance
        mixed = Table({g: (1 - full) * a(g) + full * b(g) for g in a.gammas})
        return RoundTime(draft=mixed, verify=self.verify, other=self.other)

    def to_json(self):
        """Return a JSON-ready dict, times in milliseconds."""
        rows = {str(g): {f"t_{part}_ms": getattr(self, part)(g) * 1e3 for part in PARTS} for g in self.verify.gammas}
        return {"source": self.source, "rows": self.rows, "t_decode_ms": self.t_decode * 1e3, "gammas": rows}

    @classmethod
    def from_json(cls, data):
        """Return the Cost of a dict made by `to_json`; ValueError names what is missing."""
        try:
            rows = {int(g): row for g, row in data["gammas"].items()}
            tables = [Table({g: row[f"t_{part}_ms"] / 1e3 for g, row in rows.items()}) for part in PARTS]
            return cls(data["t_decode_ms"] / 1e3, *tables, data["source"], data.get("rows", 1))
        except KeyError as error:
            raise ValueError(f"this cost record lacks {error}; measure it with specgain.lab.measure_cost") from error

    @classmethod
    def from_log(cls, log, source="in the loop"):
        """Return the Cost of a `RoundLog`: means over the rounds that offered their full γ. Needs γ = 0 too.

        Rounds that fewer requests shared than the most do not count.
        """
        rows = rows_of(log)
        sums = sum((_phase_sums(request, rows) for request in log.requests), _Sums())
        return cls._from_means(sums.means(), source, rows)

    @classmethod
    def by_width(cls, log, draft=None, source="in the loop"):
        """Return the Cost of a draft by what its rounds offered, 0 included: means over all its rounds, at any γ.

        For a draft that often offers less than γ, or nothing. Where the log holds other drafts too, they help to tell
        what verifying a width costs. Plain decoding gives `t_decode`, and stands in for rounds without a candidate if
        there were none; what is wider than all rounds costs what the widest did. In a batch a pass waits for all its
        rows: there a round costs the mean of all rounds of the log, whatever its own row offered.
        """
        rows, drafts = rows_of(log), [request for request in log.requests if request.gamma]
        found = sum((_phase_sums(request, rows) for request in log.requests if not request.gamma), _Sums()).means()
        t_decode = cls._from_means(found, source, rows).t_decode
        for own in (False, True):
            requests = [request for request in drafts if not own or draft in (None, request.arm)]
            sums = sum((_phase_sums(request, rows, every=True) for request in requests), _Sums())
            found |= {name: mean for name, mean in sums.means().items() if name[0].startswith("draft") is own}
        longest = max(request.gamma for request in drafts)
        for part in {part for part, _ in found}:
            found.setdefault((part, longest), found[part, max(g for p, g in found if p == part)])
        return replace(cls._from_means(found, source, rows), t_decode=t_decode)

    @classmethod
    def resampled(cls, log, count=200, seed=0):
        """Return `count` Costs of logs whose prompts were drawn anew with repetition: how far the mean may be off.

        Prompts that shared their passes are drawn together: they shared the moment too.
        """
        groups, rows = {}, rows_of(log)
        for request in log.requests:
            key = request.prompt // rows, request.repeat
            groups[key] = groups.get(key, _Sums()) + _phase_sums(request, rows)
        groups = list(groups.values())
        names = sorted({name for group in groups for name in group.seconds})
        seconds, counts = (
            np.array([[getattr(group, what).get(name, 0) for name in names] for group in groups])
            for what in ("seconds", "counts")
        )
        drawn = np.random.default_rng(seed).multinomial(len(groups), np.full(len(groups), 1 / len(groups)), count)
        costs = []
        for total, rounds in zip(drawn @ seconds, drawn @ counts, strict=True):
            means = {name: s / n for name, s, n in zip(names, total, rounds, strict=True) if n}
            costs.append(cls._from_means(means, "resampled", rows))
        return costs

    @classmethod
    def _from_means(cls, found, source, rows):
        """Return the Cost of {(part, γ): mean seconds}; a case that never came up costs what the other one costs."""
        means = {part: {g: float(mean) for (p, g), mean in found.items() if p == part} for part in PARTS}
        if 0 not in means["verify"]:
            raise ValueError("the record holds no plain decoding; add an arm with gamma = 0")
        after, before = means["draft_after_acceptance"], means["draft_after_rejection"]
        means["draft_after_acceptance"], means["draft_after_rejection"] = before | after, after | before
        t_decode = before[0] + means["verify"][0] + means["other"][0]
        return cls(t_decode, *(Table(means[part]) for part in PARTS), source, rows)


@dataclass
class _Sums:
    """Seconds and number of rounds by (part, γ)."""

    seconds: Counter = field(default_factory=Counter)
    counts: Counter = field(default_factory=Counter)

    def __add__(self, other):
        seconds, counts = Counter(self.seconds), Counter(self.counts)
        seconds.update(other.seconds)
        counts.update(other.counts)
        return _Sums(seconds, counts)

    def means(self):
        return {name: seconds / self.counts[name] for name, seconds in self.seconds.items()}


def _phase_sums(request, rows, every=False):
    """The `_Sums` of a request's rounds that offered its full γ and were shared by `rows` requests.

    With `every` the shorter ones count too, by what they offered; in a batch each counts for every width up to γ.
    """
    sums, full = _Sums(), False
    for drafted, accepted, t_draft, t_verify, t_other, batch in _rounds(request):
        draft = "draft_after_acceptance" if full else "draft_after_rejection"
        widths = range(request.gamma + 1) if every and rows > 1 else [drafted]
        for width in widths if batch == rows and (every or drafted == request.gamma) else ():
            for part, seconds in ((draft, t_draft), ("verify", t_verify), ("other", t_other)):
                sums.seconds[part, width] += seconds
                sums.counts[part, width] += 1
        full = drafted == accepted > 0
    return sums


def kinds_of(rounds):
    """Return {(drafted, whether the round before was fully accepted): count} of (drafted, accepted) rounds in a row."""
    kinds, full = Counter(), False
    for drafted, accepted in rounds:
        kinds[drafted, full] += 1
        full = drafted == accepted > 0
    return kinds


def rows_of(log):
    """Return the greatest number of requests that shared a pass."""
    return max((max(request.batch, default=1) for request in log.requests), default=1)


def _rounds(request):
    """(drafted, accepted, t_draft, t_verify, t_other, requests in the pass) of each round of a request."""
    batch = request.batch or [1] * request.rounds
    return zip(
        request.drafted, request.accepted, request.t_draft, request.t_verify, request.t_other, batch, strict=True
    )


# --- acceptance ----------------------------------------------------------------------------------------------------


def rounds_of(agreement, gamma):
    """Return the (drafted, accepted) rounds of greedy decoding, in order.

    `agreement[i]` is "1" where the draft's own choice is the target's token i.
    Every γ can be read off the same string, since the draft sees the target's
    text up to its first wrong guess. γ shrinks at the end as in the loop.
    """
    position, rounds = 0, []
    while position < len(agreement):
        drafted = min(gamma, len(agreement) - position - 1)
        miss = agreement.find("0", position, position + drafted)
        accepted = drafted if miss < 0 else miss - position
        rounds.append((drafted, accepted))
        position += accepted + 1
    return rounds


DRAWS = 24  # accept/reject strings drawn per prompt, where a guess is accepted with a probability


def strings_of(agreement, seed=0):
    """Return the agreement strings of one prompt: the string itself, or draws from its acceptance probabilities.

    A sampled text x comes with the exact law of its rounds: a guess at token x was accepted with probability
    min(1, q(x)/p(x)), independently of the others once the text is known.
    """
    if isinstance(agreement, str):
        return [agreement]
    hits = np.random.default_rng(seed).random((DRAWS, len(agreement))) < np.asarray(agreement)
    return ["".join("01"[hit] for hit in row) for row in hits.tolist()]


def runs_of(entry, gamma, seed=0):
    """Return lists of (drafted, accepted) rounds of one prompt at this γ: those that a `RequestLog` has, or those of
    the `strings_of` an entry of agreement."""
    if isinstance(entry, RequestLog):
        return [list(zip(entry.drafted, entry.accepted, strict=True))]
    return [rounds_of(string, gamma) for string in strings_of(entry, seed)]


def _tokens(entry):
    return entry.tokens if isinstance(entry, RequestLog) else len(entry)


def _steady(rounds, tokens, gamma):
    """The rounds that begin with room for γ candidates and one more token; the last ones are shorter for the end."""
    steady = []
    for drafted, accepted in rounds:
        if tokens <= gamma:
            break
        steady.append((drafted, accepted))
        tokens -= accepted + 1
    return steady


# --- prediction ----------------------------------------------------------------------------------------------------


def predict(cost, acceptance, gammas, log=None, costs=(), cost_of=Cost.from_log):
    """Return one dict per (domain, draft, γ ≥ 1): the predicted speedup, and the measured one if `log` is given.

    `cost` is a `Cost`, `acceptance` the dict of `measure_acceptance`, `log` the `RoundLog` of `measure_run`. The
    prediction counts the rounds to the full length, last round included. Intervals are 95 % bootstrap by prompt, or by
    group of prompts that shared their passes (then wider, for so few groups); with `costs` (`Cost.resampled`) that of
    the residual counts the doubt about the cost too. An entry of agreement may be a `RequestLog`: its rounds then stand
    for themselves, at one γ. `cost_of` takes the cost from `log` as `cost` was taken.
    """
    cells = []
    for domain, entry in acceptance["domains"].items():
        for draft, agreements in entry["agreement"].items():
            run = None if log is None else _arms(log.select(domain=domain), draft)
            own_cost = None if log is None else cost_of(run)
            for gamma in filter(None, gammas):  # γ = 0 is the control, it has nothing to predict
                cell = {"domain": domain, "draft": draft, "gamma": gamma} | _predicted(cost, agreements, gamma)
                if run is not None:
                    cell |= _measured(cost, own_cost, agreements, gamma, run, costs)
                cells.append(cell)
    return cells


def predict_own(calibration, acceptance, gammas, log):
    """Return the cells of `predict`, each from the cost that its own draft and text have in the log `calibration`.

    For batches: how far rows fall out of step, and so what a pass costs, is decided by draft and text.
    """
    cells = []
    for domain, entry in acceptance["domains"].items():
        for draft, agreements in entry["agreement"].items():
            own = _arms(calibration.select(domain=domain), draft)
            record = {"domains": {domain: {"agreement": {draft: agreements}}}}
            cells += predict(Cost.from_log(own), record, gammas, log, Cost.resampled(own))
    return cells


def _arms(log, draft):
    """The requests of one draft, at every γ, together with the plain ones; ValueError if either is missing."""
    chosen = [r for r in log.requests if r.arm in (draft, "plain")]
    if {r.arm for r in chosen} != {draft, "plain"}:
        raise ValueError(f"the log lacks the arm {draft!r} or the plain one in a domain of the acceptance record")
    return RoundLog(log.environment, log.setup, chosen)


def _predicted(cost, agreements, gamma):
    flat = [
        r
        for i, agreement in enumerate(agreements)
        for rounds in runs_of(agreement, gamma, i)
        for r in _steady(rounds, _tokens(agreement), gamma)
    ]
    totals = _predicted_totals(cost, agreements, gamma)
    length = 1 + sum(k for _, k in flat) / len(flat)
    round_time = cost.round_time(full=sum(k == g > 0 for g, k in flat) / len(flat))
    t_round = sum(count * round_time(g) for g, count in Counter(g for g, _ in flat).items()) / len(flat)
    replicates = gain.bootstrap([totals], lambda s: s[:, 0] / s[:, 1])
    return {
        "committed_length": length,
        "t_round_ms": t_round * 1e3,
        "break_even_ms": length * cost.t_decode * 1e3,
        "margin_ms": gain.margin(length, cost.t_decode, t_round) * 1e3,
        "speedup_steady": gain.speedup(length, cost.t_decode, t_round),
        "speedup": _ratio(totals),
        "speedup_interval": gain.interval(replicates),
    }


def _predicted_totals(cost, agreements, gamma):
    """Array (requests, 2): predicted seconds of plain decoding and of speculative decoding."""
    return np.array([
        (_tokens(a) * cost.t_decode, np.mean([cost.request(rounds) for rounds in runs_of(a, gamma, i)]))
        for i, a in enumerate(agreements)
    ])  # fmt: skip


def _share(request, rows):
    """(seconds, tokens) of a request's rounds in full passes: 1/rows of each pass is its own."""
    times = [
        (t / rows, committed)
        for t, committed, batch in zip(
            request.t_round, request.committed, request.batch or [1] * request.rounds, strict=True
        )
        if batch == rows
    ]
    return sum(t for t, _ in times), sum(c for _, c in times)


def _measured(cost, own_cost, agreements, gamma, run, costs):
    """The measured half of a cell. `own_cost` is the cost that the run itself showed, to tell the two errors apart."""
    rows, spec = rows_of(run), [r for r in run.requests if r.gamma == gamma]
    if not spec:
        raise ValueError(f"the run holds no request with gamma = {gamma}; predict only what it measured")
    plain = {(r.prompt, r.repeat): _share(r, rows) for r in run.requests if r.gamma == 0}
    groups = {}  # prompts that shared their passes shared the moment too: an interval draws them together
    for r in spec:
        sums = groups.setdefault(r.prompt // rows, np.zeros(4))
        sums += (*plain[r.prompt, r.repeat], *_share(r, rows))
    measured = np.array(list(groups.values()))
    step, paired = (
        seconds / tokens for seconds, tokens in (np.sum(list(plain.values()), axis=0), measured[:, :2].sum(0))
    )
    measured[:, 0] *= step / paired  # where an arm took fewer prompts, all plain steps of the text say what one costs
    rounds = [list(zip(r.drafted, r.accepted, strict=True)) for r in spec]
    own = np.array([(r.tokens * cost.t_decode, cost.request(own)) for r, own in zip(spec, rounds, strict=True)])
    predicted = _predicted_totals(cost, agreements, gamma)
    speedup = float(_speedups(measured[None].sum(1))[0])
    residuals = gain.bootstrap([predicted, measured], lambda a, b: (a[:, 0] / a[:, 1]) / _speedups(b) - 1)
    if costs:
        residuals = (1 + residuals) * np.resize(_moved(cost, costs, agreements, gamma), len(residuals)) - 1
    return {
        "measured_speedup": speedup,
        "measured_interval": gain.interval(gain.bootstrap([measured], _speedups, seed=1), groups=len(groups)),
        "measured_committed_length": sum(r.tokens for r in spec) / sum(r.rounds for r in spec),
        "measured_t_round_ms": sum(r.time for r in spec) / sum(r.rounds for r in spec) * 1e3,
        "requests": len(spec),
        "residual_percent": 100 * (_ratio(predicted) / speedup - 1),
        "residual_interval_percent": [100 * v for v in gain.interval(residuals, groups=len(groups))],
        "cost_error_percent": 100 * (_ratio(own) / speedup - 1),
        "acceptance_error_percent": 100 * (_ratio(_predicted_totals(own_cost, agreements, gamma)) / speedup - 1),
        "plain_halves_percent": _halves(list(plain.values())),
    }


def _moved(cost, costs, agreements, gamma):
    """By which factor the predicted speedup moves with each of the resampled `costs`."""
    strings = [string for i, agreement in enumerate(agreements) for string in strings_of(agreement, i)]
    kinds = sum((kinds_of(rounds_of(string, gamma)) for string in strings), Counter())
    return np.array([c.t_decode / c.total(kinds) for c in costs]) * cost.total(kinds) / cost.t_decode


def _speedups(sums):
    """S of sums (…, 4) of plain seconds, plain tokens, speculative seconds and speculative tokens."""
    return (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])


def _halves(shares):
    """How far, in percent, the plain step of every second request lies above that of the others."""
    first, second = (sum(t for t, _ in half) / sum(n for _, n in half) for half in (shares[0::2], shares[1::2]))
    return 100 * (second / first - 1)


def _ratio(totals):
    return float(totals[:, 0].sum() / totals[:, 1].sum())


def summary(cells):
    """Return median and worst absolute error in percent, of the whole prediction and of each of its two halves.

    `covered` counts the cells whose residual interval contains 0.
    """
    cells = [cell for cell in cells if "residual_percent" in cell]
    if not cells:
        raise ValueError("no measured cell; call predict(..., log=...) first")
    report = {"cells": len(cells)}
    for name in ("residual", "cost_error", "acceptance_error"):
        errors = [abs(cell[f"{name}_percent"]) for cell in cells]
        report[f"{name}_median_percent"] = float(np.median(errors))
        report[f"{name}_worst_percent"] = float(max(errors))
    report["bias_percent"] = float(np.mean([cell["residual_percent"] for cell in cells]))
    report["covered"] = sum(low <= 0 <= high for low, high in (c["residual_interval_percent"] for c in cells))
    return report
