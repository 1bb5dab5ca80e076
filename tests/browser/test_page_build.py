"""The committed build of the State page equals a build of its sources, is complete, and sends no request to other
hosts."""

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "plugins" / "statelib_airflow" / "page"
DIST = PAGE / "dist"
NAMED = re.compile(rb"""["'(`](https?:)?//([a-z0-9.-]+)""")
NOT_ASKED = {b"www.w3.org", b"react.dev"}
"""Addresses that are never requested: names of XML dialects, and the address in React's messages."""


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def workshop() -> Iterator[Path]:
    """Return .work/page: the sources with the packages that npm installs for them, and a fresh build."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no Node.js with npm to build the page with")
    directory = ROOT / ".work" / "page"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run([PAGE / "build.sh", directory], capture_output=True, text=True, timeout=500, check=False)
        if not (directory / "node_modules" / ".made-of").exists():
            pytest.skip(f"npm could not install what builds the page: {built.stderr.strip()[-300:]}")
        assert built.returncode == 0, built.stdout + built.stderr
        yield directory


def test_the_committed_build_equals_a_fresh_one(workshop: Path) -> None:
    fresh, committed = contents(workshop / "dist"), contents(DIST)
    assert fresh.keys() == committed.keys(), "make page"
    assert [name for name in fresh if fresh[name] != committed[name]] == [], "make page"


def test_the_pages_own_tests_pass(workshop: Path) -> None:
    vitest = [workshop / "node_modules" / ".bin" / "vitest", "run", "--reporter=dot"]
    ran = subprocess.run(vitest, cwd=workshop, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]


def test_the_page_fetches_nothing_from_other_hosts() -> None:
    named = {name: {host for _, host in NAMED.findall(data)} - NOT_ASKED for name, data in contents(DIST).items()}
    assert {name: hosts for name, hosts in named.items() if hosts and name != "LICENSES"} == {}


def test_the_build_is_complete_and_has_no_source_map() -> None:
    index = (DIST / "index.html").read_text()
    referred = re.findall(r'(?:src|href)="([^"]+)"', index)
    assert len(referred) >= 3
    assert [path for path in referred if not path.startswith("./") or not (DIST / path).is_file()] == []
    assert sorted(DIST.rglob("*.map")) == []
    assert b"sourceMappingURL" not in b"".join(contents(DIST).values())


def test_the_libraries_licences_lie_beside_the_build() -> None:
    licences = (DIST / "LICENSES").read_text()
    libraries = json.loads((PAGE / "package.json").read_text())["dependencies"]
    assert [name for name, version in libraries.items() if f"{name} {version} (MIT)" not in licences] == []


@pytest.mark.parametrize("lock", ["plugins/statelib_airflow/page", "tests/browser/chromium"])
def test_every_package_is_pinned_by_its_checksum(lock: str) -> None:
    packages = json.loads((ROOT / lock / "package-lock.json").read_text())["packages"]
    fetched = {name: pinned for name, pinned in packages.items() if name and not pinned.get("link")}
    assert [name for name, pinned in fetched.items() if "resolved" in pinned] == []
    assert [
        name for name, pinned in fetched.items() if not pinned.get("integrity") and not pinned.get("inBundle")
    ] == []
