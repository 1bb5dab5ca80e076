"""The work of a running task: the steps of a run, the context of the run, metrics and lineage."""
