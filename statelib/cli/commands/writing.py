"""``statelib bootstrap | savepoint rewrite``: savepoints that a Flink job starts from."""

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer

from statelib.cli.commands.reading.snapshots import Snapshot, open_snapshot
from statelib.cli.output import Column, Json, count, errors, line, note, print_json, table
from statelib.cli.places import local_file
from statelib.definition.bootstrap import load_bootstrap
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.extras import require
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite

_MARK = "statelib: "

Target = Annotated[str, typer.Option("--target", "-t", help="Directory in which the savepoint gets its own.")]
Number = Annotated[int, typer.Option("--id", min=0, help="Number of the savepoint, part of its directory's name.")]


def bootstrap(
    file: Annotated[str, typer.Argument(help="YAML: operators, keys, states, and the rows they are made of.")],
    *,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="Directory or URI in which the savepoint gets its own; not with --check."),
    ] = None,
    number: Number = 1,
    master: Annotated[str, typer.Option("--master", help="Of Spark; this machine unless said otherwise.")] = "local[*]",
    check: Annotated[bool, typer.Option("--check", help="Only say whether the file is right.")] = False,
    as_json: Json = False,
) -> None:
    """Make a Flink savepoint from tables, pipelines' states or savepoints: history in batches, the rest as a stream."""
    with errors(as_json):
        described_by = local_file(file, "FILE")
        described = load_bootstrap(described_by)
        done = {} if check else _submitted(described_by, _required(target), number, master)
    if check and as_json:
        print_json({"file": str(file), "operators": list(described.operators)})
    elif check:
        line(f"{file}: operators {', '.join(described.operators)}")
    elif as_json:
        print_json(done)
    else:
        rows = [[uid, state, count(n)] for uid, states in done["entries"].items() for state, n in states.items()]
        table("Entries", [Column("operator"), Column("state"), Column("entries", right=True)], rows)
        line(done["directory"])
        note(f"start the job from it with: flink run -s {done['directory']} ...")


def _required(target: str | None) -> str:
    if target is None:
        raise InvalidRequestError(
            "a savepoint needs a directory to be written to", kind="no-target", hint="add --target DIRECTORY_OR_URI"
        )
    return target


def _submitted(file: Path, target: str, number: int, master: str) -> dict[str, Any]:
    """Run the Spark job and take what its last line says."""
    submit = shutil.which("spark-submit", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    job = str(files("statelib_jobs") / "bootstrap.py")
    require("spark")
    if submit is None:
        raise NotFoundError(
            "spark-submit is not on the path", kind="no-spark", hint=f"submit {job} to the cluster yourself"
        )
    place = target if ":" in target else str(Path(target).absolute())
    command = [submit, "--master", master, "--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false"]
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    # Nothing of it goes through a shell, and the caller could run all of it without us.
    run = subprocess.run(  # noqa: S603
        [*command, job, "--file", str(file.absolute()), "--target", place, "--id", str(number)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    if run.returncode:
        # Spark prints what a driver in Python says to either stream on its own output.
        told = next((text for text in run.stdout.splitlines() if text.startswith(_MARK)), "")
        if not told:
            raise RuntimeError(f"the Spark job ended with {run.returncode}:\n{(run.stdout + run.stderr)[-4000:]}")
        kind, _, message = told.removeprefix(_MARK).partition(": ")
        raise InvalidRequestError(message, kind=kind)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def rewrite_(
    snapshot: Snapshot,
    *,
    target: Target,
    name: Annotated[str, typer.Option("--name", help="Part of its directory's name.")] = "rewritten",
    number: Number = 1,
    drop_operator: Annotated[list[str] | None, typer.Option(help="Leave this operator out; may be repeated.")] = None,
    rename_operator: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Give this operator another uid; may be repeated.")
    ] = None,
    drop_state: Annotated[
        list[str] | None, typer.Option(metavar="UID/STATE", help="Leave this state out; may be repeated.")
    ] = None,
    put: Annotated[
        list[str] | None,
        typer.Option(metavar="UID/STATE=FILE", help="New entries, as export --format parquet writes them; repeatable."),
    ] = None,
    compress: Annotated[bool, typer.Option(help="Snappy-frame the key groups that are written anew.")] = True,
    as_json: Json = False,
) -> None:
    """Write a canonical savepoint once more with one thing changed; what is not touched goes over byte for byte."""
    with errors(as_json):
        opened = open_snapshot(snapshot)
        changes = _changes(opened, drop_state or [], put or [])
        place = NewSavepoint(target if ":" in target else str(Path(target).absolute()), name, number, compress)
        uids = dict(map(_uids, rename_operator or []))
        directory = rewrite(opened, place, drop_operators=drop_operator or [], changes=changes, renamed=uids)
    if as_json:
        print_json({"directory": directory})
    else:
        line(directory)


def _changes(opened: Checkpoint, drops: list[str], puts: list[str]) -> dict[str, OperatorChange]:
    drop: dict[str, set[str]] = {}
    for text in drops:
        uid, state = _parts(text)
        drop.setdefault(uid, set()).add(state)
    put: dict[str, dict[Any, Any]] = {}
    for text in puts:
        where, _, file = text.partition("=")
        uid, state = _parts(where)
        if not local_file(file, f"--put {where}").is_file():
            raise NotFoundError(f"there is no file {file!r} for {where}", kind="no-source")
        descriptor = opened.select(uid).schema().state(state)
        put.setdefault(uid, {})[descriptor] = pq.read_table(local_file(file, f"--put {where}"))
    return {uid: OperatorChange(frozenset(drop.get(uid, ())), put.get(uid, {})) for uid in {*drop, *put}}


def _uids(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not old or not new:
        raise InvalidRequestError(f"{text!r}: expected OLD=NEW", kind="bad-change")
    return old, new


def _parts(text: str) -> tuple[str, str]:
    uid, _, state = text.partition("/")
    if not uid or not state:
        raise InvalidRequestError(f"{text!r}: expected UID/STATE", kind="bad-state-name")
    return uid, state
