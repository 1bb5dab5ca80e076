"""Each file of each snapshot of a real Flink, deleted or cut: ``verify`` notices, whether it reads data or not."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelib.model.types import LONG
from statelib.savepoints.verification.snapshots import Verification, verify_at
from tests.support.worlds import CHECKOUT

FLINK = CHECKOUT / "tests" / "golden" / "flink"
MERGED = ("taskowned", "shared/job_")
"""The directories of physical files that also contain segments of other checkpoints."""


def snapshots() -> Iterator[tuple[Path, str]]:
    for about in sorted(FLINK.glob("*/*/about.json")):
        for snapshot in json.loads(about.read_text())["snapshots"]:
            yield about.parent, snapshot["path"]


def verified(folder: Path, original: Path, path: str, read_data: bool) -> Verification:
    version = original.parent.name
    old = f"file:///flink-data/{version}/{version}/{original.name}"
    return verify_at(
        str(folder / path), own=False, read_data=read_data, relocate={old: str(folder)}, key_type=LONG,
        scratch=str(folder.parent / "scratch"),
    )  # fmt: skip


def files_of(folder: Path, path: str) -> list[Path]:
    """Return its ``_metadata``, and the files whose names are in it."""
    metadata = folder / path / "_metadata"
    data = metadata.read_bytes()
    named = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name.encode() in data]
    return [metadata, *(file for file in named if file.name not in ("_metadata", "about.json"))]


@pytest.mark.parametrize(
    ("original", "path"), list(snapshots()), ids=lambda part: getattr(part, "name", str(part).rpartition("/")[2][:9])
)
def test_a_missing_or_truncated_file_is_detected(original: Path, path: str, tmp_path: Path) -> None:
    folder = tmp_path / original.name
    shutil.copytree(original, folder)
    files = files_of(folder, path)
    whole = verified(folder, original, path, read_data=False)
    assert whole.problems == ()
    assert whole.files == len(files)
    for file in files:
        content, size = file.read_bytes(), file.stat().st_size
        merged = any(mark in str(file.relative_to(folder)) for mark in MERGED)
        for left in (None, 1 if merged else size - 1):
            file.unlink() if left is None else file.write_bytes(content[:left])
            for read_data in (False, True):
                if left is None and file.name == "_metadata":
                    continue  # Then there is no snapshot.
                verification = verified(folder, original, path, read_data)
                assert verification.problems, f"{file} of {size} bytes, {left} left, read_data {read_data}"
            file.write_bytes(content)


@pytest.mark.parametrize(
    ("original", "path"), list(snapshots()), ids=lambda part: getattr(part, "name", str(part).rpartition("/")[2][:9])
)
def test_snapshots_of_flink_have_no_problems(original: Path, path: str, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    folder = tmp_path / original.name
    shutil.copytree(original, folder)
    verification = verified(folder, original, path, read_data=True)
    assert (verification.problems, verification.unread) == ((), ())
    assert verification.files_read == verification.files
