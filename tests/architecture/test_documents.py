"""ARCHITECTURE.md names every room, README.md every verb, and the documents' links lead somewhere."""

import re
import tomllib
from pathlib import Path

import pytest
from repository import ROOT

DOCUMENTS = sorted(ROOT.glob("*.md"))


def rooms() -> list[str]:
    inside = [f"statelib/{path.name}" for path in (ROOT / "statelib").iterdir() if (path / "__init__.py").exists()]
    beside = [f"{name}/" for name in ("dags", "plugins", "jobs", "demo", "bench", "tests")]
    return sorted([*inside, *beside])


@pytest.mark.parametrize("room", rooms())
def test_every_room_is_named(room: str) -> None:
    assert f"`{room}`" in (ROOT / "ARCHITECTURE.md").read_text()


def test_every_verb_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)
    said = "\n".join(path.read_text() for path in DOCUMENTS)
    assert {verb for verb in verbs if f"make {verb}" not in said} <= {"help", "setup", "format"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_every_direct_dependency_has_a_reason() -> None:
    for name in ("requirements.in", "requirements-dev.in"):
        lines = (ROOT / name).read_text().splitlines()
        named = [line for line in lines if line and not line.startswith(("#", "-r"))]
        bare = [line for line in named if "#" not in line and not lines[lines.index(line) - 1].startswith("# ")]
        assert bare == [], f"{name}: a reason behind '#' on the line, or on the line above"


def test_the_version_is_in_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
