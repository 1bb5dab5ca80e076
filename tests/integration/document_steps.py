"""The code blocks of a document as steps that can be run; their output is compared with the document."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from typer.testing import CliRunner

from statelib.cli.main import app

BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
COLUMNS = "100"
HOME = "/home/you/tutorial"
"""The name that documents use for the directory in which they are run."""
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d UTC)?(?= *$)", re.MULTILINE), "TIME"),
    (re.compile(r"\d[\d.,]* (B|[KM]iB)\b"), "SIZE"),
    (re.compile(r"[0-9a-f]{32}(-\d+-\d+)?"), "ATTEMPT"),
    (re.compile(r"\d+ files? read"), "SOME files read"),
    (re.compile(r"\d+(\.\d)? (ms|s)\b"), "DURATION"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ?\n ?"), "\n"),
)


@dataclass(frozen=True)
class Step:
    """A file to write, or commands to run with their output."""

    file: str
    commands: str
    text: str
    printed: str | None = None


def steps(document: str) -> list[Step]:
    """Return the steps of a document. Blocks below ``<!-- file: ... -->`` are files, those of bash are commands, and
    a text block right behind them is their output. Other blocks are not run."""
    commands: list[Step] = []
    last = ""
    for block in BLOCK.finditer(document):
        kind, text = block["kind"], block["text"]
        if block["file"]:
            commands.append(Step(block["file"], "", text))
        elif kind == "bash":
            commands.append(Step("", text, ""))
        elif kind == "text" and last == "bash":
            commands[-1] = Step("", commands[-1].commands, "", text)
        last = kind
    return commands


def masked(text: str) -> str:
    """Return the text without what differs from run to run: times, sizes, names of attempts, and widths of columns."""
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text.strip()


def follow(document: str, shell: "Shell") -> int:
    """Execute a document, compare the output with the document's, and return the number of compared outputs."""
    compared = 0
    for step in steps(document):
        if step.file:
            target = shell.directory / step.file
            target.parent.mkdir(exist_ok=True)
            target.write_text(step.text)
            continue
        printed = shell.run(step.commands)
        if step.printed is not None:
            result, wanted = masked(printed).splitlines(), masked(step.printed).splitlines()
            assert result == wanted, "\n".join([step.commands, *unified_diff(wanted, result, lineterm="")])
            compared += 1
    return compared


@dataclass
class Shell:
    """A shell that runs lines in a directory: those of statelib in this process, which has Spark already, the others
    in a real shell."""

    directory: Path
    environment: dict[str, str]

    def run(self, commands: str) -> str:
        lines = commands.replace("\\\n", " ").splitlines()
        return "".join(self._line(line) for line in lines if line.strip()).replace(f"{self.directory}", HOME)

    def _line(self, line: str) -> str:
        if line.startswith("statelib "):
            return self._statelib(line.removeprefix("statelib "))
        script = f"set -e\n{line}\nenv -0 > .environment"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        held = (self.directory / ".environment").read_text().split("\0")
        self.environment = dict(item.split("=", 1) for item in held if "=" in item)
        return done.stdout

    def _statelib(self, line: str) -> str:
        words, _, rest = line.partition(" | ")
        env = self.environment | {"COLUMNS": COLUMNS}
        before = Path.cwd()
        os.chdir(self.directory)
        try:
            result = CliRunner().invoke(app, shlex.split(words), env=env)
        finally:
            os.chdir(before)
        assert result.exit_code == 0, f"statelib {line}\n{result.output}"
        if rest:
            number = re.fullmatch(r"head -n (\d+)", rest)
            assert number, f"the only filter that is known here is head: {line}"
            return "".join(text + "\n" for text in result.stdout.splitlines()[: int(number[1])])
        return result.output
