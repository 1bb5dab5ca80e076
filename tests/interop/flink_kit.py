"""A real Flink for the tests: its jars from PyPI, our checker compiled against them, restores run in one JVM.

Everything lies below ``.work/flink/<version>`` and is made once; ``STATELIB_FLINK`` names another directory to keep it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from demo.spark_start import FAST

SOURCES = Path(__file__).parent / "flink"
HOME = Path(os.environ.get("STATELIB_FLINK", Path(__file__).parents[2] / ".work" / "flink"))
HASHES = {
    "1.20.5": "sha256:e6aee62ea1a1fe7b32e28894ad079f3f1a50a372a4caac3df52405267f4228c8",
    "2.3.0": "sha256:38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151",
}
"""The hashes of the packages ``apache-flink-libraries``."""
OPENED = (
    "lang", "util", "time", "net", "io", "nio", "lang.reflect", "text", "util.concurrent", "util.concurrent.atomic",
    "util.concurrent.locks",
)  # fmt: skip
"""The packages ``java.*`` whose private parts Flink uses."""
TIMEOUT_S = 900


class NoFlink(Exception):
    """The reason why there is no Flink."""


@dataclass(frozen=True)
class StateToSee:
    """A state that Flink declares. ``kind``: value, list, map, reducing, aggregating, opList, opUnion, broadcast;
    types are in statelib's own text."""

    name: str
    kind: str
    type: str
    user_key: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class TimersToSee:
    service: str
    namespace: str | None = None


@dataclass(frozen=True)
class OperatorToSee:
    uid: str
    key: str | None
    states: tuple[StateToSee, ...]
    timers: tuple[TimersToSee, ...] = ()


@dataclass(frozen=True)
class Case:
    """One restore. With ``max_parallelism`` 0 it is taken from the snapshot."""

    snapshot: Path
    operators: tuple[OperatorToSee, ...]
    backend: str
    parallelism: int
    max_parallelism: int = 0
    allow_non_restored_state: bool = False


@dataclass(frozen=True)
class Order:
    """An order to restore ``case`` and to write its state anew below ``target``: ``CANONICAL`` or ``NATIVE``
    savepoints, or a ``CHECKPOINT``, one after the other."""

    case: Case
    target: Path
    forms: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionOrder:
    """An order for a job with session windows: it takes ``elements``, then a savepoint below ``target``.

    ``kind``: reducing, aggregating or list. ``snapshot``: the URI of the savepoint to start from. ``elements``: pairs
    of a number and its time; the number of a watermark is None."""

    kind: str
    uid: str
    gap_ms: int
    lateness_ms: int
    backend: str
    parallelism: int
    target: Path
    elements: Sequence[tuple[int | None, int]]
    snapshot: str | None = None


@dataclass(frozen=True)
class Sessions:
    """The result of a job with session windows: its savepoint, and a line per firing and per late number."""

    savepoint: str
    lines: list[str]


@dataclass(frozen=True)
class Restored:
    """The result of a restore: typed JSON lines in their order, or Flink's error with its causes."""

    lines: list[str] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class Flink:
    version: str
    classpath: str

    def restore(self, cases: Sequence[Case], flights: Path | None = None) -> list[Restored]:
        """Restore each case in Flink, and return what its operators then contain. With a file of ``flights``, return
        the content of ``aircraft_activity`` after it has counted these too."""
        with tempfile.TemporaryDirectory(prefix="statelib-flink-") as scratch:
            documents = [_document(case, number, scratch) for number, case in enumerate(cases)]
            (todo := Path(scratch, "cases.json")).write_text(json.dumps(documents))
            output = self._java("statelib.check.Check", str(todo), scratch, *([str(flights)] if flights else []))
            answers = {answer["id"]: answer for answer in map(json.loads, output.splitlines())}
            return [_restored(answers[document["id"]], Path(str(document["out"]))) for document in documents]

    def write_again(self, orders: Sequence[Order]) -> list[list[Path]]:
        """Let Flink restore and write the state again, and return the snapshots of each form. Raise RuntimeError with
        Flink's error."""
        with tempfile.TemporaryDirectory(prefix="statelib-flink-") as scratch:
            documents = [
                {"from": _document(order.case, number, scratch), "target": str(order.target),
                 "forms": order.forms, "settings": dict(order.settings)}
                for number, order in enumerate(orders)
            ]  # fmt: skip
            for order in orders:
                (order.target / "tmp").mkdir(parents=True)
            (todo := Path(scratch, "orders.json")).write_text(json.dumps(documents))
            answers = list(map(json.loads, self._java("statelib.check.Again", str(todo)).splitlines()))
        if failed := [f"{answer['id']}: {answer['error']}" for answer in answers if "error" in answer]:
            raise RuntimeError("\n".join(failed))
        return [[Path(path.removeprefix("file:")) for path in answer["written"]] for answer in answers]

    def log_changes(
        self,
        target: Path,
        settings: Mapping[str, str],
        after: Sequence[int],
        pauses_ms: Sequence[int] = (),
        job: str = "changing",
        stop: str | None = None,
    ) -> list[Path]:
        """Return checkpoints of a job that changes its state, each taken after so many changes, with ``pauses_ms``
        behind them. Beside them, the files ``truth-1.jsonl``, ... have their true contents, if the job is
        ``changing``; ``sessions`` are made of the numbers from 0 on, and a canonical savepoint comes last. ``stop``:
        ``suspend`` or ``drain``; the last snapshot is then the savepoint with which the job ends. Raises
        RuntimeError with Flink's error."""
        (target / "tmp").mkdir(parents=True)
        pauses = list(pauses_ms) or [0] * len(after)
        order = {
            "job": job, "target": str(target), "settings": dict(settings), "after": list(after), "pausesMs": pauses,
            "stop": stop,
        }  # fmt: skip
        (todo := target / "tmp" / "order.json").write_text(json.dumps(order))
        answer = json.loads(self._java("statelib.check.Logged", str(todo)))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return [Path(path.removeprefix("file:")) for path in answer["written"]]

    def run_sessions(self, orders: Sequence[SessionOrder]) -> list[Sessions]:
        """Run jobs with session windows, one after the other. Raise RuntimeError with Flink's error."""
        documents = []
        for order in orders:
            (order.target / "tmp").mkdir(parents=True)
            elements = [{"n": number, "t": moment} for number, moment in order.elements]
            documents.append(
                {"kind": order.kind, "uid": order.uid, "gapMs": order.gap_ms, "latenessMs": order.lateness_ms,
                 "backend": order.backend, "parallelism": order.parallelism, "snapshot": order.snapshot,
                 "target": str(order.target), "elements": elements}
            )  # fmt: skip
        (todo := orders[0].target / "tmp" / "orders.json").write_text(json.dumps(documents))
        answers = list(map(json.loads, self._java("statelib.check.SessionJob", str(todo)).splitlines()))
        if errors := [answer["error"] for answer in answers if "error" in answer]:
            raise RuntimeError("\n".join(errors))
        return [Sessions(answer["savepoint"], answer["lines"]) for answer in answers]

    @contextmanager
    def warm(self) -> Iterator["WarmCluster"]:
        """Yield a running cluster for restores that are measured."""
        with tempfile.TemporaryDirectory(prefix="statelib-flink-") as scratch:
            command = self._command("statelib.check.Timed", scratch)
            with Path(scratch, "errors.txt").open("w+") as errors, subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process:  # fmt: skip
                try:
                    yield WarmCluster(process, errors)
                finally:
                    process.kill()

    def _java(self, main: str, *arguments: str) -> str:
        java, *rest = self._command(main, *arguments)
        run = subprocess.run(
            [java, *FAST.split(), *rest], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if run.returncode:
            raise RuntimeError(f"{main} ended with {run.returncode}:\n{run.stderr[-4000:]}")
        return run.stdout

    def _command(self, main: str, *arguments: str) -> list[str]:
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
        log = f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}"
        command = ["java", "-Xmx3g", *opens, "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", log]
        return [*command, "-cp", self.classpath, main, *arguments]


@dataclass(frozen=True)
class WarmCluster:
    """A running cluster that carries out one order after the other, and ends with its context."""

    process: "subprocess.Popen[str]"
    errors: IO[str]

    def restore(
        self, snapshot: Path, uid: str, key: str, parallelism: int, backend: str = "hashmap", target: Path | None = None
    ) -> dict[str, object]:
        """Restore a snapshot, and return the number of ``entries`` of the operator; with ``target`` also the
        ``savepoint`` that Flink wrote there, and the time ``savepointMs``."""
        order = {
            "snapshot": str(snapshot), "uid": uid, "key": key, "parallelism": parallelism, "backend": backend,
            "target": str(target) if target else None,
        }  # fmt: skip
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the cluster has no pipes")
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()):
            self.errors.seek(0)
            raise RuntimeError(f"the cluster ended:\n{self.errors.read()[-4000:]}")
        answer = dict(json.loads(line))
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return answer


def _document(case: Case, number: int, scratch: str) -> dict[str, object]:
    operators = [
        {
            "uid": operator.uid,
            "key": operator.key,
            "states": [
                {"name": s.name, "kind": s.kind, "type": s.type, "userKey": s.user_key, "namespace": s.namespace}
                for s in operator.states
            ],
            "timers": [asdict(timers) for timers in operator.timers],
        }
        for operator in case.operators
    ]
    return {
        "id": str(number), "snapshot": str(case.snapshot), "backend": case.backend, "parallelism": case.parallelism,
        "maxParallelism": case.max_parallelism, "out": f"{scratch}/{number}.jsonl",
        "allowNonRestoredState": case.allow_non_restored_state, "operators": operators,
    }  # fmt: skip


def _restored(answer: dict[str, object], out: Path) -> Restored:
    return Restored(error=str(answer["error"])) if "error" in answer else Restored(out.read_text().splitlines())


def flink(version: str) -> Flink:
    """Return this version of Flink, fetched and compiled if necessary. Raises NoFlink with the reason if it is not
    available."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise NoFlink(f"no {tool} on the path: a real Flink needs a JDK 17")
    home = HOME / version
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / "lock"):
        jars = _jars(home, version)
        classes = _classes(home, jars)
    return Flink(version, os.pathsep.join([str(classes), *map(str, jars)]))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that only one of several test processes prepares Flink."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _jars(home: Path, version: str) -> list[Path]:
    lib = home / "lib"
    if not lib.exists():
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            archive = _download(Path(scratch), version)
            unpacked = Path(scratch, "lib")
            unpacked.mkdir()
            for name, source in _members(archive):
                if PurePosixPath(name).suffix == ".jar" and PurePosixPath(name).parent.name == "lib":
                    with (unpacked / PurePosixPath(name).name).open("wb") as target:
                        shutil.copyfileobj(source(), target)
            unpacked.rename(lib)
    return sorted(lib.glob("*.jar"))


def _download(scratch: Path, version: str) -> Path:
    wanted = scratch / "wanted.txt"
    wanted.write_text(f"apache-flink-libraries=={version} --hash={HASHES[version]}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run = subprocess.run(
        [*pip, "--require-hashes", "-r", str(wanted), "-d", str(scratch)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if run.returncode:
        raise NoFlink(f"apache-flink-libraries {version} cannot be fetched: {run.stderr.strip().splitlines()[-1:]}")
    return next(path for path in scratch.iterdir() if path.name.startswith("apache"))


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """Yield name and opener of each file of a wheel or a source archive; a file must be opened before the next is
    requested."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, partial(wheel.open, name)
        return
    with tarfile.open(archive) as source:
        for member in source:
            if member.isfile():
                yield member.name, partial(source.extractfile, member)


def _classes(home: Path, jars: list[Path]) -> Path:
    """Return the directory of the compiled checker; there is one for each state of its sources."""
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = home / f"classes-{digest}"
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            command = ["javac", "--release", "17", "-nowarn", "-Xlint:none", "-cp", os.pathsep.join(map(str, jars))]
            run = subprocess.run(
                [*command, "-d", f"{scratch}/classes", *map(str, sources)],
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            if run.returncode:
                raise RuntimeError(f"the checker does not compile:\n{run.stderr[-4000:]}")
            Path(scratch, "classes").rename(classes)
    return classes
