"""The files of this repository that the architecture tests check."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files() -> list[Path]:
    """Return every file that is or would be committed: tracked files, and untracked files that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def modules(*rooms: str) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield (path, text, syntax tree) of every Python file below the given directories."""
    paths = [path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in rooms]
    assert paths, f"no Python file below {rooms}"
    for path in sorted(paths):
        text = path.read_text()
        yield str(path.relative_to(ROOT)), text, ast.parse(text)


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dotted_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, full name) for each name that a module imports or uses through an import. Aliases are resolved."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for local, name in _imported(node):
                names[local] = name
                yield node.lineno, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            head, _, rest = ast.unparse(node).partition(".")
            if head in names:
                yield node.lineno, f"{names[head]}.{rest}".rstrip(".")


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (local name, full name) for each name that one statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                yield alias.name, alias.name
                yield alias.name.split(".")[0], alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"
