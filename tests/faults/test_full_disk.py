"""A disk that is full, and files that may not grow: the run fails with a clear error, completed checkpoints stay
complete, its files are collected, and with room again the next run succeeds."""

import os
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import StatelibError
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.savepoints.verification.snapshots import verify
from statelib.testing.faulty_streams import Hook, undisturbed
from tests.faults.endured_flow import TOURS, FaultyDeployment, check_nothing_else, opened_checkpoints, sweep
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import day, publish_here

NAME = PipelineName("tours")
STEP_BYTES = 12 * 1024
STEPS = range(1, 41, rounds(6, 1))
SIZE_BYTES = 64 * 1024 * 1024
WAYS = [
    ("heap", "canonical"),
    ("heap", "full"),
    ("rocksdb", "full"),
    ("rocksdb", "incremental"),
    ("rocksdb", "changelog"),
]
SHOPS = 4000
AT_EASE = nullcontext(undisturbed)
Room = Callable[[int], AbstractContextManager[Hook]]


def events(number: int) -> pa.Table:
    """Return one event per shop, so that a checkpoint has some hundred KiB."""
    numbers = range(SHOPS)
    return pa.table(
        {
            "shop": [f"shop-{n}" for n in numbers],
            "item": [f"item-{(n + number) % 7}" for n in numbers],
            "amount": pa.array([n + number for n in numbers], pa.int64()),
        }
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of its own, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "statelib-test", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def on(place: Path, backend: str, strategy: str) -> FaultyDeployment:
    (place / "pipelines").mkdir()
    text = TOURS.format(backend=backend, strategy=strategy, local="false")
    (place / "pipelines" / "tours.yaml").write_text(text)
    return FaultyDeployment.at(place)


def attempt(deployment: FaultyDeployment, number: int, while_writing: AbstractContextManager[Hook] = AT_EASE) -> None:
    pipeline = deployment.pipeline("tours")
    begun = begin(deployment, pipeline, day(number), "test")
    if not begun.already_completed:
        with while_writing as hook:
            publish_here(replace(deployment, hook=hook), pipeline, begun.checkpoint_id, events(number))
        register(deployment, pipeline, begun.checkpoint_id)


@contextmanager
def filled(disk: Path, free_bytes: int) -> Iterator[Hook]:
    """Fill the disk so that so much space is left."""
    status, ballast = os.statvfs(disk), disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - free_bytes)
    try:
        yield undisturbed
    finally:
        ballast.unlink()


@contextmanager
def limited(size_bytes: int) -> Iterator[Hook]:
    """Limit the size of the files of this process when a subtask begins to write to storage. A write beyond the limit
    ends in the middle with EFBIG, and its beginning stays. The catalog is larger already."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def hook(_operation: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))

    try:
        yield hook
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_a_full_disk_loses_no_checkpoint(disk: Path, backend: str, strategy: str) -> None:
    """Storage, scratch and catalog are on one disk that has room for so many KiB more."""
    deployment = on(disk, backend, strategy)
    endured(deployment, lambda size_bytes: filled(disk, size_bytes), lambda _: AT_EASE)
    record("G1", "runs on a full disk", len(STEPS))


@pytest.mark.parametrize(("backend", "strategy"), WAYS)
def test_a_limit_for_file_sizes_loses_no_checkpoint(tmp_path: Path, backend: str, strategy: str) -> None:
    """The limit begins after the checkpoint has begun, because the catalog is larger than the written files."""
    endured(on(tmp_path, backend, strategy), lambda _: AT_EASE, limited)
    record("G1", "runs whose files may not grow", len(STEPS))


def endured(deployment: FaultyDeployment, around: Room, while_writing: Room) -> None:
    attempt(deployment, 1)
    kinds: Counter[str] = Counter()
    days = 1
    for step in STEPS:
        before = completed(deployment)
        try:
            with around(step * STEP_BYTES):
                attempt(deployment, days + 1, while_writing(step * STEP_BYTES))
        except StatelibError as error:
            kinds[error.kind if error.hint else f"no hint: {error}"] += 1
        done = completed(deployment)
        assert done[: len(before)] == before
        assert len(done) == len(before) + (days + 1 in done)
        days = max(done)
        whole(deployment, days)
    print(dict(kinds))
    assert kinds.total() >= 1, "some of them were too small"
    assert not [kind for kind in kinds if kind.startswith("no hint")]
    attempt(deployment, days + 1)
    collected(deployment, days + 1)


def completed(deployment: Deployment) -> list[int]:
    """Return the completed days."""
    records = deployment.catalog().list(NAME)
    intervals = [r.interval for r in records if r.completed_at_ms is not None and r.interval]
    return sorted((interval.start_ms - day(1).start_ms) // 86_400_000 + 1 for interval in intervals)


def whole(deployment: Deployment, days: int) -> None:
    """Assert that the head is complete, and has the state of so many days."""
    opened = resolve(deployment, f"tours/{deployment.catalog().head(NAME).head}")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    rows = opened.to_arrow("best", scratch=deployment.work_directory).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == {f"shop-{n}": n + days for n in range(SHOPS)}


def collected(deployment: Deployment, days: int) -> None:
    """Assert that after cleanup storage contains exactly the files of completed checkpoints, and scratch nothing."""
    sweep(deployment)
    checkpoints = opened_checkpoints(deployment)
    for opened in checkpoints:
        assert verify(opened, scratch=deployment.work_directory).problems == ()
    check_nothing_else(deployment, checkpoints)
    assert list(Path(deployment.work_directory).iterdir()) == []
    whole(deployment, days)
