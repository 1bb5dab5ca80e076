"""The manifest of a commit of a Parquet table: one JSON document that names the files of the table."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.moments import epoch_ms, moment_of
from statelib.publication.target import Commit, PublishedTable

MANIFEST_NAME = "_manifest.json"
FORMAT = 1
_PATH = re.compile(r"(commit-\d{8,}|_files/\d+-[0-9a-f]{32})/[0-9-]+\.parquet")


@dataclass(frozen=True)
class TableFile:
    """One file of a table. ``path``: relative to the table's directory. ``key_groups``, ``fingerprint``: the key groups
    whose rows it holds, and their fingerprint; None and '' in a feed."""

    path: str
    rows: int
    size_bytes: int
    key_groups: tuple[int, int] | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class TableManifest:
    """The content of a manifest. ``files``: in a table all files of the state, also those of earlier commits; in a
    feed the files of this commit. ``columns``: the names of the columns with their Arrow types. ``sources``: the names
    of what columns have the values of, empty in manifests of earlier versions."""

    pipeline: str
    table: str
    mode: str
    commit: Commit
    columns: dict[str, str]
    identity: tuple[str, ...]
    files: tuple[TableFile, ...]
    sources: dict[str, str] = field(default_factory=dict)

    def is_of(self, table: PublishedTable) -> bool:
        """Return whether the manifest belongs to the table."""
        return self.pipeline in table.pipelines and (self.table, self.mode) == (table.name, mode_of(table))


def mode_of(table: PublishedTable) -> str:
    """Return the mode of a table as the pipeline file has it."""
    return "changes" if table.changes else "table"


def encode_manifest(manifest: TableManifest) -> bytes:
    """Return the document as bytes."""
    interval = manifest.commit.interval
    bounds = None if interval is None else [moment_of(m).isoformat() for m in (interval.start_ms, interval.end_ms)]
    document = {
        "format": FORMAT,
        "pipeline": manifest.pipeline,
        "table": manifest.table,
        "mode": manifest.mode,
        "commit": manifest.commit.number,
        "checkpoint_id": manifest.commit.checkpoint_id,
        "snapshot": manifest.commit.snapshot,
        "interval": bounds,
        "columns": manifest.columns,
        "sources": manifest.sources,
        "identity": manifest.identity,
        "rows": manifest.commit.rows,
        "files": [asdict(file) for file in manifest.files],
    }
    return json.dumps(document, indent=1).encode()


def decode_manifest(data: bytes) -> TableManifest:
    """Return the content of a document. Raises ValueError if it is not one of this format."""
    document = json.loads(data)
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']!r}, expected {FORMAT}")
        return TableManifest(
            pipeline=document["pipeline"],
            table=document["table"],
            mode=document["mode"],
            commit=replace(_commit(document), pipeline=document["pipeline"]),
            columns=dict(document["columns"]),
            identity=tuple(document["identity"]),
            files=tuple(map(_file, document["files"])),
            sources=dict(document.get("sources", {})),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _commit(document: dict[str, Any]) -> Commit:
    bounds = document["interval"]
    interval = None if bounds is None else DataInterval(*(epoch_ms(datetime.fromisoformat(text)) for text in bounds))
    number, checkpoint_id = int(document["commit"]), CheckpointId(int(document["checkpoint_id"]))
    return Commit(number, checkpoint_id, interval, document["rows"], document.get("snapshot", ""))


def _file(entry: dict[str, Any]) -> TableFile:
    if not _PATH.fullmatch(entry["path"]):
        raise ValueError(f"file {entry['path']!r}")
    key_groups = entry["key_groups"]
    return TableFile(**{**entry, "key_groups": None if key_groups is None else tuple(key_groups)})
