"""The text of docs/reference/errors.md, made from every place in the code that raises an error of statelib."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from statelib import errors
from tools.reference.markdown import NOTICE, code, table

ROOT = Path(__file__).parents[2]
CLASSES = {
    "InvalidRequestError": "The request itself is wrong. Change it before calling again. Exit status 2.",
    "NotFoundError": "The named thing does not exist. Exit status 2.",
    "ConflictError": "Somebody else changed the thing first. Look again, then decide. Exit status 2.",
    "CorruptStateError": "Stored bytes are not what was written. They are never served and never repaired by guessing: "
    "go back to an older checkpoint. Exit status 1.",
    "RetryableError": "Nothing is wrong with the request: the same call may succeed later. Airflow retries it. "
    "Exit status 2.",
    "UnsupportedError": "The bytes are well-formed, but statelib does not handle this feature. Exit status 2.",
}
INTRODUCTION = """\
# Errors

Every error that statelib raises on purpose has a **class**, which says what to do about it, a **kind**, which says what
happened, a message, and mostly a hint. Kinds are only ever added: match on them (`error` in `--json`, `error.kind`
in Python, the words before the first colon in Airflow's log). `{...}` stands for what the message names; where a kind
is raised in several places, one of its messages is shown.
"""


@dataclass(frozen=True)
class Kind:
    """One kind of error. ``rooms``: the parts of the code that raise it."""

    name: str
    error: str
    message: str
    hint: str
    rooms: tuple[str, ...]


def page() -> str:
    """Return the text of the page."""
    kind_list = kinds()
    parts = [NOTICE.format(source="the code that raises them"), INTRODUCTION]
    for name, reaction in CLASSES.items():
        rows = [
            (code(k.name), _words(k.message) + (f" *Hint:* {_words(k.hint)}" if k.hint else ""), ", ".join(k.rooms))
            for k in kind_list
            if k.error == name
        ]
        parts += [f"## {name}\n", f"{reaction}\n", table(("kind", "message", "raised in"), rows)]
    return "\n".join(parts)


def _words(text: str) -> str:
    return text.replace("`", "'").replace("*", "\\*")


def kinds() -> list[Kind]:
    """Return each kind once per class that it is raised as, in order."""
    raised: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for path in sorted((ROOT / "statelib").rglob("*.py")):
        if "testing" in path.parts:
            continue
        room = path.relative_to(ROOT / "statelib").parts[0].removesuffix(".py")
        for error, kind, message, hint in _raised(ast.parse(path.read_text(encoding="utf-8"))):
            raised.setdefault((kind, error), []).append((message, hint, room))
    return [
        Kind(kind, error, *max((m, h) for m, h, _ in places), tuple(sorted({room for _, _, room in places})))
        for (kind, error), places in sorted(raised.items())
    ]


def _raised(tree: ast.Module) -> Iterator[tuple[str, str, str, str]]:
    """Yield (class, kind, message, hint) for each place. If a kind is a parameter, its default is used."""
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef):
            defaults = _defaults(scope)
            for call in ast.walk(scope):
                if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in CLASSES:
                    yield from _of_call(call, defaults)


def _of_call(call: ast.Call, defaults: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    for kind in _literals(given.get("kind"), defaults):
        message = _template(call.args[0]) if call.args else ""
        yield ast.unparse(call.func).rpartition(".")[2], kind, message, _template(given.get("hint"))


def _defaults(function: ast.FunctionDef) -> dict[str, str]:
    arguments = function.args
    positional = arguments.posonlyargs + arguments.args
    pairs = [*zip(positional[::-1], arguments.defaults[::-1], strict=False)]
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return {a.arg: d.value for a, d in pairs if isinstance(d, ast.Constant) and isinstance(d.value, str)}


def _literals(node: ast.expr | None, defaults: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _literals(node.body, defaults)
        yield from _literals(node.orelse, defaults)
    elif isinstance(node, ast.Name) and node.id in defaults:
        yield defaults[node.id]


def _template(node: ast.expr | None) -> str:
    """Return the text as it is written, with braces in place of inserted values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        inner = node.value
        return "{" + (inner.id if isinstance(inner, ast.Name) else "...") + "}"
    return "" if node is None or isinstance(node, ast.Constant) else "{...}"


assert set(CLASSES) == {c.__name__ for c in errors.StatelibError.__subclasses__()}
