"""The commands of records: `read`, `compare`, `gates`, `audit` and `schedule`. Thin: arguments in, text or JSON out.

`register(app)` adds them to the typer application. Everything heavy is imported inside the commands. Exit codes:
0 done, 1 cannot tell (with --json the same JSON with nulls and `missing`), 2 bad input (with --json: `{"error": …}`).
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

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
    """Print `result` as JSON or `text`, and exit with 1 if nothing could be told."""
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


def register(app):
    """Add the commands of this module to a typer application."""
    app.command()(read)
    app.command(cls=ManyFiles)(compare)
