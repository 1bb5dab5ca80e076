"""Snapshots as people name them on the command line: by an id, by a path, or by a path with what the snapshot itself
does not record."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from statelib.cli import completion
from statelib.cli.paths import absolute_target, explained_as_id, path_of
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.views.inspection import resolve
from statelib.model.types import StateType
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.serializers.type_text import parse_type

Snapshot = Annotated[
    str,
    typer.Argument(
        help="<pipeline>, which means its head, <pipeline>/<id>, <pipeline>/latest, <pipeline>@<moment> for the state "
        "as of then, or the path of a snapshot directory.",
        autocompletion=completion.snapshots,
    ),
]
State = Annotated[str | None, typer.Option("--state", help="Only this state.")]
Operator = Annotated[str | None, typer.Option("--operator", help="Only this operator: its uid, or its id in hex.")]
Relocate = Annotated[
    list[str] | None,
    typer.Option(
        "--relocate",
        metavar="OLD_PREFIX=NEW_PREFIX",
        help="For a snapshot that was moved: read paths in _metadata that begin with OLD_PREFIX below NEW_PREFIX."
        " Repeatable. Nothing outside the new places is opened.",
    ),
]
KeyType = Annotated[
    str | None,
    typer.Option("--key-type", help="Type of the keys, such as long or string, if the snapshot does not record it."),
]

_BEFORE_A_PLACE = re.compile(r"=(?=\.{0,2}/|[A-Za-z][A-Za-z0-9+.-]*:/)")
"""An equals sign that a path or URI follows."""


def moves_of(relocate: Sequence[str] | None) -> dict[str, str]:
    """Return the new prefix of each old prefix in the values of ``--relocate``.

    A prefix may contain ``=``: the separator is the only one that a path or URI follows.
    Raise InvalidRequestError (``bad-relocation``) for a value that has no clear separator, or two new prefixes."""
    moves: dict[str, str] = {}
    for text in relocate or ():
        places = [at.start() for at in _BEFORE_A_PLACE.finditer(text)] or [i for i, c in enumerate(text) if c == "="]
        old, new = (text[: places[0]], text[places[0] + 1 :]) if len(places) == 1 else ("", "")
        if not (old and new) or moves.get(old, new) != new:
            raise InvalidRequestError(
                f"--relocate {text}: expected OLD_PREFIX=NEW_PREFIX, each old prefix once",
                kind="bad-relocation",
                hint="such as --relocate file:///flink/checkpoints=/mnt/copy",
            )
        moves[old] = new
    return moves


def absolute(moves: Mapping[str, str] | None) -> dict[str, str]:
    """Return the moves with new prefixes that are absolute: relative ones start at the working directory."""
    return {old: absolute_target(new) for old, new in (moves or {}).items()}


def type_of(key_type: str | None) -> StateType | None:
    """Return the type that ``--key-type`` names, None without the option. Raise what :func:`parse_type` raises."""
    return None if key_type is None else parse_type(key_type)


def open_snapshot(
    snapshot: str, moves: Mapping[str, str] | None = None, key_type: StateType | None = None
) -> Checkpoint:
    """Open the snapshot at a path, which needs no deployment, or the snapshot that the catalog has under an id.

    Raise InvalidRequestError (``bad-relocation``) for moves with an id: the catalog records where such files are."""
    path = path_of(snapshot)
    if path:
        return open_checkpoint(path, storage_root=wiring.storage_root(), relocate=absolute(moves), key_type=key_type)
    if moves:
        raise InvalidRequestError(
            f"--relocate with {snapshot}, an id of the catalog: expected the path of a snapshot that was moved",
            kind="bad-relocation",
        )
    with explained_as_id(snapshot):
        return resolve(wiring.begun_deployment(), snapshot)
