"""Rows limits: the best that this machine can do, for comparison with the other figures: one file written and
synced, one file copied, memory copied. Each beside a checksum over the same bytes, which every snapshot pays."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from os import fsync
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from statelib.wire.checksum import crc32c
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("limits",)
BYTES = 500_000_000
WARMUPS = 1


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    data = np.random.default_rng(0).integers(0, 256, max(int(BYTES * scale), 1_000_000), np.uint8)
    source = root / "source"
    source.write_bytes(data.data)
    target = np.empty_like(data)
    turns: dict[str, Callable[[int], object]] = {
        "sequential write and fsync": partial(_write, root / "written", data),
        "copy of a file": lambda _: shutil.copyfile(source, root / "copied"),
        "copy in memory": lambda _: np.copyto(target, data),
        "CRC-32C": lambda _: crc32c(data),
    }
    figures = take_turns({name: Contender(turn) for name, turn in turns.items()}, runs, WARMUPS, "wall s")
    base = figures.pop("CRC-32C")
    return [
        Ratio("limits", name, "CRC-32C of the same bytes", "none", "wall s", measured, base,
              note=f"{len(data) / median(measured) / 1e9:.2f} GB/s")
        for name, measured in figures.items()
    ]  # fmt: skip


def _write(path: Path, data: npt.NDArray[np.uint8], _: int) -> None:
    with path.open("wb") as file:
        for at in range(0, len(data), 1 << 20):
            file.write(data[at : at + (1 << 20)].data)
        file.flush()
        fsync(file.fileno())
