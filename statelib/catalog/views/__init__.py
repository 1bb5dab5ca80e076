"""Read-only views of the catalog: history, present position of pipelines, storage use, verdicts of the gate."""
