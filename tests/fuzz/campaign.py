"""One campaign: a reader is given damaged bytes, in a process of its own that can use little memory.

``python -m tests.fuzz.campaign <target> <rounds> <seed>`` prints a JSON object with the counts and the findings:
whatever a reader did other than to give a result or to raise a StatelibError of one short line, in reasonable time.
"""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from statelib.errors import StatelibError, UnsupportedError

MEMORY_BYTES = 512 << 20
"""The memory that reading may use, including all cases and the reserves of libraries. No seed has 300 kB."""
CASE_S = 10.0
"""The processor time that one case may use."""
MAX_LINE = 5000


@dataclass(frozen=True)
class Target:
    """A reader to test. ``read`` is called with a seed's name and damaged bytes of it. ``whole``: the seeds
    themselves are not damaged, and are read first. ``kept``: the number of bytes of a seed that are never damaged,
    so that damage to the beginning does not hide damage behind it."""

    seeds: Mapping[str, bytes]
    read: Callable[[str, bytes], object]
    whole: bool = True
    kept: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Finding:
    what: str
    first_case: int
    seed: str
    trace: str
    count: int = 1


@dataclass(frozen=True)
class Outcome:
    cases: int
    refused: int
    findings: Sequence[Finding]


class _Hang(BaseException):
    """An error that only the campaign catches."""


def _on_alarm(*_: object) -> None:
    raise _Hang


def limit_memory() -> None:
    """Limit the memory of this process from now on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))


def run(target: Target, damage: Callable[[Random, bytes, bytes], bytes], rounds: int, seed: int) -> Outcome:
    random, names = Random(seed), sorted(target.seeds)
    for name in names if target.whole else ():
        with suppress(UnsupportedError):  # Arrow cannot hold everything that Flink can.
            target.read(name, target.seeds[name])
    signal.signal(signal.SIGVTALRM, _on_alarm)
    findings: dict[str, Finding] = {}
    refused = 0
    for case in range(rounds):
        name, other = names[case % len(names)], random.choice(names)
        prefix_size = target.kept.get(name, 0)
        data = target.seeds[name][:prefix_size] + damage(random, target.seeds[name][prefix_size:], target.seeds[other])
        wrong, was_refused = _wrong(target, name, data)
        refused += was_refused
        if wrong is not None and wrong[0] in findings:
            findings[wrong[0]].count += 1
        elif wrong is not None:
            findings[wrong[0]] = Finding(wrong[0], case, name, wrong[1])
    return Outcome(rounds, refused, list(findings.values()))


def _wrong(target: Target, name: str, data: bytes) -> tuple[tuple[str, str] | None, bool]:
    """Return (the problem and its origin, or None; whether the bytes were refused)."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CASE_S)
    try:
        target.read(name, data)
    except StatelibError as error:
        return _bad_line(error), True
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return (_place(error), "".join(traceback.format_exception(error)[-12:])[-3000:]), False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None, False


def _bad_line(error: StatelibError) -> tuple[str, str] | None:
    line = str(error)
    if line.isprintable() and len(line) <= MAX_LINE and error.kind:
        return None
    problem = f"{len(line)} characters" if line.isprintable() else "no printable line"
    return f"{problem}: {_place(error)}", line[:500]


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/statelib/" in frame.filename or "/fuzz/" in frame.filename] or frames
    last = own[-1]
    return f"{type(error).__name__} in {last.filename.rpartition('/statelib/')[2]}:{last.lineno} {last.name}"


def main(target: str, rounds: str, seed: str) -> None:
    from tests.fuzz.mutations import mutated
    from tests.fuzz.targets import TARGETS

    pa.set_cpu_count(1)
    made = TARGETS[target]()
    limit_memory()
    outcome = run(made, mutated, int(rounds), int(seed))
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main(*sys.argv[1:])
