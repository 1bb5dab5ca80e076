"""Descriptors are closed once, whatever fails."""

import os
from pathlib import Path

import pytest

from statelib.storage.filesystem import descriptors
from statelib.storage.filesystem.descriptors import create_in, opened_directory


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the closed descriptors. The first close raises an error although it has closed."""
    closed: list[int] = []

    def close(number: int) -> None:
        closed.append(number)
        os.close(number)
        if len(closed) == 1:
            raise OSError("the reply is lost")

    class Failing:
        def __getattr__(self, name: str) -> object:
            return close if name == "close" else getattr(os, name)

    monkeypatch.setattr(descriptors, "os", Failing())
    return closed


def test_a_failed_close_leaks_no_descriptor(tmp_path: Path, closed: list[int]) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="lost"), opened_directory(str(tmp_path), ["a"]):
        pass
    assert len(set(closed)) == len(closed) == 2


def test_a_new_file_is_not_left_open_when_its_directory_fails_to_close(tmp_path: Path, closed: list[int]) -> None:
    with pytest.raises(OSError, match="lost"):
        create_in(str(tmp_path), "new")
    assert len(set(closed)) == len(closed) == 2
