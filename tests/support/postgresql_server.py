"""A throw-away PostgreSQL for tests and for `make cluster`: the binaries of the package pgserver, else the system's."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

DATABASE_USER = "postgres"
UNPRIVILEGED = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; the first of these users that exists runs it then."""
START_TIMEOUT_S = 60


class NoServer(Exception):
    """The reason why there is no server."""


@dataclass(frozen=True)
class Listen:
    """Settings of a server that does not listen on the socket alone: a port of 127.0.0.1 that requires ``password``,
    and databases to create."""

    port: int
    password: str
    databases: tuple[str, ...] = ()

    def url(self, database: str) -> str:
        """Return the URL for SQLAlchemy, with the password in it."""
        return f"postgresql+psycopg://{DATABASE_USER}:{quote(self.password, safe='')}@127.0.0.1:{self.port}/{database}"


@contextmanager
def postgresql_server(listen: Listen | None = None) -> Iterator[str]:
    """Yield the directory with the socket of a new, empty cluster, which is removed afterwards. Raises NoServer."""
    if importlib.util.find_spec("psycopg") is None:
        raise NoServer("no PostgreSQL driver: psycopg is not installed")
    user = _system_user()
    # The path is short, because a socket's path has some 100 characters at most, and not below pytest's own
    # directory, which only its owner may enter.
    directory = tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    if user:
        os.chown(directory, user.pw_uid, user.pw_gid)
    try:
        binaries = _start_first(_binaries(), directory, user, listen)
        try:
            yield directory
        finally:
            _run(binaries, ["pg_ctl", "-D", f"{directory}/data", "-w", "-m", "immediate", "stop"], directory, user)
    finally:
        shutil.rmtree(directory)


def restart_at_once(directory: str) -> None:
    """Kill every process of the server with that socket, as a crash does, and start it again with the same data."""
    running = Path(directory, "data", "postmaster.opts").read_text().split()[0]
    command = ["pg_ctl", "-D", f"{directory}/data", "-w", "-m", "immediate", "-l", f"{directory}/log", "restart"]
    _run(Path(running).parent, command, directory, _system_user())


def _start_first(candidates: list[Path], directory: str, user: pwd.struct_passwd | None, listen: Listen | None) -> Path:
    """Start a cluster with the first binaries that can, and return these."""
    reasons = [] if candidates else ["no binaries: neither pgserver nor initdb is installed"]
    for binaries in candidates:
        try:
            _start(binaries, directory, user, listen)
        except (OSError, subprocess.SubprocessError) as error:
            log = Path(directory, "output").read_text(errors="replace").strip().splitlines()
            reasons.append(f"{binaries}: {log[-1] if log else error}")
            shutil.rmtree(f"{directory}/data", ignore_errors=True)
        else:
            return binaries
    raise NoServer(f"no PostgreSQL server: {'; '.join(reasons)}")


def _start(binaries: Path, directory: str, user: pwd.struct_passwd | None, listen: Listen | None) -> None:
    data, password = f"{directory}/data", Path(directory, "password")
    initdb = ["initdb", "-D", data, "-U", DATABASE_USER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
    options = f"-c unix_socket_directories={directory} -c fsync=off"
    if listen is None:
        options += " -c listen_addresses=''"
    else:
        password.write_text(listen.password)
        initdb += ["--auth-host=scram-sha-256", f"--pwfile={password}"]
        options += f" -c listen_addresses=127.0.0.1 -c port={listen.port}"
    _run(binaries, initdb, directory, user)
    password.unlink(missing_ok=True)
    _run(binaries, ["pg_ctl", "-D", data, "-w", "-l", f"{directory}/log", "-o", options, "start"], directory, user)
    for database in listen.databases if listen else ():
        at = ["-h", directory, "-p", str(listen.port) if listen else "", "-U", DATABASE_USER]
        _run(binaries, ["createdb", *at, database], directory, user)


def _run(binaries: Path, command: Sequence[str], directory: str, user: pwd.struct_passwd | None) -> None:
    """Run a command with its output in a file, not a pipe: the server would keep a pipe open, and its reader
    waiting."""
    with Path(directory, "output").open("wb") as output:
        subprocess.run(
            [str(binaries / command[0]), *command[1:]],
            check=True,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=START_TIMEOUT_S,
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=() if user else None,
        )


def _system_user() -> pwd.struct_passwd | None:
    """Return the system user that runs the server; None is the user that runs the tests."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    candidates = [users[name] for name in UNPRIVILEGED if name in users]
    if not candidates:
        raise NoServer(f"PostgreSQL refuses to run as root, and there is none of the users {', '.join(UNPRIVILEGED)}")
    return candidates[0]


def _binaries() -> list[Path]:
    """Return the directories with initdb, the best first. pgserver is looked up, not imported: its own way to start
    a server as root adds a user and opens directories up to the file system's root."""
    directories = []
    package = importlib.util.find_spec("pgserver")
    if package and package.origin:
        directories.append(Path(package.origin).parent / "pginstall" / "bin")
    directories += sorted((path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True)
    on_path = shutil.which("initdb")
    return directories + ([Path(on_path).resolve().parent] if on_path else [])
