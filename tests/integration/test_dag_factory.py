"""DAG files of three lines in an Airflow of one's own: connections, pool, queue, owner, tags, and which DAGs."""

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from demo.places import CHECKOUT, Places, Ports, environment
from statelib.definition.parts.model import Schedule
from statelib.definition.source.intervals import intervals
from statelib.model.moments import epoch_ms

PIPELINE = (CHECKOUT / "dags" / "pipelines" / "carrier_streaks.yaml").read_text()
MENDABLE = """\
name: corrected
source: {path: "{data}/{start:%Y-%m-%d}.parquet", columns: {shop: string, amount: long}}
key: shop
states: {total: {kind: value, fields: {n: {agg: count}, sum: {agg: sum, of: amount}}}}
backend: heap
checkpoint: {mendable: 30d}
publish: {totals: {target: '{data}/totals', mode: table}}
"""
SETTINGS = (
    "statelib_conn_id='state', spark_conn_id='cluster', pool='spark', queue='large', owner='ada', tags=['finance'], "
    "default_args={'retries': 7, 'email': 'a@b.c', 'on_failure_callback': print}"
)
LONG = "n" * 120
KINDS = ("checkpoint", "savepoint", "restore", "dispose")
FILES = {
    "plain.py": "from statelib_airflow import pipeline_dags\n\nglobals().update(pipeline_dags('mine'))\n",
    "chosen.py": (
        "from statelib_airflow import pipeline_dags\n"
        f"globals().update(pipeline_dags('others', dags=['checkpoint', 'restore'], {SETTINGS}))\n"
    ),
    "mendable.py": "from statelib_airflow import pipeline_dags\n\nglobals().update(pipeline_dags('corrected'))\n",
    "cleanup.py": (
        "from statelib_airflow import cleanup_dags\n"
        f"globals().update(cleanup_dags('my_cleanup', schedule=None, {SETTINGS}))\n"
    ),
    "verify.py": f"from statelib_airflow import verify_dags\nglobals().update(verify_dags('mine', {SETTINGS}))\n",
    "zoned.py": (
        "from statelib_airflow import pipeline_dags\nglobals().update(pipeline_dags('zones', dags=['checkpoint']))\n"
    ),
    "grouped.py": "from statelib_airflow import pipeline_dags\nglobals().update(pipeline_dags('groups'))\n",
    "ungrouped.py": "from statelib_airflow import check_pipeline_dags\ncheck_pipeline_dags('groups')\n",
    "wrong_tag.py": "from statelib_airflow import pipeline_dags  # airflow\npipeline_dags('mine', tags=['x' * 101])\n",
    "by_asset.py": (
        "from statelib_airflow import pipeline_dags\nglobals().update(pipeline_dags('assets', dags=['checkpoint']))\n"
    ),
    "broken.py": "from statelib_airflow import check_pipeline_dags\ncheck_pipeline_dags('others')\n",
    "mistyped.py": "from statelib_airflow import pipeline_dags  # airflow\npipeline_dags('mine', dags=['replay'])\n",
    "unknown.py": "from statelib_airflow import pipeline_dags  # airflow\npipeline_dags('mine', pol='x')\n",
}
SCRIPT = """
import json, sys
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
NAMES = ("pipelines", "checkpoint_dag", "retries", "pool", "queue", "owner", "email", "statelib_conn_id", "_conn_id",
         "trigger_rule")
bag = DagBag(sys.argv[1])
def intervals(dag):
    kept = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    bounds, last, found = TimeRestriction(kept.start_date, kept.end_date, True), None, []
    while (run := kept.timetable.next_dagrun_info(last_automated_data_interval=last, restriction=bounds)):
        last = run.data_interval
        found.append([round(last.start.timestamp() * 1000), round(last.end.timestamp() * 1000)])
    return found
json.dump({
    "errors": {Path(file).name: error for file, error in bag.import_errors.items()},
    "dags": {d.dag_id: {
        "file": Path(d.fileloc).name, "paused": bool(d.is_paused_upon_creation),
        "tags": sorted(d.tags), "default_conn": d.default_args.get("statelib_conn_id"),
        "callbacks": [getattr(c, "__name__", type(c).__name__) for c in d.default_args.get("on_failure_callback", [])],
        "tasks": {t.task_id: {n: getattr(t, n, None) for n in NAMES} | getattr(t, "partial_kwargs", {})
                  | {"upstream_task_ids": sorted(t.upstream_task_ids), "outlets": [o.name for o in t.outlets]}
                  for t in d.tasks},
        "params": sorted(d.params),
        "examples": d.params.get_param("pipeline").schema.get("examples") if "pipeline" in d.params else None,
        "intervals": intervals(d) if d.dag_id == "zoned.checkpoint" else [],
        "serialized": bool(DagSerialization.to_dict(d))} for d in bag.dags.values()},
}, open(sys.argv[2], "w"), default=str)
"""


def zoned_pipeline() -> str:
    """Return the text of a daily pipeline of a whole year in a zone whose clock changes twice."""
    definition = yaml.safe_load(PIPELINE) | {"name": "zoned"}
    definition["schedule"] = {
        "cron": "@daily", "time_zone": "Europe/Berlin", "start": "2026-01-01", "end": "2026-12-31", "catchup": True,
    }  # fmt: skip
    return yaml.safe_dump(definition)


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what Airflow reads from the DAG files. ``STATELIB_PIPELINES`` names another directory, which must not be
    read."""
    root = tmp_path_factory.mktemp("factory")
    places = Places(work=root / "work", pipelines=root / "elsewhere")
    places.make_directories()
    for directory, name in (("mine", "first"), ("others", "second")):
        (root / "dags" / directory).mkdir(parents=True)
        text = PIPELINE.replace("name: carrier_streaks", f"name: {name}")
        if name == "first":
            text += "publish: {streaks: {target: '{data}/streaks', mode: table}}\n"
        (root / "dags" / directory / f"{name}.yml").write_text(text)
    (root / "dags" / "zones").mkdir()
    (root / "dags" / "corrected").mkdir()
    (root / "dags" / "corrected" / "corrected.yaml").write_text(MENDABLE)
    (root / "dags" / "zones" / "zoned.yaml").write_text(zoned_pipeline())
    (root / "dags" / "groups").mkdir()
    for name, group in (("g1", "together"), ("g2", "together"), ("other", "apart"), ("wrong", "apart")):
        text = PIPELINE.replace("name: carrier_streaks", f"name: {name}\ngroup: {group}")
        text = text.replace("end: 2014", "end: 2015") if name == "wrong" else text
        (root / "dags" / "groups" / f"{name}.yaml").write_text(text)
    (root / "dags" / "groups" / "unreadable.yaml").write_text("group: together\noops: [\n")
    (root / "dags" / "assets").mkdir()
    by_asset = {"name": LONG, "group": "g" * 120, "schedule": {"asset": "s3://lake/x", "start": "2026-01-01"}}
    (root / "dags" / "assets" / "long.yaml").write_text(yaml.safe_dump(yaml.safe_load(PIPELINE) | by_asset))
    (root / "dags" / "others" / "broken.yaml").write_text(PIPELINE.replace("backend:", "bakend:"))
    for name, text in FILES.items():
        (root / "dags" / name).write_text(text)
    answer = root / "answer.json"
    command = [sys.executable, "-c", SCRIPT, str(root / "dags"), str(answer)]
    done = subprocess.run(command, env=environment(places, Ports()), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(answer.read_text()))


def test_a_file_of_three_lines_makes_the_dags_of_its_directory(parsed: dict[str, Any]) -> None:
    made = {dag_id: dag["file"] for dag_id, dag in parsed["dags"].items()}
    assert made == {
        **{f"first.{kind}": "plain.py" for kind in KINDS},
        **{f"second.{kind}": "chosen.py" for kind in ("checkpoint", "restore")},
        **{f"corrected.{kind}": "mendable.py" for kind in ("checkpoint", "savepoint", "restore", "mend", "dispose")},
        "my_cleanup": "cleanup.py",
        "state_verify": "verify.py",
        "zoned.checkpoint": "zoned.py",
        **{f"{name}.{kind}": "grouped.py" for name in ("g1", "g2", "other", "wrong") for kind in KINDS},
        "together.group": "grouped.py",
        f"{LONG}.checkpoint": "by_asset.py",
        f"{'g' * 120}.group": "by_asset.py",
    }
    assert all(dag["serialized"] for dag in parsed["dags"].values())
    assert parsed["dags"]["first.checkpoint"]["tags"] == ["first", "statelib"]
    assert parsed["dags"]["state_verify"]["examples"] == ["first"]


@pytest.mark.parametrize("dag_id", ["second.checkpoint", "second.restore", "my_cleanup", "state_verify"])
def test_settings_are_applied_to_every_task(parsed: dict[str, Any], dag_id: str) -> None:
    dag = parsed["dags"][dag_id]
    assert "finance" in dag["tags"]
    assert "statelib" in dag["tags"]
    assert dag["default_conn"] == "state"
    for name, task in dag["tasks"].items():
        expected = {"retries": 7, "pool": "spark", "queue": "large", "owner": "ada", "email": "a@b.c"}
        own = {"abort": {"retries": 2}, "approve": {"retries": 0}}.get(name, {})
        assert {key: task[key] for key in expected} == expected | own, name


def test_pipelines_of_a_group_have_one_scheduled_dag_and_paused_ones_of_their_own(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["together.group"]["tasks"]
    assert [path.rpartition("/")[2] for path in tasks["checkpoints"]["pipelines"]] == [
        "g1.yaml", "g2.yaml", "unreadable.yaml",
    ], "the task fails for the file that does not load"  # fmt: skip
    assert tasks["abort"]["upstream_task_ids"] == ["checkpoints"]
    paused = {
        dag_id: dag["paused"] for dag_id, dag in parsed["dags"].items() if dag_id.endswith((".checkpoint", ".group"))
    }
    assert paused["g1.checkpoint"]
    assert paused["g2.checkpoint"]
    assert not paused["together.group"]
    assert not paused["first.checkpoint"]
    replays = {name: parsed["dags"][f"{name}.restore"]["tasks"]["replay"]["checkpoint_dag"] for name in ("g1", "first")}
    assert replays == {"g1": "together.group", "first": "first.checkpoint"}
    assert "apart.group" not in parsed["dags"], "its pipelines have different schedules"


def test_a_pipeline_with_tables_has_a_task_that_publishes_after_register(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["first.checkpoint"]["tasks"]
    assert tasks["publish"]["upstream_task_ids"] == ["register"]
    assert tasks["publish"]["trigger_rule"] == "none_failed", "a run whose interval is applied publishes, too"
    assert (tasks["register"]["outlets"], tasks["publish"]["outlets"]) == ([], ["first.state"])
    mended = parsed["dags"]["corrected.mend"]["tasks"]
    assert (mended["register"]["outlets"], mended["publish"]["outlets"]) == ([], ["corrected.state"])
    second = parsed["dags"]["second.checkpoint"]["tasks"]
    assert second["register"]["outlets"] == ["second.state"]
    assert second["register"]["trigger_rule"] == "none_failed", "a cleared run sends an event that was not sent"
    assert "publish" not in second
    assert "publish" not in parsed["dags"]["first.savepoint"]["tasks"]


def test_the_connections_are_passed_to_the_operators(parsed: dict[str, Any]) -> None:
    snapshot = parsed["dags"]["second.checkpoint"]["tasks"]["snapshot"]
    assert (snapshot["statelib_conn_id"], snapshot["_conn_id"]) == ("state", "cluster")
    assert parsed["dags"]["state_verify"]["tasks"]["verify"]["statelib_conn_id"] == "state"
    plain = parsed["dags"]["first.checkpoint"]["tasks"]["snapshot"]
    assert (plain["statelib_conn_id"], plain["_conn_id"]) == (None, "spark_default")


def test_callbacks_are_added_to_the_notifiers(parsed: dict[str, Any]) -> None:
    assert parsed["dags"]["first.checkpoint"]["callbacks"] == ["StatelibNotifier"]
    assert parsed["dags"]["second.checkpoint"]["callbacks"] == ["StatelibNotifier", "print"]


def test_a_mistake_is_an_import_error_of_its_own_file(parsed: dict[str, Any]) -> None:
    assert set(parsed["errors"]) == {"broken.py", "mistyped.py", "unknown.py", "ungrouped.py", "wrong_tag.py"}
    assert "group apart: group apart: other and wrong have different schedules" in parsed["errors"]["ungrouped.py"]
    assert "bakend" in parsed["errors"]["broken.py"]
    assert "there is no replay: expected some of checkpoint" in parsed["errors"]["mistyped.py"]
    assert "pol" in parsed["errors"]["unknown.py"]


def test_the_scheduler_has_the_intervals_of_the_time_zone(parsed: dict[str, Any]) -> None:
    schedule = Schedule.model_validate(yaml.safe_load(zoned_pipeline())["schedule"])
    assert schedule.end is not None
    expected = list(intervals(schedule, epoch_ms(schedule.start), epoch_ms(schedule.end)))
    of_airflow = parsed["dags"]["zoned.checkpoint"]["intervals"]
    assert of_airflow[: len(expected)] == [[each.start_ms, each.end_ms] for each in expected]
    assert (len(expected), len(of_airflow)) == (364, 365), "in Airflow, an interval may begin at the end"
    hours = sorted((end - start) // 3_600_000 for start, end in of_airflow)
    assert (hours[0], hours[1], hours[-2], hours[-1]) == (23, 24, 24, 25)


def test_a_mend_dag_plans_compares_awaits_approval_and_takes_a_checkpoint(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["corrected.mend"]["tasks"]
    order = {
        "plan": [],
        "preview": ["plan"],
        "approve": ["preview"],
        "begin": ["approve", "plan"],
        "snapshot": ["begin"],
        "check_completeness": ["snapshot"],
        "register": ["check_completeness"],
        "publish": ["register"],
        "abort": ["register"],
    }
    assert {name: task["upstream_task_ids"] for name, task in tasks.items()} == order


def test_only_a_dag_without_a_cron_has_a_form_for_the_interval(parsed: dict[str, Any]) -> None:
    for dag_id in (f"{LONG}.checkpoint", f"{'g' * 120}.group"):
        dag = parsed["dags"][dag_id]
        assert (dag["params"], dag["tags"]) == (["end", "start"], ["statelib"]), "Airflow refuses longer tags"
    assert parsed["dags"]["first.checkpoint"]["params"] == parsed["dags"]["together.group"]["params"] == []
