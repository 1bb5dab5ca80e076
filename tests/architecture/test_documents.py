"""ARCHITECTURE.md names every room, README.md every verb, and the documents' links lead somewhere."""

import re
from pathlib import Path

import pytest

import statelib
from tests.architecture.repository import ROOT, anchors

DOCUMENTS = sorted(ROOT.glob("*.md"))
EVERY = sorted([*DOCUMENTS, *(ROOT / "docs").rglob("*.md")])


def rooms() -> list[str]:
    inside = [f"statelib/{path.name}" for path in (ROOT / "statelib").iterdir() if (path / "__init__.py").exists()]
    beside = [f"{name}/" for name in ("dags", "plugins", "jobs", "demo", "tests")]
    return sorted([*inside, *beside])


@pytest.mark.parametrize("room", rooms())
def test_every_room_is_named(room: str) -> None:
    assert f"`{room}`" in (ROOT / "ARCHITECTURE.md").read_text()


def test_every_verb_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    verbs = re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)
    documents = "\n".join(path.read_text() for path in DOCUMENTS)
    assert {verb for verb in verbs if f"make {verb}" not in documents} <= {"help", "setup", "format"}


@pytest.mark.parametrize("document", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    dead = []
    for place, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", document.read_text()):
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{place}#{anchor}")
    assert dead == []


def test_every_document_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / place).resolve() for place in re.findall(r"\]\(([^)#:\s]+)", index.read_text())}
    elsewhere = {ROOT, ROOT / "docs" / "decisions", ROOT / "docs" / "cookbook"}  # Both have an index of their own.
    assert [path.name for path in EVERY if path.parent not in elsewhere and path != index and path not in linked] == []


def test_every_direct_dependency_has_a_reason() -> None:
    for name in ("requirements.in", "requirements/dev.in"):
        lines = (ROOT / name).read_text().splitlines()
        named = [line for line in lines if line and not line.startswith(("#", "-r"))]
        bare = [line for line in named if "#" not in line and not lines[lines.index(line) - 1].startswith("# ")]
        assert bare == [], f"{name}: a reason behind '#' on the line, or on the line above"


def test_the_version_is_in_the_changelog() -> None:
    version = statelib.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/flows.md", "docs/spec/layout.md", "docs/spec/memory.md"])
def test_files_of_code_in_a_page_exist(page: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / page).read_text())
    assert [name for name in named if not any((ROOT / place / name).is_file() for place in ("", "statelib"))] == []


def test_the_architecture_is_a_short_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200
