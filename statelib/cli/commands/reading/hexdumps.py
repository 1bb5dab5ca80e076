"""``statelib hexdump``: the bytes of a snapshot's files with the names and values of their fields."""

from collections.abc import Iterator
from typing import Annotated

import typer

from statelib.cli.commands.reading.snapshots import Snapshot, absolute
from statelib.cli.elsewhere import Relocate, moves_of
from statelib.cli.output import Json, errors, line, note, print_json, width
from statelib.cli.places import path_of, taken_for_id
from statelib.errors import InvalidRequestError
from statelib.flows.views.inspection import stored_record
from statelib.flows.wiring import begun_deployment, storage_root
from statelib.formats.text.annotated import Annotated as Part
from statelib.model.amounts import amount
from statelib.savepoints.hexdump import HexDump, dump_file, dump_metadata
from statelib.storage.registry import PLACES
from statelib.wire.recording import ReadField

_SHOWN_ROWS = 2
"""Rows of a long field that are shown unless a range of bytes is asked for."""
_BEFORE, _AFTER = 16, 64
"""Bytes shown before and after the place where a parser stopped."""
_WIDE = 120


def hexdump(
    snapshot: Snapshot,
    *,
    file: Annotated[
        str | None, typer.Option("--file", help="A file of the snapshot, as inspect shows it; _metadata if absent.")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Show what lies at this offset, and behind.")] = None,
    length: Annotated[int | None, typer.Option("--length", help="Show only so many bytes.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Entries of a keyed stream's key groups to take apart.")
    ] = 0,
    relocate: Relocate = None,
    as_json: Json = False,
) -> None:
    """Show each field of _metadata, or of a stream's header, with its bytes; damage too. Exit status 1 if damaged."""
    with errors(as_json):
        if (offset or 0) < 0 or (length or 0) < 0:
            raise InvalidRequestError(f"offset {offset}, length {length}: expected 0 or more", kind="bad-range")
        directory = _directory(snapshot)
        moves = absolute(moves_of(relocate))
        dump = dump_metadata(directory) if file is None else dump_file(directory, file, storage_root(), moves, limit)
    window = _window(offset, length)
    if as_json:
        print_json(_told(dump, window))
    else:
        _print(dump, window)
    if any(part.problem for part in dump.parts) or dump.notes:
        raise typer.Exit(1)


def _window(offset: int | None, length: int | None) -> range | None:
    """The bytes that were asked for; None for all, long fields cut."""
    if offset is None and length is None:
        return None
    start = offset or 0
    return range(start, start + length if length is not None else 1 << 63)


def _directory(snapshot: str) -> str:
    path = path_of(snapshot)
    if not path:
        here = begun_deployment()
        with taken_for_id(snapshot):
            path = stored_record(here, snapshot).directory
    return PLACES.kind(path).normalised(path.removesuffix("/_metadata"))


def _fields(part: Part, window: range | None) -> Iterator[tuple[ReadField, int, int]]:
    """(field, where the bytes to show begin in the part, and where they end)."""
    for field in part.fields:
        start, end = field.offset, field.offset + field.size_bytes
        if window is not None:
            start, end = max(start, window.start - part.base), min(end, window.stop - part.base)
        if start < end or (window is None and not field.size_bytes):
            yield field, start, end


def _told(dump: HexDump, window: range | None) -> dict[str, object]:
    return {
        "file": dump.path,
        "size_bytes": dump.size_bytes,
        "notes": list(dump.notes),
        "parts": [
            {
                "title": part.title,
                "offset": part.base,
                "size_bytes": len(part.data),
                "problem": part.problem or None,
                "stopped_at": part.base + part.end,
                "fields": [_told_field(part, *found) for found in _fields(part, window)],
            }
            for part in dump.parts
        ],
    }


def _told_field(part: Part, field: ReadField, start: int, end: int) -> dict[str, object]:
    """``hex`` is of the bytes from ``shown_from`` on: all of the field, unless a range was asked for."""
    return {
        "offset": part.base + field.offset,
        "size_bytes": field.size_bytes,
        "part": list(field.parts),
        "name": field.name,
        "type": field.verb,
        "value": None if isinstance(field.value, memoryview) else field.value,
        "shown_from": part.base + start,
        "hex": part.data[start:end].hex(),
    }


def _print(dump: HexDump, window: range | None) -> None:
    line(f"{dump.path}: {amount(dump.size_bytes, 'byte')}")
    for text in dump.notes:
        note(text)
    for part in dump.parts:
        line()
        line(f"{part.title}, {amount(len(part.data), 'byte')} from offset {part.base:#x}")
        _print_fields(part, window)
        left = len(part.data) - part.end
        if part.problem:
            line()
            line(f"stopped at offset {part.base + part.end:#x}: {part.problem}")
            _print_raw(part)
        elif left:
            line(f"{amount(left, 'byte')} behind it from offset {part.base + part.end:#x}")


def _print_fields(part: Part, window: range | None) -> None:
    last: tuple[str, ...] = ()
    for field, start, end in _fields(part, window):
        if field.parts != last:
            _print_heading(field.parts, last)
            last = field.parts
        _print_field(part, field, start, end, whole=window is not None)


def _print_heading(parts: tuple[str, ...], last: tuple[str, ...]) -> None:
    """Only what is new of it, each level one step further right."""
    same = 0
    while same < min(len(parts), len(last)) and parts[same] == last[same]:
        same += 1
    for depth in range(min(same, len(parts) - 1) if parts else 0, len(parts)):
        line(f"{'':10}{'  ' * depth}[{parts[depth]}]")


def _print_field(part: Part, field: ReadField, start: int, end: int, *, whole: bool) -> None:
    step = 16 if width() >= _WIDE else 8
    rows = [part.data[at : min(at + step, end)] for at in range(start, end, step)] or [part.data[start:start]]
    shown = rows if whole else rows[:_SHOWN_ROWS]
    indent = "  " * len(field.parts)
    for number, row in enumerate(shown):
        at = part.base + start + number * step
        text = f"{at:08x}  {row.hex(' '):<{3 * step - 1}}"
        if isinstance(field.value, memoryview):
            text += f"  {printable(row):<{step}}"
        if number == 0:
            text += f"  {indent}{_meaning(field)}"
        line(_cut(text.rstrip()))
    hidden = end - start - sum(map(len, shown))
    if hidden:
        line(f"{'':10}… {amount(hidden, 'byte')} more")


def _meaning(field: ReadField) -> str:
    name = field.name or field.verb
    if isinstance(field.value, memoryview):
        return f"{name} ({amount(field.size_bytes, 'byte')})"
    if field.verb == "u32" and name.startswith(("magic", "CRC")):
        return f"{name} = {field.value:#010x}"
    return f"{name} = {field.value}" if field.verb == "typed" else f"{name} = {field.value!r}"


def _cut(text: str) -> str:
    return text if len(text) <= width() else f"{text[: width() - 1]}…"


def _print_raw(part: Part) -> None:
    """The bytes around the place where a parser stopped, which is marked."""
    first = max(part.end - _BEFORE, 0) & ~15
    for at in range(first, min(part.end + _AFTER, len(part.data)), 16):
        row = part.data[at : at + 16]
        mark = ">" if at <= part.end < at + 16 else " "
        line(f"{mark} {part.base + at:08x}  {row.hex(' '):<47}  {printable(row)}")
    if part.end >= len(part.data):
        line(f"> {part.base + part.end:08x}  the end")


def printable(data: memoryview) -> str:
    """ASCII as it is, a dot for anything else."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
