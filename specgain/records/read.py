"""Which kind of record is this? `read_files` tells, and returns what the files say; ambiguity is an error, not a guess.

A file is recognised by what only its engine writes: keys of a JSON object, names of metrics, or a phrase of a log line.
Files that belong together (two scrapes of one server; a benchmark result and the scrapes around it) are put together
by their counts, and by their names where counts cannot tell.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from specgain.records import (
    aiperf,
    instrumented,
    llamacpp,
    lmstudio,
    mlc,
    mlx,
    openvino,
    scrape,
    sglang,
    sweep,
    tensorrt_llm,
    vllm,
    vllm_results,
)
from specgain.records.source import RecordError, Source, Warn, json_values, marked_lines, shown
from specgain.records.summary import Record, pool, summary

LOGS = (vllm.LogV1, vllm.LogV0, sglang.DecodeLog, llamacpp.ServerLog)
# kinds of JSON values that are pooled over a file, and kinds of which each value is a run of its own
MANY = (
    (vllm_results.is_response, vllm_results.responses),
    (aiperf.is_record, aiperf.responses),
    (sglang.is_meta, sglang.responses),
    (mlx.is_timings, mlx.responses),
    (llamacpp.is_timings, llamacpp.responses),
    (lmstudio.is_response, lmstudio.responses),
    (tensorrt_llm.is_request, tensorrt_llm.requests),
    (instrumented.is_round, instrumented.rounds),
)
EACH = (
    (instrumented.is_roundlog, instrumented.roundlog),
    (sglang.is_bench, lambda value, name: [sglang.bench(value, name)]),
    (tensorrt_llm.is_bench, lambda value, name: [tensorrt_llm.bench(value, name)]),
    (mlc.is_metrics, lambda value, name: [mlc.engine(value, name)]),
    (sweep.is_sweep, lambda value, name: [sweep.row(value, name)]),
    (lambda v: vllm_results.is_bench(v) and not sweep.is_sweep(v), lambda v, name: [vllm_results.bench(v, name)]),
)
UNKNOWN = (
    "{name}: unknown format ({hint}). Known are logs, metrics and results of vLLM, SGLang and llama.cpp, records of "
    "TensorRT-LLM, MLC LLM, OpenVINO GenAI, LM Studio, mlx-lm, mlx-vlm and AIPerf, round logs and rounds in JSON or CSV. Please send a sample, so that it can be added."
)


# ------------------------------------------------------------------------------------------------------ one file


def read_file(path, gamma=None):
    """Return the Records and Scrapes in one file, at least one; raises RecordError for anything not recognised.

    `gamma` is the draft length, for records that do not tell it.
    """
    return read_source(Source(path), gamma)


def read_source(source, gamma=None):
    """Return the Records and Scrapes of an open Source, and close it."""
    try:
        found = _read(source, gamma)
    finally:
        source.close()
    for note in source.notes:
        for entry in found[:1]:
            entry.warnings.append(note)
    return found


def _read(source, gamma):
    place = source.file.tell()
    head = source.section(place, 1 << 16)
    source.file.seek(place)
    if scrape.looks_like(head):
        return scrape.scrapes(source, [marker for kind in LOGS for marker in kind.markers if len(marker) > 10])
    start = head.lstrip()[:1]
    if start in ("{", "["):
        try:
            return _read_json(source)
        except RecordError as error:
            if start == "{" or head.lstrip()[1:2] in ("{", "[", '"', "]"):
                raise
            source.file.seek(place)  # a log line may begin with [time]
            return _read_log(source, gamma, error)
    if _is_csv(head):
        return _read_csv(source)
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if _is_csv(head, separator):
            raise RecordError(
                f"{source.name}: {called} between the columns; save it with commas, and numbers with points"
            )
    try:
        return _read_log(source, gamma)
    except RecordError:
        first, end, rest = head.partition("\n")
        if not rest.lstrip().startswith("{"):
            raise
        source.file.seek(place + len((first + end).encode()))  # JSON lines whose first one was cut by a rotation
        source.notes.append(Warn("left-out", f"{source.name}: the first line is no whole JSON and is left out"))
        return _read_json(source)


def _read_json(source):
    """Return the records of a JSON file: one document, a list, or many values."""
    kind, many, found = None, [], []
    for value in json_values(source):
        for item in value if isinstance(value, list) else [value]:
            this = _kind(item, source)
            if kind is not None and this is not kind:
                raise RecordError(f"{source.name}: two kinds of records in one file; give each kind its own file")
            kind = this
            if kind in EACH:
                found += _run(kind, item, source)
            else:
                many.append(item)
    if kind is None:
        raise RecordError(f"{source.name}: the JSON holds no record")
    return found or [_run(kind, many, source)]


def _run(kind, value, source):
    """Return what a reader makes of `value`; a key that is missing becomes a RecordError with its name."""
    try:
        return kind[1](value, source.name)
    except KeyError as error:
        raise RecordError(f"{source.name}: the record lacks {error}") from None
    except (TypeError, AttributeError) as error:
        raise RecordError(f"{source.name}: a value has the wrong type ({error})") from None
    except RecordError as error:
        text = str(error)
        raise RecordError(text if text.startswith(source.name) else f"{source.name}: {text}") from None


def _kind(item, source):
    """Return the one kind that recognises a JSON value."""
    matches = [kind for kind in MANY + EACH if kind[0](item)]
    if len(matches) > 1:
        raise RecordError(f"{source.name}: the record fits more than one kind; it is not guessed which")
    if not matches:
        keys = ", ".join(map(shown, list(item)[:8])) if isinstance(item, dict) else type(item).__name__
        raise RecordError(UNKNOWN.format(name=source.name, hint=f"a JSON value with {keys or 'no keys'}"))
    return matches[0]


BLOCKS = {  # blocks of several lines: the phrase they begin with → reader of the text from there on
    "Serving Benchmark Result": None,
    "total_num_output_tokens: ": vllm_results.offline,
    "decoded ": llamacpp.speculative,
    "Generation: ": mlx.generate,
    "MAIN MODEL": openvino.sample,
}


def _read_log(source, gamma, why=None):
    """Return the records of a text file in one pass; raises RecordError if nothing, or more than one kind, is found."""
    logs = [kind(source.name, gamma) for kind in LOGS]
    owner = {marker.encode(): log for log in logs for marker in log.markers}
    blocks = {marker.encode(): marker for marker in BLOCKS}
    found = []
    for marker, offset, line, is_cut in marked_lines(source, [*owner, *blocks]):
        if marker in owner:
            owner[marker].feed(marker.decode(), line, is_cut)
        elif _begins(blocks[marker], line):
            text = line + "\n" + source.section(offset).partition("\n")[2]
            found.append(_block(blocks[marker], text, source))
    reasons = [log.left_out.reason for log in logs if log.left_out.lines]
    found += [record for log in logs for record in log.records()]
    if len(found) > 1:
        found = _without_plain(found)
    if not found:
        hint = reasons[0] if reasons else str(why) if why else "no line of a known engine"
        raise RecordError(UNKNOWN.format(name=source.name, hint=hint))
    if len({record.format for record in found}) > 1:
        kinds = Counter(f"{record.engine}, {record.format}" for record in found)
        raise RecordError(f"{source.name}: more than one kind of record in one file ({'; '.join(kinds)}); split it")
    return found


def _without_plain(found):
    """Leave out engine lines that only stand beside another record of the same engine (throughput, timing)."""
    told = [record for record in found if record.has_acceptance or record.requests or "requests" in record.details]
    engines = {record.engine for record in told}
    rest = [r for r in found if r not in told and not (r.format.endswith("-plain") and r.engine in engines)]
    return told + rest if told else found


def _begins(phrase, line):
    """Return True if the line is the first of such a block, and not text that happens to hold the phrase."""
    line = line.strip()
    return line.strip("= ") == phrase if phrase.startswith("Serving") else line.startswith(phrase)


def _block(phrase, text, source):
    reader = BLOCKS[phrase]
    if reader is None:
        reader = (sglang if "\nBackend:" in text[:400] else vllm_results).printed_bench
    return _run((None, reader), text, source)


def _is_csv(head, separator=","):
    header = head.partition("\n")[0].split(separator)
    return len(header) >= 3 and bool({"num_candidates", "total_output_tokens"} & {h.strip() for h in header})


def _read_csv(source):
    text = source.whole()
    if "num_candidates" in text.partition("\n")[0]:
        return [_run((None, instrumented.csv_rounds), text, source)]
    return _run((None, sweep.rows), text, source)


# ---------------------------------------------------------------------------------------------------- many files


def runs(paths, gamma=None):
    """Return the runs that the files record, one Record each: scrapes paired, results put with their scrapes."""
    return put_together([entry for path in paths for entry in read_file(path, gamma)])


def put_together(found):
    """Return the runs behind Records and Scrapes of any number of files."""
    records = [entry for entry in found if isinstance(entry, Record)]
    scrapes = [entry for entry in found if isinstance(entry, scrape.Scrape)]
    windows = _pair(scrapes, records) if scrapes else []
    return _together(records, windows)


def _pair(scrapes, records):
    """Return the Records of pairs of scrapes: those that match a result's counts, else by name, else the only pair."""
    left, found, possible = list(scrapes), [], list(_windows(scrapes)) if records else []
    for one in (r for r in records if "generation_tokens" in r.details):
        free = [w for w in possible if any(w[0] is s for s in left) and any(w[1] is s for s in left)]
        fits = [w for w in free if _same_run(one, w[2])]
        if fits:
            a, b, window = min(fits, key=lambda fit: (_apart(one, fit[2]), _stem(fit[0].name) != _stem(fit[1].name)))
            found.append(window)
            left = [s for s in left if s is not a and s is not b]
    for stem in sorted({_stem(s.name) for s in left}):
        same = [s for s in left if _stem(s.name) == stem]
        if len(same) == 2:
            found.append(scrape.window(*same))
            left = [s for s in left if _stem(s.name) != stem]
    if len(left) == 2:
        return [*found, scrape.window(*left)]
    if len(left) == 1 and not found:
        return [scrape.since_start(left[0])]
    if left:
        names = ", ".join(s.name for s in left)
        raise RecordError(
            f"{len(left)} scrapes cannot be paired ({names}): name them RUN.before… and RUN.after…, or add the results"
        )
    return found


def _windows(scrapes):
    """Yield (scrape, scrape, Record) for every two scrapes that can be the ends of one run."""
    for a, b in combinations(scrapes, 2):
        if scrape.follows(a, b) or scrape.follows(b, a):
            try:
                yield a, b, scrape.window(a, b)
            except RecordError:  # scrapes of different servers: their difference makes no sense
                continue


def _apart(one, other):
    """Return how far two clocks of one run are apart, in seconds; 0 where one of them has no clock."""
    times = one.decode_seconds, other.decode_seconds
    return 0.0 if None in times else abs(times[0] - times[1])


def _stem(name):
    """Return a file's name with the words before and after blotted out, so that both scrapes of a run agree."""
    return name.replace("\\", "/").rpartition("/")[2].replace("before", "*").replace("after", "*")


def _same_run(one, other):
    """Return True if a client's result and a server's window count the same requests, tokens and drafts."""
    keys = ("requests", "generation_tokens")
    return all(one.details.get(k) == other.details.get(k) for k in keys) and (one.rounds or 0) == (other.rounds or 0)


def _together(records, windows):
    """Return the runs: a client's result and the window of the same run become one Record."""
    found, left = [], list(windows)
    for one in records:
        match = min(
            (w for w in left if _same_run(one, w)),
            key=lambda w: _apart(one, w),
            default=None,
        )
        if match is None:
            found.append(one)
        else:
            left = [w for w in left if w is not match]
            found.append(_merge(match, one))
    results = [one for one in found if "requests" in one.details]
    return found + left if not results else _set_aside(found, left, results[0])


def _set_aside(found, windows, result):
    """Leave out windows that match no result: they hold a warm-up or other traffic, and would count runs twice."""
    for window in windows:
        for key in {"kv_cache_tokens", "kv_blocks", "kv_block_tokens"} & window.details.keys():
            result.details.setdefault(key, window.details[key])
        result.warn(
            "scrapes-unmatched",
            f"{window.name}: {window.details.get('requests')} requests and {window.details.get('generation_tokens')} "
            "tokens between the scrapes match no result: a warm-up or other traffic lies between them; left out",
        )
    return found


def _merge(server, client):
    """Return one Record: counters and clock of the server, requests and outputs of the client."""
    warnings = list(dict.fromkeys(server.warnings + client.warnings))
    return replace(
        server,
        name=f"{client.name}, {server.name}",
        format=f"{client.format} with {server.format}",
        requests=client.requests,
        outputs=client.outputs,
        workload=client.workload,
        details={"latency_ms_server": server.details.get("latency_ms")}
        | {k: v for k, v in server.details.items() if k != "latency_ms"}
        | {k: v for k, v in client.details.items() if v is not None},
        warnings=warnings,
        missing=dict(server.missing),
    )


def read(paths, gamma=None):
    """Return the one Record that all files together make."""
    return pool(runs(paths, gamma))


def summary_of(paths, gamma=None):
    """Return the contract dict of `specgain read` for the files at `paths`."""
    return summary(read(paths, gamma))
