"""Rules for code that no linter checks: loggers are used, helpers are private, and the licence is Apache's."""

import ast
import re
import tomllib
from collections import Counter

from tests.architecture.repository import ROOT, files, modules


def logger_names(tree: ast.Module) -> set[str]:
    """Return the names of the module's variables that hold a logger."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and "getLogger" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def unused_loggers(text: str) -> set[str]:
    """Return the loggers that a module makes and does not use."""
    tree = ast.parse(text)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return logger_names(tree) - used


def test_every_logger_is_used() -> None:
    """Requirement R171: a logger that a module makes is used."""
    assert {path for path, text, _ in modules("statelib", "plugins", "jobs") if unused_loggers(text)} == set()
    assert unused_loggers("log = logging.getLogger(__name__)\nlog.info('x')\n") == set()
    assert unused_loggers("log = logging.getLogger(__name__)\n") == {"log"}


def public_functions(tree: ast.Module) -> set[str]:
    """Return the functions of a module that others may call. Decorated functions are left out: a decorator registers
    its function somewhere."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not node.decorator_list
    }


def test_public_functions_are_used_elsewhere() -> None:
    """Requirement R172: a function that its own module alone uses has a name with an underscore in front."""
    words = Counter(
        word
        for path in files()
        if path.suffix in {".py", ".toml", ".yaml", ".md", ".sh", ".cfg"}
        for word in set(re.findall(r"\w+", path.read_text(errors="replace")))
    )
    alone = {
        f"{path}: {name}"
        for path, _, tree in modules("statelib", "plugins")
        for name in public_functions(tree)
        if words[name] == 1
    }
    assert alone == set()


def test_the_licence_is_apaches() -> None:
    """Requirement R175: no file is under another licence."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    other = re.compile(r"Mulan (?:PSL|Permissive)|GNU (?:Affero |Lesser )?General Public License")
    paths = [path for path in files() if path.suffix == ".py" and path.name != "test_code_rules.py"]
    assert [str(path) for path in paths if other.search(path.read_text())] == []
