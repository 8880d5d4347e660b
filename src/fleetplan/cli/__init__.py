"""The command line: one verb a module of this package, imported only when it is called."""

from __future__ import annotations

import importlib
import sys

import click

from fleetplan import __version__, progress
from fleetplan.errors import InputError

# verb: (module under fleetplan.cli, one line of help). The module holds a click command named `command`.
VERBS: dict[str, tuple[str, str]] = {
    "validate": ("validate", "check specs; every fault with its line and column"),
    "schema": ("schema", "write the JSON Schemas of the spec files"),
    "candidates": (
        "candidates",
        "stage: expand a scenario into candidates, those that cannot fit with the reason",
    ),
    "roofline": ("roofline", "stage: step times and bounds of every candidate"),
    "batching": ("batching", "stage: simulations by load"),
    "speculation": ("speculation", "stage: where speculative decoding pays"),
    "sizing": ("sizing", "stage: the decision, with its evidence"),
    "queueing": ("queueing", "stage: closed forms of queueing"),
    "load": ("load", "stage: all parts into results/fleet.duckdb"),
    "report": ("report", "stage: versioned HTML reports and their index"),
    "decisions": ("decisions", "what was decided, a line a scenario"),
    "sql": ("sql", "query the results store, read-only"),
    "model": ("model", "parameters and KV cache of a model or a config.json, line by line"),
    "models": ("models", "list the catalogue's models"),
    "gpus": ("gpus", "list the catalogue's GPUs"),
    "memory": ("memory", "what fits on one GPU"),
    "trace": ("trace", "summarise, convert or inspect a traffic trace"),
    "simulate": ("simulate", "simulate requests from a file on a step-time model from a file"),
    "steptime": ("steptime", "the time of one engine step, term by term"),
    "calibrate": ("calibrate", "fit step-time constants to measured results"),
    "validate-model": ("validate_model", "predict measured points and print the error table"),
    "capacity": ("capacity", "stage: the highest load that a given fleet holds"),
    "fleet": ("fleet", "stage: several scenarios on one stock of GPUs, at least cost"),
}


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = importlib.import_module(f"fleetplan.cli.{VERBS[name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from fleetplan.errors import unknown_name

            ctx.fail(unknown_name("verb", args[0], VERBS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def group() -> None:
    """Decide how many GPUs will serve an LLM's traffic within its latency promises, at what cost, and how sure that is."""


def main() -> None:
    """Run the command line; an `InputError` is printed line by line and exits with 2."""
    try:
        with progress.shown():
            group(prog_name="fleetplan")
    except InputError as error:
        for line in error.lines:
            click.echo(line, err=True)
        sys.exit(2)
    except Exception as error:
        told = _of_files(error)
        if told is None:
            raise
        click.echo(told, err=True)
        sys.exit(2)


def _of_files(error: Exception) -> str | None:
    """The line for a file that cannot be read or written, where no verb has told of it in its own words."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: cannot be read or written ({error.strerror})"
    duckdb = sys.modules.get("duckdb")  # only when a verb has used it
    if duckdb is not None and isinstance(error, duckdb.IOException):
        return f"a file cannot be read or written ({str(error).splitlines()[0]})"
    return None
