"""The store of local copies: what is found, what is pruned, and what several processes and crashes leave of it."""

import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.local.reader import LocalFirstReader
from statelib.storage.local.store import LocalStateStore
from statelib.storage.ports.views import CheckpointedStateScope, LinkingReader, WrittenStream
from statelib.testing.crash_points import Crash, Place, crash, ends_at
from statelib.wire.checksum import crc32c

Files = dict[str, tuple[int, int]]
DISKS = [Path(path) for path in ("/dev/shm", "/var/tmp") if Path(path).is_dir()]


def attempt(snapshot: int, task: int = 0) -> AttemptId:
    return AttemptId(f"{snapshot:024x}{task:08x}")


def chk(number: int) -> CheckpointId:
    return CheckpointId(number)


class Host:
    """A store, and remote files that were written with copies in it."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStateStore(str(root / "local"), "file:///state", "p")
        self.remote = root / "remote"
        self.remote.mkdir(parents=True)

    def take(self, number: int, snapshot: int, subtask: int = 0, *, complete: bool = True) -> Files:
        """Write one subtask's snapshot, a stream and a linked file, and return its remote files."""
        own = attempt(snapshot, subtask)
        directories = self.store.directories(own, subtask)
        directory = directories.open(chk(number))
        assert directory is not None
        names = [f"{own}-{subtask}-{n}" for n in range(2)]
        contents = [f"{number} {name} ".encode() * 1000 for name in names]
        for name, content in zip(names, contents, strict=True):
            (self.remote / name).write_bytes(content)
        stream = directory.streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
        stream.write(contents[0])
        local = [stream.close_and_get_handle().local_name or "stream-0"]
        local.append(directory.keep(str(self.remote / names[1]), "000009.sst") or "")
        written = [
            WrittenStream(RelativeFileStateHandle(name, len(content)), len(content), crc32c(content), local_name=at)
            for name, content, at in zip(names, contents, local, strict=True)
        ]
        if complete:
            directories.complete(chk(number), written)
        return {name: (len(content), crc32c(content)) for name, content in zip(names, contents, strict=True)}

    def lying(self) -> list[str]:
        """Return the directories below the store, deepest last."""
        path = self.store.path
        return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_dir())

    def reader(self, number: int, files: Files) -> LocalFirstReader:
        remote = DirectoryReader(str(self.remote), files)
        return LocalFirstReader(remote, self.store.find(chk(number), files))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_completed_copies_are_found_by_another_store(host: Host, tmp_path: Path) -> None:
    files = host.take(3, 1, 0) | host.take(3, 1, 1)
    result = LocalStateStore(str(tmp_path / "local"), "file:///state", "p").find(chk(3), files)
    assert set(result) == set(files)
    assert {p.copy.name for p in result.values()} == {"stream-0", "000009.sst"}
    assert len({p.directory for p in result.values()}) == 2


def test_only_copies_with_exactly_these_bytes_are_found(host: Host, tmp_path: Path) -> None:
    files = host.take(3, 1)
    (first, (size, crc)), second = sorted(files.items())
    for wrong in ((size + 1, crc), (size, crc ^ 1)):
        assert set(host.store.find(chk(3), {first: wrong, second[0]: second[1]})) == {second[0]}
    assert host.store.find(chk(4), files) == {}
    assert host.store.find(chk(3), {}) == {}
    others = [("file:///elsewhere", "p"), ("file:///state", "q")]
    assert all(LocalStateStore(str(tmp_path / "local"), uri, name).find(chk(3), files) == {} for uri, name in others)


def test_copies_that_are_not_completed_are_not_found(host: Host) -> None:
    files = host.take(3, 1, complete=False)
    assert host.store.find(chk(3), files) == {}
    assert host.lying() == ["chk-3", f"chk-3/{attempt(1)}-0.ongoing"]


def test_copies_are_not_found_until_their_directory_has_its_name(host: Host) -> None:
    """Requirement R74: a process that dies between the index and the name leaves no copy."""
    files = host.take(3, 1)
    done = host.store.path / "chk-3" / f"{attempt(1)}-0"
    done.rename(done.with_name(f"{done.name}.ongoing"))
    assert host.store.find(chk(3), files) == {}


def test_a_process_that_dies_after_creating_its_directory_leaves_nothing(host: Host) -> None:
    made = Place("local copy: directory made")
    with pytest.raises(Crash), ends_at(made, crash), host.store.directories(attempt(1), 0) as directories:
        directories.open(chk(1))
    assert list(host.store.path.rglob("*.ongoing")) == []


def test_a_process_that_dies_while_completing_leaves_nothing(host: Host) -> None:
    with pytest.raises(Crash), ends_at(Place("local copy: index written"), crash):
        host.take(3, 1)
    assert host.lying() == ["chk-3"]


@pytest.mark.parametrize(
    "index",
    ["", "{", "[]", "[" * 100_000, '{"version": 1, "files": []}', '{"version": 2}', '{"version": 2, "files": [1]}'],
)
def test_a_directory_with_a_damaged_index_is_ignored_and_removed(host: Host, index: str) -> None:
    files, whole = host.take(3, 1, 0), host.take(3, 1, 1)
    (host.store.path / "chk-3" / f"{attempt(1)}-0" / "index.json").write_text(index)
    assert set(host.store.find(chk(3), files | whole)) == set(whole)
    host.store.prune(chk(4), attempt(2), chk(3), files | whole)
    assert host.lying() == ["chk-3", f"chk-3/{attempt(1, 1)}-1"]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", ".hidden", "", "index.json", "a/b", "x" * 101])
def test_an_index_cannot_refer_to_files_outside_its_directory(host: Host, name: str) -> None:
    files = host.take(3, 1)
    index = host.store.path / "chk-3" / f"{attempt(1)}-0" / "index.json"
    content = json.loads(index.read_text())
    content["files"][0]["name"] = name
    index.write_text(json.dumps(content))
    assert host.store.find(chk(3), files) == {}


def test_confirming_a_checkpoint_removes_older_copies(host: Host) -> None:
    files = {number: host.take(number, number) for number in (1, 2, 3)}
    host.store.prune(chk(4), attempt(4), chk(3), files[3])
    assert host.lying() == ["chk-3", f"chk-3/{attempt(3)}-0"]
    assert set(host.store.find(chk(3), files[3])) == set(files[3])


def test_aborted_checkpoints_are_removed(host: Host) -> None:
    files = {number: host.take(number, number) for number in (3, 4, 5)}
    host.store.prune(chk(6), attempt(6), chk(3), files[3])
    assert host.lying() == ["chk-3", f"chk-3/{attempt(3)}-0"]


def test_attempts_that_did_not_complete_the_base_are_removed(host: Host) -> None:
    host.take(3, 1)
    host.take(3, 2, 1, complete=False)
    won = host.take(3, 2) | host.take(3, 2, 7)
    host.store.prune(chk(4), attempt(4), chk(3), won)
    assert host.lying() == ["chk-3", f"chk-3/{attempt(2)}-0", f"chk-3/{attempt(2, 7)}-7"]


def test_a_retry_removes_copies_of_earlier_attempts(host: Host) -> None:
    base = host.take(3, 3)
    host.take(4, 4)
    host.take(4, 5, complete=False)
    host.take(4, 6, 1)
    host.take(4, 6, 2, complete=False)
    host.store.prune(chk(4), attempt(6), chk(3), base)
    left = [f"chk-4/{attempt(6, 1)}-1", f"chk-4/{attempt(6, 2)}-2.ongoing"]
    assert host.lying() == ["chk-3", f"chk-3/{attempt(3)}-0", "chk-4", *left]


def test_an_overtaken_run_leaves_newer_checkpoints_alone(host: Host) -> None:
    files = {number: host.take(number, number) for number in (3, 5, 6)}
    host.store.prune(chk(4), attempt(4), chk(2), {})
    assert set(host.store.find(chk(5), files[5])) == set(files[5])
    assert [name for name in host.lying() if "/" not in name] == ["chk-5", "chk-6"]


def test_trash_of_a_killed_process_is_removed(host: Host) -> None:
    base = host.take(3, 3)
    (host.store.path / "chk-2").mkdir()
    (host.store.path / "chk-2").rename(host.store.path / f"trash-{attempt(1)}-0")
    (host.store.path / "strange").mkdir()
    (host.store.path / "stranger").write_text("x")
    (host.store.path / "chk-3" / "strangest").symlink_to("/nowhere")
    host.store.prune(chk(4), attempt(4), chk(3), base)
    assert host.lying() == ["chk-3", f"chk-3/{attempt(3)}-0"]
    assert {p.name for p in host.store.path.iterdir()} == {"chk-3"}
    assert {p.name for p in (host.store.path / "chk-3").iterdir()} == {f"{attempt(3)}-0"}


def test_pruning_an_empty_store_does_nothing(host: Host) -> None:
    host.store.prune(chk(4), attempt(4), None, {})
    host.store.clear()
    assert not host.store.path.exists()


def test_the_disk_has_copies_of_at_most_two_checkpoints(host: Host) -> None:
    base: Files = {}
    for number in range(1, 21):
        host.store.prune(chk(number), attempt(number), chk(number - 1) if number > 1 else None, base)
        base = host.take(number, number)
        assert len([name for name in host.lying() if "/" not in name]) == min(number, 2)


def test_many_subtasks_can_write_and_prune_at_the_same_time(host: Host) -> None:
    base = {path: facts for subtask in range(8) for path, facts in host.take(3, 3, subtask).items()}
    for number in (1, 2, 4):
        host.take(number, number)

    def subtask(number: int) -> Files:
        host.store.prune(chk(5), attempt(5, number), chk(3), base)
        assert set(host.store.find(chk(3), base)) == set(base)
        return host.take(5, 5, number)

    with ThreadPoolExecutor(8) as pool:
        written = {path: facts for files in pool.map(subtask, range(8)) for path, facts in files.items()}
    assert set(host.store.find(chk(5), written)) == set(written)
    assert [name for name in host.lying() if "/" not in name] == ["chk-3", "chk-5"]


def test_a_new_directory_for_the_same_snapshot_replaces_the_old_one(host: Host) -> None:
    first = host.take(3, 1)
    directories = host.store.directories(attempt(1), 0)
    assert directories.open(chk(3)) is not None
    assert host.store.find(chk(3), first) == {}
    with directories:
        assert directories.open(chk(3)) is not None
    assert host.lying() == ["chk-3"]


def test_copies_removed_after_they_were_found_are_read_remotely(host: Host, tmp_path: Path) -> None:
    files = host.take(3, 3)
    path, (size, _) = sorted(files.items())[1]
    handle = RelativeFileStateHandle(path, size)
    expected = (host.remote / path).read_bytes()
    targets = (str(tmp_path / f"target-{n}") for n in itertools.count())

    def copied(copy: Callable[[RelativeFileStateHandle, str], None]) -> bytes:
        target = next(targets)
        copy(handle, target)
        return Path(target).read_bytes()

    for act in (
        lambda reader: bytes(reader.read(handle)),
        lambda reader: bytes(reader.read_range(handle, 0, size)),
        lambda reader: copied(reader.copy_to),
        lambda reader: copied(reader.link_to),
    ):
        kept_reader, gone = host.reader(3, files), host.reader(3, files)
        assert isinstance(kept_reader, LinkingReader)
        assert act(kept_reader) == expected
        assert kept_reader.origins == {"local"}
        host.store.path.rename(tmp_path / "away")
        assert act(gone) == expected
        assert gone.origins == {"remote"}
        assert act(kept_reader) == expected
        (tmp_path / "away").rename(host.store.path)


def test_a_linked_copy_is_read_again_only_if_it_may_have_changed(host: Host, tmp_path: Path) -> None:
    """``damage``: the change to the bytes or attributes of the file that was verified."""
    content, name = b"table" * 1000, "remote"
    files = {name: (len(content), crc32c(content))}
    (host.remote / name).write_bytes(content)
    long_ago = time.time_ns() - 10**10

    def written(copy: Path) -> None:
        with copy.open("r+b") as file:
            file.write(b"x")

    def unnoticed(copy: Path) -> None:
        written(copy)
        os.utime(copy, ns=(long_ago, long_ago))

    def replaced(copy: Path) -> None:
        copy.rename(copy.with_name("away"))
        copy.write_bytes(b"y" * len(content))
        os.utime(copy, ns=(long_ago, long_ago))

    cases: list[tuple[int, Callable[[Path], object], bool, set[str]]] = [
        (long_ago, lambda _: None, True, {"local"}),
        (long_ago, lambda copy: os.link(copy, tmp_path / "again"), True, {"local"}),
        (time.time_ns(), lambda _: None, False, {"local"}),
        (long_ago, written, False, {"remote"}),
        (long_ago, replaced, False, {"remote"}),
        (long_ago, unnoticed, True, {"local"}),
    ]
    for number, (modified_ns, damage, trusted, origins) in enumerate(cases, 1):
        (table := tmp_path / f"{number}.sst").write_bytes(content)
        os.utime(table, ns=(modified_ns, modified_ns))
        directories = host.store.directories(attempt(number), 0)
        directory = directories.open(chk(number))
        assert directory is not None
        local_name = directory.keep(str(table), "000009.sst")
        written_stream = WrittenStream(RelativeFileStateHandle(name, len(content)), *files[name], local_name=local_name)
        directories.complete(chk(number), [written_stream])
        copy = host.store.path / f"chk-{number}" / f"{attempt(number)}-0" / "000009.sst"
        damage(copy)
        reader = host.reader(number, files)
        reader.link_to(RelativeFileStateHandle(name, len(content)), str(tmp_path / f"linked-{number}"))
        assert (reader.trusted, reader.origins) == ([str(copy)] if trusted else [], origins), number
        same = (tmp_path / f"linked-{number}").read_bytes() == content
        assert same == (damage is not unnoticed), "which only whoever reads it will find"


def test_damaged_copies_of_a_checkpoint_are_removed(host: Host) -> None:
    files = {number: host.take(number, number) for number in (3, 4)}
    host.store.discard(chk(3), attempt(5))
    host.store.discard(chk(3), attempt(5))
    assert host.store.find(chk(3), files[3]) == {}
    assert set(host.store.find(chk(4), files[4])) == set(files[4])
    assert [path.name for path in host.store.path.iterdir()] == ["chk-4"]


def test_a_range_is_read_from_a_copy_only_after_the_whole_copy_is_verified(host: Host) -> None:
    files = host.take(3, 3)
    (path, (size, _)), _ = sorted(files.items())
    handle = RelativeFileStateHandle(path, size)
    content = (host.remote / path).read_bytes()
    copy = host.store.find(chk(3), files)[path]
    damaged = bytearray(content)
    damaged[-1] ^= 1
    (Path(copy.directory) / copy.copy.name).write_bytes(damaged)
    reader = host.reader(3, files)
    assert bytes(reader.read_range(handle, 0, 10)) == content[:10]
    assert reader.origins == {"remote"}, "the damage lies elsewhere in the file, but it is damaged"


def test_an_invalid_handle_has_the_same_error_as_without_copies(host: Host) -> None:
    files = host.take(3, 3)
    (path, (size, _)), _ = sorted(files.items())
    reader = host.reader(3, files)
    for act in (
        lambda: reader.read_range(RelativeFileStateHandle(path, size), 0, size + 1),
        lambda: reader.read(RelativeFileStateHandle(path, size - 1)),
    ):
        with pytest.raises(CorruptStateError):
            act()
    inline = ByteStreamStateHandle("n", b"data")
    fresh = host.reader(3, files)
    assert bytes(fresh.read(inline)) == b"data"
    assert fresh.origins == set()


def test_inline_streams_and_streams_without_a_copy_are_not_indexed(host: Host) -> None:
    directories = host.store.directories(attempt(1), 0)
    directories.open(chk(3))
    inline = WrittenStream(ByteStreamStateHandle("n", b"x"), 1, 1, local_name="stream-0")
    uncopied = WrittenStream(FileStateHandle("file:///a", 1), 1, 1)
    directories.complete(chk(3), [inline, uncopied])
    assert host.lying() == ["chk-3"]


def test_a_file_on_another_disk_is_copied_instead_of_linked(host: Host, tmp_path: Path) -> None:
    directory = host.store.directories(attempt(1), 0).open(chk(3))
    assert directory is not None
    near = tmp_path / "near"
    near.write_bytes(b"near")
    assert directory.keep(str(near), "1.sst") == "1.sst"
    assert near.stat().st_nlink == 2
    others = [disk for disk in DISKS if disk.stat().st_dev != tmp_path.stat().st_dev]
    if not others:
        pytest.skip("there is one disk only")
    with tempfile.TemporaryDirectory(dir=others[0]) as other:
        far = Path(other) / "far"
        far.write_bytes(b"far")
        assert directory.keep(str(far), "2.sst") == "2.sst"
        assert far.stat().st_nlink == 1
    assert [p.read_bytes() for p in sorted(host.store.path.rglob("*.sst"))] == [b"near", b"far"]


def test_after_one_failure_no_more_copies_are_made(
    host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = host.store.directories(attempt(1), 0).open(chk(3))
    assert directory is not None
    (tmp_path / "there").write_bytes(b"x")
    assert directory.keep(str(tmp_path / "gone"), "1.sst") is None
    assert directory.keep(str(tmp_path / "there"), "2.sst") is None
    assert len(caplog.records) == 1
    assert not list(host.store.path.rglob("*.sst"))
