"""The log lines of vLLM's V0 and V1 engines.

Layouts and definitions were read in vLLM's own sources and documentation:
- `Speculative metrics:` (V0, 0.4.2 to 0.8): cumulative since the start; "accepted" counts a draft token also after a
  rejected one, so only "emitted" tells E[L] (vllm/spec_decode/metrics.py of 0.6.3; vllm-project/vllm#9539).
- `SpecDecoding metrics:` (V1): one line per interval, reset after each; three layouts (PR #15902, #17908, #24127).
  The mean acceptance length has the bonus in and counts rounds with a draft only; the per-position rate is the
  survival; both are counted before EOS or a limit cuts the output (#56101).
"""

import re
from datetime import datetime
from typing import NamedTuple

from specgain.records.source import RecordError
from specgain.records.summary import Record, check, rises
from specgain.records.text import (
    KEPT,
    LeftOut,
    Printed,
    decimal,
    fields,
    from_engine,
    number,
    numbers,
    rounds_behind,
    whole,
)

ENGINE = "vLLM"
ALL_ROUNDS = (
    "a count of all rounds: scrape /metrics before and after (vllm:inter_token_latency_seconds_count), or run "
    "`vllm bench serve` with --save-detailed (one itls entry per round)"
)
STAMP = re.compile(r"INFO (\d\d-\d\d \d\d:\d\d:\d\d)")
KV_SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")


# ------------------------------------------------------------------------------------------------- V1 log lines


class LogV1:
    """Collects `SpecDecoding metrics` lines and the engine lines beside them into one Record."""

    format = "vllm-log-v1"
    markers = ("SpecDecoding metrics:", "Avg generation throughput:", "KV cache size:")

    def __init__(self, name, gamma=None):
        self.record = Record(ENGINE, self.format, name=name, gamma=gamma)
        self.record.aggregation = "per log interval (reset after each line), pooled by counts"
        self.left_out, self.found, self.tick, self.last = LeftOut(), 0, None, None
        self.sums = {"rounds": 0, "drafted": 0, "accepted": 0}
        self.places, self.layouts, self.unsure = {}, set(), 0  # places: by draft length, rounds and rounds·rate
        self.seen = {"tokens": 0.0, "accepted": 0.0, "rounds": 0}

    def feed(self, marker, line, is_cut):
        """Take one line that holds one of `markers`."""
        body = from_engine(line, marker)
        if body is None:
            return
        if marker == "KV cache size:":
            size = KV_SIZE.search(line)
            if size:
                self.record.details["kv_cache_tokens"] = int(size[1].replace(",", "")[:15])
        elif marker == "Avg generation throughput:":
            self._engine_line(line)
        else:
            try:
                self._spec_line(body, is_cut)
            except RecordError as error:
                self.left_out.add(error)

    def _engine_line(self, line):
        """Keep the throughput and the queue that the engine printed beside the acceptance."""
        stamp = STAMP.search(line)
        try:
            values = fields(line[line.index("Avg ") :])
            rate = decimal(values["Avg generation throughput"], "throughput", "tokens/s")
            running = whole(values["Running"], "Running", "reqs") if "Running" in values else None
            preemptions = whole(values["Preemptions"], "Preemptions") if "Preemptions" in values else 0
        except (RecordError, ValueError, KeyError) as error:
            self.left_out.add(error)
            return
        self.found += 1
        now = _time(stamp[1]) if stamp else None
        seconds = (now - self.last).total_seconds() if now and self.last else None
        self.tick, self.last = (rate, running, seconds), now
        if "Swapped" in values or "Waiting" in values:  # the queues that each engine core prints
            self.record.details["engine_core"] = "V0" if "Swapped" in values else "V1"
        if preemptions:
            self.record.details["preemptions"] = self.record.details.get("preemptions", 0) + preemptions

    def _spec_line(self, body, is_cut):
        line = _usual(body) or _by_keys(body, is_cut)
        _check_line(line)
        window = {"accepted": line.accepted, "drafted": line.drafted}
        self._rounds(window, line)
        self._time(window, line)
        self._add(window, line)

    def _rounds(self, window, line):
        """Find the number of rounds that the line does not print, from all that it prints."""
        per_round = [] if line.length is None else [Printed(line.length[0] - 1, line.length[1])]
        gamma = self.record.gamma
        if line.rates:
            gamma = len(line.rates)
            per_round.append(Printed(sum(line.rates), line.rates_half * gamma))
        if not line.drafted:
            window["rounds"] = 0
        elif not per_round and not gamma:
            window["rounds"] = None
        else:
            window["rounds"], low, high = rounds_behind(line.accepted, line.drafted, per_round, gamma)
            if low != window["rounds"] or high != low:
                window["rounds_range"] = [low, high]
                self.unsure += not line.accepted

    def _time(self, window, line):
        """Add the length of the interval, from a count and its rate, and the rounds per second of the server."""
        for tokens, rate in ((line.accepted, line.accepted_rate), (line.drafted, line.drafted_rate)):
            if tokens and rate and rate[0] > 20 * rate[1]:  # the printed rate has at least two digits that count
                window["interval_s"] = tokens / rate[0]
                if window["rounds"]:
                    window["rounds_per_s"] = window["rounds"] / window["interval_s"]
                    window["t_round_ms_if_one_request"] = 1e3 / window["rounds_per_s"]
                break
        if self.tick:
            window["running"] = self.tick[1]
            self._rounds_without_draft(window)

    def _rounds_without_draft(self, window):
        """Add up windows in which both lines cover the same time: throughput − accepted is the rate of all rounds."""
        rate, _, seconds = self.tick
        covered = window.get("interval_s")
        if covered and window["rounds"] and (seconds is None or abs(seconds - covered) <= 1.0):
            self.seen["tokens"] += rate * covered
            self.seen["accepted"] += window["accepted"]
            self.seen["rounds"] += window["rounds"]

    def _add(self, window, line):
        self.found += 1
        self.layouts.add(line.version)
        for key, total in self.sums.items():
            value = window[key]
            self.sums[key] = None if None in (total, value) else total + value
        if line.rates and window["rounds"]:
            places = self.places.setdefault(len(line.rates), [0, *(0.0 for _ in line.rates)])
            places[0] += window["rounds"]
            for i, rate in enumerate(line.rates, start=1):
                places[i] += rate * window["rounds"]
        if len(self.record.windows) < KEPT:
            self.record.windows.append(_window(window, line.rates))

    def records(self):
        """Return the Record as a one-element list; no record where no line could be used."""
        record = self.record
        if not self.found:
            return []
        self.left_out.warn(record)
        if self.layouts:
            for key, value in self.sums.items():
                setattr(record, key, value)
            record.version = ", ".join(sorted(self.layouts))
            self._survival()
            self._warn()
        elif not self.left_out.lines:
            record.format = "vllm-log-plain"
        record.missing["committed_length"] = ALL_ROUNDS
        if record.rounds is None:
            record.missing["rounds"] = "the draft length: give --num-speculative-tokens if every draft had that length"
        return [check(record)]

    def _survival(self):
        """Pool the rates by position; logs in which the draft length changed have no one survival."""
        record = self.record
        if len(self.places) == 1 and record.rounds:
            ((record.gamma, (_, *places)),) = self.places.items()
            record.survival = tuple(place / record.rounds for place in places)
        elif self.places:
            record.gamma = max(self.places)
            first = {k: places[1] / places[0] for k, places in self.places.items()}
            spread = max(first.values()) - min(first.values())
            noise = sum(0.25 / places[0] for places in self.places.values()) ** 0.5
            moves = "; it moves with the draft length, which points to a fault" if spread > 3 * noise else ""
            listed = ", ".join(f"{k}: {rate:.3f}" for k, rate in sorted(first.items()))
            record.warn(
                "draft-length-changes",
                f"the draft length changes within the log; acceptance at the first position by length: {listed}{moves}",
            )

    def _warn(self):
        if self.unsure:
            self.record.warn(
                "rounds-inferred",
                f"{self.unsure} intervals with nothing accepted do not tell their rounds; full-length drafts assumed",
            )
        tokens, accepted, rounds = self.seen["tokens"], self.seen["accepted"], self.seen["rounds"]
        if rounds and tokens - accepted > 1.15 * rounds:
            length = tokens / (tokens - accepted)
            self.record.details["committed_length_estimate"] = length
            self.record.warn(
                "rounds-without-draft",
                f"the engine's throughput lines show about {(tokens - accepted) / rounds:.2f} times as many rounds as "
                f"had a draft: E[L] over all rounds is near {length:.2f}, not {1 + accepted / rounds:.2f}",
            )


def _time(text):
    """Return the time of a stamp without a year, or None if it is no time."""
    try:
        return datetime.strptime("2000-" + text, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None


class Line(NamedTuple):
    """What a metrics line prints; a pair is (value, half a unit of its last digit)."""

    version: str
    accepted: int
    drafted: int
    rates: tuple = ()
    rates_half: float = 0.0
    length: tuple | None = None
    accepted_rate: tuple | None = None
    drafted_rate: tuple | None = None
    percent: tuple | None = None


USUAL = re.compile(
    r" Mean acceptance length: (\d{1,6}\.\d\d), Accepted throughput: (\d{1,9}\.\d\d) tokens/s, "
    r"Drafted throughput: (\d{1,9}\.\d\d) tokens/s, Accepted: (\d{1,15}) tokens, Drafted: (\d{1,15}) tokens, "
    r"Per-position acceptance rate: ((?:[01]\.\d{3}, )*[01]\.\d{3}), Avg Draft acceptance rate: (\d{1,3}\.\d)%$"
)


def _usual(body):
    """Return the Line of the present layout, complete to the letter, or None; nine lines in ten cost this alone."""
    match = USUAL.match(body)
    if not match:
        return None
    length, accepted_rate, drafted_rate, accepted, drafted, rates, percent = match.groups()
    return Line(
        "0.11 or later", int(accepted), int(drafted), tuple(map(float, rates.split(", "))), 0.0005, (float(length), 0.005),
        (float(accepted_rate), 0.005), (float(drafted_rate), 0.005), (float(percent), 0.05),
    )  # fmt: skip


def _by_keys(body, is_cut):
    """Return the Line of any layout, read by its keys; raises RecordError for one that stops before its last key."""
    values = fields(body)
    pairs = {
        name: number(values[key], key, unit)
        for name, key, unit in (
            ("length", "Mean acceptance length", ""), ("accepted_rate", "Accepted throughput", "tokens/s"),
            ("drafted_rate", "Drafted throughput", "tokens/s"),
        )
        if key in values
    }  # fmt: skip
    rates = values.get("Per-position acceptance rate")
    if rates is not None:
        pairs["rates"], pairs["rates_half"] = numbers(rates, "rate")
    for key in ("Draft acceptance rate", "Avg Draft acceptance rate"):
        if key in values and values[key].lower() != "nan%":
            pairs["percent"] = number(values[key], key, "%")
    accepted, drafted = (whole(values.get(key, ""), key, "tokens") for key in ("Accepted", "Drafted"))
    return Line(_layout(values, is_cut), accepted, drafted, **pairs)


def _layout(values, is_cut):
    """Return the versions that print these keys; raises RecordError for a line that stops before its last key."""
    if "Accepted throughput" in values:
        last, version = "Avg Draft acceptance rate", "0.11 or later"
    elif "Mean acceptance length" in values:
        last, version = "Per-position acceptance rate", "0.9.0 to 0.10.1"
    else:
        last, version = "Drafted", "0.8.3 to 0.8.4"
    if last not in values or (is_cut and list(values)[-1] != last):
        raise RecordError(f"the line stops before {last!r}")
    return version


def _check_line(line):
    """Raise RecordError if the numbers of a line contradict each other: it was cut or altered."""
    if line.accepted > line.drafted:
        raise RecordError(f"accepted {line.accepted} exceeds drafted {line.drafted}")
    if line.percent and line.drafted:
        rate, half = line.percent
        if abs(100 * line.accepted / line.drafted - rate) > half + 1e-6:
            raise RecordError(f"acceptance rate {rate} % is not {line.accepted} of {line.drafted}")
    if line.rates and (line.rates[0] > 1 or rises(line.rates, 2 * line.rates_half)):
        raise RecordError(f"survival rises along the draft, {line.rates}; it cannot")


def _window(window, rates):
    """Return a log interval as JSON, rates by the names of the contract."""
    if window["rounds"]:
        window["committed_length_drafting_rounds"] = 1 + window["accepted"] / window["rounds"]
    if rates:
        full = window["rounds"] and window["drafted"] == window["rounds"] * len(rates)
        window["survival"] = list(rates)
        before = (1.0, *rates)
        window["conditional"] = [s / b if b else None for b, s in zip(before, rates, strict=False)] if full else None
    return window


# ------------------------------------------------------------------------------------------------- V0 log lines


class LogV0:
    """Collects `Speculative metrics` lines: the V0 engine's, cumulative, or those of the first V1 releases."""

    format = "vllm-log-v0"
    markers = ("Speculative metrics:",)

    def __init__(self, name, gamma=None):
        self.record = Record(ENGINE, self.format, name=name, gamma=gamma)
        self.left_out, self.lines = LeftOut(), []
        self.done, self.restarts = {"rounds": 0, "drafted": 0, "accepted": 0, "emitted": 0}, 0

    def feed(self, marker, line, is_cut):
        """Take one line; keep it if its numbers agree with each other."""
        body = from_engine(line, marker)
        if body is None:
            return
        try:
            self._add(_counts_v0(fields(body), self.record.gamma))
        except (RecordError, KeyError) as error:
            self.left_out.add(error)

    def _add(self, now):
        before = self.lines[-1] if self.lines else None
        if before and now["gamma"] != before["gamma"]:
            raise RecordError(f"the draft length changes from {before['gamma']} to {now['gamma']}")
        if before and not now["early_v1"] and any(now[key] < before[key] for key in ("drafted", "emitted")):
            self.restarts += 1
            self._close(before)
        if now["early_v1"]:
            self._close(now)
        elif before and not self.restarts and len(self.record.windows) < KEPT:
            window = {key: now[key] - before[key] for key in self.done}
            if window["rounds"] > 0:
                window["committed_length_drafting_rounds"] = window["emitted"] / window["rounds"]
                self.record.windows.append(window)
        self.lines = [now]

    def _close(self, counts):
        for key in self.done:
            self.done[key] += counts[key]

    def records(self):
        """Return the Record as a one-element list."""
        if not self.lines:
            return []
        last, record = self.lines[-1], self.record
        if not last["early_v1"]:
            self._close(last)
        record.gamma, record.rounds, record.drafted = last["gamma"], self.done["rounds"], self.done["drafted"]
        record.accepted = self.done["emitted"] - self.done["rounds"]
        record.version, record.aggregation = last["version"], last["aggregation"]
        record.details["engine_core"] = "V1" if last["early_v1"] else "V0"
        record.reported = {"accepted": self.done["accepted"], "emitted": self.done["emitted"], **last["reported"]}
        record.missing["committed_length"] = "the steps without speculation, which this engine does not count"
        record.missing["survival"] = record.missing["conditional"] = "acceptance per position: a V1 engine prints it"
        self._warn()
        self.left_out.warn(record)
        return [check(record)]

    def _warn(self):
        if not self.lines[-1]["early_v1"] and self.done["accepted"] != self.record.accepted:
            self.record.warn(
                "accepted-any-position",
                f"this engine counts a draft token as accepted also after a rejected one ({self.done['accepted']}); "
                f"the usable prefix is emitted − rounds = {self.record.accepted}, and 1 + accepted/rounds is not E[L]",
            )
        if self.restarts:
            self.record.warn("restart", f"the counters fell {self.restarts} times (server restarted); segments added")


def _check_rate_v0(text, accepted, drafted):
    """Return the printed rate (None for nan, which stands for no draft); raises RecordError if it does not fit."""
    if text.lower() == "nan" and not drafted:
        return None
    printed, half = number(text, "Draft acceptance rate")
    if not drafted or abs(accepted / drafted - printed) > half + 1e-9:
        raise RecordError(f"draft acceptance rate {printed} is not {accepted} of {drafted}")
    return printed


def _counts_v0(values, gamma):
    """Return the counts of one line as a dict; raises RecordError if they contradict each other."""
    accepted = whole(values["Number of accepted tokens"], "accepted")
    drafted = whole(values["Number of draft tokens"], "draft tokens")
    emitted = whole(values["Number of emitted tokens"], "emitted")
    gamma = whole(values["Number of speculative tokens"], "k") if "Number of speculative tokens" in values else gamma
    efficiency = values.get("System efficiency", "nan")
    early = efficiency.lower() == "nan"
    if drafted < accepted:
        raise RecordError(f"accepted {accepted} exceeds draft tokens {drafted}")
    if early:
        rounds, version = emitted - accepted, "0.8.0 to 0.8.2 (V1 engine)"
    else:
        if not gamma or drafted % gamma:
            raise RecordError(f"draft tokens {drafted} are no multiple of the draft length {gamma}")
        rounds, version = drafted // gamma, "0.4.2 to 0.8.x (V0 engine)"
        printed, half = number(efficiency, "System efficiency")
        if rounds and abs(emitted / (rounds * (gamma + 1)) - printed) > half + 1e-9:
            raise RecordError(f"system efficiency {printed} is not {emitted} of {rounds * (gamma + 1)}")
    if not 0 <= rounds <= emitted or (gamma and emitted > rounds * (gamma + 1)):
        raise RecordError(f"emitted {emitted} does not fit {rounds} rounds of up to {gamma} draft tokens")
    printed = _check_rate_v0(values["Draft acceptance rate"], accepted, drafted)
    return {
        "gamma": gamma, "rounds": rounds, "drafted": drafted, "accepted": accepted, "emitted": emitted,
        "early_v1": early, "version": version,
        "aggregation": "per log interval" if early else "cumulative since the server started: the last line",
        "reported": {"draft_acceptance_rate": printed} | ({} if early else {"system_efficiency": float(efficiency)}),
    }  # fmt: skip
