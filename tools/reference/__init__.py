"""The files that ``make docs`` writes from the code. A test compares the committed files with what it would write."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.reference import command_line, configuration, errors, page_types, pipeline_yaml
from tools.reference.diagrams import FLOWS, with_sections

_ROOT = Path(__file__).parents[2]
_REFERENCE = _ROOT / "docs" / "reference"
_ARCHITECTURE, _PROTOCOL = _ROOT / "ARCHITECTURE.md", _ROOT / "docs" / "spec" / "protocol.md"
_PAGE_TYPES = _ROOT / "plugins" / "statelib_airflow" / "page" / "src" / "api.ts"
PAGES: dict[Path, Callable[[], str]] = {
    _REFERENCE / "pipeline-yaml.md": pipeline_yaml.page,
    _REFERENCE / "cli.md": command_line.page,
    _REFERENCE / "configuration.md": configuration.page,
    _REFERENCE / "errors.md": errors.page,
    _ARCHITECTURE: partial(with_sections, _ARCHITECTURE, ("floors", *(f"flow {name}" for name in FLOWS))),
    _PROTOCOL: partial(with_sections, _PROTOCOL, ("checkpoint states",)),
    _PAGE_TYPES: page_types.types,
}
"""The function that makes the text of each file. ARCHITECTURE.md and protocol.md are written by hand, except for their
diagrams."""
