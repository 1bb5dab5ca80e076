"""PostgreSQL fails in the middle of a commit, at each of its messages: it is killed and started again, or only the
connection is lost. Whatever the answer was, the next retry returns the true result, and a checkpoint is committed
once."""

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import make_url

from statelib.catalog import engine
from statelib.catalog.catalog import Catalog
from statelib.catalog.commit import leases
from statelib.errors import RetryableError
from statelib.model.record import CheckpointState
from tests.contract.catalog_kit import PIPE, clock, facts, locate, new_database, request
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.postgresql_server import NoServer, postgresql_server, restart_at_once

ROUNDS = rounds(6, 60)
SEED = 20260620
FATES = ("killed before", "killed after", "request lost", "reply lost")
MESSAGES = 24
"""A few more messages than a commit sends: for the last ones nothing happens to the commit."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield a server of its own, because the tests kill it."""
    try:
        with postgresql_server() as directory:
            yield directory
    except NoServer as reason:
        pytest.skip(str(reason))


class Wire:
    """A proxy between clients and the server. At the n-th message from a client, or at its COMMIT if n is 0, it
    carries out the given failure."""

    def __init__(self, directory: str) -> None:
        self._server = f"{directory}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._kill: Callable[[], None] = lambda: restart_at_once(directory)
        self._left, self._fate = 0, ""
        self.killing = threading.Lock()
        """The lock that is held until the server runs again."""
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, messages: int, fate: str) -> None:
        self._left, self._fate = messages, fate

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                upstream = socket.socket(socket.AF_UNIX)
                with suppress(OSError):
                    upstream.connect(self._server)
                threading.Thread(target=self._back, args=(upstream, client), daemon=True).start()
                threading.Thread(target=self._forth, args=(client, upstream), daemon=True).start()

    def _forth(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                self._left -= 1
                fate = self._fate if self._left == 0 or (self._left < 0 and b"COMMIT" in data) else ""
                self._fate = "" if fate else self._fate
                if fate.startswith("killed"):
                    with self.killing:
                        if fate == "killed after":
                            upstream.sendall(data)
                        self._kill()
                    break
                if fate == "request lost":
                    break
                if fate == "reply lost":
                    self._lose_reply(client, upstream, data)
                    break
                upstream.sendall(data)
        _end(client, upstream)

    @staticmethod
    def _lose_reply(client: socket.socket, upstream: socket.socket, data: bytes) -> None:
        """Close the client's side: the client receives nothing more, and the server finishes its request before it
        notices."""
        client.shutdown(socket.SHUT_RDWR)
        upstream.sendall(data)
        upstream.shutdown(socket.SHUT_WR)

    @staticmethod
    def _back(upstream: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := upstream.recv(1 << 16):
                client.sendall(data)
        _end(client, upstream)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def wired(directory: str) -> Iterator[Wire]:
    wire = Wire(directory)
    try:
        yield wire
    finally:
        wire.close()


def test_the_result_of_an_interrupted_commit_is_reported_correctly(server: str) -> None:
    chance, seen = random.Random(SEED), Counter[str]()
    url = make_url(new_database(server))
    direct = Catalog(url.render_as_string(), clock)
    direct.migrate()
    with wired(server) as wire:
        through = Catalog(
            url.set(host="127.0.0.1", port=wire.port, query={"sslmode": "disable"}).render_as_string(), clock
        )
        for number in range(ROUNDS):
            begun = through.begin(request(number), locate)
            at, fate = chance.choice([0, chance.randrange(1, MESSAGES)]), FATES[number % len(FATES)]
            print(f"seed {SEED}, round {number}: {fate} at message {at}")
            wire.arm(at, fate)
            try:
                through.commit(PIPE, begun.checkpoint_id, begun.epoch, facts(number + 1))
                outcome = "committed"
            except RetryableError as error:
                outcome = error.kind
            with wire.killing:
                wire.arm(0, "")
            committed_record = direct.get(PIPE, begun.checkpoint_id)
            assert outcome != "committed" or committed_record.state is CheckpointState.COMPLETED
            seen[f"{outcome}, {committed_record.state}"] += 1
            again = through.commit(PIPE, begun.checkpoint_id, begun.epoch, facts(number + 1))
            assert again.state is CheckpointState.COMPLETED
            assert direct.head(PIPE).head == begun.checkpoint_id
    assert [r.state for r in direct.list(PIPE)] == [CheckpointState.COMPLETED] * ROUNDS
    print(dict(seen))
    assert any(outcome.startswith("commit-unknown") for outcome in seen)
    record("G6", "commits during which PostgreSQL went away", ROUNDS)


def test_a_coordinator_that_waits_for_a_stopped_one_succeeds_at_the_first_try(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is stopped in the middle of a transaction holds the pipeline's row. The two times are
    shorter here, in proportion: PostgreSQL ends the stopped one before the waiting one gives up."""
    idle_ms = 3000 * engine.IDLE_TIMEOUT_MS // engine.BUSY_TIMEOUT_MS
    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 3000)
    monkeypatch.setattr(engine, "IDLE_TIMEOUT_MS", idle_ms)
    url = new_database(server)
    catalog = Catalog(url, clock)
    catalog.migrate()
    sleeper = engine.open_engine(url)
    with pytest.raises(RetryableError) as ended, engine.transaction(sleeper) as connection:  # noqa: PT012
        leases.lock(connection, PIPE, 0)
        begun = catalog.begin(request(1), locate)
        leases.take_id(connection, PIPE)
    assert ended.value.kind == "catalog-unavailable", "the sleeper wakes up to find its transaction gone"
    assert (begun.checkpoint_id, begun.state) == (1, CheckpointState.PENDING)
