"""User functions that use operator state: the example of the README, and errors."""

import sys
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.testing.local_run import LocalRun

MODULE = "statelib_test_operator_functions"


def update(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    operator.list_state("seen_files").add_all(pc.unique(events["file"]).to_pylist())
    limit = operator.broadcast_state("rules").get("limit", 100.0)
    return pa.table({"k": state["k"], "limit": [limit] * len(state)})


def run_with(function: object, monkeypatch: pytest.MonkeyPatch) -> LocalRun:
    module = ModuleType(MODULE)
    module.__dict__["update"] = function
    monkeypatch.setitem(sys.modules, MODULE, module)
    return LocalRun(
        Pipeline.model_validate(
            {
                "name": "p",
                "source": {"path": "{start}-{end}", "columns": {"k": "string", "file": "string"}},
                "key": "k",
                "states": {"s": {"kind": "value", "fields": {"limit": "double"}, "function": f"{MODULE}:update"}},
                "operator_states": {
                    "rules": {"mode": "broadcast", "key": "string", "value": "double"},
                    "seen_files": {"mode": "list", "element": "string"},
                },
                "backend": "heap",
            }
        )
    )


EVENTS = pa.table({"k": ["a", "b", "a"], "file": ["f1", "f1", "f2"]})


def test_a_function_reads_and_changes_operator_state(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(update, monkeypatch)
    run.apply(EVENTS)
    assert run.state("s") == {"a": {"limit": 100.0}, "b": {"limit": 100.0}}
    run.operator.broadcast_state("rules").put("limit", 7.0)
    run.apply(EVENTS.slice(0, 1))
    assert run.state("s") == {"a": {"limit": 7.0}, "b": {"limit": 100.0}}
    assert run.operator.list_state("seen_files").get() == ["f1", "f2", "f1"]


def test_a_function_of_two_tables_is_called_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(events: pa.Table, state: pa.Table) -> pa.Table:
        return pa.table({"k": state["k"], "limit": [1.0] * len(state)})

    run = run_with(plain, monkeypatch)
    run.apply(EVENTS)
    assert run.state("s") == {"a": {"limit": 1.0}, "b": {"limit": 1.0}}


def test_a_state_that_is_not_declared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
        operator.list_state("rules").add("x")
        return state

    with pytest.raises(InvalidRequestError, match="'rules': expected a list state, it is registered as broadcast"):
        run_with(wrong, monkeypatch).apply(EVENTS)


def test_broadcast_state_behaves_like_a_dict() -> None:
    state = run_broadcast()
    state.put("a", 1.0)
    state.put("b", 2.0)
    state.put("a", 3.0)
    assert (len(state), list(state), "a" in state, "c" in state) == (2, ["a", "b"], True, False)
    state.remove("a")
    state.remove("a")
    assert state.items() == [("b", 2.0)]
    state.clear()
    assert (state.get("b"), state.get("b", 0.0), len(state)) == (None, 0.0, 0)


def run_broadcast():
    pipeline = {"rules": {"mode": "broadcast", "key": "string", "value": "double"}}
    made = Pipeline.model_validate(
        {
            "name": "p",
            "source": {"path": "{start}-{end}", "columns": {"k": "string"}},
            "key": "k",
            "states": {"s": {"kind": "value", "fields": {"n": "long"}, "function": "m:f"}},
            "operator_states": pipeline,
            "backend": "heap",
        }
    )
    return OperatorStateBackend(made.operator_descriptors()).broadcast_state("rules")
