"""The contents that a file system may have after a machine crashed, computed from the calls that a program made.

The model is weak, as in ALICE (Pillai et al., OSDI 2014): a name is durable once its directory was synced, bytes once
their file was; of all that was not synced, any part may be there, in any order, and unsynced bytes may be cut or zeros.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import RLock
from typing import Any

import pytest

DIRECTORY = -1
"""The value in place of a file's number."""
EXHAUSTIVE = 64
"""Up to this number, all combinations of pending calls are tried; beyond it, those that differ most, and some more."""
MORE = 24


@dataclass(frozen=True)
class Call:
    """A call that changes the file system. ``place``: (directory, name) of its file; ``file``: the number of the
    file, :data:`DIRECTORY`, or None."""

    kind: str
    place: tuple[str, str] = ("", "")
    file: int | None = None
    offset: int = 0
    data: bytes = b""


Visible = dict[str, bytes]
"""The bytes of the visible files by their path."""


class Killed(BaseException):
    """The exception that ends the process at a call, while the machine continues."""


@dataclass
class Recorder:
    """A recorder of the calls of this process below ``root``, in order. ``kill_at``: the call before which the
    process dies."""

    root: str
    kill_at: int | None = None
    calls: list[Call] = field(default_factory=list)
    _named: dict[tuple[str, str], int] = field(default_factory=dict)
    _opened: dict[int, int] = field(default_factory=dict)
    _files: int = 0
    _lock: RLock = field(default_factory=RLock)

    def acknowledged(self, path: str) -> None:
        """Record that the program has acknowledged this file: no later crash may lose it."""
        self.calls.append(Call("ack", _split(path)))

    def given_up(self, path: str) -> None:
        """Record that the file may be lost from now on."""
        self.calls.append(Call("give up", _split(path)))

    @contextmanager
    def recording(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("open", "write", "fsync", "link", "unlink", "mkdir", "rmdir"):
                patch.setattr(os, name, self._recorded(name, getattr(os, name)))
            for name in ("rename", "replace", "truncate", "fdatasync", "writev", "pwrite", "copy_file_range"):
                patch.setattr(os, name, self._refused(name, getattr(os, name)))
            yield

    def _recorded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_{name}")

        def call(*words: Any, **named: Any) -> Any:
            with self._lock:
                return note(real, *words, **named)

        return call

    def _refused(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            for word in words:
                path = os.readlink(f"/proc/self/fd/{word}") if isinstance(word, int) and word > 2 else str(word)
                assert not path.startswith(self.root), f"os.{name} is not modelled"
            return real(*words, **named)

        return call

    def _add(self, call: Call) -> None:
        self.calls.append(call)

    def _live(self) -> None:
        if self.kill_at is not None and len(self.calls) >= self.kill_at:
            raise Killed

    def _place(self, path: Any, directory: int | None) -> tuple[str, str] | None:
        text = os.fspath(path)
        if not isinstance(text, str):
            return None
        if directory is not None:
            text = f"{os.readlink(f'/proc/self/fd/{directory}')}/{text}"
        return _split(os.path.abspath(text)) if text.startswith(self.root) else None

    def _open(self, real: Callable[..., int], path: Any, flags: int, *words: Any, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        if place is not None and flags & os.O_CREAT:
            assert flags & os.O_EXCL, f"{place}: opened for writing though it may be there"
            self._live()
        descriptor = real(path, flags, *words, dir_fd=dir_fd)
        self._opened.pop(descriptor, None)
        if place is not None and flags & os.O_CREAT:
            self._files += 1
            self._named[place] = self._opened[descriptor] = self._files
            self._add(Call("create", place, self._files))
        return descriptor

    def _write(self, real: Callable[..., int], file: int, data: Any) -> int:
        if file not in self._opened:
            return real(file, data)
        self._live()
        at = os.lseek(file, 0, os.SEEK_CUR)
        content = bytes(data)
        self._add(Call("write", file=self._opened[file], offset=at, data=content))
        written = real(file, data)
        assert written == len(content)
        return written

    def _fsync(self, real: Callable[..., None], file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        if file in self._opened or path.startswith(self.root):
            self._live()
        real(file)
        if file in self._opened:
            self._add(Call("sync", file=self._opened[file]))
        elif os.path.isdir(path):
            self._add(Call("sync directory", (path, "")))

    def _link(self, real: Callable[..., None], source: Any, target: Any, **named: Any) -> None:
        old, new = self._place(source, named.get("src_dir_fd")), self._place(target, named.get("dst_dir_fd"))
        if new is not None:
            self._live()
        real(source, target, **named)
        if new is not None:
            assert old is not None
            self._named[new] = self._named[old]
            self._add(Call("link", new, self._named[old]))

    def _unlink(self, real: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
        self._gone(real, path, dir_fd)

    def _rmdir(self, real: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
        self._gone(real, path, dir_fd)

    def _gone(self, real: Callable[..., None], path: Any, directory: int | None) -> None:
        place = self._place(path, directory)
        if place is not None:
            self._live()
        real(path, dir_fd=directory)
        if place is not None:
            self._add(Call("unlink", place))

    def _mkdir(self, real: Callable[..., None], path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        if place is not None:
            self._live()
        real(path, mode, dir_fd=dir_fd)
        if place is not None:
            self._add(Call("mkdir", place, DIRECTORY))


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


@dataclass
class _Pending:
    """The calls whose effect a crash may lose: calls that create or remove names, and writes to files."""

    names: list[Call] = field(default_factory=list)
    writes: dict[int, list[Call]] = field(default_factory=dict)


class Disk:
    """A disk during a program: the names and bytes that are durable, and the calls that are not yet."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._names: dict[tuple[str, str], int] = {}
        self._bytes: dict[int, bytes] = {}
        self._pending = _Pending()

    def take(self, call: Call) -> None:
        if call.kind in ("create", "link", "mkdir", "unlink"):
            self._pending.names.append(call)
        elif call.kind == "write":
            assert call.file is not None
            self._pending.writes.setdefault(call.file, []).append(call)
        elif call.kind == "sync":
            assert call.file is not None
            self._bytes[call.file] = self._written(call.file, self._pending.writes.pop(call.file, []))
        elif call.kind == "sync directory":
            for name in [n for n in self._pending.names if n.place[0] == call.place[0]]:
                _apply(self._names, name)
                self._pending.names.remove(name)

    def crashes(self, random: Random) -> Iterator[Visible]:
        """Yield the contents that the file system may have if the machine crashes now."""
        for names, choices in _choices(self._pending, random):
            held = dict(self._names)
            for call in names:
                _apply(held, call)
            yield self._visible(held, choices)

    def _visible(self, held: dict[tuple[str, str], int], choices: dict[int, int]) -> Visible:
        def reached(directory: str) -> bool:
            return directory == self._root or (
                held.get(_split(directory)) == DIRECTORY and reached(_split(directory)[0])
            )

        return {
            f"{directory}/{name}": self._content(file, choices)
            for (directory, name), file in held.items()
            if file != DIRECTORY and reached(directory)
        }

    def _content(self, file: int, choices: dict[int, int]) -> bytes:
        writes = self._pending.writes.get(file, [])
        if not writes:
            return self._bytes.get(file, b"")
        whole = self._written(file, writes)
        how = choices.get(file, 0)
        return (self._bytes.get(file, b""), whole[: len(whole) // 2], bytes(len(whole)), whole)[how]

    def _written(self, file: int, writes: Sequence[Call]) -> bytes:
        data = bytearray(self._bytes.get(file, b""))
        for write in writes:
            data[write.offset : write.offset + len(write.data)] = write.data
        return bytes(data)


def _apply(names: dict[tuple[str, str], int], call: Call) -> None:
    if call.kind == "unlink":
        names.pop(call.place, None)
    else:
        assert call.file is not None
        names[call.place] = call.file


def _choices(pending: _Pending, random: Random) -> Iterator[tuple[list[Call], dict[int, int]]]:
    """Yield choices of what a crash keeps: the pending calls that took effect, and for each file with pending bytes one
    of its four forms. Every choice if there are few; otherwise the extremes and some at random."""
    names, files = pending.names, sorted(pending.writes)
    every = 2 ** len(names) * 4 ** len(files)
    numbers: set[int] = set(range(every)) if every <= EXHAUSTIVE else {0, every - 1}
    if every > EXHAUSTIVE:
        numbers |= {1 << i for i in range(len(names) + 2 * len(files))}
        numbers |= {every - 1 - (1 << i) for i in range(len(names) + 2 * len(files))}
        numbers |= {random.randrange(every) for _ in range(MORE)}
    for number in sorted(numbers):
        chosen = [call for i, call in enumerate(names) if number >> i & 1]
        rest = number >> len(names)
        yield chosen, {file: rest >> 2 * i & 3 for i, file in enumerate(files)}


@dataclass
class Crashes:
    """The result of checking all crashes. ``states``: the number of checked states; those after one call are all
    different."""

    states: int
    broken: list[str]


def after_each_call(root: str, calls: Sequence[Call], needs: dict[str, set[str]], random: Random) -> Crashes:
    """Check every state that a crash after each of the calls may leave. ``needs``: for each published file, the
    files that must be complete if it exists."""
    final = _final(calls)
    disk, acknowledged, states = Disk(root), set[str](), 0
    broken: list[str] = []
    for number, call in enumerate(calls):
        disk.take(call)
        path = "/".join(call.place)
        acknowledged |= {path} if call.kind == "ack" else set()
        acknowledged -= {path} if call.kind == "give up" else set()
        for state in {frozenset(state.items()) for state in disk.crashes(random)}:
            states += 1
            wrong = _wrong(dict(state), acknowledged, needs, final)
            broken += [f"after call {number} ({call.kind} {path}): {what}" for what in wrong]
    return Crashes(states, broken)


def _final(calls: Sequence[Call]) -> Visible:
    """Return the last content of each path that was ever created, also if it was removed later."""
    written: dict[int, bytearray] = {}
    names: dict[str, int] = {}
    for call in calls:
        if call.kind == "write" and call.file is not None:
            written.setdefault(call.file, bytearray())[call.offset :] = call.data
        elif call.kind in ("create", "link") and call.file is not None:
            names["/".join(call.place)] = call.file
    return {path: bytes(written.get(file, b"")) for path, file in names.items()}


def _wrong(state: Visible, acknowledged: set[str], needs: dict[str, set[str]], final: Visible) -> Iterator[str]:
    yield from (f"{path} is lost" for path in acknowledged - set(state))
    for published, files in needs.items():
        if published not in state:
            continue
        if state[published] != final[published]:
            yield f"{published} is torn"
        yield from (f"{published} without {file}" for file in files if state.get(file) != final[file])
