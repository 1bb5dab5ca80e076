"""The data that campaigns damage, and the readers that must then refuse or read it: see :data:`TARGETS`."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from statelib.errors import StatelibError, UnsupportedError
from statelib.formats.canonical.encoder import encode_canonical
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.heap.encoder import HeapStream
from statelib.formats.heap.reading import iter_heap
from statelib.formats.keyed.header import KeyedHeader, decode_keyed_header, encode_header
from statelib.formats.operator_state import OperatorStream
from statelib.formats.text.plain_text import texts
from statelib.formats.text.typed_json import entry_lines, operator_lines
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
)
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.entries.keys import decode_keys, join_keys, key_groups, split_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.wire.ragged import Ragged
from tests.fuzz.campaign import Target
from tests.fuzz.command_targets import COMMAND_LINE
from tests.fuzz.describing_targets import DESCRIBING
from tests.fuzz.log_targets import LOGS
from tests.fuzz.samples import (
    CANONICAL,
    SQL,
    VALUES,
    Sample,
    canonical_samples,
    content,
    heap_handle,
    heap_sample,
    metadata_of,
)
from tests.fuzz.sql_samples import sample as sql_sample
from tests.fuzz.text_targets import TEXTS

_BEHIND = " (behind the header)"


def look_at(schema: KeyedStateSchema, state: StateDescriptor, rows: StateRows) -> None:
    """Use entries in every way: columns, text, lines, key groups. Each is tried, then the first refusal is raised."""
    refusals: list[StatelibError] = []
    for look in (_as_columns, _as_values, _as_parts, _as_lines):
        with collected(refusals):
            look(schema, state, rows)
    for refusal in refusals:
        raise refusal


@contextmanager
def collected(refusals: list[StatelibError]) -> Iterator[None]:
    try:
        yield
    except StatelibError as error:
        refusals.append(error)


def _as_columns(schema: KeyedStateSchema, state: StateDescriptor, rows: StateRows) -> None:
    keys = decode_keys(schema, state, rows.keys)
    for column in keys.columns().values():
        column.validate(full=True)
        texts(column)
    with suppress(UnsupportedError):  # Some types are no keys in Flink.
        key_groups(schema, keys.keys)


def _as_values(_: KeyedStateSchema, state: StateDescriptor, rows: StateRows) -> None:
    values = decode_values(state, rows.values)
    values.validate(full=True)
    texts(values)
    if state.kind is not StateKind.TIMERS:
        with suppress(UnsupportedError):  # Arrays and maps of SQL are not written.
            encode_values(state, values)


def _as_parts(schema: KeyedStateSchema, state: StateDescriptor, rows: StateRows) -> None:
    if state.kind is not StateKind.TIMERS:
        join_keys(schema, state, split_keys(schema, state, rows.keys))


def _as_lines(schema: KeyedStateSchema, state: StateDescriptor, rows: StateRows) -> None:
    for line in entry_lines("operator", schema, state, rows):
        json.loads(line)


def _canonical(fixtures: tuple[str, ...], compressed: bool) -> Target:
    samples = dict(sample for fixture in fixtures for sample in canonical_samples(fixture))
    encoded = {
        name: encode_canonical(s.schema, s.key_groups, s.rows, compressed=compressed) for name, s in samples.items()
    }

    def read(name: str, data: bytes) -> None:
        stream = ByteStreamStateHandle("damaged", data)
        handle = KeyGroupsSavepointStateHandle(samples[name].key_groups, encoded[name][1], stream)
        cut = partial(_cut, memoryview(data))
        header = read_header(cut, handle, samples[name].schema.max_parallelism)
        for state, rows in iter_canonical(cut, handle, header):
            look_at(header.schema, header.schema.states[state], rows)

    return _also_behind_headers({name: b"".join(pieces) for name, (pieces, _) in encoded.items()}, samples, read)


def _also_behind_headers(
    streams: Mapping[str, bytes], samples: Mapping[str, Sample], read: Callable[[str, bytes], object]
) -> Target:
    """Return each target of a stream twice: damaged anywhere, and only behind its header."""
    sizes = {name: decode_keyed_header(data, samples[name].schema.max_parallelism).size_bytes
             for name, data in streams.items()}  # fmt: skip
    twice = {**streams, **{f"{name}{_BEHIND}": data for name, data in streams.items()}}
    sizes_behind = {f"{name}{_BEHIND}": size for name, size in sizes.items()}
    return Target(twice, lambda name, data: read(name.removesuffix(_BEHIND), data), kept=sizes_behind)


def _cut(data: memoryview, start: int, stop: int) -> memoryview:
    return data[start:stop]


def _heap(compressed: bool) -> Target:
    samples_read = [sample for fixture in CANONICAL for sample in canonical_samples(fixture, 6)]
    samples = dict([*samples_read, (VALUES, heap_sample(VALUES))])
    encoded: dict[str, tuple[bytes, tuple[int, ...]]] = {}
    for name, sample in samples.items():
        stream = HeapStream(sample.schema, sample.key_groups, sample.rows, compressed)
        pieces = b"".join(stream)
        encoded[name] = (pieces, stream.offsets)

    def read(name: str, data: bytes) -> None:
        stream = ByteStreamStateHandle("damaged", data)
        handle = KeyGroupsStateHandle(samples[name].key_groups, encoded[name][1], stream, "id")
        cut = partial(_cut, memoryview(data))
        header = read_header(cut, handle, samples[name].schema.max_parallelism)
        for state, rows in iter_heap(cut, handle, header):
            look_at(header.schema, header.schema.states[state], rows)

    return _also_behind_headers({name: data for name, (data, _) in encoded.items()}, samples, read)


def _heap_of_flink() -> Target:
    """Return the target of a complete heap stream that Flink wrote."""
    handle, data, max_parallelism = heap_handle("1.20.5/kinds-hashmap-native-p2")

    def read(_: str, damaged: bytes) -> None:
        cut = partial(_cut, memoryview(damaged))
        damaged_handle = KeyGroupsStateHandle(
            handle.key_group_range, handle.offsets, ByteStreamStateHandle("damaged", damaged), "id"
        )
        header = read_header(cut, damaged_handle, max_parallelism)
        for _state, _rows in iter_heap(cut, damaged_handle, header):
            pass

    return Target({"flink": data}, read)


def _entries(samples: Iterator[tuple[str, Sample]]) -> Target:
    """Return the target of keys and values alone, row by row: a seed is one entry with its key's length in front."""
    seeds: dict[str, bytes] = {}
    places: dict[str, tuple[KeyedStateSchema, StateDescriptor]] = {}
    for name, sample in samples:
        for state, rows in zip(sample.schema.states, sample.rows, strict=True):
            for number in range(min(len(rows), 3)):
                row = rows.take(np.array([number]))
                seed = f"{name} {state.name} {number}"
                (key,), (value,) = row.keys.to_list(), row.values.to_list()
                seeds[seed] = len(key).to_bytes(2, "big") + key + value
                places[seed] = (sample.schema, state)

    def read(name: str, data: bytes) -> None:
        cut = 2 + min(int.from_bytes(data[:2], "big"), max(len(data) - 2, 0))
        schema, state = places[name]
        look_at(schema, state, StateRows(_rows(data[2:cut]), _rows(data[cut:])))

    return Target(seeds, read)


def _made_rows() -> Target:
    schema, value = sql_sample()
    (state,) = schema.states

    def read(_: str, data: bytes) -> None:
        refusals: list[StatelibError] = []
        for look in (_as_values, _as_lines):
            with collected(refusals):
                look(schema, state, StateRows(_rows(bytes(10)), _rows(data)))
        for refusal in refusals:
            raise refusal

    return Target({"row": value}, read)


def _rows(data: bytes) -> Ragged:
    """Return the target of one row between bytes that do not belong to it."""
    around = b"\xff" * 3
    return Ragged(np.frombuffer(around + data + around, np.uint8), np.array([3, 3 + len(data)], np.int64))


def _headers() -> Target:
    seeds: dict[str, bytes] = {}
    for fixture in (*CANONICAL, *SQL):
        for name, sample in canonical_samples(fixture):
            seeds[name] = encode_or_none(sample.schema) or b""
    handle, data, _ = heap_handle(VALUES)
    seeds[VALUES] = data[: handle.offsets[0]]
    for fixture in SQL:
        for operator in metadata_of(fixture).operators:
            for _, state in operator.subtasks:
                if state.keyed is not None and isinstance(state.keyed, KeyGroupsSavepointStateHandle):
                    stop = min(offset for offset in (*state.keyed.offsets, 2**31) if offset > 0)
                    seeds[f"{fixture} {operator.operator_id.hex()}"] = content(fixture, state.keyed.stream)[:stop]

    def read(_: str, damaged: bytes) -> None:
        use(decode_keyed_header(damaged, 128))

    return Target({name: seed for name, seed in seeds.items() if seed}, read)


def use(header: KeyedHeader) -> None:
    """Use every type of a header as a reader does, without rows."""
    for state in header.schema.states:
        str(state)
        look_at(header.schema, state, StateRows(_no_rows(), _no_rows()))
    encode_header(header.schema, header.compressed)


def encode_or_none(schema: KeyedStateSchema) -> bytes:
    try:
        return encode_header(schema, compressed=False)
    except UnsupportedError:
        return b""


def _no_rows() -> Ragged:
    return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))


def _operator_streams() -> Target:
    handles: dict[str, OperatorStreamStateHandle] = {}
    seeds: dict[str, bytes] = {}
    for fixture in ("1.20.5/opstate-canonical-p2", "2.3.0/opstate-canonical-p2", "1.20.5/hashmap-filemerging"):
        for operator in metadata_of(fixture).operators:
            for subtask, state in operator.subtasks:
                if isinstance(state.operator, OperatorStreamStateHandle) and isinstance(
                    state.operator.stream, ByteStreamStateHandle
                ):
                    name = f"{fixture} {operator.operator_id.hex()[:6]} {subtask}"
                    handles[name], seeds[name] = state.operator, state.operator.stream.data

    def read(name: str, data: bytes) -> None:
        stream = OperatorStream(handles[name], data)
        for held in stream.contents():
            held.values.validate(full=True)
            for _ in operator_lines("operator", held.descriptor, stream.stored(held.descriptor)):
                pass

    return Target(seeds, read)


TARGETS: Mapping[str, Callable[[], Target]] = {
    "headers": _headers,
    "canonical": partial(_canonical, CANONICAL, compressed=False),
    "canonical-sql": partial(_canonical, SQL, compressed=False),
    "canonical-compressed": partial(_canonical, CANONICAL[:3], compressed=True),
    "entries": lambda: _entries(
        sample
        for part in (*(canonical_samples(f) for f in CANONICAL), [(VALUES, heap_sample(VALUES))])
        for sample in part
    ),
    "entries-sql": lambda: _entries(sample for fixture in SQL for sample in canonical_samples(fixture)),
    "entries-sql-made": _made_rows,
    "heap": partial(_heap, compressed=False),
    "heap-compressed": partial(_heap, compressed=True),
    "heap-flink": _heap_of_flink,
    "operator-state": _operator_streams,
    **DESCRIBING,
    **LOGS,
    **COMMAND_LINE,
    **TEXTS,
}
