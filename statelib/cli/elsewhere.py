"""Options for snapshots that do not lie where they were written, or do not say all that reading them takes."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from statelib.errors import InvalidRequestError
from statelib.model.types import StateType
from statelib.serializers.type_text import parse_type

Relocate = Annotated[
    list[str] | None,
    typer.Option(
        "--relocate",
        metavar="OLD_PREFIX=NEW_PREFIX",
        help="The snapshot was moved: paths in _metadata that begin with OLD_PREFIX lie below NEW_PREFIX now."
        " Repeatable; nothing else is opened.",
    ),
]
KeyType = Annotated[
    str | None,
    typer.Option("--key-type", help="Type of the keys where the snapshot does not say it, such as long or string."),
]


_BEFORE_A_PLACE = re.compile(r"=(?=\.{0,2}/|[A-Za-z][A-Za-z0-9+.-]*:/)")


def moves_of(relocate: Sequence[str] | None) -> dict[str, str]:
    """Old prefix -> new prefix; InvalidRequestError (``bad-relocation``). A ``=`` inside of a prefix is fine where
    only one of several stands in front of a path or URI."""
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


def type_of(key_type: str | None) -> StateType | None:
    """The type that is meant; raises as :func:`parse_type`."""
    return None if key_type is None else parse_type(key_type)
