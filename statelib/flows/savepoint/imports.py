"""Begin an import: the first state of a pipeline comes from another system, as a savepoint without a base."""

from hashlib import sha256

from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, UnsupportedError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.checkpoint.steps import Begun
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.choices import Strategy
from statelib.model.record import BeginRequest, CheckpointState
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import VOID, Row

IMPORTABLE = (StateKind.VALUE, StateKind.LIST, StateKind.MAP, StateKind.REDUCING, StateKind.AGGREGATING)


def begin_import(deployment: Deployment, pipeline: Pipeline, source: str, owner: str) -> Begun:
    """Allocate the savepoint for the state of ``source``, a text with all that decides what it is. A repeated import of
    the same source returns the same savepoint.

    Raises ConflictError: ``has-state`` if the pipeline has state, because an import is not merged into it, and
    ``catalog-behind-storage`` if it has state that the catalog does not have."""
    catalog, name = deployment.catalog(), pipeline.name
    check_catalog_complete(deployment, name)
    head = catalog.head(name)
    if head.head is not None:
        raise ConflictError(
            f"pipeline {name} has state already, in checkpoint {head.head}: expected a pipeline without state",
            kind="has-state",
            hint="import into a pipeline of another name",
        )
    request = BeginRequest(
        pipeline=name,
        kind=SnapshotKind.SAVEPOINT,
        interval=None,
        strategy=Strategy.CANONICAL,
        parallelism=pipeline.parallelism,
        owner=owner,
        key=f"import:{sha256(source.encode()).hexdigest()}",
        note=f"imported from {source}",
        timeout_ms=pipeline.checkpoint.timeout_s * 1000,
        decided_at=head,
    )
    storage = deployment.storage(pipeline)
    record = catalog.begin(request, lambda number: storage.initialize_savepoint_location(number, None).directory)
    return Begun(record.checkpoint_id, record.state is CheckpointState.COMPLETED)


def importable(pipeline: Pipeline, state: str) -> StateDescriptor:
    """Return the state of this name. Raises InvalidRequestError (``unknown-state``), UnsupportedError (``no-import``)
    if it has windows, timers or a time to live, which entries from another system do not contain."""
    descriptor = pipeline.schema().state(state)
    if descriptor.kind not in IMPORTABLE or descriptor.namespace_type != VOID or state in pipeline.ttl():
        raise UnsupportedError(
            f"{pipeline.name}: state {state!r} has windows, timers or a time to live, which entries from another system"
            " do not contain",
            kind="no-import",
            hint="import into a state without them, and fill this one from events",
        )
    return descriptor


def value_fields(descriptor: StateDescriptor) -> tuple[str, ...]:
    """Return the fields of an entry's value that can be filled one by one; empty if the value is filled as a whole."""
    if isinstance(descriptor.value_type, Row) and descriptor.kind is not StateKind.LIST:
        return tuple(part.name for part in descriptor.value_type.fields)
    return ()
