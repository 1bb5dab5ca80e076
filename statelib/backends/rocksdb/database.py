"""Opening RocksDB: options, column families, and RocksDB's errors as statelib's.

Raw mode is always given explicitly: the library's default mode would unpickle what it reads.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict, WriteOptions

from statelib.errors import CorruptStateError, RetryableError, StatelibError

DEFAULT_FAMILY = "default"
CONFIG_FILE = "rocksdict-config.json"
"""The library's own note of its mode; never part of a snapshot, never trusted."""
FILE_NAME = re.compile(r"\d{6,20}\.(sst|log)|MANIFEST-\d{6,20}|OPTIONS-\d{6,20}|CURRENT")
"""The files that make up a RocksDB database; a handle that names any other is refused."""
IMMUTABLE_SUFFIX = ".sst"
"""RocksDB never changes such a file; all others are each snapshot's own (R56)."""

LIVE_BYTES = "rocksdb.live-sst-files-size"
"""Property of a column family: bytes of the SST files that it consists of."""

_BLOCK_BYTES = 4 * 1024
_MEMTABLE_BYTES = 64 * 1024 * 1024
_MANIFEST_PREALLOCATION_BYTES = 64 * 1024
_SST_FORMAT_VERSION = 5


@contextmanager
def rocksdb_errors(directory: str, doing: str) -> Iterator[None]:
    """Turn what RocksDB raises into CorruptStateError (``corrupt-rocksdb``) or RetryableError (``rocksdb-io``)."""
    try:
        yield
    except (StatelibError, OSError):
        raise
    except Exception as error:
        text = str(error)
        message = f"RocksDB at {directory} failed while {doing}: {text}"
        if _is_about_the_machine(text):
            hint = "look at the space, the memory and the limits of this host, then run the task again"
            raise RetryableError(message, kind="rocksdb-io", hint=hint) from error
        raise CorruptStateError(message, kind="corrupt-rocksdb") from error


def _is_about_the_machine(text: str) -> bool:
    """Whether RocksDB complains about disk or memory, not about the bytes it found."""
    signs = (
        "No space left",
        "File too large",
        "quota exceeded",
        "Too many open files",
        "Resource temporarily",
        "Cannot allocate",
        "Permission denied",
    )
    return any(sign in text for sign in signs)


def _database_options(create: bool) -> Options:
    """Options of a whole database; with ``create``, missing column families are made."""
    options = family_options()
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_manifest_preallocation_size(_MANIFEST_PREALLOCATION_BYTES)
    options.set_stats_dump_period_sec(0)
    options.set_paranoid_checks(True)
    return options


def family_options() -> Options:
    """Options of one column family: what Flink's own libraries read too (SST format 5, Snappy, bloom filters, XXH64:
    Flink 1's RocksDB knows no XXH3, this library's default, and this library's CRC-32C is half of a lookup).
    A run opens all tables for a batch of keys: the last level, where most keys lie, has no filters to be read, and
    blocks are as small as Flink's. Nothing is compacted in the background
    (:mod:`statelib.backends.rocksdb.compaction`)."""
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_size(_BLOCK_BYTES)
    table.set_format_version(_SST_FORMAT_VERSION)
    table.set_checksum_type(ChecksumType.xxhash64())
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.snappy())
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_optimize_filters_for_hits(True)
    options.set_disable_auto_compactions(True)
    return options


def open_writable(directory: str, states: Sequence[str], create: bool) -> Rdict:
    """Open for reading and writing, one column family a state."""
    families = {name: family_options() for name in (DEFAULT_FAMILY, *states)}
    with rocksdb_errors(directory, "opening it"):
        return Rdict(directory, _database_options(create), column_families=families)


def open_readable(directory: str, states: Sequence[str]) -> Rdict:
    """Open read-only. A database written by Flink needs its own OPTIONS file (merge operator)."""
    with rocksdb_errors(directory, "opening it read-only"):
        options, families = _stored_options(directory, states)
        return Rdict(directory, options, column_families=families, access_type=AccessType.read_only())


def without_wal() -> WriteOptions:
    """Write options without the write-ahead log: checkpoints flush, a crash restores from one."""
    options = WriteOptions()
    options.disable_wal = True
    return options


def column_families(directory: str) -> set[str]:
    """Names of the column families, ``default`` left out."""
    with rocksdb_errors(directory, "listing its column families"):
        return set(Rdict.list_cf(directory, Options(raw_mode=True))) - {DEFAULT_FAMILY}


def table_names(directory: str) -> frozenset[str]:
    """The SST files in a directory."""
    return frozenset(p.name for p in Path(directory).iterdir() if p.suffix == IMMUTABLE_SUFFIX)


def check_live_files(db: Rdict, directory: str, found: frozenset[str]) -> None:
    """Raise CorruptStateError (``rocksdb-files-mismatch``) unless the database uses exactly the SST files that lay in
    its directory before it was opened: a cut MANIFEST opens as a smaller database without any error, and to write to
    it removes the others."""
    with rocksdb_errors(directory, "listing its files"):
        live = {str(f["name"]).lstrip("/") for f in db.live_files()}
    if live != found:
        raise CorruptStateError(
            f"RocksDB at {directory}: its MANIFEST names the SST files {sorted(live)}, found {sorted(found)}",
            kind="rocksdb-files-mismatch",
        )


def _stored_options(directory: str, states: Sequence[str]) -> tuple[Options, dict[str, Options]]:
    """The options to read with: the directory's OPTIONS file, its foreign paths overridden, or our own."""
    if not any(p.name.startswith("OPTIONS-") for p in Path(directory).iterdir()):
        return _database_options(create=False), {name: family_options() for name in (DEFAULT_FAMILY, *states)}
    options, families = Options.load_latest(directory, ignore_unknown_options=True)
    options.set_wal_dir(directory)
    options.set_db_log_dir(directory)
    options.create_if_missing(False)
    wanted = {DEFAULT_FAMILY, *states}
    return options, {name: family for name, family in families.items() if name in wanted}
