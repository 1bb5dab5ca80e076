import sys
from decimal import Decimal
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun

MODULE = "statelib_test_user_functions"


@pytest.fixture
def local(monkeypatch):
    """Return a run with the given user function."""

    def make(function, key="k", number="long") -> LocalRun:
        module = ModuleType(MODULE)
        module.__dict__["update"] = function
        monkeypatch.setitem(sys.modules, MODULE, module)
        state = {"kind": "value", "fields": {"n": number, "who": "string"}, "function": f"{MODULE}:update"}
        source = {"path": "{start}-{end}", "columns": {"k": "string", "n": "long"}}
        return LocalRun(
            Pipeline.model_validate(
                {"name": "p", "source": source, "key": key, "states": {"s": state}, "backend": "heap"}
            )
        )

    return make


def events(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "n": pa.array([n for _, n in rows], pa.int64())})


def add(batch: pa.Table, state: pa.Table) -> pa.Table:
    sums = batch.group_by("k").aggregate([("n", "sum")])
    joined = state.join(sums, "k")
    total = pc.add(pc.fill_null(joined["n"], 0), joined["n_sum"])
    return pa.table({"who": joined["k"], "n": total, "k": joined["k"]})


def test_a_function_sees_its_state_and_changes_it(local):
    seen = []

    def update(batch, state):
        seen.append((batch.to_pydict(), state.to_pydict()))
        return add(batch, state)

    run = local(update)
    run.apply(events(("b", 1), ("a", 2), ("b", 3)))
    run.apply(events(("c", 5), ("a", 7)))
    assert run.state("s") == {"a": {"n": 9, "who": "a"}, "b": {"n": 4, "who": "b"}, "c": {"n": 5, "who": "c"}}
    assert seen[0] == (
        {"k": ["b", "a", "b"], "n": [1, 2, 3]},
        {"k": ["b", "a"], "n": [None, None], "who": [None, None]},
    )
    assert seen[1][1] == {"k": ["c", "a"], "n": [None, 2], "who": [None, "a"]}


def test_a_row_of_nulls_deletes_and_a_missing_row_keeps_the_state(local):
    run = local(add)
    run.apply(events(("a", 1), ("b", 2), ("c", 3)))

    def forget_a(_batch, _state):
        none = pa.array([None, None, None])
        return pa.table({"k": ["a", "new", "c"], "n": none.cast(pa.int64()), "who": pa.array([None, None, "still"])})

    sys.modules[MODULE].__dict__["update"] = forget_a
    run.apply(events(("b", 1), ("a", 1), ("new", 1), ("c", 1)))
    assert run.state("s") == {"b": {"n": 2, "who": "b"}, "c": {"n": None, "who": "still"}}


def test_a_function_may_return_no_rows(local):
    run = local(lambda _batch, state: state.slice(0, 0))
    run.apply(events(("a", 1)))
    assert run.state("s") == {}


def test_a_decimal_of_a_function_becomes_the_nearest_double(local):
    prices = pa.array([Decimal("0.35"), Decimal("0.41")])
    run = local(lambda _, state: state.set_column(1, "n", prices), number="double")
    run.apply(events(("a", 1), ("b", 1)))
    assert [run.state("s")[key]["n"] for key in "ab"] == [0.35, 0.41]


def test_a_function_is_not_called_without_events(local):
    run = local(lambda _batch, _state: pytest.fail("called"))
    run.apply(events(("a", 1)).slice(0, 0))


def test_a_key_of_several_columns_is_passed_to_the_function(local):
    def update(batch, state):
        assert state.column_names == ["n2", "k", "n", "who"]
        return state.set_column(3, "who", state["k"])

    source = {"path": "{start}-{end}", "columns": {"k": "string", "n2": "long"}}
    run = local(update)
    state = run.pipeline.model_dump()["states"]
    run = LocalRun(
        Pipeline.model_validate({"name": "p", "source": source, "key": ["n2", "k"], "states": state, "backend": "heap"})
    )
    run.apply(pa.table({"k": ["a", "b", "a"], "n2": [1, 1, 1]}))
    assert run.state("s") == {(1, "a"): {"n": None, "who": "a"}, (1, "b"): {"n": None, "who": "b"}}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "expected a pyarrow.Table, found NoneType"),
        ({"k": ["a"], "n": [1]}, r"expected the columns \['k', 'n', 'who'\], found \['k', 'n'\]"),
        ({"k": ["a"], "n": ["many"], "who": ["x"]}, "expected the types .*n: int64.*found .*n: string"),
        ({"k": ["a"], "n": [1.5], "who": ["x"]}, "expected the types"),
        ({"k": ["a", "z"], "n": [1, 1], "who": ["x", "x"]}, "key k='z' is not among the 2 keys"),
        ({"k": ["b", "a", "b"], "n": [1, 1, 1], "who": ["x"] * 3}, "key k='b' is there 2 times, expected once"),
        ({"k": pa.array([None], pa.string()), "n": [1], "who": ["x"]}, "key column k is null in 1 row"),
    ],
)
def test_a_bad_result_is_refused(local, result, message):
    run = local(lambda _batch, _state: None if result is None else pa.table(result))
    with pytest.raises(
        InvalidRequestError, match=f"result of function {MODULE}:update for state s: {message}"
    ) as caught:
        run.apply(events(("a", 1), ("b", 1)))
    assert caught.value.kind == "bad-function-result"
    assert run.state("s") == {}


def test_an_error_of_the_function_is_raised_with_a_note(local):
    run = local(lambda batch, _state: batch["missing"])
    with pytest.raises(KeyError) as caught:
        run.apply(events(("a", 1)))
    assert caught.value.__notes__ == [f"in function {MODULE}:update of state s"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([("citi", pa.string())], "column at: expected the fields of list.*city: string.*found list.*citi: string"),
        ([("city", pa.string()), ("zip", pa.int64()), ("code", pa.int64())], "column at: expected the fields of"),
        ([("zip", pa.int32()), ("city", pa.string())], None),
    ],
)
def test_a_field_of_a_row_that_is_not_declared_is_refused(local, fields, message):
    rows = pa.array([[dict.fromkeys((name for name, _ in fields))]], pa.list_(pa.struct(fields)))
    run = local(lambda _events, state: pa.table({"k": state["k"], "at": rows}))
    fields_of_state = {"at": "list<row<city: string, zip: long>>"}
    states = {"s": {"kind": "value", "fields": fields_of_state, "function": f"{MODULE}:update"}}
    document = run.pipeline.model_dump(exclude_unset=True) | {"states": states}
    run = LocalRun(Pipeline.model_validate(document))
    if message is None:
        run.apply(events(("a", 1)))
        assert run.state("s") == {"a": {"at": [{"city": None, "zip": None}]}}
        return
    with pytest.raises(InvalidRequestError, match=message) as caught:
        run.apply(events(("a", 1)))
    assert caught.value.kind == "bad-function-result"
