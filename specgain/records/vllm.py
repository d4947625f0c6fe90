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

    engine, format = ENGINE, "vllm-log-v1"
    markers = ("SpecDecoding metrics:", "Avg generation throughput:", "KV cache size:")

    def __init__(self, name, gamma=None):
        self.record = Record(ENGINE, self.format, name=name, gamma=gamma)
        self.record.aggregation = "per log interval (reset after each line), pooled by counts"
        self.left_out, self.found, self.tick, self.last = LeftOut(), 0, None, None
        self.sums = {"rounds": 0, "drafted": 0, "accepted": 0}
        self.places, self.layouts, self.unsure, self.seen = [], set(), 0, {"tokens": 0.0, "accepted": 0.0, "rounds": 0}

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
                self._spec_line(body, line, is_cut)
            except RecordError as error:
                self.left_out.add(error)

    def _engine_line(self, line):
        """Keep the throughput and the queue that the engine printed beside the acceptance."""
        stamp = STAMP.search(line)
        try:
            values = fields(line[line.index("Avg ") :])
            rate = decimal(values["Avg generation throughput"], "throughput", "tokens/s")
            running = whole(values.get("Running", ""), "Running", "reqs") if "Running" in values else None
        except (RecordError, ValueError, KeyError) as error:
            self.left_out.add(error)
            return
        self.found += 1
        now = _time(stamp[1]) if stamp else None
        seconds = (now - self.last).total_seconds() if now and self.last else None
        self.tick, self.last = (rate, running, seconds), now
        if "Swapped" in values or "Waiting" in values:  # the queues that each engine core prints
            self.record.details["engine_core"] = "V0" if "Swapped" in values else "V1"
        if "Preemptions" in values:
            self.record.details["preemptions_logged"] = True

    def _spec_line(self, body, line, is_cut):
        values = fields(body)
        accepted = whole(values["Accepted"] if "Accepted" in values else "", "Accepted", "tokens")
        drafted = whole(values["Drafted"] if "Drafted" in values else "", "Drafted", "tokens")
        window = {"accepted": accepted, "drafted": drafted}
        rates = (
            numbers(values["Per-position acceptance rate"], "rate")
            if "Per-position acceptance rate" in values
            else None
        )
        length = number(values["Mean acceptance length"], "length") if "Mean acceptance length" in values else None
        if rates and rises(rates[0], 2 * rates[1]):
            raise RecordError(f"survival rises along the draft, {rates[0]}; it cannot")
        layout = _layout_v1(values, is_cut)
        _check_rate_v1(values, accepted, drafted)
        self._rounds(window, rates, length)
        self._time(window, values)
        self._add(window, rates)
        self.layouts.add(layout)

    def _rounds(self, window, rates, length):
        """Find the number of rounds that the line does not print, from all that it prints."""
        per_round = [Printed(length[0] - 1, length[1])] if length else []
        gamma = self.record.gamma
        if rates:
            per_round.append(Printed(sum(rates[0]), rates[1] * len(rates[0])))
            gamma = gamma or len(rates[0])
        if not window["drafted"]:
            window["rounds"] = 0
            return
        if not per_round and not gamma:
            window["rounds"] = None
            return
        window["rounds"], low, high = rounds_behind(window["accepted"], window["drafted"], per_round, gamma)
        if (low, high) != (window["rounds"],) * 2:
            window["rounds_range"] = [low, high]
            self.unsure += not window["accepted"]

    def _time(self, window, values):
        """Add the length of the interval, from a count and its rate, and the rounds per second of the server."""
        for name, tokens in (("Accepted", window["accepted"]), ("Drafted", window["drafted"])):
            key = f"{name} throughput"
            if tokens and key in values:
                rate, half = number(values[key], key, "tokens/s")
                if rate > 20 * half:  # the printed rate has at least two digits that count
                    window["interval_s"] = tokens / rate
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

    def _add(self, window, rates):
        self.found += 1
        for key, total in self.sums.items():
            value = window[key]
            self.sums[key] = None if None in (total, value) else total + value
        if rates and window["rounds"]:
            self.places += [0.0] * (len(rates[0]) - len(self.places))
            for i, rate in enumerate(rates[0]):
                self.places[i] += rate * window["rounds"]
            self.record.gamma = max(self.record.gamma or 0, len(rates[0]))
        if len(self.record.windows) < KEPT:
            self.record.windows.append(_window(window, rates))

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
            if self.places and record.rounds:
                record.survival = tuple(place / record.rounds for place in self.places)
            self._warn()
        elif not self.left_out.lines:
            record.format = "vllm-log-plain"
        record.missing["committed_length"] = ALL_ROUNDS
        if record.rounds is None:
            record.missing["rounds"] = "the draft length: give --num-speculative-tokens if every draft had that length"
        return [check(record)]

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


def _layout_v1(values, is_cut):
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


def _check_rate_v1(values, accepted, drafted):
    """Raise RecordError if the printed rate (in percent) is not accepted/drafted: the line was cut or altered."""
    for key in ("Draft acceptance rate", "Avg Draft acceptance rate"):
        if key in values and values[key].lower() != "nan%":
            rate, half = number(values[key], key, "%")
            if drafted and abs(100 * accepted / drafted - rate) > half + 1e-6:
                raise RecordError(f"{key} {rate} % is not {accepted} of {drafted}")
    if accepted > drafted:
        raise RecordError(f"accepted {accepted} exceeds drafted {drafted}")


def _window(window, rates):
    """Return a log interval as JSON, rates by the names of the contract."""
    if window["rounds"]:
        window["committed_length_drafting_rounds"] = 1 + window["accepted"] / window["rounds"]
    if rates:
        full = window["rounds"] and window["drafted"] == window["rounds"] * len(rates[0])
        window["survival"] = list(rates[0])
        before = (1.0, *rates[0])
        window["conditional"] = [s / b if b else None for b, s in zip(before, rates[0], strict=False)] if full else None
    return window


# ------------------------------------------------------------------------------------------------- V0 log lines


class LogV0:
    """Collects `Speculative metrics` lines: the V0 engine's, cumulative, or those of the first V1 releases."""

    engine, format = ENGINE, "vllm-log-v0"
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
        if before and not now["early_v1"] and any(now[key] < before[key] for key in ("drafted", "emitted")):
            self.restarts += 1
            self._close(before)
        if before and now["gamma"] != before["gamma"]:
            raise RecordError(f"the draft length changes from {before['gamma']} to {now['gamma']}")
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
    if not rounds <= emitted or (gamma and emitted > rounds * (gamma + 1)):
        raise RecordError(f"emitted {emitted} does not fit {rounds} rounds of up to {gamma} draft tokens")
    printed = _check_rate_v0(values["Draft acceptance rate"], accepted, drafted)
    return {
        "gamma": gamma, "rounds": rounds, "drafted": drafted, "accepted": accepted, "emitted": emitted,
        "early_v1": early, "version": version,
        "aggregation": "per log interval" if early else "cumulative since the server started: the last line",
        "reported": {"draft_acceptance_rate": printed} | ({} if early else {"system_efficiency": float(efficiency)}),
    }  # fmt: skip
