"""Every type that validation accepts can be written, restored and exported; every other one is refused by name."""

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from statelib.definition.parts.types import ARRAY_ELEMENTS, type_of, undeclarable
from statelib.definition.pipeline import Pipeline
from statelib.errors import UnsupportedError
from statelib.flows.views.inspection import resolve
from statelib.formats.keyed.header import MetaInfo, MetaKind, write_meta_info
from statelib.model.types import JAVA_SCALARS, SCALARS, WINDOWS
from statelib.savepoints.lines import export_lines
from statelib.savepoints.verification.snapshots import verify
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import WORDS, parse_type
from statelib.wire.writer import Writer
from tests.support.worlds import checkpoint_of, new_deployment

pytestmark = pytest.mark.slow

MODULE = "statelib_test_declared_types"
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)
SPECIAL: dict[str, Any] = {"enum<a.B; X, Y>": "Y", "char": 65, "bigint": "-12", "bigdecimal": "1.50"}
PARTS = ("row<a: int>", *(name for name in (*SCALARS, *JAVA_SCALARS) if name != "void"))
GOOD = (
    *(name for name in (*SCALARS, *JAVA_SCALARS) if name != "void"),
    *(f"array<{element}>" for element in ARRAY_ELEMENTS),
    *(f"list<{part}>" for part in PARTS),
    *(f"set<{part}>" for part in ("string", "row<a: int>")),
    *(f"map<string, {part}>" for part in ("double", "list<row<a: int>>")),
    *(f"tuple<int, {part}>" for part in ("string", "row<a: int>")),
    "row<a: int, b: list<string>, c: row<d: double>>",
    "objects<java.lang.Long; long>", "objects<a.B; row<a: int>>",
    "nullable<long>", "nullable<long; 8>", "nullable<row<a: int>>",
    "either<int, row<a: string>>",
    "decimal(38, 10)", "decimal(5)", "list<decimal(18, 2)>", "sql<DECIMAL(18, 2)>", "row<a: sql<DECIMAL(30, 2)>>",
    "enum<a.B; X, Y>",
    "pojo<a.B; x: int>", "pojo<a.B; x: row<a: int>; +pojo<a.C; x: row<a: int>, y: int>>",
)  # fmt: skip
FORMS = (
    "opaque<a.S>", "opaque<a.S; a.B>", "like<a.S; long>", "oneof<1: long, 2: string>", "option<long>", "stringvalue",
    "sql<INT>", "sql<BINARY(2)>", "rowdata<a: INT>",
)  # fmt: skip
BAD = (
    *FORMS, *(f"row<a: {form}>" for form in FORMS), *(f"map<string, list<{form}>>" for form in FORMS),
    *WINDOWS, "list<timewindow>", "void", "list<void>", "ttl<long>", "list<ttl<long>>",
    "array<byte>", "array<date>", "array<void>", f"tuple<{', '.join(['int'] * 26)}>", "row<a: int, a: int>",
)  # fmt: skip


def pipeline(text: str) -> dict[str, Any]:
    state = {"kind": "value", "fields": {"f": text}, "function": f"{MODULE}:update"}
    source = {"path": "{data}/{start:%Y-%m-%d}", "columns": {"k": "string"}}
    return {"name": "p", "source": source, "key": "k", "states": {"s": state}, "backend": "heap"}


def sample(type_: pa.DataType) -> Any:
    """Return a value of an Arrow type."""
    if pa.types.is_struct(type_):
        return {field.name: sample(field.type) for field in type_}
    if pa.types.is_map(type_):
        return [(sample(type_.key_type), sample(type_.item_type))]
    if pa.types.is_list(type_):
        return [sample(type_.value_type)] * 2
    if pa.types.is_temporal(type_):
        return (
            pa.scalar(-500 if pa.types.is_timestamp(type_) else 7, pa.int64())
            .cast(pa.int32() if pa.types.is_date32(type_) else pa.int64())
            .cast(type_)
        )
    whole = {"string": "12", "binary": b"\0", "bool": True}
    return whole.get(str(type_), 7)


def value_of(text: str) -> pa.Array:
    type_ = codec_of(type_of(text)).arrow_type
    result = SPECIAL.get(text, sample(type_))
    if text.startswith("either"):
        result["left"] = None
    return pa.array([result], type_)


def test_the_lists_name_every_type() -> None:
    named = {re.split("[<(]", text)[0] for text in (*GOOD, *BAD)}
    assert named == set(WORDS)


@pytest.mark.parametrize("text", GOOD)
def test_every_accepted_type_is_written_restored_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    value = value_of(text)
    module = ModuleType(MODULE)
    module.update = lambda events, state: pa.table({"k": state["k"], "f": value})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    (tmp_path / "pipelines").mkdir()
    Path(tmp_path, "pipelines", "p.yaml").write_text(json.dumps(pipeline(text)))
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    checkpoint_of(deployment, "p", 1, pa.table({"k": ["a"]}))
    checkpoint_of(deployment, "p", 2, pa.table({"k": pa.array([], pa.string())}))
    opened = resolve(deployment, "p/2")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    assert opened.to_arrow("s")["value"].combine_chunks().field(0).equals(value)
    (line,) = export_lines(opened, None)
    assert json.loads(line)["value"]


@pytest.mark.parametrize("text", BAD)
def test_a_type_that_cannot_be_written_is_refused_by_validation(text: str) -> None:
    with pytest.raises(ValidationError, match="type ") as caught:
        Pipeline.model_validate(pipeline(text))
    assert "states.s.fields.f" in str(caught.value)


@pytest.mark.parametrize("text", FORMS[:5])
def test_a_snapshot_names_the_state_whose_type_it_cannot_write(text: str) -> None:
    kind = parse_type(text)
    assert undeclarable(kind)
    with pytest.raises(UnsupportedError, match="state 'mine'"):
        write_meta_info(Writer(), MetaInfo("mine", MetaKind.KEY_VALUE, {}, {"VALUE_SERIALIZER": kind}))
