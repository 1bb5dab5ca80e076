"""The settings of generated DAGs: connections, pool, queue, owner, tags and default arguments."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

LONGEST_TAG = 100
"""The number of characters that Airflow allows in a tag."""


class Settings(TypedDict, total=False):
    """Keyword arguments of the functions that make DAGs.

    ``statelib_conn_id`` names the Airflow connection of the deployment, ``spark_conn_id`` that of Spark.
    ``default_args`` override the retries of the pipeline file; their ``on_failure_callback`` is called in addition to
    the file's notifiers. ``tags`` are added to those that every DAG has.
    """

    statelib_conn_id: str | None
    spark_conn_id: str
    pool: str | None
    queue: str | None
    owner: str | None
    tags: Sequence[str]
    default_args: Mapping[str, Any]


@dataclass(frozen=True)
class DagSettings:
    """The keyword arguments of :class:`Settings`, with their defaults."""

    statelib_conn_id: str | None = None
    spark_conn_id: str = "spark_default"
    pool: str | None = None
    queue: str | None = None
    owner: str | None = None
    tags: Sequence[str] = ()
    default_args: Mapping[str, Any] = field(default_factory=dict)
    auto_register: bool = True
    """Whether Airflow takes the DAGs over from the DAG file that makes them."""

    def arguments(self, own_tags: Sequence[str], own_defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``tags``, ``default_args`` and ``auto_register`` of a DAG that has tags and default arguments of its
        own. A tag of its own that is longer than Airflow allows is left out."""
        named = {
            "statelib_conn_id": self.statelib_conn_id,
            "pool": self.pool,
            "queue": self.queue,
            "owner": self.owner,
        }
        defaults = {**own_defaults, **self.default_args, **{n: v for n, v in named.items() if v is not None}}
        callbacks = [*_listed(own_defaults), *_listed(self.default_args)]
        if callbacks:
            defaults["on_failure_callback"] = callbacks
        tags = [tag for tag in own_tags if len(tag) <= LONGEST_TAG]
        return {
            "tags": list(dict.fromkeys((*tags, *self.tags))),
            "default_args": defaults,
            "auto_register": self.auto_register,
        }


def _listed(defaults: Mapping[str, Any]) -> list[Any]:
    callbacks = defaults.get("on_failure_callback") or []
    return list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]


def pipelines_directory(directory: str | os.PathLike[str] | None, dag_file: str) -> Path:
    """Return the directory of the pipeline files, relative to the DAG file. None stands for the directory in the
    variable ``STATELIB_PIPELINES`` or, without the variable, for ``pipelines`` beside the DAG file."""
    chosen = directory if directory is not None else os.environ.get("STATELIB_PIPELINES") or "pipelines"
    return (Path(dag_file).parent / chosen).resolve()
