"""Labelled crash points, one before and one after every call with a lasting effect: on storage, in the catalog or on a
host's disk.

Nothing happens at a crash point, unless a test has armed it (``statelib/testing/crash_points.py``): then the process
ends there.
"""

from collections.abc import Callable, Mapping

armed: list[Callable[[str], None]] = []
"""The functions that are called with the name of each point that is reached, in the thread that reaches it. The list is
empty outside of tests."""


def crash_point(name: str) -> None:
    """Call every function of :data:`armed` with ``name``, a key of :data:`POINTS`."""
    for callback in armed:
        callback(name)


TRANSACTIONS: Mapping[str, str] = {
    "catalog migrate": "the tables are those of this version",
    "expire": "pending checkpoints beyond their deadline are aborted",
    "begin": "a pending row with its references; the epoch is taken, and pending checkpoints of older ones are aborted",
    "record attempt": "the attempt that is about to write is recorded",
    "commit": "the checkpoint is COMPLETED and the head; its files and references are recorded",
    "abort": "the checkpoint is ABORTED",
    "note failure": "the reason why the attempt failed is recorded",
    "restore": "the head has moved, epoch and generation are one higher; claimed files belong to the system",
    "import": "a snapshot from elsewhere is a COMPLETED savepoint",
    "subsume": "the checkpoints that retention no longer keeps are DELETING",
    "dispose": "a savepoint is DELETING",
    "condemn": "DELETING checkpoints have no references, and files without a reference are CONDEMNED",
    "confirm files": "CONDEMNED files are DELETED",
    "confirm checkpoints": "DELETING checkpoints are DELETED",
    "pin": "a checkpoint is held for a restore or a fork",
    "unpin": "the checkpoint is no longer held",
    "gate results": "the results of the gate are recorded",
    "set aside": "the checkpoint is QUARANTINED; its files and references are recorded",
    "release": "a checkpoint from quarantine is COMPLETED and the head",
    "sample": "the size of the storage at this time is recorded, for the curve",
    "cancel": "the pipeline is cancelled, and its pending checkpoint is aborted",
    "resume": "a cancelled pipeline may run again",
    "rebuild": "the snapshots on storage are entered",
}
"""The effect of each transaction of the catalog."""

POINTS: Mapping[str, str] = {
    **{f"{name}: before commit": f"written, not committed: {effect}" for name, effect in TRANSACTIONS.items()},
    **{f"{name}: committed": effect for name, effect in TRANSACTIONS.items()},
    # Around a snapshot.
    "scratch: space made": "the work directory of a host exists",
    "scratch: made": "a subtask has a directory for its live state",
    "scratch: removed": "the subtask's directory for live state is removed",
    "subtask: restored": "live state is restored from the base",
    "subtask: events applied": "the interval's events are in live state",
    "subtask: side data written": "side data is durable, and not acknowledged",
    "subtask: snapshot taken": "all streams are durable, and not acknowledged",
    "subtask: local copies kept": "all streams are durable, and the host's copies are complete",
    "snapshot: before publish": "all subtasks have acknowledged",
    "snapshot: published": "_metadata exists",
    "fork: published": "_metadata of a fork exists",
    "native checkpoint: before": "RocksDB is about to flush and link its files",
    "native checkpoint: linked": "hard links of all files of the database exist",
    "native checkpoint: removed": "the hard links are removed",
    # Around a commit of a published table.
    "publication: staging made": "an empty directory for a commit exists, which readers do not see",
    "publication: file durable": "a file of a commit is durable, and not visible",
    "publication: durable": "all files of a commit are durable, and not visible",
    "publication: renamed": "a commit is visible, and not durable",
    "publication: committed": "a commit is durable",
    "publication: before delta commit": "the rows of a commit are in the scratch directory",
    "publication: delta committed": "a commit of a Delta table is visible",
    "publication: iceberg file stored": "a file of a commit is stored, and no Iceberg table names it",
    "publication: before iceberg commit": "all files of a commit are stored, and no Iceberg table names them",
    "publication: iceberg committed": "a commit of an Iceberg table is visible",
    "publication: before removal": "what no commit of a published table needs is about to be removed",
    "publication: removed": "what no commit of a published table needs is removed",
    # On a file system.
    "directory: before": "a directory is about to be made",
    "directory: made": "a directory exists, and is not durable yet",
    "data file: before": "a data file is about to be created",
    "stream: spilled": "an empty data file exists, or an empty local file that will be sent to a bucket",
    "data file: written": "a data file exists, and is not durable yet",
    "data file: durable": "a data file is durable, and has not been acknowledged yet",
    "data file: before removal": "a data file of a failed attempt is about to be removed",
    "data file: removed": "a data file of a failed attempt is removed",
    "publish: temporary file created": "an empty temporary file exists",
    "publish: temporary file durable": "_metadata is durable under a temporary name",
    "publish: linked": "_metadata has both names, and the final one is not durable",
    "publish: temporary file removed": "_metadata has its final name only, and is not durable",
    "publish: durable": "_metadata is durable, and has not been read back",
    "removal: before file": "a file is about to be removed",
    "removal: file removed": "a file is removed, and the removal is not durable",
    "removal: before directory": "an empty directory is about to be removed",
    "removal: directory removed": "a directory is removed, and the removal is not durable",
    "clock: probe made": "an empty file exists, whose modification time shows the clock of the storage",
    # In a bucket.
    "object: before put": "an object is about to be sent",
    "object: put": "an object exists, and has not been acknowledged yet",
    "object: before create": "_metadata is about to be put if absent",
    "object: created": "_metadata exists, and the writer has no answer yet",
    "object: before delete": "an object is about to be deleted",
    "object: deleted": "an object is deleted",
    "objects: before delete": "many objects are about to be deleted",
    "objects: deleted": "many objects are deleted",
    "object: before copy": "a task's object is about to be duplicated",
    "object: copied": "a duplicate exists, and has not been acknowledged yet",
    # Copies on a worker's own disk.
    "local copy: directory made": "a directory exists whose name ends in .ongoing",
    "local copy: linked": "the directory contains a copy",
    "local copy: index written": "the copies are complete, and the directory has its temporary name",
    "local copy: kept": "the copies are complete, under their final name",
    "local copy: removed": "a copy without a use is removed",
    "local copy: taken away": "a copy without a use has been renamed, to be removed",
    "local copy: found": "a copy is linked into live state, and is not proved",
    # Points of gc and of the search for orphans, which give them these names.
    "before condemn": "the state of catalog and storage has been read",
    "condemned": "the catalog records which checkpoints and files are deleted",
    "before metadata": "a _metadata is about to be deleted",
    "metadata deleted": "_metadata of every DELETING checkpoint is deleted",
    "before file": "data files are about to be deleted",
    "files deleted": "a batch of files is deleted",
    "files confirmed": "the catalog records that a batch of files is deleted",
    "before directory": "a directory is about to be removed",
    "before checkpoints": "nothing of the DELETING checkpoints is left on storage",
    "done": "the catalog records that the checkpoints are deleted",
    "before orphan": "an orphan is about to be deleted",
    "orphans deleted": "all orphans are deleted",
    "before orphan directory": "an empty directory is about to be removed",
}
"""Every point, and the situation in which it is reached."""
