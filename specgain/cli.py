"""The command line: `specgain gain`, `prove`, `measure`, `predict`, and the commands of `cli_records`.

Thin: every number comes from the library.

Exit status: 0 done; 1 cannot tell (what is missing is named); 2 bad input.  With `--json` the same status goes with
the same JSON, nulls and `missing` for 1, `{"error": ...}` for 2.  All times are milliseconds.  The shapes of the JSON
are fixed by the schema files in `specgain/schemas/`.  Nothing heavy is imported before a command needs it.
"""

import csv
import json
import math
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

try:
    import typer
except ImportError:  # pragma: no cover
    sys.exit("the command line needs typer and rich: pip install 'specgain[cli]'")

from specgain import _checks, cli_records
from specgain.acceptance import Acceptance
from specgain.cli_records import numbers
from specgain.gain import Ledger, break_even_acceptance, break_even_length, break_even_round_time, margin, speedup
from specgain.length import best_gamma, best_gamma_continuous
from specgain.round_time import Affine, Quadratic, RoundTime, Table

app = typer.Typer(
    help="Does speculative decoding really make a model faster, by how much, and which term decides?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


# ------------------------------------------------------------------------------------------------- reading options


def milliseconds(option, text):
    """Return milliseconds from "10ms", "0.01s", "250us" or a plain number of ms; ValueError says what is allowed."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(ms|s|us|µs)?\s*", text)
    try:
        value = float(match.group(1)) * {"s": 1e3, "us": 1e-3, "µs": 1e-3}.get(match.group(2), 1.0)
    except (AttributeError, ValueError):
        raise ValueError(f"{option} {text!r} is not a time; give milliseconds, such as 10ms, 0.01s or 10") from None
    if not 0 <= value < math.inf:
        raise ValueError(f"{option} {text!r} is outside its range; a time is finite and not negative")
    return value


def _lengths(text, least=1):
    """Return the lengths of `--gamma`, all `least` or more; ValueError also if one stands twice."""
    gammas = numbers("--gamma", text, int, "1,2,4,8")
    if min(gammas) < least or len(set(gammas)) < len(gammas):
        raise ValueError(f"--gamma {text!r} must list whole lengths of {least} or more, each once")
    return gammas


def acceptance_law(text):
    """Return the `Acceptance` of `--a`: one number for every position, or a list a_1,a_2,…"""
    values = numbers("--a", text, float, "0.8 or 0.9,0.8,0.7")
    try:
        return Acceptance.constant(values[0]) if len(values) == 1 else Acceptance(values)
    except ValueError as error:
        raise ValueError(f"--a {text!r}: {error}") from None


def cost_curve(text):
    """Return the cost curve (γ → seconds) of `--round-cost`, whose numbers are milliseconds."""
    form, _, rest = text.partition(":")
    shapes = {"affine": (2, Affine), "quadratic": (3, Quadratic)}
    if form == "table":
        return Table({gamma: ms / 1e3 for gamma, ms in read_table(Path(rest)).items()})
    if form not in shapes:
        raise ValueError(
            f"--round-cost {text!r} is unknown; give affine:BASE,SLOPE or quadratic:BASE,B,C (ms) or table:FILE"
        )
    count, curve = shapes[form]
    values = numbers("--round-cost", rest, float, "quadratic:10,0.7,0.1")
    if len(values) != count or not all(0 <= value < math.inf for value in values):
        raise ValueError(f"--round-cost {text!r}: {form} takes {count} finite times in ms, none of them negative")
    return curve(*(value / 1e3 for value in values))


def read_table(path):
    """Return {γ: milliseconds} from a CSV file with the columns gamma and t_round_ms, or from JSON.

    The JSON is an object {"4": 14.4, …} or a list of objects with the two columns.
    """
    from specgain.records.source import parse_json

    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a byte order mark in front
        as_json = path.suffix.lower() == ".json"
        data = parse_json(text) if as_json else csv.DictReader(text.splitlines(), skipinitialspace=True)
        pairs = data.items() if isinstance(data, dict) else [(row["gamma"], row["t_round_ms"]) for row in data]
        table = [(int(str(gamma)), float(ms)) for gamma, ms in pairs]  # int(1.5) would be 1
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        what = f"no column {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: every row needs a whole gamma and a number t_round_ms ({what})") from None
    if not table or len(dict(table)) < len(table):
        raise ValueError(f"{path} {'repeats a gamma' if table else 'holds no row'}; give each measured γ once")
    return dict(table)


# ---------------------------------------------------------------------------------------------------------- gain


def gain_report(acceptance, curve, t_decode, gammas):
    """Return the JSON of `specgain gain` for a law, a cost curve and t_D in seconds: the ledger and its break-evens."""
    ledger = Ledger(acceptance, RoundTime.of(curve), t_decode)
    missing = []
    rows, limits = [], []
    for gamma in gammas:
        length = _known(acceptance.committed_length, gamma, "committed_length", missing)
        t_round = _known(ledger.round_time, gamma, "t_round_ms", missing)
        both = (length, t_decode, t_round) if length is not None and t_round is not None else None
        rows.append({
            "gamma": gamma, "committed_length": length, "t_round_ms": _ms(t_round),
            "speedup": both and speedup(*both), "margin_ms": both and _ms(margin(*both)),
        })  # fmt: skip
        limits.append({
            "gamma": gamma,
            "t_round_max_ms": length and _ms(break_even_round_time(length, t_decode)),
            "committed_length_min": t_round and break_even_length(t_decode, t_round),
            "conditional_min": break_even_acceptance(gamma, t_decode, t_round) if t_round and gamma else None,
        })  # fmt: skip
    best = best_gamma(ledger)
    if best is None:
        missing.append("best_gamma: there is none, since every further candidate still pays (candidates are free)")
    report = {"rows": rows, "best_gamma": best, "best_gamma_continuous": _continuous(acceptance, curve)}
    return report | {"break_even": limits} | ({"missing": missing} if missing else {})


def _known(function, gamma, name, missing):
    """Return function(gamma), or None after noting in `missing` why it is not known (not measured, no such a_i)."""
    try:
        return function(gamma)
    except ValueError as error:
        missing.append(f"{name}: {error}")
        return None


def _continuous(acceptance, curve):
    """Return the real γ with the greatest S for a constant a and an affine cost, else None (None also if infinite)."""
    if not (acceptance.is_constant and isinstance(curve, Affine) and curve.base):
        return None
    value = best_gamma_continuous(acceptance.conditional(1)[0], curve.base, curve.slope)
    return value if math.isfinite(value) else None


def _ms(seconds):
    return None if seconds is None else seconds * 1e3


@app.command()
def gain(
    a: Annotated[str, typer.Option("--a", help="Conditional acceptance: one number, or a_1,a_2,… by position.")],
    t_decode: Annotated[str, typer.Option(help="Time per token of ordinary decoding, such as 10ms.")],
    round_cost: Annotated[
        str, typer.Option(help="affine:BASE,SLOPE or quadratic:BASE,B,C in ms, or table:FILE (gamma,t_round_ms).")
    ],
    gamma: Annotated[str, typer.Option(help="Speculation lengths to list, such as 1,2,4,8.")] = "1,2,4,8",
    json_: Json = False,
):
    """The ledger: tokens per round against the time of a round, for a list of lengths γ, and the best γ of all.

    Example: specgain gain --a 0.8 --t-decode 10ms --round-cost quadratic:10,0.7,0.1
    """
    t_decode_ms = milliseconds("--t-decode", t_decode)
    if t_decode_ms == 0:
        raise ValueError("--t-decode must be above 0 ms")
    gammas = _lengths(gamma, least=0)
    report = _checks.finite_report(gain_report(acceptance_law(a), cost_curve(round_cost), t_decode_ms / 1e3, gammas))
    if json_:
        print_json(report)
    else:
        print_gain(report, t_decode_ms)
    return 1 if "missing" in report else 0


def print_gain(report, t_decode_ms):
    """Print the ledger as a table, and a sentence about the best length."""
    columns = ("γ", "E[L]", "T_round", "speedup S", "margin M", "T_round max", "E[L] min", "a min")
    rows = []
    for row, limit in zip(report["rows"], report["break_even"], strict=True):
        cells = [row["committed_length"], row["t_round_ms"], row["speedup"], row["margin_ms"]]
        cells += [limit["t_round_max_ms"], limit["committed_length_min"], limit["conditional_min"]]
        style = "bold" if row["gamma"] == report["best_gamma"] else None
        rows.append((style, [str(row["gamma"])] + [_cell(cell) for cell in cells]))
    print_table(columns, rows, "Times in ms. The last three columns are the break-even: a round that takes longer, "
                "commits less or is accepted less makes decoding slower.")  # fmt: skip
    best, real = report["best_gamma"], report["best_gamma_continuous"]
    if best == 0:
        print(f"Best γ: 0. No known length beats ordinary decoding at {t_decode_ms:g} ms per token: do not speculate.")
    elif best is not None:
        print(
            f"Best γ of all known lengths: {best}" + (f" ({real:.3f} as a real number)." if real is not None else ".")
        )
    for reason in report.get("missing", []):
        print(f"Not known: {reason}")


# --------------------------------------------------------------------------------------------------------- prove


@app.command()
def prove(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids such as P2; none means all.")] = None,
    student: Annotated[
        Path | None, typer.Option(help="Your answers to the prover's exercises: check those instead.")
    ] = None,
    template: Annotated[bool, typer.Option("--template", help="Print an empty answer file, and stop.")] = False,
    json_: Json = False,
):
    """Run the proofs and their mutants: every proof must hold, and every wrong variant of it must be refuted."""
    if bool(ids) + bool(student) + template > 1:
        raise ValueError("prove does one thing at a time: give ids of proofs, or --student FILE, or --template")
    if student or template:
        return _prove_student(student, json_)
    chosen = _library_proofs(ids)
    results = []
    for proof in chosen:
        result = proof.prove()
        results.append(result)
        if not json_:
            mark = "proved" if result.status == "proved" else "FAILED"
            print(f"{result.id:>4}  {mark}  {result.machine_steps} machine steps, {result.human_steps} by hand, "
                  f"{result.mutants_rejected} of {result.mutants_total} mutants refuted. {proof.title}")  # fmt: skip
    if json_:
        print_json({"proofs": [_proof_json(proof, r) for proof, r in zip(chosen, results, strict=True)]})
    return 0 if all(result.status == "proved" for result in results) else 1


def _proof_json(proof, result):
    counts = {name: getattr(result, name) for name in ("status", "machine_steps", "human_steps", "mutants_rejected")}
    return {"id": proof.id, "statement": proof.plain} | counts


def _library_proofs(ids):
    _need_sympy()
    from specgain.proofs import all_proofs, get

    return [get(id) for id in ids] if ids else all_proofs()


def _prove_student(path, as_json):
    """Check a reader's answer file, or print the empty one if there is no path."""
    _need_sympy()
    from specgain.proofs.student import check_student, template

    if path is None:
        print(template(), end="")
        return 0
    report = check_student(path)
    if as_json:
        print_json(report.to_json())
    else:
        print(str(report) or "Nothing is answered yet: put a formula in the place of a None.")
    return 0 if report.passed else 1


def _need_sympy():
    if find_spec("sympy") is None:
        raise ValueError("proofs need SymPy: pip install 'specgain[proofs]'")


# ------------------------------------------------------------------------------------------- measure and predict

measuring = typer.Typer(no_args_is_help=True, help="Measure this machine's rounds with a small pair of models.")
app.add_typer(measuring, name="measure")

Pair = Annotated[Path | None, typer.Option("--pair", help="Folder of a pair of models; default: the course's own.")]
Gammas = Annotated[str, typer.Option("--gamma", help="Speculation lengths, such as 1,2,4,8.")]
Domains = Annotated[str | None, typer.Option(help="Kinds of text, such as json,viet; default: all five.")]
Prompts = Annotated[int, typer.Option(help="Prompts per kind of text.", min=1)]
Tokens = Annotated[int, typer.Option(help="Tokens to generate per prompt.", min=2)]
Seconds = Annotated[float | None, typer.Option(help="Stop after about this long, at a whole round of prompts.")]
Threads = Annotated[int, typer.Option(help="Threads that the models may use.", min=1)]
Out = Annotated[Path | None, typer.Option(help="Write the record to this file.")]
Rows = Annotated[int, typer.Option(help="Requests that share each pass.", min=1)]
Temperature = Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.", min=0)]
Context = Annotated[int, typer.Option(help="Tokens of each prompt; 0: as stored with the pair.", min=0)]


@measuring.command()
def cost(
    gamma: Gammas = "1,2,4,8", pair: Pair = None, domains: Domains = None, prompts: Prompts = 4, tokens: Tokens = 96,
    seconds: Seconds = None, threads: Threads = 1, rows: Rows = 1, temperature: Temperature = 0.0, context: Context = 0,
    out: Out = None, json_: Json = False,
):  # fmt: skip
    """Time every phase of a round, inside the real loop, on the calibration prompts."""
    lab, models = _load_pair(pair, threads)
    options = _lab_options(domains, tokens) | {"seconds": seconds, "progress": _progress}
    options |= {"setting": lab.Setting(rows, temperature, context)}
    measured, log = lab.measure_cost(models, prompts, [0, *_lengths(gamma)], **options)
    record = {"schema": COST, "environment": log.environment} | measured.to_json()
    return _deliver(record, out, json_, _print_cost)


@measuring.command()
def acceptance(
    pair: Pair = None, domains: Domains = None, prompts: Prompts = 64, tokens: Tokens = 96,
    threads: Threads = 1, temperature: Temperature = 0.0, context: Context = 0, out: Out = None, json_: Json = False,
):  # fmt: skip
    """Record where each draft agrees with the target's own text.  No timing; every γ can be read off it."""
    lab, models = _load_pair(pair, threads)
    setting = lab.Setting(1, temperature, context)
    measured = lab.measure_acceptance(models, prompts, **_lab_options(domains, tokens), progress=_progress, setting=setting)
    return _deliver({"schema": ACCEPTANCE} | measured, out, json_, _print_acceptance)


@measuring.command()
def run(
    gamma: Gammas = "1,2,4,8", pair: Pair = None, domains: Domains = None, prompts: Prompts = 16, tokens: Tokens = 96,
    seconds: Seconds = None, threads: Threads = 1, repeats: Annotated[int, typer.Option(min=1)] = 1,
    rows: Rows = 1, temperature: Temperature = 0.0, context: Context = 0,
    out: Annotated[Path | None, typer.Option(help="Write the log here; an interrupted run goes on from it.")] = None,
    json_: Json = False,
):  # fmt: skip
    """Decode the test prompts end to end, plain and with every draft and γ in turn.  Resumable with --out."""
    lab, models = _load_pair(pair, threads)
    options = _lab_options(domains, tokens) | {"repeats": repeats, "seconds": seconds, "progress": _progress}
    options |= {"setting": lab.Setting(rows, temperature, context)}
    log = lab.measure_run(models, prompts, [0, *_lengths(gamma)], resume=out, **options)
    return _deliver(log.to_json(), None, json_, lambda record: _print_run(log))


@app.command()
def predict(
    cost: Annotated[Path, typer.Option(help="A record of `specgain measure cost`.", exists=True)],
    acceptance: Annotated[Path, typer.Option(help="A record of `specgain measure acceptance`.", exists=True)],
    run: Annotated[Path | None, typer.Option(help="A log of `specgain measure run` to hold against.")] = None,
    gamma: Gammas = "1,2,4,8",
    json_: Json = False,
):
    """Predict the speedup from cost and acceptance, measured apart; with --run, hold it against a measured run."""
    lab = _lab()
    from specgain.records.roundlog import RoundLog

    log, lengths = RoundLog.read(run) if run else None, _lengths(gamma)
    records = _read_record(cost, COST), _read_record(acceptance, ACCEPTANCE)
    try:
        _check_agreement(records[1])
        report = prediction_report(lab, lab.Cost.from_json(records[0]), records[1], lengths, log)
        _checks.finite_report(report)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{cost} or {acceptance} is damaged ({type(error).__name__}: {error})") from None
    if json_:
        print_json(report)
    else:
        _print_prediction(report)
    return 1 if "missing" in report else 0


def _check_agreement(record):
    """Raise ValueError if an agreement is neither a string of 0 and 1 nor, for sampled text, a list of chances."""
    for domain, entry in record["domains"].items():
        for draft, strings in entry["agreement"].items():
            if not strings or not all(map(_is_agreement, strings)):
                raise ValueError(
                    f"the agreement of {domain}, {draft} must be a list of strings of 0 and 1 (sampled text: of lists of "
                    "numbers from 0 to 1), none empty"
                )


def _is_agreement(entry):
    if isinstance(entry, str):
        return re.fullmatch("[01]+", entry) is not None
    return bool(entry) and all(type(a) in (int, float) and 0 <= a <= 1 for a in entry)


def prediction_report(lab, costs, agreement, gammas, log=None):
    """Return {cells, summary}: one cell per kind of text, draft and γ; what is not known is named in `missing`."""
    cells, missing = [], []
    for domain, entry in agreement["domains"].items():
        for draft, strings in entry["agreement"].items():
            one = {"domains": {domain: {"agreement": {draft: strings}}}}
            for gamma in gammas:
                seen = log is not None and log.select(domain=domain, arm=draft, gamma=gamma).requests
                try:
                    cells += lab.predict(costs, one, [gamma], log if seen else None)
                except ValueError as error:  # a γ outside the measured costs
                    missing.append(f"{domain}, {draft}, γ = {gamma}: {error}")
                    continue
                if log is not None and not seen:
                    missing.append(f"{domain}, {draft}, γ = {gamma}: the run holds no request of this kind")
    measured = any(cell["gamma"] and "residual_percent" in cell for cell in cells)
    report = {"cells": cells, "summary": lab.summary(cells) if measured else None}
    return report | ({"missing": missing} if missing else {})


COST, ACCEPTANCE = "specgain.cost/1", "specgain.acceptance/1"


def _lab():
    """Return the lab package; ValueError says what to install when a part of it is missing."""
    try:
        from specgain import lab
    except ImportError as error:
        raise ValueError(f"measuring needs NumPy and torch: pip install 'specgain[lab]' ({error})") from None
    return lab


def _load_pair(folder, threads):
    """Return (lab, pair of models); OMP_NUM_THREADS is set before torch is loaded, which reads it then."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    lab = _lab()
    try:
        return lab, lab.load_pair(folder=folder) if folder else lab.load_pair()
    except ImportError as error:
        raise ValueError(str(error)) from None


def _lab_options(domains, tokens):
    return {"new_tokens": tokens} | ({"domains": tuple(domains.split(","))} if domains else {})


def _progress(done, total, text):
    if sys.stderr.isatty():
        print(f"\r{text}: {done} of {total}   ", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _read_record(path, schema):
    """Return the JSON object in `path`; ValueError if it is not a record of this schema."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != schema:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"{path} has schema {found!r}; {schema!r} is needed here")
    return record


def _deliver(record, out, json_, show):
    """Write a record to a file if asked to, and print it as JSON or as a table."""
    if out:
        out.write_text(json.dumps(_rounded(record), ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print_json(record) if json_ else show(record)
    return 0


def _print_cost(record):
    parts = ("draft_after_rejection", "draft_after_acceptance", "verify", "other")
    rows = [(None, [g] + [_cell(row[f"t_{p}_ms"]) for p in parts]) for g, row in record["gammas"].items()]
    caption = f"Mean times in ms, inside the loop. Ordinary decoding: {record['t_decode_ms']:.3f} ms per token."
    print_table(("γ", "draft after a rejection", "after full acceptance", "verify", "other"), rows, caption)


def _print_acceptance(record):
    rows = [
        (None, [domain, draft, _cell(_share(strings)), _cell(entry["distinct_4grams"])])
        for domain, entry in record["domains"].items()
        for draft, strings in entry["agreement"].items()
    ]
    caption = (
        "agreement: share of the target's tokens at which the draft's guess would be accepted. distinct 4-grams: low if text loops."
    )
    print_table(("domain", "draft", "agreement", "distinct 4-grams"), rows, caption)


def _share(strings):
    hits = [float(a) for entry in strings for a in entry]
    return sum(hits) / len(hits)


def _print_run(log):
    rates, rows = {}, []
    arms = dict.fromkeys((request.domain, request.arm, request.gamma) for request in log.requests)
    for domain, arm, gamma in sorted(arms, key=lambda key: (key[0], key[2], key[1])):
        chosen = log.select(domain=domain, arm=arm, gamma=gamma)
        rate = sum(r.time for r in chosen.requests) / sum(r.tokens for r in chosen.requests) * 1e3
        rates.setdefault(domain, rate)  # γ = 0 comes first: plain decoding
        cells = [chosen.committed_length, rate, rates[domain] / rate]
        rows.append((None, [domain, arm, str(gamma)] + [_cell(cell) for cell in cells]))
    print_table(("domain", "draft", "γ", "E[L]", "ms per token", "speedup S"), rows, f"{len(log.requests)} requests.")


def _print_prediction(report):
    columns, names = ["domain", "draft", "γ", "E[L]", "T_round", "M", "S"], ["S run", "off by %"]
    measured = report["summary"] is not None
    rows = []
    for cell in report["cells"]:
        values = [cell["committed_length"], cell["t_round_ms"], cell["margin_ms"], cell["speedup"]]
        texts = [cell["domain"], cell["draft"], str(cell["gamma"])] + [_cell(value) for value in values]
        if measured:
            off = cell.get("residual_percent")
            texts += [_cell(cell.get("measured_speedup")), "–" if off is None else f"{off:+.1f}"]
        rows.append((None, texts))
    print_table(columns + (names if measured else []), rows, "S is predicted, S run measured; times in ms.")
    if measured:
        typical, worst = (report["summary"][f"residual_{kind}_percent"] for kind in ("median", "worst"))
        cells = report["summary"]["cells"]
        print(f"The prediction is off by {typical:.1f} % in the median and {worst:.1f} % at most, over {cells} cells.")
    for reason in report.get("missing", []):
        print(f"Not known: {reason}")


# -------------------------------------------------------------------------------------------------------- output


def print_json(report):
    """Print a report as strict JSON, numbers with 12 significant digits (the 13th is rounding, not knowledge)."""
    print(json.dumps(_rounded(report), indent=2, ensure_ascii=False, allow_nan=False))


def _rounded(value):
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _cell(value):
    return "–" if value is None else f"{value:.3f}"


def print_table(columns, rows, caption):
    """Print (style, cells) rows under column names; as wide as the text needs, without colour where none is wanted."""
    from rich.console import Console
    from rich.table import Table as RichTable

    table = RichTable(caption=caption, caption_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in ("domain", "draft") else "right")
    for style, cells in rows:
        table.add_row(*cells, style=style)
    console = Console()
    console.print(table)


cli_records.register(app)  # read, compare and what else works on records of engines


def main(arguments=None):
    """Run the command line and return its exit status: 0 done, 1 cannot tell, 2 bad input."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return app(arguments, standalone_mode=False, prog_name="specgain") or 0
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.TyperException as error:
        return _bad_input(error.format_message(), arguments)
    except KeyError as error:  # its text is the repr of the message
        return _bad_input(str(error.args[0]), arguments)
    except (ValueError, OSError, ArithmeticError) as error:  # a number beyond what a float holds is bad input, too
        return _bad_input(str(error), arguments)


def _bad_input(message, arguments):
    if "--json" in arguments:
        print_json({"error": message})
    else:
        print(f"Error: {message}", file=sys.stderr)
    return 2
