"""A soak: workers of pipelines are killed and stopped at random instants, hour after hour, and nothing may be lost.

``python -m soak --minutes 60 --seed 1`` prints a line a minute, and at its end a JSON object with the counts; exit
code 1 if a promise was broken, and then what lies in the pipeline's directory is kept. The seed decides on pipelines,
actions and signals; what a signal meets depends on the machine.
"""

import argparse
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.faults.soak_checks import check_lane, check_nothing_left
from tests.faults.soak_lane import Lane, Options
from tests.faults.soak_worker import CLEANER, COORDINATOR, Worker
from tests.support.postgresql_server import DATABASE_USER, NoServer, postgresql_server
from tests.support.s3_endpoint import s3_endpoint
from tests.support.worlds import CHECKOUT

ENDPOINT = CHECKOUT / ".work" / "endpoint" / "bin" / "python"
ROUNDS_A_LANE = 25
LIFE_S = 3.0
"""The average life of a worker."""
MOST_ACTIONS = 400
HANG_S = 180.0
"""The time after which a check counts as hanging."""
SAID = ("done", "read", "looked at", "restored", "excused", "cleaned", "overtaken", "fixed point")


class Soak:
    """The supervisor of a soak. It opens neither catalog nor storage, so that its children can."""

    def __init__(self, directory: Path, seed: int, storages: list[str], catalogs: list[str]) -> None:
        self.directory = directory
        self.seed = seed
        self.storages = storages
        self.catalogs = catalogs
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.lanes = 0

    def run(self, seconds: float, on_violation: Callable[[str], None]) -> dict[str, object]:
        started = reported_at = time.monotonic()
        while time.monotonic() - started < seconds:
            lane = self._new_lane()
            for number in range(ROUNDS_A_LANE):
                self._round(lane, random.Random(f"{self.seed} {lane.number} {number}"))
                if time.monotonic() - reported_at >= 60:
                    reported_at = time.monotonic()
                    on_violation(f"{(reported_at - started) / 60:.0f} min: {json.dumps(self.summary(lane))}")
                if lane.journal.violations or time.monotonic() - started >= seconds:
                    break
            self._end(lane)
        return self.summary() | {"minutes": round((time.monotonic() - started) / 60, 1), "seed": self.seed}

    def summary(self, lane: Lane | None = None) -> dict[str, object]:
        counts = self.counts + (_counted(lane) if lane else Counter())
        violations = len(self.violations) + (len(lane.journal.violations) if lane else 0)
        return {"lanes": self.lanes, **dict(sorted(counts.items())), "violations": violations}

    def _new_lane(self) -> Lane:
        self.lanes += 1
        chance = random.Random(f"{self.seed} {self.lanes}")
        options = Options.drawn(chance, self.storages, self.catalogs)
        name = f"{self.seed}x{self.lanes}"
        root = self.directory / f"lane-{name}"
        shutil.rmtree(root, ignore_errors=True)
        return Lane(name, root, options, seed=self.seed * 1000 + self.lanes)

    def _end(self, lane: Lane) -> None:
        self._checked(lane, lambda: check_nothing_left(lane))
        self._checked(lane, lambda: check_lane(lane, restored=False))
        self.counts += _counted(lane)
        kind = "s3" if lane.options.storage else "files"
        self.counts[f"lanes on {kind} and {lane.options.catalog.partition(':')[0]}"] += 1
        if lane.journal.violations:
            self.violations += [f"{lane.root} {lane.options}: {text}" for text in lane.journal.violations]
        else:
            shutil.rmtree(lane.root)

    def _round(self, lane: Lane, chance: random.Random) -> None:
        restores = lane.journal.restores
        ROUNDS[chance.choices(list(ROUNDS), [10, 3, 3, 2])[0]](self, lane, chance)
        lane.journal.read()
        self._checked(lane, lambda: check_lane(lane, lane.journal.restores > restores))
        if chance.random() < 0.2:
            self._checked(lane, lambda: check_nothing_left(lane))

    def _checked(self, lane: Lane, check: Callable[[], None]) -> None:
        pid = child(check, lane)
        if not ended(pid, HANG_S):
            os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
            self._kill(pid)
            lane.journal.write("violation", f"a check hangs: {lane.root}/stacks")
        lane.journal.read()

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        self.counts["kills"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def _start(self, lane: Lane, chance: random.Random, weights: dict[str, float], contended: bool) -> int:
        seed = f"{chance.random()}"
        return child(lambda: Worker(lane, seed, weights, contended).work(MOST_ACTIONS), lane)

    # -- kinds of rounds ---------------------------------------------------------------------

    def killed(self, lane: Lane, chance: random.Random) -> None:
        pid = self._start(lane, chance, COORDINATOR, contended=False)
        time.sleep(life(chance))
        self._kill(pid)

    def with_cleaner(self, lane: Lane, chance: random.Random) -> None:
        """Run a cleaner and a reader beside the worker; each is killed with it."""
        self._both(lane, chance, COORDINATOR, CLEANER)

    def rivals(self, lane: Lane, chance: random.Random) -> None:
        """Let two runs of the same pipeline overlap."""
        self._both(lane, chance, COORDINATOR, COORDINATOR)

    def _both(self, lane: Lane, chance: random.Random, first: dict[str, float], second: dict[str, float]) -> None:
        pids = [self._start(lane, chance, weights, contended=True) for weights in (first, second)]
        for pid in chance.sample(pids, 2):
            time.sleep(life(chance) / 1.5)
            self._kill(pid)

    def taken_over(self, lane: Lane, chance: random.Random) -> None:
        """Stop a worker, let another one continue its work and clean up, and then let the first continue."""
        first = self._start(lane, chance, COORDINATOR, contended=True)
        time.sleep(life(chance))
        os.kill(first, signal.SIGSTOP)
        lane.journal.read()
        before = lane.journal.counts.get("begun", 0)
        second = self._start(lane, chance, COORDINATOR, contended=True)
        time.sleep(life(chance))
        if chance.random() < 0.5:
            self._kill(second)
        lane.journal.read()
        self.counts["take-overs"] += lane.journal.counts.get("begun", 0) > before
        self.counts["stops"] += 1
        os.kill(first, signal.SIGCONT)
        time.sleep(life(chance) / 2)
        self._kill(first)
        if os.path.exists(f"/proc/{second}") and not ended(second, 0):
            self._kill(second)


ROUNDS: dict[str, Callable[[Soak, Lane, random.Random], None]] = {
    "killed": Soak.killed,
    "with a cleaner": Soak.with_cleaner,
    "taken over": Soak.taken_over,
    "rivals": Soak.rivals,
}


def life(chance: random.Random) -> float:
    return min(max(chance.expovariate(1 / LIFE_S), 0.02), 3 * LIFE_S)


def child(work: Callable[[], None], lane: Lane) -> int:
    """Fork a process from this one, which has imported everything."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        with (lane.root / "stacks").open("a") as stacks:
            faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
            work()
        os._exit(0)
    except BaseException:
        lane.journal.write("violation", traceback.format_exc())
        os._exit(1)


def ended(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def _counted(lane: Lane) -> Counter[str]:
    counts = lane.journal.counts
    counted = Counter({what: counts[what] for what in SAID if what in counts})
    counted["checkpoints"] = sum(lane.journal.snapshots[n].kind == "CHECKPOINT" for n in lane.journal.done)
    counted["savepoints"] = len(lane.journal.done) - counted["checkpoints"]
    return counted


def warm(directory: Path, name: str, catalog: str) -> None:
    """Do everything once that is imported or compiled late, before children are forked, but without RocksDB's
    threads."""
    options = Options("heap", "canonical", ("total", "per_item"), 2, 1, 0, False, True, "", catalog)
    lane = Lane(name, directory / name, options, 0)
    Worker(lane, "warm", COORDINATOR | CLEANER).work(30)
    check_lane(lane, restored=True)
    check_nothing_left(lane)
    lane.journal.read()
    assert not lane.journal.violations, lane.journal.violations
    shutil.rmtree(lane.root)
    gc.freeze()  # Children then copy less of the memory.


@contextmanager
def places(everything: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the buckets and database servers that this machine can run, in addition to files and SQLite."""
    with ExitStack() as stack:
        storages, catalogs = [], []
        if everything and ENDPOINT.exists():
            endpoint = stack.enter_context(s3_endpoint(ENDPOINT))
            os.environ |= endpoint.environment
            endpoint.make_bucket("soak")
            storages.append("s3://soak/state")
        if everything:
            try:
                socket = stack.enter_context(postgresql_server())
                catalogs.append(f"postgresql+psycopg://{DATABASE_USER}@/postgres?host={socket}")
            except NoServer as reason:
                print(reason, file=sys.stderr)
        yield storages, catalogs


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", help="where pipelines live meanwhile; default: a new one for temporary files")
    parser.add_argument("--files-only", action="store_true", help="neither S3 nor PostgreSQL")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(given.directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        storages, catalogs = stack.enter_context(places(not given.files_only))
        directory.mkdir(parents=True, exist_ok=True)
        catalogs.insert(0, f"sqlite:///{directory}/catalog-{given.seed}.db")
        for number, catalog in enumerate(catalogs):
            warm(directory, f"warm{given.seed}x{number}", catalog)
        soak = Soak(directory, given.seed, storages, catalogs)
        summary = soak.run(given.minutes * 60, lambda line: print(line, flush=True))
        for violation in soak.violations:
            print(violation)
        print(json.dumps(summary, indent=1), flush=True)
    return int(bool(soak.violations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
