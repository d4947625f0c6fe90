"""What llama.cpp writes: the server's log and timings, and the output of llama-speculative.

- server log: `draft acceptance rate = R (A accepted / G generated)` until mid-2026, then `draft acceptance = R (…),
  mean len = L` with L = 1 + A/verification steps (tools/server, print_timing); the `eval time` line above it has
  the tokens and the milliseconds of the same request.
- `statistics NAME: #calls(b,g,a) = …` lines (common/speculative.cpp) add up over all requests since the start, so only
  a difference that matches the request says anything about it.
- timings of a response: draft_n and draft_n_accepted (PR #12603, 2025-03), absent when nothing was drafted; before
  PR #14104 (2025-06) draft_n also counted drafts that --draft-min threw away.
- llama-speculative and llama-speculative-simple (examples; PR #2926, #10455): the block n_draft … accept. The target's
  verification shows as prompt evaluation.
Every verification step yields its accepted tokens and one more, so steps = tokens − accepted; it is one less if the
first token came from the prefill, and one more if the last step was cut.
"""

import re

from specgain.records.source import RecordError, Warn, count, real
from specgain.records.summary import Record, Request, check
from specgain.records.text import LeftOut, Printed, from_engine, rounds_behind, whole

ENGINE = "llama.cpp"
RATE = re.compile(r"^\s*(?:rate)?\s*= (\d\.\d+) \(\s*(\d{1,15}) accepted /\s*(\d{1,15}) generated\)(.*)$")
MEAN = re.compile(r"mean (?:len|acceptance length) =\s*(\d{1,6}\.\d+)")
EVAL = re.compile(r"^\s*=\s*(\d{1,12}\.\d+) ms /\s*(\d{1,15}) (?:tokens|runs)")
STATISTICS = re.compile(r"#(gen drafts|acc drafts|gen tokens|acc tokens) = (\d{1,15})")
CALLS = re.compile(r"#calls\(b,g,a\) = (\d{1,15}) (\d{1,15}) (\d{1,15})")
DURATION = re.compile(r"dur\(b,g,a\) = [\d.]{1,20}, (\d{1,15}\.\d+), [\d.]{1,20} ms\s*$")
POSITIONS = re.compile(r"(?:acc per pos|acceptance rate per position) = \(([\d., ]*)\)")
DRAFTING = "the rounds with a draft: the server log at trace level (statistics, mean len) or /metrics"


class ServerLog:
    """Collects the timing lines of a llama.cpp server into one Record, one entry per request."""

    format = "llamacpp-server-log"
    markers = ("eval time", "draft acceptance", "statistics ")

    def __init__(self, name, gamma=None):
        self.record = Record(ENGINE, self.format, aggregation="per request, pooled by counts", name=name, gamma=gamma)
        self.left_out, self.eval, self.totals, self.entry = LeftOut(), None, {}, None
        self.version = set()

    def feed(self, marker, line, is_cut):
        """Take one line."""
        body = from_engine(line, marker)
        if body is None or (marker == "eval time" and ("prompt eval time" in line or "llama_" in line)):
            return
        try:
            if marker == "eval time":
                self._eval(body)
            elif marker == "draft acceptance":
                self._rate(body, line)
            else:
                self._statistics(body)
        except RecordError as error:
            self.left_out.add(error)

    def _eval(self, body):
        match = EVAL.match(body)
        if not match or ("tokens per second" not in body):
            raise RecordError("an eval time line was cut")
        self._plain()
        self.eval = (float(match[1]) / 1e3, count(int(match[2]), "tokens"))

    def _plain(self):
        """Keep the request before as one without drafts, if no acceptance line followed its timing."""
        if self.eval:
            seconds, tokens = self.eval
            self._keep({"tokens": tokens, "seconds": seconds, "accepted": 0, "drafted": 0, "drafts": 0})
        self.eval = None

    def _rate(self, body, line):
        match = RATE.match(body)
        if not match:
            raise RecordError("a draft acceptance line was cut")
        accepted, drafted = int(match[2]), int(match[3])
        if accepted > drafted or (drafted and abs(accepted / drafted - float(match[1])) > 1e-5):
            raise RecordError(f"draft acceptance {match[1]} is not {accepted}/{drafted}")
        seconds, tokens = self.eval or (None, None)
        self.eval = None
        entry = {"tokens": tokens, "seconds": seconds, "accepted": accepted, "drafted": drafted, "drafts": None}
        mean, places = MEAN.search(match[4]), POSITIONS.search(line)
        if mean and accepted:
            printed = Printed(float(mean[1]) - 1, 0.005)
            drafts, low, high = rounds_behind(accepted, drafted, [printed])
            entry["drafts"] = drafts if low == high else None
            entry["drafts_range"] = [low, high]
        self.version.add("2026-06 or later" if mean else "mid-2025 to about 2026-05")
        if places:
            entry["survival"] = [float(p) for p in places[1].split(",") if p.strip()]
        self._keep(entry)

    def _statistics(self, body):
        """Use a statistics line for the request before it, if its increase matches what that request reported."""
        found = {key: int(value) for key, value in STATISTICS.findall(body)}
        calls, name = CALLS.search(body), body.partition(":")[0].strip()
        if len(found) < 4 or not calls:
            return
        duration = DURATION.search(body)
        now = found | {"calls": int(calls[2]), "ms": float(duration[1]) if duration else None}
        before = self.totals.get(name, dict.fromkeys(now, 0))
        self.totals[name] = now
        entry, self.entry = self.entry, None
        step = {key: now[key] - (before[key] or 0) for key in found | {"calls": 0}}
        if entry and (step["gen tokens"], step["acc tokens"]) == (entry["drafted"], entry["accepted"]):
            entry |= {"drafts": step["gen drafts"], "calls": step["calls"]}
            if now["ms"] is not None and before["ms"] is not None:
                entry["draft_ms"] = now["ms"] - before["ms"]

    def _keep(self, entry):
        self.record.per_request.append(entry)
        self.entry = entry

    def records(self):
        """Return the Record as a one-element list."""
        if self.eval and any(entry["drafted"] for entry in self.record.per_request):
            self.left_out.add("no acceptance line follows the last request's timing, which may have been cut")
        else:
            self._plain()
        record, entries = self.record, self.record.per_request
        self.left_out.warn(record)
        if not entries:
            return []
        record.version = ", ".join(sorted(self.version)) or None
        fill(record, entries)
        if len(self.totals) == 1 and all("calls" in e for e in entries):
            calls, spent = (sum(e.get(k, 0) for e in entries) for k in ("calls", "draft_ms"))
            if calls and spent:
                record.details["draft_ms_per_call"] = spent / calls
                record.details["t_draft_ms"] = spent / record.rounds_all if record.rounds_all else None
        return [check(record)]


def fill(record, entries):
    """Add up per-request entries; tokens − accepted of a request are its verification steps, within one."""
    record.drafted = sum(e["drafted"] for e in entries)
    record.accepted = sum(e["accepted"] for e in entries)
    if all(e["drafts"] is not None for e in entries):
        record.rounds = sum(e["drafts"] for e in entries)
    else:
        record.drafting_known = False
        record.missing["rounds"] = record.missing["committed_length_drafting_rounds"] = DRAFTING
    if all(e["tokens"] is not None for e in entries):
        _steps(record, entries)
        record.rounds = record.rounds_all if record.rounds is None else record.rounds
    else:
        record.missing["committed_length"] = "the eval time line above the acceptance line (tokens and milliseconds)"
    record.missing["survival"] = record.missing["conditional"] = "acceptance per position: the log at trace level"
    if not record.drafted:
        record.rounds = record.drafted = record.accepted = None
        record.missing["accepted"] = "drafts: none were made (or this server does not print them)"


def _steps(record, entries):
    for entry in entries:
        entry["rounds"] = steps = entry["tokens"] - entry["accepted"]
        if steps < 1 or steps < (entry["drafts"] or 0):
            raise RecordError(
                f"{record.name}: {entry['tokens']} tokens with {entry['accepted']} accepted leave {steps} rounds, "
                f"but {entry['drafts']} drafts were made"
            )
    record.committed = sum(e["tokens"] for e in entries)
    record.rounds_all = sum(e["rounds"] for e in entries)
    timed = all(e["seconds"] is not None for e in entries)
    record.requests = [Request(e["tokens"], e["seconds"], e["rounds"]) for e in entries]
    if timed:
        record.decode_seconds = sum(e["seconds"] for e in entries)
    if record.accepted:
        n = len(entries)
        low, high = record.rounds_all - n, record.rounds_all
        record.length_bounds = tuple(sorted((record.committed / high, (record.committed - n) / max(1, low))))
        record.warnings.append(
            Warn(
                "first-token",
                f"{record.name}: rounds may be one fewer per request (first token from the prefill): E[L] "
                f"{record.length_bounds[0]:.4f} to {record.length_bounds[1]:.4f}",
            )
        )


# --------------------------------------------------------------------------------------------------------- timings


def is_timings(value):
    """Return True for a response with llama.cpp's `timings`, or the timings alone."""
    timings = value.get("timings", value) if isinstance(value, dict) else None
    return isinstance(timings, dict) and {"predicted_n", "predicted_ms", "predicted_per_second"} <= set(timings)


def responses(values, name):
    """Return the one Record of responses with `timings`, pooled by counts."""
    record = Record(ENGINE, "llamacpp-timings", "2025-03 or later (PR #12603)", "per request, pooled by counts", name)
    for value in values:
        timings = value.get("timings", value)
        entry = {
            "tokens": count(timings["predicted_n"], "predicted_n"),
            "seconds": real(timings["predicted_ms"], "predicted_ms") / 1e3,
            "drafted": count(timings.get("draft_n") or 0, "draft_n"),
            "accepted": count(timings.get("draft_n_accepted") or 0, "draft_n_accepted"),
            "drafts": None,
        }
        if entry["accepted"] > entry["drafted"]:
            raise RecordError(f"{name}: draft_n_accepted {entry['accepted']} exceeds draft_n {entry['drafted']}")
        record.per_request.append(entry)
    fill(record, record.per_request)
    return check(record)


# ----------------------------------------------------------------------------------------------- llama-speculative

BLOCK = re.compile(r"^(n_draft|n_predict|n_drafted|n_accept|accept)\s*= +(\d{1,15}(?:\.\d+)?)(%?)\s*$", re.MULTILINE)
DECODED = re.compile(r"^decoded +(\d{1,15}) tokens in +(\d{1,12}\.\d+) seconds", re.MULTILINE)
CONTEXT = re.compile(r"(prompt eval|eval) time = +(\d{1,12}\.\d+) ms / +(\d{1,15}) (?:tokens|runs)")


def speculative(text, name):
    """Return the Record of llama-speculative's closing block; `text` starts at its `decoded` line."""
    values, decoded = dict((key, value) for key, value, _ in BLOCK.findall(text)), DECODED.search(text)
    wanted = [key for key in ("n_draft", "n_predict", "n_drafted", "n_accept", "accept") if key not in values]
    if wanted or not decoded:
        raise RecordError(f"{name}: the block was cut, {', '.join(wanted) or 'decoded'} is missing")
    record = Record(ENGINE, "llamacpp-speculative", "examples, 2023-08 or later", "per run", name)
    counts = {key: whole(values[key], key) for key in ("n_draft", "n_predict", "n_drafted", "n_accept")}
    tokens, record.drafted, record.accepted = (counts[key] for key in ("n_predict", "n_drafted", "n_accept"))
    record.details = {"gamma_max": counts["n_draft"]}
    _check_block(record, float(values["accept"]), int(decoded[1]), tokens)
    record.rounds = record.rounds_all = tokens - record.accepted
    record.drafting_known, record.committed, record.decode_seconds = False, tokens, float(decoded[2])
    if record.rounds < 1:
        raise RecordError(f"{name}: n_predict {tokens} with n_accept {record.accepted} leave no round")
    record.requests = [Request(tokens, record.decode_seconds, record.rounds)]
    record.tokens_per_second = tokens / record.decode_seconds if record.decode_seconds else None
    record.details |= {
        "mean_draft_length": record.drafted / record.rounds,
        "break_even_plain_tokens_per_s": record.tokens_per_second,
    }
    _draft_context(record, text)
    record.missing["committed_length_drafting_rounds"] = DRAFTING
    record.missing["survival"] = record.missing["conditional"] = "acceptance per position, which is not printed"
    return check(record)


def _check_block(record, percent, decoded, tokens):
    if decoded != tokens:
        raise RecordError(f"{record.name}: decoded {decoded} tokens, but n_predict = {tokens}")
    if not record.drafted or abs(100 * record.accepted / record.drafted - percent) > 0.0006:
        raise RecordError(f"{record.name}: accept = {percent} % is not {record.accepted}/{record.drafted}")


def _draft_context(record, text):
    """Add the draft model's time per round, if its timing block is there: its eval lines, not its prompt lines."""
    draft, _, target = text.partition("draft:")[2].partition("target:")
    times = {kind: (float(ms), int(n)) for kind, ms, n in CONTEXT.findall(draft)}
    if target and "eval" in times:
        record.details["t_draft_ms"] = times["eval"][0] / record.rounds
        record.warn(
            "draft-prompt-time",
            f"{record.name}: the draft context's prompt eval time contains waiting for the target; it is not in the "
            "ledger. The target's verification shows as its prompt eval.",
        )
