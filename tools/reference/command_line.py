"""The text of docs/reference/cli.md, made from the commands."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from statelib.cli.answers import ANSWERS, ERROR
from statelib.cli.main import app
from tools.reference.markdown import NOTICE, code, table

INTRODUCTION = """\
# Command line

`statelib`, also `python -m statelib`. Results go to standard output; notes, progress bars (on a terminal only) and
errors to standard error. Tables are as wide as the terminal, and unbroken in a pipe. `statelib --install-completion`
lets the shell complete commands, pipelines, checkpoint ids and directories of snapshots.

| exit status | means |
|---|---|
| 0 | fine |
| 1 | found a problem: damage, a missing file, differences (`--exit-code`), an invalid pipeline file, or you said no |
| 2 | refused or failed: one line says why, with a hint. What was complete before it stays |

With `--json` a command prints one document; its keys are only ever added to. What is refused prints an object with
"""


def page() -> str:
    """Return the text of the page."""
    # Any: Typer carries its own parser, whose classes are private.
    root: Any = typer.main.get_command(app)
    parts = [NOTICE.format(source="statelib/cli"), INTRODUCTION + ", ".join(map(code, ERROR.keys)) + ".\n"]
    command_list = list(commands(root, ()))
    parts += [
        table(("command", "what it does"), [(_link(words), _summary(command)) for words, command in command_list])
    ]
    parts += [_section(words, command) for words, command in command_list]
    return "\n".join(parts)


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield (words, command) for every command, in the order of ``--help``."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for name, below in inner.items():
        yield from commands(below, (*words, name))


def _link(words: str) -> str:
    return f"[`{words}`](#{words.replace(' ', '-')})"


def _summary(command: Any) -> str:
    return _text(command).split("\n\n")[0]


def _text(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _section(words: str, command: Any) -> str:
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    usage = " ".join(["statelib", words, *map(_argument, arguments), "[OPTIONS]"])
    rows = [_row(p) for p in shown]
    examples = (command.epilog or "").replace("Examples: ", "").replace("Example: ", "").split("\n\n")
    answer = ANSWERS[words]
    parts = [f"## {words}\n", f"{_text(command)}\n", f"```\n{usage}\n```\n"]
    parts += [table(("argument or option", "default", "meaning"), rows)] if rows else []
    parts += ["```bash", *(line for example in examples for line in example.split("\n")), "```\n"]
    kind = "a list of objects with" if answer.many else "an object with"
    parts += [f"`--json`: {kind} {', '.join(map(code, answer.keys))}.\n"]
    return "\n".join(parts)


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name or "").strip("{}[].").upper()
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _row(parameter: Any) -> tuple[str, str, str]:
    meaning = parameter.help or ""
    if parameter.required:
        meaning = f"**Required.** {meaning}"
    if parameter.param_type_name == "argument":
        return code(_argument(parameter)), "", meaning
    default = parameter.default
    if parameter.secondary_opts:
        default = parameter.opts[0] if default else parameter.secondary_opts[0]
    names = " / ".join([", ".join(parameter.opts), *parameter.secondary_opts])
    return code(f"{names} {_value(parameter)}".strip()), code("" if default in (None, False) else str(default)), meaning


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    names = {int: "NUMBER", Path: "PATH"}
    return str(parameter.metavar or names.get(parameter.type_descriptor.annotation, "TEXT"))
