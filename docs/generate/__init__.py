"""``make docs``: the reference, written from the code. ``pages()`` is what a test holds the committed files to."""

from collections.abc import Callable
from pathlib import Path

from docs.generate import command_line, configuration, errors, pipeline_yaml

REFERENCE = Path(__file__).parents[1] / "reference"
_PAGES: dict[str, Callable[[], str]] = {
    "pipeline-yaml.md": pipeline_yaml.page,
    "cli.md": command_line.page,
    "configuration.md": configuration.page,
    "errors.md": errors.page,
}


def pages() -> dict[Path, str]:
    """The text of each page of the reference."""
    return {REFERENCE / name: make() for name, make in _PAGES.items()}
