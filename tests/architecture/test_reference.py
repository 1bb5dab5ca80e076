"""The generated pages match the code, and every command in a document exists with its options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from statelib.cli.main import app
from statelib.definition.reference.keys import DESCRIPTIONS, keys
from statelib.model.record import CheckpointState
from tests.architecture.repository import ROOT
from tools.reference import PAGES, page_types
from tools.reference.diagrams import FLOWS, SECTIONS, checkpoint_states, floors, with_sections

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_reference_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page](), "make docs writes it"


def test_a_page_without_its_section_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    with pytest.raises(ValueError, match="expected the sections \\['floors'\\], found \\[\\]"):
        with_sections(page, ("floors",))


def test_an_outdated_section_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin floors, written by `make docs` -->\nstale\n<!-- end -->\nafter\n")
    text = with_sections(page, ("floors",))
    assert "stale" not in text
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert floors() in text


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"anyOf": [{"$ref": "#/components/schemas/Row"}, {"type": "null"}]}, "Row | null"),
        ({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}, "(number | null)[]"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]}, "[number, boolean]"),
        ({"type": "string", "enum": ["A", "B"]}, '"A" | "B"'),
    ],
)
def test_a_schema_becomes_a_type(schema: dict[str, Any], expected: str) -> None:
    assert page_types.type_of(schema) == expected


def test_a_schema_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="no type in TypeScript for the schema"):
        page_types.type_of({"type": "object", "additionalProperties": {"type": "string"}})


def test_the_pictures_show_every_layer_state_and_flow() -> None:
    rooms = [path.name for path in (ROOT / "statelib").iterdir() if (path / "__init__.py").exists()]
    assert [room for room in rooms if room not in floors()] == []
    assert [state for state in CheckpointState if state not in checkpoint_states()] == []
    assert {"floors", "checkpoint states", *(f"flow {name}" for name in FLOWS)} == set(SECTIONS)


def test_every_key_of_a_pipeline_file_is_described() -> None:
    described = {key.path: key.description for key in keys()}
    assert [path for path, text in described.items() if not text] == [], (
        "describe it in statelib/definition/reference/keys.py"
    )
    assert set(DESCRIPTIONS) <= set(described)


def shown_commands(document: Path) -> Iterator[list[str]]:
    """Yield the words after each ``statelib`` in the code of a document, up to the end of the shell command."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```(?:bash|sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(statelib [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [line.split(" # ")[0] for block in blocks for line in block.splitlines()]
    for line in [*lines, *inline]:
        for part in re.split(r"\s(?:\||&&|>|;)\s", line.removeprefix("$ ")):
            match = re.match(r"(?:\S*/)?statelib (.+)", part.strip())
            if match:
                yield shlex.split(match[1], comments=True)


def problem(words: list[str]) -> str:
    """Return why the form of a command is wrong; '' if it is right."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if not words or words[0].startswith("-"):
            return "" if words in (["--help"], ["--install-completion"]) else "no command"
        if words[0] not in command.commands and not re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", words[0]):
            return f"no command {words[0]}"
        if words[0] not in command.commands:
            return ""  # The command names several in one word, as in "catalog rebuild|migrate".
        command, words = command.commands[words[0]], words[1:]
    known_options = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
    options = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return ", ".join(f"no option {option}" for option in options if option not in known_options)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_document_exists(document: Path) -> None:
    wrong = {shlex.join(words): problem(words) for words in shown_commands(document)}
    assert {words: text for words, text in wrong.items() if text} == {}


def test_mistakes_in_commands_are_detected() -> None:
    assert problem(["gc", "--dry-run"]) == ""
    assert problem(["gc", "--dryrun"]) == "no option --dryrun"
    assert problem(["checkpoints", "lost"]) == "no command lost"
