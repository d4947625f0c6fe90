"""The events of a run in Chrome's trace format: open the file in a trace viewer such as Perfetto or chrome://tracing."""

import json
from pathlib import Path


def chrome_trace(result, path=None):
    """Return the run as a trace dict (and write it to `path` as JSON): times in µs from its start.

    Track 0 is the engine: one event per step, its parts (verify, draft, other) inside.  Every request is a track of its
    own: the queue, one event per chunk of prefill and per round with what was drafted, accepted, committed and rolled
    back, and an instant for every preemption.  Needs keep="steps".
    """
    if not result.steps:
        raise ValueError('no steps were kept; run with keep="steps"')
    events = [_name(0, "engine")]
    events += [_name(request.id + 1, f"request {request.id}") for request in result.requests]
    for request in result.requests:
        events.append(_event(request.id + 1, "queue", request.arrival, request.scheduled))
    for number, step in enumerate(result.steps):
        events += _of_step(number, step)
    trace = {"traceEvents": events, "displayTimeUnit": "ms"}
    if path is not None:
        Path(path).write_text(json.dumps(trace) + "\n", encoding="utf-8")
    return trace


def _of_step(number, step):
    """Yield the events of one step: the engine's, its parts, and one per request in it."""
    free = {} if step.free_blocks is None else {"free_blocks": step.free_blocks}
    yield _event(0, f"step {number}", step.start, step.end, positions=step.positions, waiting=step.waiting, **free)
    begin = step.start
    for part in ("verify", "draft", "other"):
        end = min(begin + getattr(step, f"t_{part}"), step.end)
        if end > begin:
            yield _event(0, part, begin, end)
        begin = end
    rows = zip(step.ids, step.prefill, step.granted, step.drafted, step.accepted, step.committed, strict=True)
    for identifier, prefill, granted, drafted, accepted, committed in rows:
        if granted:
            counts = {"positions": granted, "committed": committed}
            if not prefill:
                counts |= {"drafted": drafted, "accepted": accepted, "rolled_back": drafted - accepted}
            yield _event(identifier + 1, "prefill" if prefill else "round", step.start, step.end, **counts)
    for identifier in step.preempted:
        yield {"name": "preempted", "ph": "i", "s": "t", "pid": 1, "tid": identifier + 1, "ts": step.start * 1e6}


def _name(track, name):
    return {"name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": name}}


def _event(track, name, start, end, **args):
    return {
        "name": name, "ph": "X", "pid": 1, "tid": track, "ts": start * 1e6, "dur": (end - start) * 1e6, "args": args,
    }  # fmt: skip
