"""statelib keeps keyed state for batch pipelines the way Flink keeps it for streams."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Diff": "statelib.savepoints.diff.states",
    "Pipeline": "statelib.definition.pipeline",
    "open_checkpoint": "statelib.savepoints.opened",
}

__all__ = ["Diff", "Pipeline", "__version__", "open_checkpoint"]


def __getattr__(name: str) -> Any:
    """The public names, loaded on first use: importing statelib stays free for a DAG processor."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'statelib' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
