"""The ways in which a command ends other than by success: an error, a refused question, pipelines in trouble."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.markup import escape

from statelib.cli.presenters import console
from statelib.cli.presenters.blocks import Note, print_json, show
from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError
from statelib.extras import extras_named
from statelib.flows.cleanup.each_pipeline import Troubles
from statelib.telemetry.logs import hidden
from statelib.telemetry.secrets import secrets
from statelib.visible import visible

_HINTS = {
    "missing-file": "statelib verify names all files that are missing; copy them back, or restore an older checkpoint"
}
"""Hints on errors that are raised where the command is not known, by their kinds."""


@contextmanager
def errors(as_json: bool = False) -> Iterator[None]:
    """Turn an error of statelib into one line and an exit status. Any other exception is a bug, and shows as one."""
    try:
        with extras_named():
            yield
    except StatelibError as error:
        fail(error, as_json)


def fail(error: StatelibError, as_json: bool, **more: object) -> NoReturn:
    """Print the error, then end the command: with exit status 1 for damage and missing files, with 2 for anything else.
    ``more``: further keys of the JSON document, by name."""
    message = hidden(error.message, secrets(os.environ))
    hint = error.hint or _HINTS.get(error.kind, "")
    if as_json:
        print_json({"error": error.kind, "message": message, "hint": hint, **more})
    else:
        console.err.print(f"[bold red]statelib:[/] {escape(message)}", soft_wrap=True)
        if hint:
            console.err.print(f"  [dim]hint:[/] {escape(hint)}", soft_wrap=True)
    damage = isinstance(error, CorruptStateError) or error.kind == "missing-file"
    raise typer.Exit(1 if damage else 2) from error


def confirmed(question: str, yes: bool, as_json: bool) -> None:
    """Return if the person at the terminal agrees, or if ``yes`` is set; else end the command with exit status 1.

    Raise InvalidRequestError (``not-confirmed``) if there is nobody to ask."""
    if yes:
        return
    try:
        agreed = None if as_json else typer.confirm(f"\n{visible(question, lines=True)}", err=True)
    except typer.Abort:
        agreed = None
    if agreed is None:
        raise InvalidRequestError("not confirmed: nothing was changed", kind="not-confirmed", hint="add --yes")
    if not agreed:
        show([Note("nothing was changed")])
        raise typer.Exit(1)


def end_in_trouble(troubles: Troubles) -> None:
    """Print a note per pipeline that was left out, and end the command with exit status 1; return if there is none."""
    show(
        Note(f"in trouble: {trouble.message}" + (f" ({trouble.hint})" if trouble.hint else ""))
        for trouble in troubles.in_order()
    )
    if troubles.errors:
        raise typer.Exit(1)
