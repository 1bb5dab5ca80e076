"""Views of checkpoints and pipelines: lists, descriptions, comparisons, metrics and lineage. Nothing here changes
state."""
