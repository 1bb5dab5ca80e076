"""Checks of ``checkpoint.reads``: a run that reads only the entries that its events touch must not need others."""

from collections.abc import Iterator

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.problems import Problem
from statelib.model.choices import Backend

PLACE = ("checkpoint", "reads")


def check_reads(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem for each part of the pipeline for which ``reads: touched`` is impossible."""
    if pipeline.checkpoint.reads != "touched":
        return
    if pipeline.backend != Backend.ROCKSDB:
        yield Problem(PLACE, "single entries can be read only of RocksDB's files: expected backend rocksdb")
    if pipeline.checkpoint.local_recovery:
        yield Problem(PLACE, "local_recovery makes copies of the whole state: leave one of the two out")
    for part in parts_that_need_all(pipeline):
        yield Problem(PLACE, f"a run has to read all entries for {part}")


def parts_that_need_all(pipeline: DeclaredPipeline) -> Iterator[str]:
    """Yield the parts of the pipeline for which each run has to read entries that no event touches."""
    for name, state in pipeline.states.items():
        parts = {
            "a window": state.window is not None,
            "a time to live": state.ttl is not None,
            "timers": state.on_timer is not None,
        }
        yield from (f"states.{name}, which has {part}" for part in (part for part, has in parts.items() if has))
        if pipeline.has_deletes and state.kind == "map":
            yield f"states.{name}, a map from which delete_when removes keys"
