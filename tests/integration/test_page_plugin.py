"""The plugin in Airflow's components: cheap to load, found by its entry point, and a link from tasks to checkpoints."""

import json
import subprocess
import sys
from typing import Any

import pytest

from demo.places import CHECKOUT, Places, Ports, environment

SCRIPT = """
import json, sys
from types import SimpleNamespace
before = set(sys.modules)
from airflow import plugins_manager
known = set(sys.modules)
plugins, errors = plugins_manager._get_plugins()
loaded = sorted({m.split(".")[0] for m in set(sys.modules) - known})
ours = sorted(m for m in set(sys.modules) - known if m.startswith("statelib"))
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from statelib_airflow.links import CheckpointLink
bag = DagBag(sys.argv[1])
links = {}
for dag in bag.dags.values():
    read = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    for task in read.tasks:
        links[f"{dag.dag_id}/{task.task_id}"] = {n: l.xcom_key for n, l in task.operator_extra_link_dict.items()}
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
hook = manager.hooks["statelib"]
key = SimpleNamespace(dag_id="sales.checkpoint", run_id="manual__2013-01-05T00:00:00+00:00")
json.dump({
    "plugins": [p.name for p in plugins], "errors": errors, "loaded": loaded, "ours": ours, "links": links,
    "views": [v["href"] for p in plugins for v in p.external_views],
    "hook": [hook.connection_type, hook.hook_class_name, hook.package_name],
    "provided_links": sorted(manager.extra_links_class_names),
    "link": CheckpointLink().get_link(None, ti_key=key),
}, open(sys.argv[2], "w"))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what an Airflow below the path /air loads of the installed plugin and of the DAGs."""
    work = tmp_path_factory.mktemp("plugin")
    places = Places(work=work)
    places.make_directories()
    answer = work / "answer.json"
    env = {**environment(places, Ports()), "AIRFLOW__API__BASE_URL": "http://localhost:8080/air"}
    command = [sys.executable, "-c", SCRIPT, str(CHECKOUT / "dags"), str(answer)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(answer.read_text()))


def test_airflow_loads_the_entry_point_and_few_modules_with_it(loaded: dict[str, Any]) -> None:
    assert "statelib" in loaded["plugins"]
    assert loaded["errors"] == {}
    assert not {"statelib", "fastapi", "pyarrow", "sqlalchemy", "numpy"} & set(loaded["loaded"])
    assert loaded["ours"] == ["statelib_airflow.addresses", "statelib_airflow.plugin"], "and the package, if not yet"


def test_the_page_lies_below_the_path_of_airflow(loaded: dict[str, Any]) -> None:
    assert loaded["views"] == [
        "/air/statelib/",
        "/air/statelib/#/dag/{DAG_ID}",
        "/air/statelib/#/run/{DAG_ID}/{RUN_ID}",
    ]


def test_tasks_of_checkpoints_and_savepoints_have_links_to_them(loaded: dict[str, Any]) -> None:
    linked = {"Checkpoint": "_link_CheckpointLink"}
    of_chains = {name for name in loaded["links"] if name.split("/")[0].endswith((".checkpoint", ".savepoint"))}
    tasks = {"begin", "snapshot", "check_completeness", "register", "abort"}
    assert {name for name, links in loaded["links"].items() if links == linked} >= {
        name for name in of_chains if name.split("/")[1] in tasks
    }
    assert len(of_chains) >= 3 * 2 * len(tasks)
    assert loaded["links"]["state_cleanup/gc"] == {}
    assert loaded["link"] == (
        "/air/plugin/state/air/statelib/#/run/sales.checkpoint/manual__2013-01-05T00%3A00%3A00%2B00%3A00"
    )


def test_airflow_loads_nothing_of_the_source_folder_by_itself() -> None:
    assert (CHECKOUT / "plugins" / ".airflowignore").read_text().split() == ["*"]


def test_airflow_lists_the_connection_type_and_the_link(loaded: dict[str, Any]) -> None:
    assert loaded["hook"] == ["statelib", "statelib_airflow.hooks.StatelibHook", "statelib"]
    assert "statelib_airflow.links.CheckpointLink" in loaded["provided_links"]
