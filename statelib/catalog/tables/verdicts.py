"""Reading the results of the quality gate. The newest run of the gate on a checkpoint is the verdict."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, select, true, tuple_

from statelib.catalog.tables.queries import in_chunks
from statelib.catalog.tables.row_checks import Fault, checked, damaged
from statelib.catalog.tables.schema import QUALITY_RESULT
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import GateSummary, QualityResult, Severity

_Q = QUALITY_RESULT.c
_KEY = (_Q.pipeline, _Q.checkpoint_id)
Summaries = dict[tuple[PipelineName, CheckpointId], GateSummary]


def summaries(connection: Connection, pipeline: PipelineName | None = None) -> Summaries:
    """Return the number of checks of each checkpoint that the gate has judged, of one pipeline or of all pipelines."""
    return _summaries(connection, true() if pipeline is None else _Q.pipeline == pipeline)


def summaries_of(connection: Connection, checkpoints: Sequence[tuple[PipelineName, CheckpointId]]) -> Summaries:
    """Return the number of checks per checkpoint. Checkpoints that the gate has not judged are omitted."""
    by_checkpoint: Summaries = {}
    for some in in_chunks(checkpoints):
        by_checkpoint |= _summaries(connection, tuple_(*_KEY).in_(some))
    return by_checkpoint


def _summaries(connection: Connection, chosen: ColumnElement[bool]) -> Summaries:
    return {
        (PipelineName(row.pipeline), CheckpointId(row.checkpoint_id)): GateSummary(row.checked, row.failed, row.warned)
        for row in connection.execute(_counted(chosen))
    }


def _counted(chosen: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    newest = select(*_KEY, func.max(_Q.run).label("run")).where(chosen).group_by(*_KEY).subquery()
    warns, bad = _Q.severity == Severity.WARN, _Q.passed == 0
    return (
        select(
            *_KEY,
            func.count().label("checked"),
            func.sum(case((bad & ~warns, 1), else_=0)).label("failed"),
            func.sum(case((bad & warns, 1), else_=0)).label("warned"),
        )
        .join(newest, (_Q.pipeline == newest.c.pipeline) & (_Q.checkpoint_id == newest.c.checkpoint_id))
        .where(_Q.run == newest.c.run)
        .group_by(*_KEY)
    )


def results(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, limit: int | None = None
) -> tuple[QualityResult, ...]:
    """Return the results of the newest run in the order of its checks, at most ``limit``. The result is empty if the
    gate has not judged the checkpoint."""
    one = (_Q.pipeline == pipeline) & (_Q.checkpoint_id == checkpoint_id)
    newest = select(func.max(_Q.run)).where(one).scalar_subquery()
    rows = connection.execute(select(QUALITY_RESULT).where(one, _Q.run == newest).order_by(_Q.position).limit(limit))
    return tuple(
        QualityResult(
            v["check_group"],
            v["check_name"],
            Severity(v["severity"]),
            bool(v["passed"]),
            v["checked"],
            v["failed"],
            sentences(v),
        )
        for v in (checked(QUALITY_RESULT, row) for row in rows)
    )


def sentences(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sentences in a row of ``quality_result``. Raises CorruptStateError (``catalog-row-damaged``)."""
    try:
        texts = json.loads(values["sentences"])
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        fault = Fault("sentences", "a JSON array of texts", repr(values["sentences"])[:80])
        raise damaged(QUALITY_RESULT, values, fault)
    return tuple(texts)


def newest_run(connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId) -> int:
    """Return the number of the gate's newest run on a checkpoint, from 1; 0 if there was none."""
    one = (_Q.pipeline == pipeline) & (_Q.checkpoint_id == checkpoint_id)
    return int(connection.execute(select(func.coalesce(func.max(_Q.run), 0)).where(one)).scalar_one())
