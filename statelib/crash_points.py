"""Labelled crash points: before and after every call that changes what outlives a process.

Nothing happens at them, unless a test has armed them (``statelib/testing/crash_points.py``) to end the process there.
"""

from collections.abc import Callable, Mapping

armed: list[Callable[[str], None]] = []
"""Who is told of each point that is reached, in whichever thread."""


def crash_point(name: str) -> None:
    """Say that the point ``name`` of :data:`POINTS` has been reached."""
    for reached in armed:
        reached(name)


TRANSACTIONS: Mapping[str, str] = {
    "catalog migrate": "tables of this version",
    "expire": "what is pending beyond its deadline is aborted",
    "begin": "a pending row with its references, the epoch taken, what older epochs left pending aborted",
    "record attempt": "the attempt that is about to write",
    "commit": "COMPLETED, the head moved, files and references recorded",
    "abort": "ABORTED",
    "note failure": "why the attempt failed",
    "restore": "the head moved, the epoch taken, the generation raised; claimed files the system's",
    "import": "a snapshot from elsewhere as a COMPLETED savepoint",
    "subsume": "what retention lets go of is DELETING",
    "dispose": "a savepoint is DELETING",
    "condemn": "references of what is DELETING gone, files without any CONDEMNED",
    "confirm files": "CONDEMNED files DELETED",
    "confirm checkpoints": "DELETING checkpoints DELETED",
    "pin": "a checkpoint held for a restore or a fork",
    "unpin": "let go of again",
    "gate results": "what the gate said",
    "set aside": "QUARANTINED, files and references recorded",
    "release": "COMPLETED and the head, after quarantine",
    "sample": "the storage in use, noted for the curve",
    "cancel": "the pipeline cancelled, what is pending aborted",
    "resume": "the pipeline goes on",
    "rebuild": "what lies on storage entered",
}
"""What each transaction of the catalog writes."""

POINTS: Mapping[str, str] = {
    **{f"{name}: before commit": f"written, not committed: {what}" for name, what in TRANSACTIONS.items()},
    **{f"{name}: committed": what for name, what in TRANSACTIONS.items()},
    # Around a snapshot.
    "scratch: space made": "the work directory of a host is there",
    "scratch: made": "a subtask has a directory for its live state",
    "scratch: removed": "and none any more",
    "subtask: restored": "live state restored from the base",
    "subtask: events applied": "the interval's events are in live state",
    "subtask: side data written": "side data durable, not acknowledged",
    "subtask: snapshot taken": "all streams durable, not acknowledged",
    "subtask: local copies kept": "the same, and the host's copies complete",
    "snapshot: before publish": "all subtasks acknowledged",
    "snapshot: published": "_metadata is there",
    "fork: published": "_metadata of a fork is there",
    "native checkpoint: before": "RocksDB is about to flush and link its files",
    "native checkpoint: linked": "hard links of all files of the database",
    "native checkpoint: removed": "the links are gone again",
    # On a file system.
    "directory: before": "a directory is about to be made",
    "directory: made": "a directory that is not durable yet",
    "data file: before": "a data file is about to be created",
    "stream: spilled": "an empty data file, or on its way to a bucket an empty spooled one",
    "data file: written": "a data file that is not durable yet",
    "data file: durable": "a data file nobody knows of yet",
    "data file: before removal": "a failed attempt's data file is about to go",
    "data file: removed": "a failed attempt's data file is gone",
    "publish: temporary file created": "an empty temporary file",
    "publish: temporary file durable": "_metadata under a temporary name",
    "publish: linked": "_metadata under both names, not durable",
    "publish: temporary file removed": "_metadata, not durable",
    "publish: durable": "_metadata, durable, not read back",
    "removal: before file": "a file is about to be removed",
    "removal: file removed": "gone, not durably",
    "removal: before directory": "an empty directory is about to be removed",
    "removal: directory removed": "gone, not durably",
    "clock: probe made": "an empty file whose time is the storage's own",
    # In a bucket.
    "object: before put": "an object is about to be sent",
    "object: put": "an object nobody knows of yet",
    "object: before create": "_metadata is about to be put if absent",
    "object: created": "_metadata, not answered",
    "object: before delete": "an object is about to be deleted",
    "object: deleted": "an object is gone",
    "objects: before delete": "many objects are about to be deleted",
    "objects: deleted": "many objects are gone",
    "object: before copy": "a task's object is about to be duplicated",
    "object: copied": "a duplicate nobody knows of yet",
    # Copies on a worker's own disk.
    "local copy: directory made": "a directory that ends in .ongoing",
    "local copy: linked": "a copy in it",
    "local copy: index written": "complete, but for its name",
    "local copy: kept": "complete",
    "local copy: removed": "one of no use is gone",
    "local copy: taken away": "one of no use is out of the way",
    "local copy: found": "a copy linked into live state, not proved",
    # gc and the orphan sweep, by their own names.
    "before condemn": "the situation was read",
    "condemned": "what goes is decided",
    "before metadata": "a _metadata is about to go",
    "metadata deleted": "no checkpoint that goes can be found any more",
    "before file": "data files are about to go",
    "files deleted": "a batch of files is gone",
    "files confirmed": "and the catalog knows",
    "before directory": "a directory is about to go",
    "before checkpoints": "nothing is left of what goes",
    "done": "and the catalog knows",
    "before orphan": "an orphan is about to go",
    "orphans deleted": "all orphans are gone",
    "before orphan directory": "an empty directory is about to go",
}
"""Every point, and what has happened when it is reached."""
