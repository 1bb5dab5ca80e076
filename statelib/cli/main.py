"""``statelib``, also ``python -m statelib``."""

from typing import Annotated

import typer

from statelib import __version__
from statelib.cli.commands import (
    catalogs,
    checkpoints,
    cleanup,
    history,
    imports,
    pipelines,
    quarantine,
    restores,
    runs,
    writing,
)
from statelib.cli.commands.reading import diffs, hexdumps, snapshots, verifying
from statelib.cli.output import errors, line
from statelib.flows.wiring import log_settings
from statelib.telemetry.logs import configure

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keyed state for batch pipelines: run them, look at checkpoints, prove them whole, put them back.",
    epilog="Exit status: 0 fine, 1 found a problem, 2 bad call. --json prints one document for machines.\n\n"
    "Examples: statelib pipelines list\n\nstatelib run sales\n\nstatelib checkpoints list -p sales",
)
app.command(
    "run",
    epilog="Examples: statelib run sales\n\nstatelib run sales --end 2026-02-01\n\n"
    "statelib run sales --start 2026-01-01 --end 2026-01-08 --dry-run",
)(runs.run)
checkpoints.app.command(
    "diff",
    epilog="Examples: statelib checkpoints diff sales/4 sales/5 --limit 10\n\n"
    "statelib checkpoints diff sales/5 /backups/savepoint-1 --operator sales=counter -o changes",
)(diffs.diff)
checkpoints.app.command("release", epilog="Example: statelib checkpoints release sales/7 --note 'a holiday'")(
    quarantine.release
)
checkpoints.app.command("dispose", epilog="Example: statelib checkpoints dispose sales/7 --dry-run")(cleanup.dispose)
app.add_typer(checkpoints.app, name="checkpoints")
pipelines.app.command("discard", epilog="Example: statelib pipelines discard old_sales --dry-run")(cleanup.discard)
app.add_typer(pipelines.app, name="pipelines")
app.command(
    "inspect",
    epilog="Examples: statelib inspect sales/5 --json\n\nstatelib inspect /backups/savepoint-1 --count",
)(snapshots.inspect_)
app.command(
    "hexdump",
    epilog="Examples: statelib hexdump /backups/savepoint-1 --offset 64 --length 64\n\n"
    "statelib hexdump sales/5 --file 2ff70098f79547e291eb857800000000-0-0 --json",
)(hexdumps.hexdump)
app.command("export", epilog="Example: statelib export aircraft_activity/4 --state activity | head")(snapshots.export)
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
)(writing.rewrite_)
app.add_typer(cleanup.savepoint, name="savepoint")
app.command("bootstrap", epilog="Example: statelib bootstrap flights.yaml --target /backups")(writing.bootstrap)
app.command("history", epilog="Example: statelib history -p aircraft_activity --limit 10")(history.history)
app.command("restore", epilog="Example: statelib restore aircraft_activity 4 --dry-run")(restores.restore)
app.command(
    "import-statestore",
    epilog="Example: statelib import-statestore sales /srv/query --state total --value sold=value.count",
)(imports.import_statestore)


def _version(wanted: bool) -> None:
    if wanted:
        line(f"statelib {__version__}")
        raise typer.Exit


@app.callback()
def settings(
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """What every command begins with."""
    with errors():
        configure(log_settings())


app.add_typer(catalogs.app, name="catalog")


if __name__ == "__main__":
    app()
