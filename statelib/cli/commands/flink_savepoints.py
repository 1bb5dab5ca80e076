"""``statelib bootstrap`` and ``statelib savepoint rewrite``: write savepoints that a Flink job can start from."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import Snapshot, open_snapshot
from statelib.cli.options import Json, Master
from statelib.cli.paths import absolute_target, local_file
from statelib.cli.presenters.blocks import Block, Line, Note, TableColumn, TextTable, present
from statelib.cli.presenters.values import count
from statelib.definition.bootstrap import load_bootstrap
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.extras import require
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from statelib.spark import REMOTE, is_remote_url

_ERROR_MARK = "statelib: "
"""The start of the line in which a Spark job reports its error."""

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
    check: Annotated[bool, typer.Option("--check", help="Check the file, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write a Flink savepoint from tables, from states of pipelines, or from other savepoints.

    A Flink job that starts from it has the history that batches computed, and continues as a stream."""
    with errors(as_json):
        path = local_file(file, "FILE")
        description = load_bootstrap(path)
        result = {} if check else _submit(path, _required(target), number, master)
    if check:
        operators = list(description.operators)
        checked = Line(f"{file}: operators {', '.join(operators)}")
        present({"file": str(file), "operators": operators}, [checked], as_json)
    else:
        present(result, _bootstrap_view(result), as_json)


def _bootstrap_view(result: dict[str, Any]) -> Iterator[Block]:
    rows = [[uid, state, count(n)] for uid, states in result["entries"].items() for state, n in states.items()]
    columns = [TableColumn("operator"), TableColumn("state"), TableColumn("entries", right=True)]
    yield TextTable("Entries", columns, rows)
    yield Line(result["directory"])
    yield Note(f"start the job from it with: flink run -s {result['directory']} ...")


def _required(target: str | None) -> str:
    if target is None:
        raise InvalidRequestError(
            "a savepoint needs a directory to be written to", kind="no-target", hint="add --target DIRECTORY_OR_URI"
        )
    return target


def _submit(file: Path, target: str, number: int, master: str) -> dict[str, Any]:
    """Run the Spark job, and return the JSON document in the last line of its output."""
    job = str(files("statelib_jobs") / "bootstrap.py")
    require("spark")
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    if is_remote_url(master):
        command = [sys.executable]
        environment[REMOTE] = master
    else:
        command = [_spark_submit(job), "--master", master, "--conf", "spark.log.level=ERROR"]
        command += ["--conf", "spark.ui.enabled=false"]
        environment.pop(REMOTE, None)
    # No shell is involved, and whoever calls statelib may call spark-submit as well.
    run = subprocess.run(  # noqa: S603
        [*command, job, "--file", str(file.absolute()), "--target", absolute_target(target), "--id", str(number)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if run.returncode:
        # spark-submit prints both streams of a Python driver to its own output.
        lines = (run.stdout + run.stderr).splitlines()
        line = next((text for text in lines if text.startswith(_ERROR_MARK)), "")
        if not line:
            raise RuntimeError(f"the Spark job ended with {run.returncode}:\n{(run.stdout + run.stderr)[-4000:]}")
        kind, _, message = line.removeprefix(_ERROR_MARK).partition(": ")
        raise InvalidRequestError(message, kind=kind)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def _spark_submit(job: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    submit = shutil.which("spark-submit", path=path)
    if submit is None:
        raise NotFoundError(
            "spark-submit is not on the path", kind="no-spark", hint=f"submit {job} to the cluster yourself"
        )
    return submit


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
        uids = dict(map(_uids, rename_operator or []))
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
        put.setdefault(uid, {})[opened.select(uid).schema().state(state)] = pq.read_table(path)
    return {uid: OperatorChange(frozenset(drop.get(uid, ())), put.get(uid, {})) for uid in {*drop, *put}}


def _uids(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not old or not new:
        raise InvalidRequestError(f"{text!r}: expected OLD=NEW", kind="bad-change")
    return old, new


def _uid_and_state(text: str) -> tuple[str, str]:
    uid, _, state = text.partition("/")
    if not uid or not state:
        raise InvalidRequestError(f"{text!r}: expected UID/STATE", kind="bad-state-name")
    return uid, state
