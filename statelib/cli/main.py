"""``statelib``, also ``python -m statelib``."""

import typer

from statelib.cli import checkpoints, cleanup, diffs, pipelines, restores, snapshots
from statelib.cli.output import Json, errors, line, print_json
from statelib.flows.wiring import deployment

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keyed state for batch pipelines: look at checkpoints, prove them whole, take them apart.",
)
checkpoints.app.command("diff", epilog="Example: statelib checkpoints diff sales/4 sales/5 --limit 10")(diffs.diff)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(pipelines.app, name="pipelines")
app.command("inspect", epilog="Example: statelib inspect /backups/savepoint-1")(snapshots.inspect_)
app.command("export", epilog="Example: statelib export aircraft_activity/4 --state activity | head")(snapshots.export)
app.command("verify", epilog="Example: statelib verify -p route_delays")(snapshots.verify_)
app.command(epilog="Example: statelib gc --dry-run")(cleanup.gc)
app.command(epilog="Example: statelib orphans -p route_delays --delete")(cleanup.orphans)
app.command(epilog="Example: statelib why /srv/state/flights/chk-4/_metadata")(cleanup.why)
app.add_typer(cleanup.savepoint, name="savepoint")
app.command("restore", epilog="Example: statelib restore aircraft_activity 4 --dry-run")(restores.restore)

catalog = typer.Typer(no_args_is_help=True, help="The catalog itself.")
app.add_typer(catalog, name="catalog")


@catalog.command(epilog="Example: statelib catalog migrate")
def migrate(as_json: Json = False) -> None:
    """Bring the catalog to the schema of this version; does nothing if it is there already."""
    with errors(as_json):
        deployment().catalog()
    if as_json:
        print_json({"catalog": "current"})
    else:
        line("catalog is current")


if __name__ == "__main__":
    app()
