"""One schema for every record of real rounds: who ran, how, and what each round drafted, accepted, committed and cost.

A file is JSON with `"schema": "specgain.roundlog/1"`.  Rounds are stored as columns per request, one entry per
round.  Times are seconds in memory and milliseconds in the file (`t_draft_ms`, …), both kept to the nanosecond, so
that writing and reading loses nothing.
"""

import json
from dataclasses import asdict, dataclass, field, fields
from numbers import Integral
from pathlib import Path

from specgain.records.source import RecordError, parse_json

SCHEMA = "specgain.roundlog/1"
FINISHES = ("length", "stop", "unknown")  # by the output cap; by EOS or a stop string; not recorded
COUNTS = ("drafted", "accepted", "committed")
TIMES = ("t_draft", "t_verify", "t_other")


class RoundLogError(ValueError):
    """A record that contradicts itself or the schema; the message names the place and what would be right."""


@dataclass
class RequestLog:
    """One request of one arm, with one entry per round in every column.

    `gamma` is the length asked for (the longest, if it changes); `drafted[r]` what round r offered, never more and less
    at the end; `accepted[r]` its K and `committed[r]` its L.  Ordinary decoding is γ = 0: each step is a round with nothing drafted.
    `prefill_tokens` committed by the prefill (usually 1) belong to no round.
    """

    id: str
    arm: str
    gamma: int
    domain: str = ""
    prompt: int = 0
    repeat: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    prefill_tokens: int = 1
    finish: str = "unknown"
    drafted: list = field(default_factory=list)
    accepted: list = field(default_factory=list)
    committed: list = field(default_factory=list)
    t_draft: list = field(default_factory=list)
    t_verify: list = field(default_factory=list)
    t_other: list = field(default_factory=list)
    batch: list = field(default_factory=list)  # requests that shared each round's pass; empty: not recorded

    def __post_init__(self):
        self._check_columns()
        self._check_rounds()
        for name in TIMES:
            setattr(self, name, [round(seconds, 9) for seconds in getattr(self, name)])

    def _check_columns(self):
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, Integral) or self.gamma < 0:
            raise RoundLogError(f"request {self.id!r}: gamma = {self.gamma!r} must be a whole number, 0 or more")
        columns = {name: getattr(self, name) for name in COUNTS + TIMES}
        if wrong := [name for name, column in columns.items() if not isinstance(column, (list, tuple))]:
            raise RoundLogError(f"request {self.id!r}: {', '.join(wrong)} must be a list with one entry per round")
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise RoundLogError(
                f"request {self.id!r}: columns differ in length ({lengths}); each needs one entry per round"
            )
        for name in COUNTS:
            if any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in getattr(self, name)):
                raise RoundLogError(f"request {self.id!r}: {name} must hold whole numbers of tokens, 0 or more")
        if self.batch and (
            len(self.batch) != len(self.drafted) or any(type(b) is not int or b < 1 for b in self.batch)
        ):
            raise RoundLogError(
                f"request {self.id!r}: batch must hold one whole number of requests per round, 1 or more"
            )
        for name in TIMES:
            if any(not isinstance(v, (int, float)) or not 0 <= v < float("inf") for v in getattr(self, name)):
                raise RoundLogError(f"request {self.id!r}: {name} must hold finite times of 0 s or more")
        if self.finish not in FINISHES:
            raise RoundLogError(f"request {self.id!r}: finish = {self.finish!r} must be one of {', '.join(FINISHES)}")

    def _check_rounds(self):
        for r, (drafted, accepted, committed) in enumerate(
            zip(self.drafted, self.accepted, self.committed, strict=True)
        ):
            if drafted > self.gamma:
                raise RoundLogError(
                    f"request {self.id!r}, round {r}: {drafted} drafted tokens with gamma = {self.gamma}; "
                    "gamma is the longest length asked for"
                )
            if accepted > drafted:
                raise RoundLogError(
                    f"request {self.id!r}, round {r}: accepted {accepted} of {drafted} drafted tokens; "
                    "K cannot exceed γ"
                )
            if committed > accepted + 1 or (committed < accepted + 1 and r + 1 < len(self.drafted)):
                raise RoundLogError(
                    f"request {self.id!r}, round {r}: committed {committed} tokens with K = {accepted}; "
                    "L is K + 1, and only the last round may be cut short"
                )
        if self.output_tokens and self.prefill_tokens + sum(self.committed) != self.output_tokens:
            raise RoundLogError(
                f"request {self.id!r}: {self.prefill_tokens} tokens by prefill and {sum(self.committed)} by rounds "
                f"do not add up to output_tokens = {self.output_tokens}"
            )

    @property
    def rounds(self):
        """The number of rounds."""
        return len(self.committed)

    @property
    def cut(self):
        """One flag per round: True where a stop or the limit cut it (L < K + 1).

        A cut says nothing about the draft.
        """
        return [c < k + 1 for c, k in zip(self.committed, self.accepted, strict=True)]

    @property
    def t_round(self):
        """T_draft + T_verify + T_other of each round, in seconds."""
        return [sum(parts) for parts in zip(self.t_draft, self.t_verify, self.t_other, strict=True)]

    @property
    def time(self):
        """Seconds of all rounds together (decode phase only, no prefill)."""
        return sum(self.t_round)

    @property
    def tokens(self):
        """Tokens committed by the rounds (decode phase only)."""
        return sum(self.committed)


@dataclass
class RoundLog:
    """A set of requests measured together, with the environment (device, versions, date, seed) and the setup (models,
    dtype).
    """

    environment: dict
    setup: dict
    requests: list

    def select(self, **wanted):
        """Return a RoundLog with the requests whose fields equal those given, such as `select(arm="plain",
        domain="json")`.
        """
        unknown = set(wanted) - {f.name for f in fields(RequestLog)}
        if unknown:
            raise RoundLogError(f"select({', '.join(sorted(unknown))}) names no field of a request")
        kept = [r for r in self.requests if all(getattr(r, name) == value for name, value in wanted.items())]
        return RoundLog(self.environment, self.setup, kept)

    @property
    def committed_length(self):
        """E[L] over all rounds, bonus and last round included: tokens committed over rounds."""
        rounds = sum(request.rounds for request in self.requests)
        if rounds == 0:
            raise RoundLogError("no round in this selection; E[L] needs at least one")
        return sum(request.tokens for request in self.requests) / rounds

    def to_json(self):
        """Return the record as a JSON-ready dict, times in milliseconds."""
        return {
            "schema": SCHEMA,
            "environment": self.environment,
            "setup": self.setup,
            "requests": [_to_milliseconds(asdict(request)) for request in self.requests],
        }

    @classmethod
    def from_json(cls, data):
        """Return the RoundLog of a JSON dict; raises RoundLogError that names the wrong place."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise RoundLogError(f"schema is {found!r}; this version reads {SCHEMA!r}")
        missing = [key for key in ("environment", "setup", "requests") if key not in data]
        if missing:
            raise RoundLogError(f"the record lacks {', '.join(missing)}")
        for key, kind in (("environment", dict), ("setup", dict), ("requests", list)):
            if not isinstance(data[key], kind):
                raise RoundLogError(f"{key} is {type(data[key]).__name__}; it must be a {kind.__name__}")
        return cls(
            data["environment"], data["setup"], [_from_milliseconds(r, i) for i, r in enumerate(data["requests"])]
        )

    def write(self, path):
        """Write the record to `path` (whole or not at all: a temporary file is renamed over it)."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(self.to_json(), allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def read(cls, path):
        """Return the RoundLog in the file at `path`; raises RoundLogError for a file that is not one."""
        try:
            return cls.from_json(parse_json(Path(path).read_text(encoding="utf-8")))
        except (RecordError, UnicodeDecodeError) as error:
            raise RoundLogError(f"{path} is not a complete JSON file ({error})") from error


def _to_milliseconds(request):
    if not request["batch"]:
        del request["batch"]
    for name in TIMES:
        request[f"{name}_ms"] = [round(seconds * 1e3, 6) for seconds in request.pop(name)]
    return request


def _from_milliseconds(request, index):
    if not isinstance(request, dict):
        raise RoundLogError(f"requests[{index}] is {type(request).__name__}; it must be an object")
    request = dict(request)
    for name in TIMES:
        times = request.pop(f"{name}_ms", None)
        if not isinstance(times, list) or not all(isinstance(t, (int, float)) for t in times):
            raise RoundLogError(f"requests[{index}] needs {name}_ms, a list of milliseconds, one per round")
        request[name] = [round(milliseconds / 1e3, 9) for milliseconds in times]
    unknown = set(request) - {f.name for f in fields(RequestLog)}
    if unknown or not {"id", "arm", "gamma"} <= set(request):
        wrong = f"has unknown keys {sorted(unknown)}" if unknown else "lacks id, arm or gamma"
        raise RoundLogError(f"requests[{index}] {wrong}")
    return RequestLog(**request)
