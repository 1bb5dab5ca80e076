"""Files of an earlier version are read with their original meaning, the present version writes its files unchanged, and
files of a later version are refused."""

import shutil
from pathlib import Path

import pytest

from statelib.errors import UnsupportedError
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.references import decode_reference
from statelib.wire.checksum import crc32c
from tests.golden.own_formats import CHECKPOINTS, EXACT, OWN, SINGLE, TRUTH, present, truth, write_checkpoint
from tests.hostile.corpus import with_body

VERSIONS = sorted(path.name for path in OWN.iterdir())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_version_is_read(version: str, name: str) -> None:
    directory = OWN / version / name
    expected = (directory / TRUTH).read_text(encoding="utf-8").splitlines()
    assert len(expected) > 50
    assert truth(directory) == expected
    assert verify_at(str(directory), own=True).problems == ()


@pytest.mark.parametrize("name", EXACT)
def test_the_present_version_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    write_checkpoint(name, tmp_path / name)
    own_path = OWN / present() / name
    assert {p.name for p in (tmp_path / name).iterdir()} == {p.name for p in own_path.iterdir()}
    for path in own_path.iterdir():
        assert (tmp_path / name / path.name).read_bytes() == path.read_bytes(), path.name


def test_files_other_than_checkpoints_have_the_same_bytes() -> None:
    for name, made in SINGLE.items():
        assert made() == (OWN / present() / name).read_bytes()
    for version in VERSIONS:
        stored = (OWN / version / "reference").read_bytes()
        assert decode_reference(stored).directory == "s3://bucket/state/flights/chk-17"


def refused(path: Path, data: bytes) -> UnsupportedError:
    path.write_bytes(data)
    with pytest.raises(UnsupportedError) as later:
        open_checkpoint(str(path.parent), own=True).tables()
    return later.value


def test_later_versions_are_refused(tmp_path: Path) -> None:
    path = Path(shutil.copytree(OWN / present() / "heap-canonical", tmp_path / "later")) / "_metadata"
    good = path.read_bytes()
    at = good.index(b"STATELIB")
    body = good[at + 16 : -16]
    assert with_body(good[:at], body) == good
    assert refused(path, good[:4] + (99).to_bytes(4, "big") + good[8:-16]).kind == "metadata-version"
    later = bytearray(with_body(good[:at], body))
    later[at + 8 : at + 12] = (2).to_bytes(4, "big")
    assert refused(path, with_checksum(later)).kind == "manifest-version"


def with_checksum(data: bytearray) -> bytes:
    """Return the file with a correct checksum."""
    data[-16:-12] = crc32c(bytes(data[:-16])).to_bytes(4, "big")
    return bytes(data)
