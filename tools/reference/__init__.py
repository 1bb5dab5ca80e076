"""``make docs``: the reference, written from the code. A test holds the committed files to it."""

from collections.abc import Callable
from pathlib import Path

from tools.reference import command_line, configuration, errors, pipeline_yaml

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES: dict[Path, Callable[[], str]] = {
    _REFERENCE / "pipeline-yaml.md": pipeline_yaml.page,
    _REFERENCE / "cli.md": command_line.page,
    _REFERENCE / "configuration.md": configuration.page,
    _REFERENCE / "errors.md": errors.page,
}
"""What makes the text of each page."""
