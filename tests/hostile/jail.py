"""Pass hostile input to every entrance and watch the process: ``python -m tests.hostile.jail <root> <share>``.

``root`` is empty; ``share``: one of so many snapshots is tried. The program prints a JSON object. Memory is bounded,
there is no network, and an audit hook records the files that Python opens, the programs that it runs, and what it
unpickles or connects to."""

import contextlib
import json
import os
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import pyarrow as pa
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.errors import StatelibError
from statelib.flows import wiring
from statelib.flows.views.inspection import parse_checkpoint
from statelib.flows.wiring import VARIABLES
from statelib.model.ids import PipelineName, pipeline_name
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from tests.fuzz.campaign import limit_memory
from tests.hostile.corpus import SECRET, snapshots, tricks

HANG_S = 60.0
CODE = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "pickle.", "ctypes.", "socket.")
TOUCHED = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.link")
UID = "00000000-0000-0000-0000-000000000000"


class Watch:
    """A watch over the process. ``seen``: the forbidden events since it was last emptied."""

    def __init__(self, outside: Path) -> None:
        self.forbidden = (str(outside), "/etc/passwd", "/proc/self/environ", "/dev/zero", "/dev/stdin")
        self.seen: list[str] = []
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, words: tuple[Any, ...]) -> None:
        if not self.on:
            return
        away = event in TOUCHED and any(str(word).startswith(self.forbidden) for word in words)
        if away or event.startswith(CODE):
            self.seen.append(f"{event} {words!r:.200}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.seen, self.on = [], True
        try:
            yield
        finally:
            self.on = False


class Jail:
    """A jail for hostile input. ``root``: the directory where snapshots are written and read; ``outside`` is beside
    it, and nothing may be written there."""

    def __init__(self, root: Path) -> None:
        self.root, self.outside = root / "inside", root / "outside"
        for name in ("inside", "outside", "inside/state", "inside/pipelines", "inside/scratch", "inside/docs"):
            (root / name).mkdir()
        (self.outside / "secret").write_text(SECRET)
        values = (f"sqlite:///{self.root}/catalog.db", self.root / "state", self.root / "pipelines", self.root)
        places = (*values, self.root / "docs", self.root / "scratch")
        self.environment = dict(zip(VARIABLES, map(str, places), strict=True))
        self.deployment = wiring.deployment(self.environment)
        self.deployment.catalog().pipelines()
        self.before = sorted(os.listdir(self.outside))
        self.watch = Watch(self.outside)
        self.tried: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = ("", 0.0)

    def try_it(self, group: str, name: str, act: Callable[[], object]) -> None:
        self.tried[group] += 1
        began, text = perf_counter(), ""
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
        try:
            with self.watch.watching():
                text = str(act())
        except StatelibError as error:
            self.refused[group] += 1
            text = str(error)
            if not text.isprintable() or not error.kind:
                self.wrong.append(f"{group} {name}: no clear line: {text[:300]!r}")
        except BaseException as error:
            trace = "".join(traceback.format_exception(error)[-4:])
            self.wrong.append(f"{group} {name}: {type(error).__name__}: {trace[-1500:]}")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        seconds = perf_counter() - began
        self.slowest = max(self.slowest, (f"{group} {name}", seconds), key=lambda pair: pair[1])
        self._look(f"{group} {name}", text)

    def _look(self, what: str, text: str) -> None:
        self.wrong += [f"{what}: {seen}" for seen in self.watch.seen]
        if SECRET in text:
            self.wrong.append(f"{what}: the secret came out")
        if sorted(os.listdir(self.outside)) != self.before or (self.outside / "secret").read_text() != SECRET:
            self.wrong.append(f"{what}: something was changed outside")

    def command(self, *words: str) -> str:
        """Run a command and return its output. Raise an error if it fails in another way than with status 1 or 2."""
        result = CliRunner().invoke(app, words, env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit | click.exceptions.Exit):
            raise result.exception
        assert result.exit_code in (0, 1, 2), result.exit_code
        assert "Traceback" not in result.output, result.output
        if words[0] != "verify" and result.exit_code:
            self.refused["command line"] += 1
        return str(result.output)

    def names(self) -> None:
        for number, trick in enumerate(tricks(self.outside)):
            name = f"{number} {trick[:30]!a}"
            self.try_it("name", name, partial(pipeline_name, trick))
            self.try_it("checkpoint", name, partial(parse_checkpoint, f"{trick}/1"))
            root = self.deployment.storage_root
            self.try_it("storage", name, partial(FileSystemCheckpointStorage, root, PipelineName(trick)))
            if "\ud800" in trick or "\0" in trick:
                continue  # No shell could pass it.
            for words in (("checkpoints", "list", "-p"), ("checkpoints", "show"), ("gc", "-p")):
                self.try_it("command line", name, partial(self.command, *words, trick))

    def snapshots(self, share: int) -> None:
        own = Path(__file__).parents[1].joinpath("fuzz", "own_metadata.bin").read_bytes()
        for number, (name, files) in enumerate(snapshots(own, self.outside)):
            directory = self.root / "foreign" / str(number)
            files.write(directory)
            self._read(name, directory)
            if number % share == 0:
                for words in (("inspect", str(directory)), ("verify", str(directory)), ("export", str(directory))):
                    self.try_it("command line", name, partial(self.command, *words))

    def _read(self, name: str, directory: Path) -> None:
        self.try_it("reading", name, partial(self._everything, directory))
        self.try_it("restoring", name, partial(self._restored, directory))

    def _everything(self, directory: Path) -> str:
        opened = open_checkpoint(str(directory), storage_root=self.deployment.storage_root)
        text = [str(table.to_pylist()[:100]) for part in opened.each_operator() for _, table in part.tables()]
        return "".join(text) + str(verify_at(str(directory), own=False))

    def _restored(self, directory: Path) -> str:
        opened = open_checkpoint(str(directory), storage_root=self.deployment.storage_root)
        for part in opened.each_operator():
            for number, source in enumerate(part.sources()):
                scratch = directory.parent / f"{directory.name}-restored-{number}"
                groups = source.handle.key_group_range
                restore_heap(source.schema, groups, [source], f"{scratch}-heap").close()
                restore_rocksdb(source.schema, groups, [source], str(scratch), UID).close()
        return ""


def _hang(*_: object) -> None:
    raise TimeoutError("hangs")


def main(root: str, share: str) -> None:
    pa.set_cpu_count(1)
    signal.signal(signal.SIGVTALRM, _hang)
    jail = Jail(Path(root))
    jail.command("pipelines", "list")  # Modules that are imported late are imported now.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit_memory()
    jail.names()
    jail.snapshots(int(share))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    counts = {"tried": jail.tried, "refused": jail.refused, "wrong": jail.wrong}
    print(json.dumps({**counts, "slowest": jail.slowest, "memory_bytes": grown << 10}))


if __name__ == "__main__":
    main(*sys.argv[1:])
