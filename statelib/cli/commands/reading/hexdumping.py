"""``statelib hexdump``: show the bytes of a snapshot's files with the names and values of their fields."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from statelib.cli.ending import errors
from statelib.cli.named_snapshots import Relocate, Snapshot, absolute, moves_of
from statelib.cli.options import Json
from statelib.cli.paths import explained_as_id, path_of
from statelib.cli.presenters.blocks import Block, Line, Note, present
from statelib.cli.presenters.console import width
from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.views.inspection import stored_record
from statelib.formats.text.annotated import Annotated as Part
from statelib.model.amounts import amount
from statelib.savepoints.hexdump import HexDump, dump_file, dump_metadata
from statelib.storage.registry import PLACES
from statelib.wire.recording import ReadField

_SHOWN_ROWS = 2
"""The rows of a long field that are shown unless a range of bytes is given."""
_BEFORE, _AFTER = 16, 64
"""The bytes that are shown before and after the place where a parser stopped."""
_WIDE = 120


def hexdump(
    snapshot: Snapshot,
    *,
    file: Annotated[
        str | None, typer.Option("--file", help="A file of the snapshot, as inspect prints it. Default: _metadata.")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Show the bytes from this offset on.")] = None,
    length: Annotated[int | None, typer.Option("--length", help="Show this many bytes only.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Number of entries to parse in the key groups of a keyed stream.")
    ] = 0,
    relocate: Relocate = None,
    as_json: Json = False,
) -> None:
    """Show each field of _metadata, or of a stream's header, with its bytes. Exit status 1 if the file is damaged."""
    with errors(as_json):
        if (offset or 0) < 0 or (length or 0) < 0:
            raise InvalidRequestError(f"offset {offset}, length {length}: expected 0 or more", kind="bad-range")
        directory = _directory(snapshot)
        moves = absolute(moves_of(relocate))
        if file is None:
            dump = dump_metadata(directory)
        else:
            dump = dump_file(directory, file, wiring.storage_root(), moves, limit)
        if (offset or 0) > dump.size_bytes:
            raise InvalidRequestError(
                f"offset {offset}: expected at most {dump.size_bytes}, the size of {dump.path}", kind="bad-range"
            )
    window = _window(offset, length)
    present(_document(dump, window), _view(dump, window), as_json)
    if any(part.problem for part in dump.parts) or dump.notes:
        raise typer.Exit(1)


def _window(offset: int | None, length: int | None) -> range | None:
    """Return the range of bytes to show; None to show all, with long fields cut."""
    if offset is None and length is None:
        return None
    start = offset or 0
    return range(start, start + length if length is not None else 1 << 63)


def _directory(snapshot: str) -> str:
    path = path_of(snapshot)
    if not path:
        with explained_as_id(snapshot):
            path = stored_record(wiring.begun_deployment(), snapshot).directory
    return PLACES.kind(path).normalised(path.removesuffix("/_metadata"))


def _fields(part: Part, window: range | None) -> Iterator[tuple[ReadField, int, int]]:
    """Yield (field, start, end) of the fields to show: the bytes from start to end in the part belong to it."""
    for field in part.fields:
        start, end = field.offset, field.offset + field.size_bytes
        if window is not None:
            start, end = max(start, window.start - part.base), min(end, window.stop - part.base)
        if start < end or (window is None and not field.size_bytes):
            yield field, start, end


def _document(dump: HexDump, window: range | None) -> dict[str, Any]:
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
                "fields": [_field_document(part, *shown) for shown in _fields(part, window)],
            }
            for part in dump.parts
        ],
    }


def _field_document(part: Part, field: ReadField, start: int, end: int) -> dict[str, Any]:
    """Return the description of a field. ``hex`` has the bytes from ``shown_from`` on: the whole field, unless a range
    of bytes was given."""
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


def _view(dump: HexDump, window: range | None) -> Iterator[Block]:
    yield Line(f"{dump.path}: {amount(dump.size_bytes, 'byte')}")
    for text in dump.notes:
        yield Note(text)
    for part in dump.parts:
        yield Line()
        yield Line(f"{part.title}, {amount(len(part.data), 'byte')} from offset {part.base:#x}")
        yield from map(Line, _field_lines(part, window))
        left = len(part.data) - part.end
        if part.problem:
            yield Line()
            yield Line(f"stopped at offset {part.base + part.end:#x}: {part.problem}")
            yield from map(Line, _raw_lines(part))
        elif left:
            yield Line(f"{amount(left, 'byte')} behind it from offset {part.base + part.end:#x}")


def _field_lines(part: Part, window: range | None) -> Iterator[str]:
    last: tuple[str, ...] = ()
    for field, start, end in _fields(part, window):
        if field.parts != last:
            yield from _heading_lines(field.parts, last)
            last = field.parts
        yield from _byte_lines(part, field, start, end, whole=window is not None)


def _heading_lines(parts: tuple[str, ...], last: tuple[str, ...]) -> Iterator[str]:
    """Yield the levels of a heading that differ from the heading before, each level further right."""
    same = 0
    while same < min(len(parts), len(last)) and parts[same] == last[same]:
        same += 1
    for depth in range(min(same, len(parts) - 1) if parts else 0, len(parts)):
        yield f"{'':10}{'  ' * depth}[{parts[depth]}]"


def _byte_lines(part: Part, field: ReadField, start: int, end: int, *, whole: bool) -> Iterator[str]:
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
        yield _cut(text.rstrip())
    left_out = end - start - sum(map(len, shown))
    if left_out:
        yield f"{'':10}… {amount(left_out, 'byte')} more"


def _meaning(field: ReadField) -> str:
    """Return the name and value of a field; its name and size if the value is bytes."""
    name = field.name or field.verb
    if isinstance(field.value, memoryview):
        return f"{name} ({amount(field.size_bytes, 'byte')})"
    if field.verb == "u32" and name.startswith(("magic", "CRC")):
        return f"{name} = {field.value:#010x}"
    return f"{name} = {field.value}" if field.verb == "typed" else f"{name} = {field.value!r}"


def _cut(text: str) -> str:
    return text if len(text) <= width() else f"{text[: width() - 1]}…"


def _raw_lines(part: Part) -> Iterator[str]:
    """Yield the bytes around the place where a parser stopped. A mark shows the row of that place."""
    first = max(part.end - _BEFORE, 0) & ~15
    for at in range(first, min(part.end + _AFTER, len(part.data)), 16):
        row = part.data[at : at + 16]
        mark = ">" if at <= part.end < at + 16 else " "
        yield f"{mark} {part.base + at:08x}  {row.hex(' '):<47}  {printable(row)}"
    if part.end >= len(part.data):
        yield f"> {part.base + part.end:08x}  the end"


def printable(data: memoryview) -> str:
    """Return the bytes as ASCII, with a dot for each byte that is not printable."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
