"""``statelib bootstrap`` and ``statelib savepoint rewrite``: write savepoints that a Flink job can start from."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow.parquet as pq
import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import Snapshot, open_snapshot
from statelib.cli.options import Json, Master, SparkSettings
from statelib.cli.pairs import pairs_of
from statelib.cli.paths import absolute_target, local_file
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present
from statelib.cli.presenters.console import working
from statelib.cli.presenters.values import count
from statelib.cli.spark_session import session
from statelib.definition.bootstrap import Bootstrap, load_bootstrap
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite

if TYPE_CHECKING:
    from statelib.spark.imports.bootstrap import BootstrapResult

Number = Annotated[
    int, typer.Option("--id", min=0, help="Number of the savepoint. It is part of its directory's name.")
]


def bootstrap(
    file: Annotated[str, typer.Argument(help="YAML file with the operators, their keys, states and rows.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Directory or URI under which the savepoint's directory is made. Required unless --check.",
        ),
    ] = None,
    number: Number = 1,
    master: Master = "local[*]",
    conf: SparkSettings = None,
    check: Annotated[bool, typer.Option("--check", help="Check the file, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write a Flink savepoint from tables, from states of pipelines, or from other savepoints.

    A Flink job that starts from it has the history that batches computed, and continues as a stream."""
    with errors(as_json):
        path = local_file(file, "FILE")
        description = load_bootstrap(path)
        done = None if check else _written(description, _required(target), number, (master, conf))
    if done is None:
        operators = list(description.operators)
        checked = Line(f"{file}: operators {', '.join(operators)}")
        present({"file": str(file), "operators": operators}, [checked], as_json)
    else:
        present({"directory": done.directory, "entries": done.entries}, _bootstrap_view(done), as_json)


def _bootstrap_view(done: "BootstrapResult") -> Iterator[Block]:
    rows = [[uid, state, count(n)] for uid, states in done.entries.items() for state, n in states.items()]
    columns = [TableColumn("operator"), TableColumn("state"), TableColumn("entries", right=True)]
    yield TextTable("Entries", columns, rows)
    yield Line(done.directory)
    yield Note(f"start the job from it with: flink run -s {done.directory} ...")


def _required(target: str | None) -> str:
    if target is None:
        raise InvalidRequestError(
            "a savepoint needs a directory to be written to", kind="no-target", hint="add --target DIRECTORY_OR_URI"
        )
    return target


def _written(
    description: Bootstrap, target: str, number: int, spark: tuple[str, list[str] | None]
) -> "BootstrapResult":
    """Write the savepoint. ``spark``: the master and the settings of the session."""
    place = NewSavepoint(absolute_target(target), description.name, number, description.compression == "snappy")
    with session(f"{description.name} bootstrap", *spark) as running, working(f"writing a savepoint to {target}"):
        from statelib.spark.imports.bootstrap import run_bootstrap  # other commands start without Spark

        return run_bootstrap(running, description, place, open_snapshot)


def rewrite_(
    snapshot: Snapshot,
    *,
    target: Annotated[
        str, typer.Option("--target", "-t", help="Directory or URI under which the savepoint's directory is made.")
    ],
    name: Annotated[str, typer.Option("--name", help="Name that becomes part of the directory's name.")] = "rewritten",
    number: Number = 1,
    drop_operator: Annotated[list[str] | None, typer.Option(help="Leave this operator out. Repeatable.")] = None,
    rename_operator: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Give the operator OLD the uid NEW. Repeatable.")
    ] = None,
    drop_state: Annotated[
        list[str] | None, typer.Option(metavar="UID/STATE", help="Leave this state out. Repeatable.")
    ] = None,
    put: Annotated[
        list[str] | None,
        typer.Option(
            metavar="UID/STATE=FILE",
            help="Replace the entries of a state by those of a Parquet file, as export --format parquet writes it."
            " Repeatable.",
        ),
    ] = None,
    compress: Annotated[bool, typer.Option(help="Compress the changed key groups with Snappy.")] = True,
    as_json: Json = False,
) -> None:
    """Copy a canonical savepoint with changes. Everything that is not changed is copied byte for byte."""
    with errors(as_json):
        opened = open_snapshot(snapshot)
        changes = _changes(opened, drop_state or [], put or [])
        place = NewSavepoint(absolute_target(target), name, number, compress)
        uids = pairs_of("--rename-operator", rename_operator)
        directory = rewrite(opened, place, drop_operators=drop_operator or [], changes=changes, renamed=uids)
    present({"directory": directory}, [Line(directory)], as_json)


def _changes(opened: Checkpoint, drops: list[str], puts: list[str]) -> dict[str, OperatorChange]:
    drop: dict[str, set[str]] = {}
    for text in drops:
        uid, state = _uid_and_state(text)
        drop.setdefault(uid, set()).add(state)
    put: dict[str, dict[Any, Any]] = {}
    for text in puts:
        name, _, file = text.partition("=")
        uid, state = _uid_and_state(name)
        path = local_file(file, f"--put {name}")
        if not path.is_file():
            raise NotFoundError(f"there is no file {file!r} for {name}", kind="no-source")
        tables, descriptor = put.setdefault(uid, {}), opened.select(uid).schema().state(state)
        if descriptor in tables:
            raise InvalidRequestError(f"--put {name} is given twice: expected one file", kind="bad-change")
        tables[descriptor] = pq.read_table(path)
    return {uid: OperatorChange(frozenset(drop.get(uid, ())), put.get(uid, {})) for uid in {*drop, *put}}


def _uid_and_state(text: str) -> tuple[str, str]:
    uid, _, state = text.partition("/")
    if not uid or not state:
        raise InvalidRequestError(f"{text!r}: expected UID/STATE", kind="bad-state-name")
    return uid, state
