"""A machine may crash after any call that statelib makes: acknowledged files exist, published files are complete,
and so are all files that a published ``_metadata`` names; also while checkpoints are removed, and after a process
was killed first."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import Begun, begin, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import completed
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.filesystem.publish import put_if_absent
from statelib.storage.uris import absolute_uri, file_handle, local_path
from tests.damage.crash_states import Call, Crashes, Killed, Recorder, after_each_call
from tests.damage.ways import Way, events, shops
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import CHECKOUT, day, publish_here

SEED = 20130101
WAYS = (Way("heap", "canonical"), Way("rocksdb", "incremental"), Way("rocksdb", "incremental", merged=True))
NAME = PipelineName("shops")
Act = Callable[[Deployment, Recorder], None]


def world(root: Path, way: Way) -> tuple[Deployment, Recorder]:
    """Yield a world whose storage and savepoints lie below ``root/disk``, which is empty, and whose calls are
    recorded."""
    deployment = shops(root, way)
    (root / "disk").mkdir()
    return replace(deployment, storage_root=str(root / "disk" / "state")), Recorder(str(root / "disk"))


def needs(deployment: Deployment) -> dict[str, set[str]]:
    """Return for each checkpoint's ``_metadata`` the files that it names."""
    files = {}
    for each in completed(deployment, NAME):
        opened = open_checkpoint(each.directory, own=True, storage_root=deployment.storage_root)
        assert opened.manifest is not None
        place = local_path(each.directory)
        handles = (file_handle(f.path, f.size_bytes) for f in opened.manifest.files)
        files[f"{place}/_metadata"] = {local_path(absolute_uri(place, handle)) for handle in handles}
    return files


def days(deployment: Deployment, recorder: Recorder, *numbers: int) -> None:
    for number in numbers:
        begun = begin(deployment, deployment.pipeline("shops"), day(number), "test")
        finish(deployment, recorder, begun, events(number))


def finish(deployment: Deployment, recorder: Recorder, begun: Begun, applied: pa.Table | None = None) -> None:
    """Finish a checkpoint that has begun. An earlier attempt may have ended at any point."""
    pipeline, number = deployment.pipeline("shops"), begun.checkpoint_id
    if not begun.already_completed:
        if plan_snapshot(deployment, pipeline, number) is not None:
            publish_here(deployment, pipeline, number, applied)
        register(deployment, pipeline, number)
    recorder.acknowledged(f"{local_path(deployment.catalog().get(NAME, number).directory)}/_metadata")


def saved(deployment: Deployment, recorder: Recorder) -> None:
    pipeline = deployment.pipeline("shops")
    target = str(Path(deployment.storage_root).parent / "deep" / "down" / "targets")
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=target, note="", owner="test", key="k")
    finish(deployment, recorder, begun)


def cleaned(deployment: Deployment, recorder: Recorder) -> None:
    path = Path(deployment.pipelines_directory) / "shops.yaml"
    path.write_text(path.read_text().replace("checkpoint: {", "checkpoint: {retain: {count: 1}, "))
    retire(deployment)
    directories = {r.directory for r in completed(deployment, NAME)}
    for call in [call for call in recorder.calls if call.kind == "ack"]:
        if not any(local_path(directory) == call.place[0] for directory in directories):
            recorder.given_up("/".join(call.place))
    collect_garbage(deployment)


def looked_at(recorder: Recorder, named: dict[str, set[str]]) -> Crashes:
    return after_each_call(recorder.root, recorder.calls, named, Random(SEED))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_crash_of_the_machine_loses_or_truncates_a_checkpoint(tmp_path: Path, way: Way) -> None:
    deployment, recorder = world(tmp_path, way)
    with recorder.recording():
        days(deployment, recorder, 1, 2)
        saved(deployment, recorder)
        named = needs(deployment)
        cleaned(deployment, recorder)
    tally = looked_at(recorder, named)
    assert tally.broken == []
    assert tally.states > 2 * len(recorder.calls) / 2
    record("G1", "states after a crash of the machine", tally.states, unit="states")
    for kind in ("sync", "sync directory"):
        careless = Recorder(recorder.root, calls=[call for call in recorder.calls if call.kind != kind])
        assert looked_at(careless, named).broken, f"without any {kind} something must be lost"


def test_the_next_process_makes_the_files_of_a_killed_one_durable(tmp_path: Path) -> None:
    """The names that it created or removed are visible to all processes, but not durable yet."""
    acts: dict[str, Act] = {"savepoint": saved, "cleanup": cleaned, "day": lambda deployment, r: days(deployment, r, 3)}
    states = 0
    for name, act in acts.items():
        calls = _calls_of(tmp_path / f"{name}-counted", act)
        every = range(len(calls[0]), len(calls[0]) + len(calls[1]))
        chosen = sorted(Random(SEED).sample(every, min(len(every), rounds(7, 40))))
        for kill_at in chosen:
            root = tmp_path / f"{name}-{kill_at}"
            deployment, recorder = world(root, WAYS[0])
            with recorder.recording():
                days(deployment, recorder, 1, 2)
                named = needs(deployment)
                recorder.kill_at = kill_at
                with suppress(Killed):
                    act(deployment, recorder)
                recorder.kill_at = None
                act(deployment, recorder)
                named |= needs(deployment)
            tally = looked_at(recorder, named)
            assert tally.broken == [], f"{name} killed before call {kill_at}"
            states += tally.states
    record("G1", "states after a kill, then a crash of the machine", states, unit="states")


def _calls_of(root: Path, act: Act) -> tuple[list[Call], list[Call]]:
    """Return the calls of two days, and the calls of the act after them."""
    deployment, recorder = world(root, WAYS[0])
    with recorder.recording():
        days(deployment, recorder, 1, 2)
        before = len(recorder.calls)
        act(deployment, recorder)
    return recorder.calls[:before], recorder.calls[before:]


def test_a_name_that_two_processes_write_is_durable_when_acknowledged(tmp_path: Path) -> None:
    """One process is killed at any call; the other finds that the name exists or creates it, and acknowledges it."""
    states = 0
    for kill_at in range(8):
        root = tmp_path / str(kill_at)
        root.mkdir()
        recorder = Recorder(str(root))
        with recorder.recording():
            recorder.kill_at = kill_at
            with suppress(Killed):
                put_if_absent(str(root), "_metadata", b"the same bytes" * 9)
            recorder.kill_at = None
            put_if_absent(str(root), "_metadata", b"the same bytes" * 9)
            recorder.acknowledged(f"{root}/_metadata")
        tally = looked_at(recorder, {f"{root}/_metadata": set()})
        assert tally.broken == []
        states += tally.states
    record("G1", "states after a kill, then a crash of the machine", states, unit="states")


@pytest.fixture
def strace() -> str:
    program = shutil.which("strace")
    if program is None or subprocess.run([program, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no strace that may trace")
    return program


def test_the_recorded_calls_equal_those_that_the_kernel_receives(tmp_path: Path, strace: str) -> None:
    script = (
        "from statelib.storage.filesystem.publish import put_if_absent; "
        f"put_if_absent('{tmp_path}', '_metadata', b'x' * 9)"
    )
    log = tmp_path / "strace.log"
    words = [strace, "-f", "-y", "-o", str(log), "-e", "trace=openat,write,fsync,linkat,unlinkat"]
    subprocess.run([*words, sys.executable, "-c", script], cwd=CHECKOUT, check=True, timeout=120)
    lines = [line for line in log.read_text().splitlines() if str(tmp_path) in line and "strace.log" not in line]
    kernel = Counter(line.split(maxsplit=1)[1].partition("(")[0] for line in lines)
    (tmp_path / "again").mkdir()
    recorder = Recorder(str(tmp_path))
    with recorder.recording():
        put_if_absent(str(tmp_path / "again"), "_metadata", b"x" * 9)
    calls = Counter(call.kind for call in recorder.calls)
    assert calls == {"create": 1, "write": 1, "sync": 1, "link": 1, "unlink": 1, "sync directory": 1}
    assert kernel["write"] == kernel["linkat"] == kernel["unlinkat"] == 1
    assert kernel["fsync"] == calls["sync"] + calls["sync directory"]
