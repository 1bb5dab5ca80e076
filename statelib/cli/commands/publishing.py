"""``statelib publish``: the tables of a pipeline file, and how far they are behind."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from statelib.cli.ending import errors, fail
from statelib.cli.options import Json, PipelineArgument
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present, show
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count
from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows import wiring
from statelib.flows.publication.steps import PublishedCommit, TableStanding, publish_tables, standings
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount


def publish(
    pipeline: PipelineArgument,
    *,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="Publish to this table only. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show how far the tables are behind, and publish nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Publish the registered checkpoints of a pipeline that its tables do not have yet.

    'publish' in the pipeline file describes the tables. Runs publish by themselves; this command repeats what failed,
    and brings the tables to the state after a restore. It may be repeated at any time.
    An error of one table does not stop the others; the JSON document of the error has `tables`, too."""
    with errors(as_json):
        deployment = wiring.begun_deployment()
        definition = deployment.pipeline(pipeline)
        commits: list[PublishedCommit] = []
        chosen = tuple(table or ())
        if not dry_run:
            with _showing_tables(deployment, definition, chosen, as_json), working(f"publishing {pipeline}"):
                commits = publish_tables(deployment, definition, chosen)
        after = standings(deployment, definition, chosen)
    present(
        {"pipeline": pipeline, "dry_run": dry_run, "commits": commits, "tables": after}, _view(commits, after), as_json
    )


@contextmanager
def _showing_tables(
    deployment: Deployment, pipeline: Pipeline, chosen: tuple[str, ...], as_json: bool
) -> Iterator[None]:
    """Show the tables if one of them cannot be published to, because the others may have new commits."""
    try:
        yield
    except StatelibError as error:
        after = standings(deployment, pipeline, chosen)
        if as_json:
            fail(error, as_json, tables=after)
        if len(after) > 1:
            show([standing_table(after)])
        raise


def _view(commits: Sequence[PublishedCommit], tables: Sequence[TableStanding]) -> Iterator[Block]:
    for commit in commits:
        rows = amount(commit.rows, "row")
        yield Line(f"{commit.table}: commit {commit.commit} has checkpoint {commit.checkpoint_id}, {rows} written")
        for lost in commit.lost:
            yield Note(f"{commit.table}: checkpoint {lost} was deleted before it was published, with its rows, if any")
    if tables:
        yield standing_table(tables)
    else:
        yield Note("there is no table: the pipeline file has no `publish`")


def standing_table(tables: Sequence[TableStanding]) -> TextTable:
    """Return a row per published table."""
    columns = [
        TableColumn("table"), TableColumn("mode"), TableColumn("commit", right=True),
        TableColumn("checkpoint", right=True), TableColumn("behind", right=True), TableColumn("target", wraps=True),
    ]  # fmt: skip
    rows = [
        [
            s.table, s.mode, count(s.commit), "-" if s.checkpoint_id is None else str(s.checkpoint_id),
            s.error or amount(s.behind, "checkpoint"), s.target,
        ]
        for s in tables
    ]  # fmt: skip
    return TextTable("Published tables", columns, rows)
