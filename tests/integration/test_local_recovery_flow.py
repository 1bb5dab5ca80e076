"""Local recovery through the flows, without Spark and Airflow: what a host keeps, finds again, proves and prunes."""

import dataclasses
import errno
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from statelib.errors import RetryableError
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.restore.steps import apply_restore, plan_restore, rehearsal_layout
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.record import ClaimMode
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.ports.views import LinkingReader
from tests.integration.test_incremental_flow import TOURS, events, expected
from tests.support.extent import cases
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

STRATEGIES = [
    ("rocksdb", "incremental"),
    ("rocksdb", "full"),
    ("rocksdb", "canonical"),
    ("heap", "canonical"),
    ("heap", "full"),
    ("rocksdb", "changelog"),
    ("heap", "changelog"),
]


def use(deployment: Deployment, backend: str, strategy: str, local: bool = True) -> None:
    text = TOURS.replace("backend: rocksdb", f"backend: {backend}")
    text = text.replace("strategy: incremental", f"local_recovery: {str(local).lower()}, strategy: {strategy}")
    (Path(deployment.pipelines_directory) / "tours.yaml").write_text(text)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    use(deployment, "rocksdb", "incremental")
    return deployment


def run(deployment: Deployment, number: int) -> CheckpointManifest:
    """Apply a day and register it. Assert that its state is right, however it was restored."""
    checkpoint_id = checkpoint_of(deployment, "tours", number, events(number))
    opened = resolve(deployment, f"tours/{checkpoint_id}")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    rows = opened.to_arrow("best", scratch=deployment.work_directory).to_pylist()
    assert {row["key"]: row["value"] for row in rows} == expected(number)
    assert opened.manifest is not None
    return opened.manifest


def local(deployment: Deployment) -> Path:
    return deployment.local_states(deployment.pipeline("tours")).path


def directories_of_copies(deployment: Deployment) -> list[str]:
    """Return the directories of checkpoints on this host, and everything else beside them."""
    return sorted(p.name for p in local(deployment).iterdir())


def copies(deployment: Deployment, number: int, suffix: str = "") -> list[Path]:
    paths = sorted((local(deployment) / f"chk-{number}").glob(f"*/*{suffix}"))
    return [path for path in paths if path.name != "index.json"]


MERGED = [(backend, f"{strategy}, file_merging: {{enabled: true}}") for backend, strategy in STRATEGIES]


@pytest.mark.parametrize(("backend", "strategy"), [*STRATEGIES, *MERGED])
def test_local_copies_are_used_instead_of_remote_files(deployment: Deployment, backend: str, strategy: str) -> None:
    use(deployment, backend, strategy)
    assert run(deployment, 1).restored_from == ("empty", "empty")
    remote = Path(deployment.storage_root) / "tours"
    second = begin(deployment, deployment.pipeline("tours"), day(2), "test").checkpoint_id
    hidden = {path: path.rename(path.with_name(f"hidden-{path.name}")) for path in data_files(remote)}
    assert hidden
    publish_here(deployment, deployment.pipeline("tours"), second, events(2))
    for path, other in hidden.items():
        other.rename(path)
    register(deployment, deployment.pipeline("tours"), second)
    manifest = resolve(deployment, "tours/2").manifest
    assert manifest is not None
    assert manifest.restored_from == ("local", "local")
    assert run(deployment, 3).restored_from == ("local", "local")


@pytest.mark.parametrize(("backend", "strategy"), [*STRATEGIES, *MERGED])
def test_ten_runs_on_one_host_read_nothing_remotely(deployment: Deployment, backend: str, strategy: str) -> None:
    often = ", materialize_after_checkpoints: 4" if strategy.startswith("changelog") else ""
    use(deployment, backend, strategy + often)
    assert run(deployment, 1).restored_from == ("empty", "empty")
    for number in range(2, 11):
        before = inodes(deployment, number - 1)
        manifest = run(deployment, number)
        assert manifest.restored_from == ("local", "local"), number
        new = sum(size for inode, size in inodes(deployment, number).items() if inode not in before)
        assert new <= manifest.uploaded_bytes, f"run {number} copied what was there already"


def inodes(deployment: Deployment, number: int) -> dict[int, int]:
    """Return the size of each local copy of a checkpoint, by inode."""
    return {each.st_ino: each.st_size for each in (path.stat() for path in copies(deployment, number))}


@pytest.mark.parametrize(
    ("damage", "which", "backend"), cases(["flip", "delete", "all gone"], ["materialised", "log"], ["heap", "rocksdb"])
)
def test_a_missing_copy_of_a_file_that_a_log_refers_to_is_made_again(
    deployment: Deployment, backend: str, which: str, damage: str
) -> None:
    use(deployment, backend, "changelog")
    for number in range(1, 5):
        run(deployment, number)
    held = copies(deployment, 4)
    logged = [path for path in held if path.name.startswith("stream-")]
    assert len(logged) == 2, "the part of this run, of either subtask; the others are linked"
    materialised = [path for path in held if path.stat().st_nlink > 1]
    for path in held if damage == "all gone" else [(materialised if which == "materialised" else logged)[0]]:
        data = path.read_bytes()
        path.unlink()
        if damage == "flip":
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    sources = run(deployment, 5).restored_from
    assert set(sources) <= ({"remote"} if damage == "all gone" else {"mixed", "remote", "local"})
    assert sources != ("local", "local")
    assert run(deployment, 6).restored_from == ("local", "local")
    assert list(local(deployment).rglob("*fetched*")) == []


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_log_without_space_for_copies_is_read_remotely(
    deployment: Deployment, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(deployment, backend, "changelog")
    run(deployment, 1)
    run(deployment, 2)
    shutil.rmtree(local(deployment))
    make = Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if "local-state" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        make(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    assert run(deployment, 3).restored_from == ("remote", "remote")
    monkeypatch.undo()
    assert run(deployment, 4).restored_from == ("remote", "remote")
    assert run(deployment, 5).restored_from == ("local", "local")


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_log_is_read_locally_after_rescaling(deployment: Deployment, backend: str) -> None:
    use(deployment, backend, "changelog")
    for number in range(1, 4):
        run(deployment, number)
    restore(deployment, "3", 3)
    for number in range(4, 8):
        assert set(run(deployment, number).restored_from) == {"local"}, number


def data_files(remote: Path) -> list[Path]:
    return [path for path in remote.rglob("*") if path.is_file() and path.name != "_metadata"]


def restore(deployment: Deployment, checkpoint: str, parallelism: int | None) -> None:
    pipeline = deployment.pipeline("tours")
    apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM), "test"
    )


def test_by_default_no_local_copies_are_made(deployment: Deployment) -> None:
    (Path(deployment.pipelines_directory) / "tours.yaml").write_text(TOURS)
    assert run(deployment, 1).restored_from == ("empty", "empty")
    assert run(deployment, 2).restored_from == ("remote", "remote")
    assert not local(deployment).exists()


def test_switching_local_recovery_off_removes_the_copies(deployment: Deployment) -> None:
    run(deployment, 1)
    assert copies(deployment, 1)
    use(deployment, "rocksdb", "incremental", local=False)
    assert run(deployment, 2).restored_from == ("remote", "remote")
    assert not local(deployment).exists()
    use(deployment, "rocksdb", "incremental")
    assert run(deployment, 3).restored_from == ("remote", "remote")
    assert run(deployment, 4).restored_from == ("local", "local")


def test_copies_lie_in_the_configured_directory(deployment: Deployment, tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(deployment, local_directory=str(tmp_path / "fast disk"))
    run(elsewhere, 1)
    assert run(elsewhere, 2).restored_from == ("local", "local")
    assert os.listdir(tmp_path / "fast disk") == ["local-state"]
    assert not (Path(deployment.work_directory) / "local-state").exists()


def test_incremental_checkpoints_refer_to_earlier_files_when_restored_from_copies(deployment: Deployment) -> None:
    """Checkpoints restored from copies reuse earlier files. Three are taken: RocksDB may merge a state's tables from
    the fourth on."""
    manifests = [run(deployment, number) for number in range(1, 4)]
    assert [m.restored_from[0] for m in manifests] == ["empty", "local", "local"]
    assert all(count for _, count in shared_again(manifests))


def test_each_segment_has_its_own_copy_and_a_damaged_one_is_read_remotely(deployment: Deployment) -> None:
    """Segments of one physical file have a copy each: a damaged one is neither confused with another nor used."""
    use(deployment, *MERGED[0])
    first = run(deployment, 1)
    assert any(len(file.segments) > 1 for file in first.files)
    for path in copies(deployment, 1, "MANIFEST*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert run(deployment, 2).restored_from == ("mixed", "mixed")
    assert run(deployment, 3).restored_from == ("local", "local")


def test_after_damage_that_only_rocksdb_detects_the_next_try_reads_remotely(deployment: Deployment) -> None:
    """A table is not read as a whole again while it is exactly the file that was verified: each block is read when
    it is needed."""
    run(deployment, 1)
    for path in copies(deployment, 1, ".sst"):
        os.utime(path, (1_000_000, 1_000_000))
    assert run(deployment, 2).restored_from == ("local", "local")
    trusted = [path for path in copies(deployment, 2, ".sst") if path.stat().st_mtime == 1_000_000]
    assert trusted
    for path in trusted:
        with path.open("r+b") as file:
            file.write(bytes(50))
        os.utime(path, (1_000_000, 1_000_000))
    third = begin(deployment, deployment.pipeline("tours"), day(3), "test").checkpoint_id
    with pytest.raises(
        RetryableError, match=r"restored from this host's copies, such as .*\.sst, is damaged"
    ) as problem:
        publish_here(deployment, deployment.pipeline("tours"), third, events(3))
    assert problem.value.kind == "local-copy-damaged"
    assert not copies(deployment, 2)
    publish_here(deployment, deployment.pipeline("tours"), third, events(3))
    register(deployment, deployment.pipeline("tours"), third)
    manifest = resolve(deployment, "tours/3").manifest
    assert manifest is not None
    assert manifest.restored_from == ("remote", "remote")
    assert run(deployment, 4).restored_from == ("local", "local")


def shared_again(manifests: list[CheckpointManifest]) -> list[tuple[int, int]]:
    """Return for each manifest but the first the number of its shared files, and how many of them already existed."""
    shared = [{f.path for f in m.files if "/tours/shared/" in f.path} for m in manifests]
    return [(len(after), len(before & after)) for before, after in itertools.pairwise(shared)]


def test_sst_files_use_disk_space_only_once(deployment: Deployment) -> None:
    run(deployment, 1)
    run(deployment, 2)
    first, second = ({p.stat().st_ino for p in copies(deployment, number, ".sst")} for number in (1, 2))
    assert first < second


@pytest.mark.parametrize(("storing", "damage"), cases(STRATEGIES, ["flip", "truncate", "delete"]))
def test_a_broken_copy_is_read_remotely(deployment: Deployment, storing: tuple[str, str], damage: str) -> None:
    backend, strategy = storing
    use(deployment, backend, strategy)
    run(deployment, 1)
    native = backend == "rocksdb" and strategy != "canonical"
    victim = copies(deployment, 1, ".sst" if native else "")[0]
    data = bytearray(victim.read_bytes())
    victim.unlink()
    if damage != "delete":
        data[len(data) // 2] ^= 1
        victim.write_bytes(data if damage == "flip" else data[: len(data) // 2])
    broken, whole = run(deployment, 2).restored_from
    assert broken == ("mixed" if native else "remote")
    assert whole == "local"
    assert run(deployment, 3).restored_from == ("local", "local")


@pytest.mark.parametrize(("backend", "strategy"), STRATEGIES)
def test_an_outdated_copy_at_the_path_of_the_right_one_is_not_used(
    deployment: Deployment, backend: str, strategy: str
) -> None:
    """The index is that of the second checkpoint, but its own files have the bytes of the first."""
    use(deployment, backend, strategy)
    for number in (1, 2):
        run(deployment, number)
    older = {path.stat().st_ino: path.read_bytes() for path in copies(deployment, 1)}
    for path in copies(deployment, 2):
        if path.stat().st_ino not in older:
            path.unlink()
            path.write_bytes(max(older.values(), key=len))
    sources = run(deployment, 3).restored_from
    assert "local" not in sources
    shares = (backend == "rocksdb" and strategy != "canonical") or strategy == "changelog"
    assert set(sources) == ({"mixed"} if shares else {"remote"})
    assert run(deployment, 4).restored_from == ("local", "local")


@pytest.mark.parametrize(("backend", "strategy"), STRATEGIES)
def test_a_copy_of_another_history_is_not_used(deployment: Deployment, backend: str, strategy: str) -> None:
    """The catalog was lost: its ids, directories and file names are used again, with other content."""
    use(deployment, backend, strategy)
    run(deployment, 1)
    shutil.rmtree(deployment.storage_root)
    Path(deployment.storage_root).mkdir()
    Path(deployment.catalog_url.removeprefix("sqlite:///")).unlink()
    stale = local(deployment).rename(local(deployment).with_name("stale"))
    run(deployment, 1)
    shutil.rmtree(local(deployment))
    stale.rename(local(deployment))
    assert run(deployment, 2).restored_from == ("remote", "remote")
    assert run(deployment, 3).restored_from == ("local", "local")


@pytest.mark.parametrize(("backend", "strategy"), STRATEGIES)
def test_copies_are_used_for_other_key_group_ranges(deployment: Deployment, backend: str, strategy: str) -> None:
    use(deployment, backend, strategy)
    last = 0
    for number, parallelism in enumerate((2, 3, 5, 1), 1):
        if last:
            restore(deployment, str(last), parallelism)
        manifest = run(deployment, number)
        assert set(manifest.restored_from) == ({"local"} if last else {"empty"})
        last = manifest.checkpoint_id


def test_files_that_a_host_lacks_are_read_remotely(deployment: Deployment) -> None:
    run(deployment, 1)
    shutil.rmtree(copies(deployment, 1)[0].parent)
    assert sorted(run(deployment, 2).restored_from) == ["local", "remote"]
    shutil.rmtree(copies(deployment, 2)[0].parent)
    restore(deployment, "2", 1)
    assert run(deployment, 3).restored_from == ("mixed",)


def test_disk_usage_is_bounded_over_twenty_checkpoints(deployment: Deployment) -> None:
    for number in range(1, 21):
        run(deployment, number)
        assert directories_of_copies(deployment) == sorted(f"chk-{n}" for n in (number - 1, number) if n)
        for n in (number - 1, number):
            files = copies(deployment, n)
            assert len(files) < 40, "RocksDB compacts, and nothing else is left"
    assert os.listdir(deployment.work_directory) == ["local-state"]


def test_copies_of_an_aborted_checkpoint_are_removed_by_the_next_run(deployment: Deployment) -> None:
    run(deployment, 1)
    pipeline = deployment.pipeline("tours")
    second = begin(deployment, pipeline, day(2), "test").checkpoint_id
    publish_here(deployment, pipeline, second, events(2))
    abort(deployment, "tours", second, "not whole")
    assert directories_of_copies(deployment) == ["chk-1", "chk-2"]
    assert run(deployment, 2).restored_from == ("local", "local")
    assert directories_of_copies(deployment) == ["chk-1", "chk-3"]


def test_a_savepoint_reads_copies_and_does_not_change_them(deployment: Deployment) -> None:
    run(deployment, 1)
    before = copies(deployment, 1)
    pipeline = deployment.pipeline("tours")
    for kind, source in (("native", "copied"), ("canonical", "local")):
        saved = begin_savepoint(deployment, pipeline, format=kind, target=None, note="", owner="test", key=kind)
        publish_here(deployment, pipeline, saved.checkpoint_id)
        manifest = resolve(deployment, register(deployment, pipeline, saved.checkpoint_id).directory).manifest
        assert manifest is not None
        assert manifest.restored_from == (source, source)
    assert copies(deployment, 1) == before
    assert directories_of_copies(deployment) == ["chk-1"]
    restore(deployment, str(saved.checkpoint_id), None)
    assert run(deployment, 2).restored_from == ("remote", "remote")


def test_a_restore_of_an_older_checkpoint_reads_remotely_if_its_copies_were_removed(deployment: Deployment) -> None:
    first = run(deployment, 1)
    run(deployment, 2)
    restore(deployment, str(first.checkpoint_id), None)
    assert run(deployment, 2).restored_from == ("local", "local"), "it is still there"
    assert directories_of_copies(deployment) == ["chk-1", "chk-3"]
    run(deployment, 3)
    restore(deployment, str(first.checkpoint_id), None)
    assert run(deployment, 2).restored_from == ("remote", "remote")


def test_a_rehearsal_reads_the_remote_files(deployment: Deployment) -> None:
    run(deployment, 1)
    layout = rehearsal_layout(deployment, deployment.pipeline("tours"), "1", None)
    assert not any(isinstance(s.reader, LinkingReader) for sources in layout.sources for s in sources)
