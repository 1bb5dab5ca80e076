"""Hooks of a pipeline in a test of its own, and files that name them wrongly."""

import sys
from types import ModuleType

import pyarrow as pa
import pytest
from pydantic import ValidationError

from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.functions.user_code.hooks import SnapshotContext
from statelib.testing.local_run import LocalRun

MODULE = "statelib_test_hooks"


def pipeline(**hooks: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "source": {"path": "{start}-{end}", "columns": {"k": "string"}},
            "key": "k",
            "states": {"s": {"kind": "value", "fields": {"n": {"agg": "count"}}}},
            "operator_states": {"calls": {"mode": "list", "element": "string"}},
            "hooks": hooks,
            "backend": "heap",
        }
    )


def test_a_local_run_calls_the_hooks_like_a_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialize(context: SnapshotContext, operator: OperatorStateBackend) -> None:
        operator.list_state("calls").add(f"initialize {context.restored}")

    def snapshot(context: SnapshotContext, operator: OperatorStateBackend) -> None:
        operator.list_state("calls").add(f"snapshot {context.checkpoint_id} at {context.watermark_ms}")

    module = ModuleType(MODULE)
    module.initialize, module.snapshot = initialize, snapshot  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    run = LocalRun(pipeline(initialize_state=f"{MODULE}:initialize", snapshot_state=f"{MODULE}:snapshot"))
    run.apply(pa.table({"k": ["a"]}), 10)
    run.apply(pa.table({"k": pa.array([], pa.string())}), 20)
    assert run.operator.list_state("calls").get() == ["initialize False", "snapshot 1 at 9", "snapshot 2 at 19"]


def test_hooks_are_named_like_functions() -> None:
    with pytest.raises(ValidationError, match=r"hooks.snapshot_state: expected package.module:name, found 'here'"):
        pipeline(snapshot_state="here")
    with pytest.raises(ValidationError, match="there are no 'hooks'"):
        pipeline()
    with pytest.raises(ValidationError, match="snapshot_stat"):
        pipeline(snapshot_stat="m:f")
