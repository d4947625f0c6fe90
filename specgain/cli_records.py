"""The commands of records: `read`, `compare`, `gates`, `audit` and `schedule`. Thin: arguments in, text or JSON out.

`register(app)` adds them to the typer application. Everything heavy is imported inside the commands. Exit codes:
0 done, 1 cannot tell (with --json the same JSON with nulls and `missing`), 2 bad input (with --json: `{"error": …}`).
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from specgain._checks import finite_report

Json = Annotated[bool, typer.Option("--json", help="Print JSON, the contract of specgain/schemas.")]
Gamma = Annotated[
    int | None,
    typer.Option("--num-speculative-tokens", min=1, help="The draft length, for records that do not tell it."),
]


class ManyFiles(TyperCommand):
    """A command whose options --plain and --spec take any number of files: --plain A B C --spec D E."""

    def parse_args(self, ctx, args):
        return super().parse_args(ctx, spread(args, ("--plain", "--spec")))


def spread(args, options):
    """Return the arguments with every further value of one of `options` preceded by that option again.

    >>> spread(["--plain", "a", "b", "--json"], ("--plain",))
    ['--plain', 'a', '--plain', 'b', '--json']
    """
    out, current, filled = [], None, False
    for arg in args:
        if arg.startswith("--"):
            current, filled = arg if arg in options else None, False
        elif current and filled:
            out.append(current)
        else:
            filled = bool(current)
        out.append(arg)
    return out


def finish(result, as_json, text, cannot_tell=False):
    """Print `result` as JSON or `text`, and exit with 1 if nothing could be told, with 2 if a number overflowed."""
    guarded(as_json, lambda: finite_report(result))
    typer.echo(json.dumps(result, ensure_ascii=False, allow_nan=False) if as_json else text.rstrip("\n"))
    if cannot_tell:
        raise typer.Exit(1)


def guarded(as_json, work):
    """Return work(); bad input becomes one line (or JSON with `error`) and exit code 2."""
    try:
        return work()
    except (ValueError, OSError) as error:  # RecordError, RoundLogError and the checks of arguments are ValueErrors
        message = str(error) or type(error).__name__
        typer.echo(
            json.dumps({"error": message}, ensure_ascii=False) if as_json else f"error: {message}", err=not as_json
        )
        raise typer.Exit(2) from None


def numbers(option, text, kind, example):
    """Return the comma-separated numbers in `text` as a list of `kind` (float or int); ValueError says what is allowed."""
    try:
        return [kind(item) for item in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} {text!r} is not a list of {what}; give, for example, {example}") from None


def read(
    files: Annotated[list[Path], typer.Argument(help="Records of one run or of repeats of it, in any order.")],
    gamma: Gamma = None,
    as_json: Json = False,
):
    """Read engine records into one normalised record."""
    from specgain.records.read import summary_of

    found = guarded(as_json, lambda: summary_of(files, gamma))
    told = ("committed_length", "committed_length_drafting_rounds", "pooled_acceptance")
    finish(found, as_json, read_text(found), cannot_tell=all(found[key] is None for key in told))


def read_text(found):
    """Return a summary as lines for a terminal."""
    lines = [f"{found['engine']}, {found['format']}" + (f", {found['version']}" if found["version"] else "")]
    lines.append(found["aggregation"])
    for key in (
        "rounds rounds_all drafted accepted pooled_acceptance committed_length committed_length_drafting_rounds "
        "survival conditional t_round_ms tokens_per_second"
    ).split():
        if found[key] is not None:
            lines.append(f"  {key:34} {_short(found[key])}")
    lines += [f"warning [{w['code']}]: {w['text']}" for w in found["warnings"]]
    return "\n".join(lines + missing_text(found["how_to_get"]))


def missing_text(how_to_get):
    """Return the lines that say what is missing and how to get it, one line per remedy."""
    by_remedy = {}
    for key, how in how_to_get.items():
        by_remedy.setdefault(how, []).append(key)
    return [f"missing {', '.join(keys)}: needs {how}" for how, keys in by_remedy.items()]


def _short(value):
    if isinstance(value, list):
        return " ".join("–" if v is None else f"{v:.3f}" for v in value)
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def compare(
    plain: Annotated[list[Path], typer.Option(help="Records of ordinary decoding, any number of files.")],
    spec: Annotated[list[Path], typer.Option(help="Records with speculation, any number of files.")],
    gamma: Gamma = None,
    as_json: Json = False,
):
    """Compare plain and speculative decoding: ledger, interval, verdict, the term at fault, what is missing."""
    from specgain.compare import compare as compare_sides

    found = guarded(as_json, lambda: compare_sides(plain, spec, gamma))
    finish(found.to_json(), as_json, found.to_markdown(), cannot_tell=found.verdict == "cannot-tell")


Text = Annotated[str | None, typer.Option(help="As printed: 0.75, 62%, 1.92x.")]


def audit(
    table: Annotated[Path | None, typer.Argument(help="A CSV table of published numbers, one setting a row.")] = None,
    alpha: Text = None,
    gamma: Annotated[str | None, typer.Option(help="The draft length.")] = None,
    c: Text = None,
    tau: Text = None,
    speedup: Text = None,
    expected: Annotated[str | None, typer.Option(help="The speedup that the model of the source predicts.")] = None,
    plain: Annotated[str | None, typer.Option(help="Time per token without speculation.")] = None,
    spec: Annotated[str | None, typer.Option(help="Time per token with speculation.")] = None,
    as_json: Json = False,
):
    """Audit published numbers: consistent, impossible together, or which rate was meant."""
    from specgain import audit as library

    if table is not None:
        found = guarded(as_json, lambda: library.audit_file(table))
        finish(found, as_json, audit_text(found), cannot_tell=set(found["counts"]) <= {"cannot-tell"})
        return
    one = guarded(as_json, lambda: library.audit(alpha, gamma, c, tau, speedup, expected, None, plain, spec)).to_json()
    finish(one, as_json, finding_text(one), cannot_tell=one["verdict"] == "cannot-tell")


def finding_text(one):
    """Return one audit as lines."""
    lines = [f"verdict: {one['verdict']}"]
    lines += [f"  {'fits ' if f['ok'] else 'fails'} {f['rule']}: {f['text']}" for f in one["findings"]]
    lines += [f"  the rate can be: {', '.join(one['readings'])}"] if one["readings"] else []
    lines += [f"  {w['text']}" for w in one["warnings"]] + [f"missing: {text}" for text in one["missing"]]
    return "\n".join(lines)


def audit_text(found):
    """Return the audit of a table as lines: the counts, then every row that is not consistent."""
    lines = [f"{count} rows {verdict}" for verdict, count in found["counts"].items()]
    for row in found["rows"]:
        if row["verdict"] != "consistent":
            lines += [f"row {row['row']}: " + ", ".join(f"{k} {v}" for k, v in row["cells"].items()), finding_text(row)]
    return "\n".join(lines)


def schedule_check(
    source: Annotated[str, typer.Argument(help="A table or a whole speculative config: JSON, or a file with it.")],
    max_num_seqs: Annotated[int | None, typer.Option(min=1)] = None,
    num_speculative_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    engine: Annotated[str, typer.Option(help="vllm==0.32.0 or vllm==0.33.0.")] = "vllm==0.32.0",
    method: Annotated[str | None, typer.Option(help="Such as ngram, eagle3 or draft_model.")] = None,
    runner: Annotated[str | None, typer.Option(help="V1 or V2, the engine's model runner.")] = None,
    data_parallel_size: Annotated[int, typer.Option(min=1)] = 1,
    lora: Annotated[bool, typer.Option("--lora", help="LoRA adapters are served.")] = False,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: Json = False,
):
    """Check a draft-length schedule against an engine version: what it refuses, what it does otherwise than written.

    Exits with 1 if the engine would refuse it.
    """
    from specgain.schedule import check, load

    def work():
        return check(
            load(source), max_num_seqs, num_speculative_tokens, engine, method, runner, data_parallel_size, lora,
            max_num_batched_tokens,
        )  # fmt: skip

    found = guarded(as_json, work)
    finish(found.to_json(), as_json, schedule_text(found), cannot_tell=not found.ok)


def schedule_text(found):
    """Return a check as lines."""
    lines = [f"{found.engine}: " + ("accepted" if found.ok else f"refused at the {found.stage} stage")]
    lines += [f"error [{error.code}]: {error[1]}" for error in found.errors]
    lines += [f"  batch {first} to {last}: {k} draft tokens" for first, last, k in found.effective or []]
    lines += [f"warning [{warning.code}]: {warning[1]}" for warning in found.warnings]
    return "\n".join(lines)


def schedule_derive(
    sources: Annotated[list[Path], typer.Argument(help="Benchmark results at several batch sizes, or one JSON model.")],
    max_num_seqs: Annotated[int | None, typer.Option(min=1)] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="A gain within this share counts as equal.")
    ] = 0.02,
    as_json: Json = False,
):
    """Derive a schedule from measured rounds: the best draft length per batch size, with reason and gain."""
    from specgain import schedule_derive as library

    def work():
        return library.derive(library.points(sources), max_num_seqs, tolerance)

    found = guarded(as_json, work)
    lines = [f"batch {r['first']} to {r['last']}: {r['gamma']} draft tokens, S = {r['speedup']:.3f}: {r['reason']}"
             for r in found.ranges]  # fmt: skip
    lines += [json.dumps(found.table)] + [f"warning [{w.code}]: {w[1]}" for w in found.warnings] + found.advice
    finish(found.to_json(), as_json, "\n".join(lines))


def schedule_emit(
    source: Annotated[str, typer.Argument(help="A schedule: JSON, a file with it, or the output of derive --json.")],
    to: Annotated[str, typer.Option(help="vllm or tensorrt-llm.")] = "vllm",
    method: Annotated[str | None, typer.Option()] = None,
    model: Annotated[str | None, typer.Option()] = None,
    as_json: Json = False,
):
    """Write a schedule as an engine wants it."""
    from specgain import schedule_derive as library

    rest = {key: value for key, value in (("method", method), ("model", model)) if value is not None}
    found = guarded(as_json, lambda: library.emit(source, to, rest))
    finish(found, as_json, found.get("flag") or found["yaml"])


def schedule_sweep(
    gammas: Annotated[str, typer.Option(help="Draft lengths, such as 1,3,5.")],
    concurrencies: Annotated[str, typer.Option(help="Batch sizes, such as 1,8,32.")],
    output: Annotated[Path, typer.Option(help="The folder for serve_params.json and bench_params.json.")] = Path("."),
    method: Annotated[str | None, typer.Option()] = None,
    model: Annotated[str | None, typer.Option()] = None,
    as_json: Json = False,
):
    """Write the parameter files of `vllm bench sweep serve`, whose summary.csv `derive` reads back."""
    from specgain import schedule_derive as library

    def work():
        config = {key: value for key, value in (("method", method), ("model", model)) if value is not None}
        lengths = numbers("--gammas", gammas, int, "1,3,5")
        found = library.emit_sweep(config, lengths, numbers("--concurrencies", concurrencies, int, "1,8,32"))
        output.mkdir(parents=True, exist_ok=True)
        for name, rows in found.items():
            (output / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return found

    found = guarded(as_json, work)
    finish(
        found, as_json, "\n".join(f"wrote {output / name}.json ({len(rows)} settings)" for name, rows in found.items())
    )


def gates(
    records: Annotated[list[Path], typer.Argument(help="Records of plain and speculative runs, in any order.")],
    thresholds: Annotated[Path, typer.Option(help="JSON with the limits, see the documentation of specgain.gates.")],
    report: Annotated[Path | None, typer.Option(help="Write the report as Markdown to this file.")] = None,
    as_json: Json = False,
):
    """Pass the four gates: correctness, quality, latency, capacity. Exits with 1 where evidence is missing."""
    from specgain import gates as library
    from specgain.records.read import runs

    found = guarded(as_json, lambda: library.gates(runs(records), library.load(thresholds)))
    if report is not None:
        guarded(as_json, lambda: report.write_text(found.to_markdown(), encoding="utf-8"))
    finish(found.to_json(), as_json, found.to_markdown(), cannot_tell=found.verdict == library.INSUFFICIENT)


def recipe(
    engine: Annotated[str, typer.Argument(help="vllm, sglang, tensorrt-llm, llama.cpp or own-loop.")],
    as_json: Json = False,
):
    """Show how to record an honest comparison with an engine: commands to copy."""
    from specgain.recipes import recipe as recipe_for

    text = guarded(as_json, lambda: recipe_for(engine))
    finish({"engine": engine, "recipe": text}, as_json, text)


def register(app):
    """Add the commands of this module to a typer application."""
    app.command()(read)
    app.command(cls=ManyFiles)(compare)
    app.command()(recipe)
    app.command()(gates)
    app.command()(audit)
    schedules = typer.Typer(help="Draft-length schedules by batch size.", no_args_is_help=True)
    for name, command in (
        ("check", schedule_check), ("derive", schedule_derive), ("emit", schedule_emit), ("sweep", schedule_sweep),
    ):  # fmt: skip
        schedules.command(name)(command)
    app.add_typer(schedules, name="schedule")
