"""Savepoints made of columns, by uid and description alone: every kind of key, state and type, restored by Flink."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.formats.operator_state import OperatorStateContent
from statelib.model.key_hash import FieldsHash
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import LONG, STRING
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import export_operator_lines
from statelib.savepoints.writing.new_savepoint import NewSavepoint, SavepointWriter
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import parse_type
from tests.interop.flink_kit import Case, Flink, NoFlink, OperatorToSee, StateToSee, flink
from tests.interop.seen_lines import comparable, operator_to_see
from tests.support.extent import large

ROWS = 60
TEXTS = [["", "tea", "café", "日本", "😀"][n % 5] + str(n) for n in range(ROWS)]
LONGS = [(-1) ** n * n * 10**15 for n in range(ROWS)]
FIELDS = [{"id": n, "name": None if n % 7 == 0 else TEXTS[n]} for n in range(ROWS)]
DECIMALS = [Decimal(n * (-1) ** n * 10 ** (n % 9)).scaleb(-2) for n in range(ROWS)]
"""Among them 0.00, 0.01 and 0.10, which Flink writes as a length alone."""
DIGITS = [Decimal((-1) ** n * (n * 7) ** 13).scaleb(-2) for n in range(ROWS)]
KEYS = {
    "string": TEXTS,
    "long": LONGS,
    "double": [n / 7 for n in range(ROWS)],
    "date": [date.fromordinal(700_000 + 31 * n) for n in range(ROWS)],
    "instant": [10**18 + n for n in range(ROWS)],
    "bigdecimal": [f"{n}.{n % 10}0" for n in range(ROWS)],
    "decimal(12, 2)": DECIMALS,
    "tuple<string, long>": [{"f0": t, "f1": n} for t, n in zip(TEXTS, LONGS, strict=True)],
    "row<id: int, name: string>": FIELDS,
    "rowdata<id: INT, name: VARCHAR(40)>": FIELDS,
    "pojo<probe.Tv$PKey; id: int, name: string>": FIELDS,
}
VALUES = {
    "boolean": [n % 2 == 0 for n in range(ROWS)],
    "double": [float("nan") if n == 3 else n / 7 for n in range(ROWS)],
    "datetime": [10**18 + 7 * n for n in range(ROWS)],
    "time": [n * 10**9 + 1 for n in range(ROWS)],
    "bigdecimal": [f"-{n}.{n % 10}0" for n in range(ROWS)],
    "bigint": [str(n**20) for n in range(ROWS)],
    "decimal(38, 2)": DIGITS,
    "sql<DECIMAL(18, 2)>": DECIMALS,
    "row<small: sql<DECIMAL(12, 2)>, large: sql<DECIMAL(38, 2)>, java: decimal(38, 2)>": [
        {"small": None if n == 3 else DECIMALS[n], "large": DIGITS[n], "java": DIGITS[n]} for n in range(ROWS)
    ],
    "list<decimal(38, 2)>": [DIGITS[: n % 4] for n in range(ROWS)],
    "bytes": [bytes([n]) * n for n in range(ROWS)],
    "array<long>": [LONGS[:n] for n in range(ROWS)],
    "list<string>": [TEXTS[:n] for n in range(ROWS)],
    "map<string, long>": [list(zip(TEXTS[:n], [*LONGS[: n - 1], None], strict=True)) if n else [] for n in range(ROWS)],
    "row<a: long, b: row<c: string, d: instant>>": [
        {"a": n, "b": None if n % 4 == 0 else {"c": TEXTS[n], "d": n}} for n in range(ROWS)
    ],
    "tuple<string, tuple<long, boolean>>": [{"f0": TEXTS[n], "f1": {"f0": n, "f1": True}} for n in range(ROWS)],
    "rowdata<k: BIGINT, v: VARCHAR(40), d: DECIMAL(10, 2)>": [{"k": n, "v": TEXTS[n], "d": None} for n in range(ROWS)],
    "rowdata<a: ARRAY<VARCHAR(40)>, b: ARRAY<BOOLEAN>, m: MAP<VARCHAR(40), BIGINT>, s: MULTISET<INT>, "
    "r: ROW<x: INT, y: VARCHAR(40)>, t: ARRAY<TIMESTAMP(9)>, d: ARRAY<DECIMAL(30, 2)>>": [
        {
            "a": None if n == 5 else [None if i == 3 else TEXTS[i] for i in range(n)],
            "b": [i % 3 == 0 for i in range(n)],
            "m": [(TEXTS[i], None if i == 2 else LONGS[i]) for i in range(n % 9)],
            "s": [(i, n) for i in range(n % 4)],
            "r": None if n % 5 == 0 else {"x": n, "y": TEXTS[n] * 3},
            "t": [10**18 + i for i in range(n % 5)],
            "d": [Decimal(f"{-i}{n}.07") * 10**15 for i in range(n % 3)],
        }
        for n in range(ROWS)
    ],
}


@dataclass(frozen=True)
class Made:
    """A savepoint to make of columns: ``max_parallelism``, ``parallelism`` and ``compressed`` are all that differ."""

    max_parallelism: int
    parallelism: int
    compressed: bool


SHAPES = [Made(128, 3, compressed=True), Made(1, 1, compressed=False), Made(32768, 7, compressed=True)]


def column(text: str, values: list[object]) -> pa.Array:
    wanted = codec_of(parse_type(text)).arrow_type
    if text in ("instant", "datetime", "time"):
        return pa.array(values, pa.int64()).cast(wanted)
    return pa.array(values, wanted)


def keyed_operators(shape: Made) -> list[tuple[KeyedOperator, dict[str, pa.Table]]]:
    """Return one operator for each type of key, with a state of every kind; the first also has a state for each type
    of value."""
    made = []
    for number, (text, values) in enumerate(KEYS.items()):
        key = column(text, values)
        lists, sums = [TEXTS[n : n + 3] for n in range(ROWS)], [{"f0": n, "f1": -n} for n in range(ROWS)]
        columns = {"user_key": pa.array(LONGS), "value": pa.array(TEXTS)}
        states = [
            (StateDescriptor("value", StateKind.VALUE, STRING), {"value": pa.array(TEXTS)}),
            (StateDescriptor("list", StateKind.LIST, STRING), {"value": pa.array(lists)}),
            (StateDescriptor("reduced", StateKind.REDUCING, LONG), {"value": pa.array(LONGS)}),
            (StateDescriptor("sum", StateKind.AGGREGATING, parse_type("tuple<long, long>")), {"value": pa.array(sums)}),
            (StateDescriptor("map", StateKind.MAP, STRING, LONG), columns),
        ]
        if number == 0:
            for i, (type_, of_type) in enumerate(VALUES.items()):
                descriptor = StateDescriptor(f"v{i}", StateKind.VALUE, parse_type(type_))
                states.append((descriptor, {"value": column(type_, of_type)}))
            moments = pa.array(range(ROWS)).cast(pa.timestamp("ms", "UTC"))
            states.append((timers_descriptor(EVENT_TIMERS, "user-timers"), {"timestamp": moments}))
        schema = KeyedStateSchema(parse_type(text), shape.max_parallelism, tuple(s for s, _ in states))
        rule = FieldsHash(("id", "name"), start=0) if "pojo" in text else None
        operator = KeyedOperator(f"uid-{number}", schema, shape.parallelism, rule)
        made.append((operator, {s.name: pa.table({"key": key, **columns}) for s, columns in states}))
    return made


OPERATOR_STATES = (
    StateToSee("split", "opList", "string"),
    StateToSee("union", "opUnion", "long"),
    StateToSee("rules", "broadcast", "string", "long"),
)


def contents() -> list[OperatorStateContent]:
    split = OperatorStateDescriptor("split", OperatorStateMode.SPLIT_DISTRIBUTE, STRING)
    union = OperatorStateDescriptor("union", OperatorStateMode.UNION, LONG)
    rules = OperatorStateDescriptor("rules", OperatorStateMode.BROADCAST, STRING, LONG)
    return [
        OperatorStateContent(split, pa.array(TEXTS)),
        OperatorStateContent(union, pa.array(LONGS)),
        OperatorStateContent(rules, pa.array(TEXTS), pa.array(LONGS)),
    ]


def write(shape: Made, target: Path) -> tuple[Path, tuple[OperatorToSee, ...]]:
    seen = []
    place = NewSavepoint(str(target), f"made-{shape.max_parallelism}", compressed=shape.compressed)
    with SavepointWriter(place) as writer:
        for operator, tables in keyed_operators(shape):
            writer.add(operator, tables)
            seen.append(operator_to_see(operator.uid, operator.schema))
        writer.add_operator_state("uid-operator", contents(), shape.parallelism, shape.max_parallelism)
        seen.append(OperatorToSee("uid-operator", None, OPERATOR_STATES))
        directory = writer.publish()
    return Path(directory.removeprefix("file://")), tuple(seen)


def named_lines(opened: Checkpoint, seen: tuple[OperatorToSee, ...], scratch: str) -> list[str]:
    """Return the lines that statelib reads, with uids in place of ids. Metadata of version 3 has only the ids."""
    lines = "\n".join([*export_lines(opened, None, scratch), *export_operator_lines(opened, None)])
    for operator, one in zip(opened.operators, seen, strict=True):
        lines = lines.replace(operator.operator_id.hex(), one.uid)
    return lines.splitlines()


def check(flink: Flink, tmp_path: Path, parallelisms: tuple[int, ...], shapes: list[Made]) -> None:
    cases, expected = [], []
    for shape in shapes:
        directory, seen = write(shape, tmp_path)
        lines = named_lines(open_checkpoint(str(directory)), seen, str(tmp_path))
        for backend in ("hashmap", "rocksdb"):
            for parallelism in parallelisms:
                if parallelism <= shape.max_parallelism:
                    cases.append(Case(directory, seen, backend, parallelism, shape.max_parallelism))
                    expected.append(comparable(lines))
    assert all(len(lines) > ROWS * 20 for lines in expected)
    for case, lines in zip(cases, expected, strict=True):
        # Each restore has a process of its own, because a cluster keeps much memory of a job of eleven operators and
        # 32,768 key groups.
        (restored,) = flink.restore([case])
        assert restored.error == ""
        assert comparable(restored.lines) == lines, (case.backend, case.parallelism)


@large("make test has the same with Flink 2")
def test_savepoints_made_of_columns_are_restored_by_flink_1(tmp_path: Path, flink_1: Flink) -> None:
    check(flink_1, tmp_path, (2,), SHAPES[:1])


def test_savepoints_made_of_columns_are_restored_by_flink_2(tmp_path: Path, flink_2: Flink) -> None:
    """Decimals, of Java and of SQL, are among them."""
    check(flink_2, tmp_path, (2,), SHAPES[:1])


@large("make test has a selection of the set")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_savepoints_made_of_columns_are_restored_by_flink_in_every_shape(tmp_path: Path, version: str) -> None:
    try:
        check(flink(version), tmp_path, (1, 2, 4), SHAPES)
    except NoFlink as reason:
        pytest.skip(str(reason))
