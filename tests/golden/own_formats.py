"""Files that released versions of statelib wrote, in ``own/<version>/``.

``python -m tests.golden.own_formats`` writes the directory of the present version before its release. A directory that
exists is never written again. A format that changes gets a new version, whose files differ; the old ones stay readable.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import statelib
from statelib.backends.keyed import KeyedStateBackend
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.ports.views import StorageReference
from statelib.storage.references import encode_reference
from statelib.testing.keyed_samples import fill, sample_schema
from statelib.testing.stored_checkpoints import Way, store_checkpoint

OWN = Path(__file__).with_name("own")
INLINE = 1 << 20
CHECKPOINTS: Mapping[str, Way] = {
    "heap-canonical": Way("heap", "canonical", parallelism=2),
    "heap-full": Way("heap", "full", parallelism=2),
    "heap-changelog": Way("heap", "changelog", inline_threshold_bytes=INLINE),
    "heap-inline": Way("heap", "full", inline_threshold_bytes=INLINE),
    "rocksdb-full": Way("rocksdb", "full"),
}
"""One checkpoint of each strategy. The changelog names files by absolute paths, so its streams lie inside of its
``_metadata``."""
EXACT = tuple(name for name in CHECKPOINTS if not name.startswith("rocksdb"))
"""The checkpoints whose bytes are compared. RocksDB puts identities and times into its files, so these are only
read."""
TRUTH = "truth.jsonl"


def present() -> str:
    """Return the version of this checkout."""
    return statelib.__version__


def state(backend: KeyedStateBackend) -> None:
    fill(backend, 12)


def write_checkpoint(name: str, directory: Path) -> None:
    """Write the files of one checkpoint into one directory, which must not exist."""
    with TemporaryDirectory() as scratch:
        opened = store_checkpoint(Path(scratch) / "storage", sample_schema(), CHECKPOINTS[name], state)
        directory.mkdir(parents=True)
        for path in Path(opened.directory.removeprefix("file://")).iterdir():
            (directory / path.name).write_bytes(path.read_bytes())
        (directory / TRUTH).write_text("".join(f"{line}\n" for line in truth(directory)), encoding="utf-8")


def truth(directory: Path) -> list[str]:
    """Return every entry as a line of typed JSON."""
    return sorted(export_all_lines(open_checkpoint(str(directory), own=True), None))


SINGLE: Mapping[str, Callable[[], bytes]] = {
    "reference": lambda: encode_reference(StorageReference("s3://bucket/state/flights/chk-17")),
}
"""Files other than checkpoints."""


def main() -> None:
    target = OWN / present()
    for name in CHECKPOINTS:
        write_checkpoint(name, target / name)
    for name, made in SINGLE.items():
        (target / name).write_bytes(made())


if __name__ == "__main__":
    main()
