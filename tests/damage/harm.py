"""Damage to the files of a stored checkpoint. Each kind of damage lasts for a block and is then undone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

BLOCK = 64
"""The size of a block of bytes that were never written, as a lost sector leaves them."""


@dataclass(frozen=True)
class Harm:
    """Damage that was done. ``files``: the changed files. ``what``: a text for the message of a failing test."""

    files: tuple[Path, ...]
    what: str
    change: Callable[[dict[Path, bytes]], None]
    """The function that receives the content of the files and writes other bytes."""
    place: range | None = None
    """The range of changed bytes in a single file; None if the damage is no range."""


@contextmanager
def done(harm: Harm) -> Iterator[None]:
    good = {path: path.read_bytes() for path in harm.files}
    harm.change(good)
    try:
        yield
    finally:
        for path, data in good.items():
            path.write_bytes(data)


def flipped(path: Path, at: int, bit: int) -> Harm:
    def change(good: dict[Path, bytes]) -> None:
        data = bytearray(good[path])
        data[at] ^= 1 << bit
        path.write_bytes(data)

    return Harm((path,), f"bit {bit} of byte {at} of {path} flipped", change, range(at, at + 1))


def cut(path: Path, length: int) -> Harm:
    return Harm((path,), f"{path} cut to {length}", lambda good: _write(path, good[path][:length]))


def longer(path: Path) -> Harm:
    return Harm((path,), f"{path} with a byte behind", lambda good: _write(path, good[path] + b"\0"))


def missing(path: Path) -> Harm:
    return Harm((path,), f"{path} missing", lambda _: path.unlink())


def swapped(one: Path, other: Path) -> Harm:
    def change(good: dict[Path, bytes]) -> None:
        one.write_bytes(good[other])
        other.write_bytes(good[one])

    return Harm((one, other), f"{one} and {other} swapped", change)


def zeroed(path: Path, at: int) -> Harm:
    def change(good: dict[Path, bytes]) -> None:
        data = bytearray(good[path])
        data[at : at + BLOCK] = bytes(len(data[at : at + BLOCK]))
        path.write_bytes(data)

    return Harm((path,), f"{path} zeros from {at}", change, range(at, at + BLOCK))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def every_bit(path: Path) -> list[Harm]:
    return [flipped(path, at, bit) for at in range(path.stat().st_size) for bit in range(8)]


def one_bit_a_byte(path: Path, random: Random) -> list[Harm]:
    return [flipped(path, at, random.randrange(8)) for at in range(path.stat().st_size)]


def every_length(path: Path) -> list[Harm]:
    return [cut(path, length) for length in range(path.stat().st_size)]


def wholesale(files: tuple[Path, ...]) -> list[Harm]:
    """Damage whole files: they are replaced by one of the same size, partly zeroed, extended, or removed."""
    content = {path: path.read_bytes() for path in files}
    pairs = [
        (one, other)
        for number, one in enumerate(files)
        for other in files[number + 1 :]
        if len(content[one]) == len(content[other]) and content[one] != content[other]
    ]
    zeros = [
        zeroed(path, at)
        for path, data in content.items()
        for at in range(0, len(data), BLOCK)
        if any(data[at : at + BLOCK])
    ]
    return [*(swapped(*pair) for pair in pairs), *zeros, *map(longer, files), *map(missing, files)]
