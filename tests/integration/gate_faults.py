# ruff: noqa: E501 (a table: one fault per line)
"""Ways to damage a checkpoint, and the expected results of the gate: the table of docs/gate.md."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata, DataInterval, SnapshotKind
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import BeginRequest
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.uris import local_path
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

RATINGS = """\
name: ratings
source: {path: "{data}/{start}-{end}", columns: {guest: string, stars: double, price: double, text: string}}
key: [guest]
states:
  guests:
    kind: value
    fields:
      visits: {agg: count}
      best: {agg: max, of: stars}
      cheapest: {agg: min, of: price}
  texts: {kind: reducing, value: {agg: max, of: text}}
backend: heap
parallelism: 2
max_parallelism: 8
checkpoint: {inline_threshold_bytes: 1}
checks:
  drift:
    entries: {most: 20%, severity: warn}
    size_bytes: {most: 60%, severity: warn}
    null_rate: {guests.best: {most: 5%, severity: quarantine}}
    distribution: {guests.best: {psi: 0.25, severity: quarantine}}
  expectations:
    - {state: guests, expect: column_values_to_be_between, column: cheapest, min_value: 0, severity: quarantine}
    - {state: guests, expect: column_mean_to_be_between, column: visits, min_value: 1, max_value: 50}
  rehearse_every: 4
"""
GUESTS = 200
NAME = PipelineName("ratings")
FOURTH = CheckpointId(4)


def visits(names: Sequence[str], *, best: float | None = 1.0, price: float = 5.0, words: int = 1) -> pa.Table:
    """Return one event per guest. The stars of a guest follow from the name, so that they are distributed the same
    way every day."""
    stars = [None if best is None else best * (sum(name.encode()) % 17) for name in names]
    types = {"stars": pa.float64(), "price": pa.float64()}
    columns = {
        "guest": list(names),
        "stars": stars,
        "price": [price] * len(names),
        "text": [_text(name, words) for name in names],
    }
    return pa.table({name: pa.array(values, types.get(name, pa.string())) for name, values in columns.items()})


def _text(name: str, words: int) -> str:
    """Return a text that cannot be compressed; more words give the greater text."""
    return f"{words}{''.join(sha256(f'{name} {n}'.encode()).hexdigest() for n in range(words))}"


def regulars(first: int = 0, last: int = GUESTS) -> list[str]:
    return [f"guest-{number:04d}" for number in range(first, last)]


def three_days(root: Path, text: str = RATINGS) -> Deployment:
    """Return a deployment whose pipeline has three checkpoints, with every guest once per day."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "ratings.yaml").write_text(text)
    deployment = new_deployment(root, root, pipelines)
    for number in (1, 2, 3):
        checkpoint_of(deployment, NAME, number, visits(regulars()))
    return deployment


def fourth_day(
    deployment: Deployment, events: pa.Table | None = None, interval: DataInterval | None = None
) -> CheckpointId:
    """Take the snapshot of a fourth day, which is not judged yet. Another ``interval`` is begun without the flow
    that would refuse it, as a coordinator with a bug would."""
    pipeline = deployment.pipeline(NAME)
    if interval is None:
        number = begin(deployment, pipeline, day(4), "test").checkpoint_id
    else:
        request = BeginRequest(NAME, SnapshotKind.CHECKPOINT, interval, "canonical", 2, "test", "odd")
        storage = deployment.storage(pipeline)
        number = (
            deployment.catalog()
            .begin(request, lambda results: storage.initialize_location(results).directory)
            .checkpoint_id
        )
    publish_here(deployment, pipeline, number, visits(regulars()) if events is None else events)
    return number


Spoil = Callable[[Deployment], None]


@dataclass(frozen=True)
class Fault:
    """A fault and its expected result. ``spoil`` makes the fourth checkpoint with the fault; ``check``: group and
    name of the only check that must fail, None if all must pass; ``severity``: the consequence."""

    name: str
    spoil: Spoil
    group: str | None
    check: str
    severity: str


def _directory(deployment: Deployment) -> Path:
    return Path(local_path(deployment.catalog().get(NAME, FOURTH).directory))


def _data_file(deployment: Deployment) -> Path:
    return min(path for path in _directory(deployment).iterdir() if path.name != "_metadata")


def _whole(deployment: Deployment) -> None:
    fourth_day(deployment)


def _missing(deployment: Deployment) -> None:
    fourth_day(deployment)
    _data_file(deployment).unlink()


def _truncated(deployment: Deployment) -> None:
    fourth_day(deployment)
    file = _data_file(deployment)
    file.write_bytes(file.read_bytes()[:-1])


def _flipped(deployment: Deployment) -> None:
    fourth_day(deployment)
    file = _data_file(deployment)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


Forge = Callable[[CheckpointMetadata, CheckpointManifest], tuple[CheckpointMetadata, CheckpointManifest]]


def _forged(forge: Forge) -> Spoil:
    """Make a checkpoint whose ``_metadata`` has other content, with all of its own checksums right."""

    def spoil(deployment: Deployment) -> None:
        fourth_day(deployment)
        directory = _directory(deployment)
        opened = open_checkpoint(str(directory), own=True)
        assert opened.manifest is not None
        metadata, manifest = forge(opened.metadata, opened.manifest)
        file = directory / "_metadata"
        file.unlink()
        file.write_bytes(append_manifest(encode_metadata(metadata), manifest))

    return spoil


def _recount(
    metadata: CheckpointMetadata, manifest: CheckpointManifest
) -> tuple[CheckpointMetadata, CheckpointManifest]:
    first, *rest = manifest.statistics
    entries = first.entries.copy()
    entries[3] += np.int64(1)
    return metadata, replace(manifest, statistics=(replace(first, entries=entries), *rest))


def _lose_event(
    metadata: CheckpointMetadata, manifest: CheckpointManifest
) -> tuple[CheckpointMetadata, CheckpointManifest]:
    return metadata, replace(manifest, events=replace(manifest.events, read=manifest.events.read + 1))


def _other_epoch(
    metadata: CheckpointMetadata, manifest: CheckpointManifest
) -> tuple[CheckpointMetadata, CheckpointManifest]:
    return metadata, replace(manifest, epoch=Epoch(manifest.epoch - 1))


def _move_first_group(by: int) -> Forge:
    """Let the second subtask's handle begin one key group later (+1: no handle has it), or earlier (-1: two have
    it)."""

    def forge(
        metadata: CheckpointMetadata, manifest: CheckpointManifest
    ) -> tuple[CheckpointMetadata, CheckpointManifest]:
        (operator,) = metadata.operators
        first, (number, state) = operator.subtasks
        handle = state.keyed
        assert isinstance(handle, KeyGroupsSavepointStateHandle)
        held = KeyGroupRange(handle.key_group_range.start + by, handle.key_group_range.end)
        offsets = handle.offsets[by:] if by > 0 else (0, *handle.offsets)
        moved = replace(state, keyed=replace(handle, key_group_range=held, offsets=offsets))
        return replace(metadata, operators=(replace(operator, subtasks=(first, (number, moved))),)), manifest

    return forge


def _cut_operator_state(
    metadata: CheckpointMetadata, manifest: CheckpointManifest
) -> tuple[CheckpointMetadata, CheckpointManifest]:
    """Let the stream of the operator state end in the middle of its header. It is inline, so no checksum of a file
    shows it."""
    (operator,) = metadata.operators
    (number, state), *rest = operator.subtasks
    assert state.operator is not None
    stream = state.operator.stream
    assert isinstance(stream, ByteStreamStateHandle)
    cut = replace(state, operator=replace(state.operator, stream=replace(stream, data=stream.data[:20])))
    return replace(metadata, operators=(replace(operator, subtasks=((number, cut), *rest)),)), manifest


def _with_events(make: Callable[[], pa.Table]) -> Spoil:
    return lambda deployment: void(fourth_day(deployment, make()))


def _with_interval(interval: DataInterval) -> Spoil:
    return lambda deployment: void(fourth_day(deployment, interval=interval))


def void(_: object) -> None:
    """Return nothing, whatever the argument: faults are functions without a result."""


def _and(*parts: pa.Table) -> pa.Table:
    return pa.concat_tables([visits(regulars(len(parts[0]), GUESTS)), *parts])


def _more_guests() -> pa.Table:
    return visits(regulars(0, GUESTS * 13 // 10))


HALF_DAY_MS = 43_200_000
RANGE = "column_values_to_be_between(column=cheapest, min_value=0)"
FAULTS = (
    Fault("nothing: the checkpoint is whole", _whole, None, "", ""),
    Fault("a file is missing", _missing, "files", "every file is there", "FAIL"),
    Fault("a file is truncated", _truncated, "files", "every file has its size", "FAIL"),
    Fault("a byte of a file is flipped", _flipped, "files", "every file has its checksum", "FAIL"),
    Fault("a count is wrong", _forged(_recount), "contents", "the entries of every state and key group are read back as recorded", "FAIL"),
    Fault("a key group is lost", _forged(_move_first_group(1)), "key_groups", "every key group is covered by exactly one handle", "FAIL"),
    Fault("a key group is there twice", _forged(_move_first_group(-1)), "key_groups", "every key group is covered by exactly one handle", "FAIL"),
    Fault("an event is lost", _forged(_lose_event), "counters", "every counter is as expected", "FAIL"),
    Fault("another coordinator's `_metadata`", _forged(_other_epoch), "identity", "_metadata belongs to this checkpoint of the catalog", "FAIL"),
    Fault("an interval is lost", _with_interval(day(5)), "lost_intervals", "no interval is lost: this one begins where the base's ends", "FAIL"),
    Fault("an interval is applied twice", _with_interval(DataInterval(day(4).start_ms - HALF_DAY_MS, day(4).end_ms)), "doubled_intervals", "no interval is applied twice: this one shares nothing with those of the history", "FAIL"),
    Fault("it does not restore", _forged(_cut_operator_state), "rehearsal", "every subtask restores its part, and reads what was recorded", "FAIL"),
    Fault("30% more keys", _with_events(_more_guests), "drift_entries_warn", "the entries of every state went on as before", "WARN"),
    Fault("three times the bytes", _with_events(lambda: visits(regulars(), words=4)), "drift_size_bytes_warn", "the size went on as before", "WARN"),
    Fault("a column is null more often", _with_events(lambda: pa.concat_tables([visits(regulars()), visits(regulars(GUESTS, GUESTS + 30), best=None)])), "drift_null_rate_quarantine", "columns are null as often as before", "QUARANTINE"),
    Fault("a column has other values", _with_events(lambda: visits(regulars(), best=9.0)), "drift_distribution_quarantine", "columns are distributed as before", "QUARANTINE"),
    Fault("an expectation of the user's fails", _with_events(lambda: _and(visits(regulars(0, 3), price=-1.0))), "state_guests", RANGE, "QUARANTINE"),
)  # fmt: skip
