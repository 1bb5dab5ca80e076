"""Fuzzing that coverage guides: ``python -m tests.fuzz.guided <target>[,<target>...] <seconds> [<directory>]``.

Each target in a process of its own, one after the other; statelib is instrumented once for all. A target and its
seeds are those of the campaigns. ``directory``: where the findings are stored from run to run; without it nothing
is. Ends with another status than 0, and a trace, if there is an input that is neither read nor refused with a typed
error of one line, that takes longer than 10 s, or 256 MiB beyond what the libraries take; its target goes no
further."""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["statelib"]):
    from statelib.errors import StatelibError
    from tests.fuzz.targets import TARGETS

HANG_S, MEMORY_MIB = 10, 256
_MOST_BYTES = 1 << 16


def main(names: str, seconds: str, directory: str | None = None) -> int:
    failed = 0
    for name in names.split(","):
        print(f"target {name}", file=sys.stderr, flush=True)
        if not (child := os.fork()):
            fuzz(name, seconds, directory)
        failed += os.waitpid(child, 0)[1] != 0
    return failed


def fuzz(name: str, seconds: str, directory: str | None) -> None:
    """Fuzz a target until the time is over, and end this process."""
    target = TARGETS[name]()
    names = sorted(target.seeds)

    def one(data: bytes) -> None:
        if len(data) < 2:
            return
        chosen = names[int.from_bytes(data[:2], "big") % len(names)]
        try:
            target.read(chosen, target.seeds[chosen][: target.kept.get(chosen, 0)] + data[2:])
        except StatelibError as error:
            if not (error.kind and str(error).isprintable()):
                raise ValueError(f"not a clear line: {error!r}") from error

    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
    with TemporaryDirectory() as seeds:
        for number, seed in enumerate(names):
            data = target.seeds[seed][target.kept.get(seed, 0) :]
            (Path(seeds) / str(number)).write_bytes(number.to_bytes(2, "big") + data[:_MOST_BYTES])
        flags = [f"-max_total_time={seconds}", f"-timeout={HANG_S}", f"-rss_limit_mb={resident + MEMORY_MIB}"]
        places = [seeds] if directory is None else [directory, seeds]
        flags += ["-seed=1", "-print_final_stats=1", f"-artifact_prefix={seeds}/"]
        atheris.Setup([sys.argv[0], *flags, *places], one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
