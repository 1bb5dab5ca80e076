"""The command line: ``statelib``, also ``python -m statelib``. Each command is a function of a module below."""

import errno
import inspect
import io
import os
import sys
from typing import Annotated

import typer

from statelib import __version__
from statelib.cli.commands import (
    catalogs,
    checkpoints,
    cleanup,
    history,
    pipelines,
    publishing,
    quarantine,
    restores,
)
from statelib.cli.commands.reading import comparing, hexdumping, inspecting, querying, verifying
from statelib.cli.commands.running import flink_savepoints, imports, mending, runs, seeding
from statelib.cli.ending import errors
from statelib.cli.presenters.blocks import Line, Note, show
from statelib.cli.presenters.console import drop_output
from statelib.flows.wiring import log_settings
from statelib.telemetry.logs import configure

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keyed state for batch pipelines: run pipelines, inspect and verify their checkpoints, restore them.",
    epilog="Exit status: 0 success; 1 damage, a difference or a fault was found, or a question was not agreed to; 2 "
    "the command could not be carried out, and the message says why. --json prints one document for machines.\n\n"
    "Examples: statelib pipelines list\n\nstatelib run sales\n\nstatelib checkpoints list -p sales",
)
app.command(
    "run",
    epilog="Examples: statelib run sales\n\nstatelib run sales --end 2026-02-01\n\n"
    "statelib run sales --start 2026-01-01 --end 2026-01-08 --dry-run",
)(runs.run)
app.command("publish", epilog="Examples: statelib publish sales\n\nstatelib publish sales --table revenue --dry-run")(
    publishing.publish
)
checkpoints.app.command(
    "diff",
    epilog="Examples: statelib checkpoints diff sales/4 sales/5 --limit 10\n\n"
    "statelib checkpoints diff sales/5 /backups/savepoint-1 --operator sales=counter -o changes",
)(comparing.diff)
checkpoints.app.command("release", epilog="Example: statelib checkpoints release sales/7 --note 'a holiday'")(
    quarantine.release
)
checkpoints.app.command("dispose", epilog="Example: statelib checkpoints dispose sales/7 --dry-run")(cleanup.dispose)
app.add_typer(checkpoints.app, name="checkpoints")
pipelines.app.command(
    "seed",
    epilog="Examples: statelib pipelines seed sales --from warehouse.totals --until 2026-02-01 --map sold=orders "
    "--dry-run\n\nstatelib pipelines seed sales --from /data/totals.csv --format csv --option header=true "
    "--until 2026-02-01 --map total.mean.sum=amount --map total.mean.count=orders",
)(seeding.seed)
pipelines.app.command("discard", epilog="Example: statelib pipelines discard old_sales --dry-run")(cleanup.discard)
app.add_typer(pipelines.app, name="pipelines")
app.command(
    "inspect",
    epilog="Examples: statelib inspect sales/5 --json\n\nstatelib inspect /backups/savepoint-1 --count",
)(inspecting.inspect_)
app.command(
    "hexdump",
    epilog="Examples: statelib hexdump /backups/savepoint-1 --offset 64 --length 64\n\n"
    "statelib hexdump sales/5 --file 2ff70098f79547e291eb857800000000-0-0 --json",
)(hexdumping.hexdump)
app.command("export", epilog="Example: statelib export aircraft_activity/4 --state activity | head")(inspecting.export)
app.command(
    "query",
    epilog="Examples: statelib query sales 'SELECT shop, sold FROM total ORDER BY sold DESC LIMIT 10'\n\n"
    "statelib query /backups/savepoint-1 'DESCRIBE counts'",
)(querying.query)
app.command(
    "verify",
    epilog="Examples: statelib verify -p route_delays\n\nstatelib verify --read-data-subset 5%\n\n"
    "statelib verify --read-data-subset 1/20 --json",
)(verifying.verify_)
app.command(epilog="Example: statelib gc --dry-run")(cleanup.gc)
app.command(epilog="Example: statelib orphans -p route_delays --delete")(cleanup.orphans)
app.command(epilog="Example: statelib why /srv/state/flights/chk-4/_metadata")(cleanup.why)
cleanup.savepoint.command(
    "create",
    epilog="Examples: statelib savepoint create sales --note 'before release 12'\n\n"
    "statelib savepoint create sales --target s3://backups/sales",
)(runs.create)
cleanup.savepoint.command(
    "rewrite", epilog="Example: statelib savepoint rewrite /backups/savepoint-1 -t /backups --drop-state counts/old"
)(flink_savepoints.rewrite_)
app.add_typer(cleanup.savepoint, name="savepoint")
app.command("bootstrap", epilog="Example: statelib bootstrap flights.yaml --target /backups")(
    flink_savepoints.bootstrap
)
app.command("history", epilog="Example: statelib history -p aircraft_activity --limit 10")(history.history)
app.command("mend", epilog="Example: statelib mend sales --interval 2026-01-03 --dry-run")(mending.mend)
app.command("restore", epilog="Example: statelib restore aircraft_activity 4 --dry-run")(restores.restore)
app.command(
    "import-statestore",
    epilog="Example: statelib import-statestore sales /srv/query --state total --value sold=value.count",
)(imports.import_statestore)


def _print_version(requested: bool) -> None:
    if requested:
        show([Line(f"statelib {__version__}")])
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[  # noqa: ARG001 - the callback prints it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Set up logging and the output, before any command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack a character
    with errors():
        configure(log_settings())


app.add_typer(catalogs.app, name="catalog")


def _unwrap_help(group: typer.Typer) -> None:
    """Join the lines of each paragraph in the help of the group's commands, so that the terminal alone wraps them."""
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(command.callback.__doc__ or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for nested in group.registered_groups:
        if nested.typer_instance is not None:
            _unwrap_help(nested.typer_instance)


_unwrap_help(app)


def main() -> None:
    """Run the command line. If the disk of the output is full, say so in one line and end with exit status 2; if its
    reader, such as head, has enough, end with 1 without a word."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it is closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
            raise
        drop_output()
        if error.errno == errno.EPIPE:
            sys.exit(1)
        show([Note(f"statelib: the output cannot be written: {error.strerror}")])
        sys.exit(2)


if __name__ == "__main__":
    main()
