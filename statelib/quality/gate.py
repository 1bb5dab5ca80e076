"""The quality gate: proves from collected facts that a checkpoint is complete and as expected, and keeps the proof."""

from statelib.quality.facts import CheckpointFacts, QualityReport

__all__ = ["QualityReport", "run_gate"]


def run_gate(facts: CheckpointFacts, docs_directory: str) -> QualityReport:
    """Judge ``facts`` with Great Expectations and write the result as static HTML pages.

    ``docs_directory``: absolute path or ``file:`` URI. It is created; if an earlier run of the
    gate made it, its pages stay and the new ones go to ``<docs_directory>-2``, and so on. The
    first call in a process costs some seconds of CPU for the import.
    """
    from statelib.quality.docs import fresh_directory, write_index
    from statelib.quality.frames import frames_of
    from statelib.quality.validation import validate

    directory = fresh_directory(docs_directory)
    judged = validate(frames_of(facts), str(directory))
    uri = write_index(directory, facts.record, judged)
    return QualityReport(uri, tuple(judged))
