"""Publishing: one winner, whole bytes, the order of syncs, nothing left over."""

import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, RetryableError, UnsupportedError
from statelib.storage.filesystem.publish import put_if_absent, read_published

ROUNDS = 40


def race(directory: str, barrier: Barrier, letter: bytes, results: "multiprocessing.Queue[tuple[int, bytes]]") -> None:
    """Publish in every round's directory at the same moment as the other process."""
    for number in range(ROUNDS):
        barrier.wait(60)
        results.put((number, put_if_absent(f"{directory}/{number}", "_metadata", letter * 100_000)))


def test_two_concurrent_publishers_return_the_same_bytes(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    racers = [context.Process(target=race, args=(str(tmp_path), barrier, letter, results)) for letter in (b"a", b"b")]
    for racer in racers:
        racer.start()
    answers = [results.get(timeout=120) for _ in range(2 * ROUNDS)]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    for number in range(ROUNDS):
        stored = (tmp_path / str(number) / "_metadata").read_bytes()
        assert stored in (b"a" * 100_000, b"b" * 100_000)
        assert [data for n, data in answers if n == number] == [stored, stored]
        assert os.listdir(tmp_path / str(number)) == ["_metadata"]


def test_data_is_durable_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, link, unlink = os.fsync, os.link, os.unlink

    def spy_fsync(file: int) -> None:
        happened.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    def spy_link(source: str, target: str, **where: object) -> None:
        happened.append(f"link {source} {target}")
        link(source, target, **where)

    def spy_unlink(path: str, **where: object) -> None:
        happened.append(f"unlink {path}")
        unlink(path, **where)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "link", spy_link)
    monkeypatch.setattr(os, "unlink", spy_unlink)
    temporary = "._metadata.0.tmp"
    for _ in range(2):  # The loser also has to make the winner's name durable.
        happened.clear()
        assert put_if_absent(str(tmp_path), "_metadata", b"first") == b"first"
        assert happened == [
            f"sync {temporary}",
            f"link {temporary} _metadata",
            f"unlink {temporary}",
            f"sync {tmp_path.name}",
        ]


def test_the_temporary_file_of_a_crashed_writer_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "._metadata.0.tmp").write_bytes(b"torn")
    assert put_if_absent(str(tmp_path), "_metadata", b"whole") == b"whole"
    assert (tmp_path / "._metadata.0.tmp").read_bytes() == b"torn"
    assert sorted(os.listdir(tmp_path)) == ["._metadata.0.tmp", "_metadata"]


def test_too_many_temporary_files_are_an_error(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"._metadata.{number}.tmp").touch()
    with pytest.raises(ConflictError) as caught:
        put_if_absent(str(tmp_path), "_metadata", b"whole")
    assert caught.value.kind == "name-taken"
    assert not (tmp_path / "_metadata").exists()


def test_a_failed_write_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(RetryableError) as caught:
            put_if_absent(str(tmp_path), "_metadata", b"whole")
    assert caught.value.kind == "storage-full"
    assert os.listdir(tmp_path) == []


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(UnsupportedError) as caught:
        put_if_absent(str(tmp_path), "_metadata", b"whole")
    assert caught.value.kind == "no-hard-links"
    assert os.listdir(tmp_path) == []


def test_publishing_continues_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    assert put_if_absent(str(tmp_path), "_metadata", b"0123456789") == b"0123456789"


def test_a_link_in_the_place_of_metadata_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "_metadata").symlink_to("secret")
    for act in (lambda: put_if_absent(str(tmp_path), "_metadata", b"x"), lambda: read_published(str(tmp_path))):
        with pytest.raises(CorruptStateError) as caught:
            act()
        assert caught.value.kind == "not-a-regular-file"
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_reading_metadata_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFoundError) as caught:
            read_published(f"file:{directory}")
        assert caught.value.kind == "no-metadata"
        assert str(directory) in str(caught.value)


def test_a_file_in_place_of_the_directory_is_not_reported_as_damage(tmp_path: Path) -> None:
    (tmp_path / "savepoint").write_bytes(b"")
    with pytest.raises(NotFoundError, match=r"savepoint: a file, expected the directory") as caught:
        read_published(str(tmp_path / "savepoint"))
    assert caught.value.kind == "no-metadata"


def test_oversized_metadata_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "_metadata").touch()
    os.truncate(tmp_path / "_metadata", (1 << 30) + 1)
    with pytest.raises(CorruptStateError) as caught:
        read_published(str(tmp_path))
    assert caught.value.kind == "metadata-too-large"
