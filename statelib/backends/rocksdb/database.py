"""Opening RocksDB: its options, its column families, and the conversion of its errors to errors of statelib.

Raw mode is always set explicitly, because the library's default mode would unpickle the bytes that it reads.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, ChecksumType, DBCompressionType, Options, Rdict, WriteOptions

from statelib.errors import CorruptStateError, RetryableError, StatelibError

DEFAULT_FAMILY = "default"
CONFIG_FILE = "rocksdict-config.json"
"""The file in which the library stores its mode. It is neither part of a snapshot nor read."""
FILE_NAME = re.compile(r"\d{6,20}\.(sst|log)|MANIFEST-\d{6,20}|OPTIONS-\d{6,20}|CURRENT")
"""The names of the files of a RocksDB database. A handle with any other file name is refused."""
IMMUTABLE_SUFFIX = ".sst"
"""The suffix of files that RocksDB never changes. Snapshots share them and have their own copy of all others (R56)."""

LIVE_BYTES = "rocksdb.live-sst-files-size"
"""The property of a column family that is the size of its SST files in bytes."""

_BLOCK_BYTES = 4 * 1024
_MEMTABLE_BYTES = 64 * 1024 * 1024
_MANIFEST_PREALLOCATION_BYTES = 64 * 1024
_SST_FORMAT_VERSION = 5


@contextmanager
def rocksdb_errors(directory: str, doing: str) -> Iterator[None]:
    """Convert errors of RocksDB to RetryableError (``rocksdb-io``, disk or memory) or CorruptStateError
    (``corrupt-rocksdb``, everything else). ``doing``: the operation, for the message."""
    try:
        yield
    except (StatelibError, OSError):
        raise
    except Exception as error:
        if _is_about_the_machine(str(error)):
            raise machine_error(directory, doing, error) from error
        raise CorruptStateError(
            f"RocksDB at {directory} failed while {doing}: {error}", kind="corrupt-rocksdb"
        ) from error


def machine_error(directory: str, doing: str, error: Exception) -> RetryableError:
    """Return the error (``rocksdb-io``) for an error of this host's disk or memory."""
    return RetryableError(
        f"RocksDB at {directory} failed while {doing}: {error}",
        kind="rocksdb-io",
        hint="look at the space, the memory and the limits of this host, then run the task again",
    )


def _is_about_the_machine(text: str) -> bool:
    """Return whether an error text of RocksDB is about disk, memory or limits, not about the content of files."""
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
    """Return the options of a database. ``create``: create the database and missing column families."""
    options = family_options()
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_manifest_preallocation_size(_MANIFEST_PREALLOCATION_BYTES)
    options.set_stats_dump_period_sec(0)
    options.set_paranoid_checks(True)
    return options


def family_options() -> Options:
    """Return the options of one column family. Flink's RocksDB libraries can read the files: SST format 5, Snappy,
    bloom filters, XXH64 checksums.

    XXH64 is used because Flink 1's RocksDB does not support XXH3, the default of this library, and because computing
    CRC-32C in this library takes half the time of a lookup. A run opens all tables for one batch of keys; therefore
    the last level, which holds most keys, has no bloom filters that would have to be read, and blocks are as small as
    Flink's. Compaction in the background is off (:mod:`statelib.backends.rocksdb.compaction`)."""
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
    """Return a database opened for reading and writing, with one column family per state.

    Raises CorruptStateError (``corrupt-rocksdb``), RetryableError (``rocksdb-io``)."""
    families = {name: family_options() for name in (DEFAULT_FAMILY, *states)}
    with rocksdb_errors(directory, "opening it"):
        return Rdict(directory, _database_options(create), column_families=families)


def open_readable(directory: str, states: Sequence[str]) -> Rdict:
    """Return a database opened read-only. A database that Flink wrote is opened with its own OPTIONS file, which names
    the merge operator. Raises CorruptStateError (``corrupt-rocksdb``), RetryableError (``rocksdb-io``)."""
    with rocksdb_errors(directory, "opening it read-only"):
        options, families = _stored_options(directory, states)
        return Rdict(directory, options, column_families=families, access_type=AccessType.read_only())


def without_wal() -> WriteOptions:
    """Return write options that switch the write-ahead log off. It is not needed: a checkpoint flushes, and after a
    crash the state is restored from a checkpoint."""
    options = WriteOptions()
    options.disable_wal = True
    return options


def column_families(directory: str) -> set[str]:
    """Return the names of the column families, without ``default``."""
    with rocksdb_errors(directory, "listing its column families"):
        return set(Rdict.list_cf(directory, Options(raw_mode=True))) - {DEFAULT_FAMILY}


def table_names(directory: str) -> frozenset[str]:
    """Return the names of the SST files in a directory."""
    return frozenset(p.name for p in Path(directory).iterdir() if p.suffix == IMMUTABLE_SUFFIX)


def check_live_files(db: Rdict, directory: str, stored: frozenset[str]) -> None:
    """Raise CorruptStateError (``rocksdb-files-mismatch``) unless the database uses exactly the SST files ``stored``,
    those in its directory before it was opened.

    RocksDB opens a truncated MANIFEST as a smaller database without any error, and a write then removes the other
    files."""
    with rocksdb_errors(directory, "listing its files"):
        live = {str(f["name"]).lstrip("/") for f in db.live_files()}
    if live != stored:
        raise CorruptStateError(
            f"RocksDB at {directory}: its MANIFEST names the SST files {sorted(live)}, found {sorted(stored)}",
            kind="rocksdb-files-mismatch",
        )


def _stored_options(directory: str, states: Sequence[str]) -> tuple[Options, dict[str, Options]]:
    """Return the options to read a directory with, of the database and per column family: those of its OPTIONS file,
    with the paths of the other machine replaced, or statelib's if there is none."""
    if not any(p.name.startswith("OPTIONS-") for p in Path(directory).iterdir()):
        return _database_options(create=False), {name: family_options() for name in (DEFAULT_FAMILY, *states)}
    options, families = Options.load_latest(directory, ignore_unknown_options=True)
    options.set_wal_dir(directory)
    options.set_db_log_dir(directory)
    options.create_if_missing(False)
    wanted = {DEFAULT_FAMILY, *states}
    return options, {name: family for name, family in families.items() if name in wanted}
