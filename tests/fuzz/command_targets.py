"""The command line over damaged directories: an exit code and one clear line, or a table of the problems."""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path

import click
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.flows.wiring import VARIABLES
from tests.fuzz.campaign import Target
from tests.fuzz.samples import directory_of, own_directory

INLINE = (
    "1.20.5/keys-long-hashmap-canonical",
    "1.20.5/keys-pojo-hashmap-canonical",
    "1.20.5/opstate-canonical-p2",
    "1.20.5/sql-join-hashmap-canonical",
    "1.20.5/kinds-hashmap-canonical-p4-files",
    "1.20.5/values-hashmap-native",
)
ROCKSDB = ("1.20.5/timers-rocksdb-native", "1.20.5/sql-groupby-rocksdb-native")
COMMANDS = (
    ("inspect",),
    ("inspect", "--json"),
    ("verify",),
    ("export", "--format", "typed-jsonl"),
    ("export",),
)


def _commands(fixtures: tuple[str, ...], extra: Mapping[str, bytes]) -> Target:
    """Run commands on a snapshot. A seed is a file of it, which is damaged among the others of its directory."""
    root = own_directory()
    seeds: dict[str, bytes] = {}
    for number, fixture in enumerate(fixtures):
        directory = Path(shutil.copytree(directory_of(fixture), root / f"chk-{number}"))
        seeds |= {f"chk-{number}/{path.name}": path.read_bytes() for path in directory.iterdir()}
    for name, data in extra.items():
        (root / name).parent.mkdir()
        (root / name).write_bytes(data)
        seeds[name] = data
    commands = cycle(COMMANDS)

    def read(name: str, data: bytes) -> None:
        path = root / name
        path.write_bytes(data)
        try:
            call(next(commands), path.parent)
        finally:
            path.write_bytes(seeds[name])

    return Target(seeds, read)


def call(words: tuple[str, ...], directory: Path) -> None:
    """Run a command. Raises AssertionError if it ends in another way than with an exit code and a clear line."""
    first, *options = words
    result = CliRunner().invoke(app, [first, str(directory), *options], env=dict.fromkeys(VARIABLES))
    if result.exception is not None and not isinstance(result.exception, SystemExit | click.exceptions.Exit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code
    assert "Traceback" not in result.output, result.output
    if result.exit_code:
        lines = result.stderr.splitlines()
        if "--json" in options:
            answer = json.loads(result.stdout)
            assert "error" in answer or '"unreadable":' in result.stdout, result.output
        else:
            flat = " ".join(result.stdout.replace("│", " ").split())
            named = any(word in flat for word in ("DAMAGED", "unread ", "cannot be read"))
            assert named or result.stderr.startswith("statelib: "), (words, result.output)
        assert len(lines) <= 12, result.stderr


def _own() -> Mapping[str, bytes]:
    return {"chk-own/_metadata": Path(__file__).with_name("own_metadata.bin").read_bytes()}


COMMAND_LINE: Mapping[str, Callable[[], Target]] = {
    "commands": lambda: _commands(INLINE, _own()),
    "commands-rocksdb": partial(_commands, ROCKSDB, {}),
}
