"""A user function whose subtasks learn a model, the set of shops with events, and store it as side data."""

import json

import pyarrow as pa

from statelib.backends.operator.state import OperatorStateBackend
from statelib.functions.user_code.hooks import SnapshotContext

MODEL_BYTES = 30_000
"""The size of a model: too large for ``_metadata``."""


def model_of(shops: set[str]) -> bytes:
    return json.dumps(sorted(shops)).ljust(MODEL_BYTES).encode()


def shops_of(model: bytes) -> set[str]:
    return set(json.loads(model))


def initialize_state(context: SnapshotContext, operator: OperatorStateBackend) -> None:
    """Merge the models that rescaling brought together."""
    models = operator.side_data("model").read_all()
    assert context.restored or not models
    if len(models) > 1 and context.parallelism == 1:
        operator.side_data("model").write(model_of(set[str]().union(*map(shops_of, models))))


def update(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    """Record per shop whether any model contained it before, and add the shops to the model."""
    model, days = operator.side_data("model"), operator.side_data("days")
    seen = set[str]().union(*map(shops_of, model.read_all()))
    shops = state["shop"].to_pylist()
    model.write(model_of(seen | set(shops)))
    days.write(str(sum(map(int, days.read_all())) + 1).encode())
    return pa.table({"shop": state["shop"], "seen_before": [shop in seen for shop in shops]})


def forget(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    """Delete the model."""
    assert operator.side_data("model").exists()
    operator.side_data("model").delete()
    assert not operator.side_data("model").exists()
    return pa.table({"shop": state["shop"], "seen_before": [None] * len(state)}, schema=state.schema)


def misspell(events: pa.Table, state: pa.Table, operator: OperatorStateBackend) -> pa.Table:
    operator.side_data("models").read()
    return state
