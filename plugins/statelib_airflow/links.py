"""The link "Checkpoint" of a task: to what its run has made of the state, on the page "State".

Airflow 3 asks an operator for its links in the worker when the task ends, however it ends, and keeps them as XComs
(``_link_<class>``); so the class is named where the task is made, and no other DAG's tasks get the link.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from statelib_airflow.addresses import framed

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator


class CheckpointLink(BaseOperatorLink):
    """Put it into ``operator_extra_links`` of an operator or of its class."""

    name = "Checkpoint"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002
        """A path of this Airflow's own; the page finds the checkpoint of the run."""
        path = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
        return framed(path, f"/run/{quote(ti_key.dag_id, safe='')}/{quote(ti_key.run_id, safe='')}")


def link_checkpoint(*tasks: Any) -> None:
    """Give operators, or what calling a ``@task`` returns, the link to their run's checkpoint."""
    for task in tasks:
        getattr(task, "operator", task).operator_extra_links = (CheckpointLink(),)
