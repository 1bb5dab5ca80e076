"""Rows of the canonical savepoint stream: 5 M Long -> Long entries, Snappy compressed, one file.

Against Parquet: two Arrow columns to the file (key groups, serialized keys and values, sorted, framed) and
that file back to the two columns, beside the same columns written and read as Parquet (their own order,
Snappy). Against the slow reference codec: only what that does too, entries already serialized and sorted to
framed and compressed key groups and back; it gets a sample of them, its figure is scaled up.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statelib.backends.keys.order import byte_order
from statelib.formats.canonical.encoder import CanonicalStream
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.model.handles import FileStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.serializers.entries.keys import decode_keys, encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.testing.reference import canonical as reference_canonical
from tests.benchmarks.measure import Contender, Ratio, take_turns

ENTRIES = 5_000_000
SAMPLE = 20
"""The reference codec is checked with one of so many entries."""
WARMUPS = 1
ROWS = ("canonical-write", "canonical-read")
STATE = StateDescriptor("counts", StateKind.VALUE, LONG)
SCHEMA = KeyedStateSchema(LONG, 128, (STATE,))
GROUPS = KeyGroupRange(0, 127)


class Columns:
    """The two columns, the files made of them, and the turns that make and read those."""

    def __init__(self, root: Path, entries: int) -> None:
        random = np.random.default_rng(0)
        keys = random.permutation(entries).astype(np.int64) * 1_000_003
        self.table = pa.table({"key": keys, "value": random.integers(0, 2**40, entries)})
        self._stream, self._parquet = root / "canonical", root / "columns.parquet"
        self._offsets: tuple[int, ...] = ()
        self._rows = _serialized(self.table)
        self._sample = _by_group(_serialized(self.table.slice(0, entries // SAMPLE)))
        self._reference: list[bytes] = []

    def write_canonical(self, _: int) -> None:
        self._write(_serialized(self.table))

    def write_entries(self, _: int) -> None:
        self._write(self._rows)

    def read_canonical(self, _: int) -> None:
        for rows in self._read():
            keys, values = decode_keys(SCHEMA, STATE, rows.keys).keys, decode_values(STATE, rows.values)
            pa.record_batch({"key": keys, "value": values})

    def read_entries(self, _: int) -> None:
        entries = sum(len(rows) for rows in self._read())
        if entries != len(self.table):
            raise RuntimeError(f"canonical stream: {entries} entries read, expected {len(self.table)}")

    def write_parquet(self, _: int) -> None:
        pq.write_table(self.table, self._parquet)

    def read_parquet(self, _: int) -> None:
        pq.read_table(self._parquet)

    def write_reference(self, _: int) -> None:
        self._reference = [reference_canonical.encode_key_group({0: group}, True) for group in self._sample]

    def read_reference(self, _: int) -> None:
        for group in self._reference:
            reference_canonical.decode_key_group(group, True)

    def _write(self, rows: StateRows) -> None:
        stream = CanonicalStream(SCHEMA, GROUPS, [rows], compressed=True)
        with self._stream.open("wb") as file:
            for piece in stream:
                file.write(piece)
        self._offsets = stream.offsets

    def _read(self) -> Iterator[StateRows]:
        data = memoryview(self._stream.read_bytes())
        stream = FileStateHandle(self._stream.as_uri(), len(data))
        handle = KeyGroupsSavepointStateHandle(GROUPS, self._offsets, stream)
        header = read_header(lambda a, b: data[a:b], handle, SCHEMA.max_parallelism)
        for _, rows in iter_canonical(lambda a, b: data[a:b], handle, header):
            yield rows


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return two ratios for each wanted row of :data:`ROWS`."""
    columns = Columns(root, max(int(ENTRIES * scale), 10_000))
    writes = (columns.write_canonical, columns.write_parquet, columns.write_entries, columns.write_reference)
    reads = (columns.read_canonical, columns.read_parquet, columns.read_entries, columns.read_reference)
    results: list[Ratio] = []
    if "canonical-write" in rows:
        results += _ratios("canonical-write", "columns to canonical file", writes, runs, columns)
    if "canonical-read" in rows:
        for write in writes:
            write(0)
        results += _ratios("canonical-read", "canonical file to columns", reads, runs, columns)
    return results


def _ratios(row: str, what: str, turns: Sequence[Callable[[int], None]], runs: int, columns: Columns) -> list[Ratio]:
    names = ("canonical", "parquet", "entries", "reference")
    figures = take_turns({n: Contender(t) for n, t in zip(names, turns, strict=True)}, runs, WARMUPS)
    rates = {name: f"{len(columns.table) / median(turn) / 1e6:.1f} M entries/s" for name, turn in figures.items()}
    ours, entries = figures["canonical"], figures["entries"]
    reference = f"reference codec, 1/{SAMPLE} of it"
    return [
        Ratio(row, what, "as Parquet", "none", "cpu s", ours, figures["parquet"], note=rates["canonical"]),
        Ratio(
            row,
            f"{what}, framing only",
            reference,
            "none",
            "cpu s",
            entries,
            figures["reference"],
            SAMPLE,
            rates["entries"],
        ),
    ]


def _serialized(table: pa.Table) -> StateRows:
    """Return the entries as bytes, in key order."""
    keys = table["key"].combine_chunks()
    encoded = encode_keys(SCHEMA, STATE, keys, key_groups(SCHEMA, keys))
    order = byte_order(encoded)
    values = table["value"].combine_chunks().take(pa.array(order))
    return StateRows(encoded.take(order), encode_values(STATE, values))


def _by_group(rows: StateRows) -> list[list[reference_canonical.Entry]]:
    groups: list[list[reference_canonical.Entry]] = [[] for _ in GROUPS]
    groups_of_rows = key_groups_of(rows.keys, 1).tolist()
    for group, key, value in zip(groups_of_rows, rows.keys.to_list(), rows.values.to_list(), strict=True):
        groups[group].append((key, value))
    return [group for group in groups if group]
