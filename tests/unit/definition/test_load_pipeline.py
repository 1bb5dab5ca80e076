import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statelib.definition.pipeline import Pipeline, load_pipeline, load_pipelines
from statelib.definition.source.parts import source_part
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import DataInterval
from statelib.model.state import StateKind
from statelib.model.termination import CheckpointRetentionPolicy

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "dags" / "pipelines"

SMALL = """\
name: small
source:
  path: "{data}/x/{start:%Y-%m-%d}"
  columns: {k: string, v: long, t: instant}
key: k
states:
  total: {kind: value, value: {agg: sum, of: v}}
backend: rocksdb
"""


MEAN = "row<sum: double, count: long>"


def small(tmp_path: Path, text: str = SMALL, name: str = "small.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_pipelines_are_valid():
    pipelines, errors = load_pipelines(SHIPPED)
    assert errors == []
    assert [p.name for p in pipelines] == ["aircraft_activity", "carrier_streaks", "route_delays"]
    assert [Path(p.path).stem for p in pipelines] == [p.name for p in pipelines]


def test_the_schema_of_aircraft_activity_has_the_declared_states():
    schema = load_pipeline(SHIPPED / "aircraft_activity.yaml").schema()
    activity, per_dest = schema.states
    assert (str(schema.key_type), schema.max_parallelism) == ("string", 128)
    assert (activity.name, activity.kind, activity.user_key_type) == ("activity", StateKind.VALUE, None)
    assert str(activity.value_type) == (
        "row<flights: long, distance: long, dep_delay: double, arr_delay: double, first_seen: instant, "
        "last_seen: instant, last_dest: row<value: string, by_time_hour: instant, by_flight: long>>"
    )
    assert (per_dest.kind, str(per_dest.user_key_type), str(per_dest.value_type)) == (StateKind.MAP, "string", "long")


def test_the_schema_of_route_delays_has_the_declared_states():
    schema = load_pipeline(SHIPPED / "route_delays.yaml").schema()
    assert str(schema.key_type) == "tuple<string, string, string>"
    assert {s.name: (s.kind.value, str(s.value_type)) for s in schema.states} == {
        "worst_arr_delay": ("reducing", "double"),
        "best_arr_delay": ("reducing", "double"),
        "minutes_flown": ("reducing", "double"),
        "delays": (
            "aggregating",
            "row<flights: long, departed: long, dep_delay: MEAN, arr_delay: MEAN, air_time: MEAN>".replace(
                "MEAN", MEAN
            ),
        ),
        "arr_delay_histogram": ("aggregating", "array<long>"),
    }


def test_the_value_type_of_a_list_state_is_that_of_its_elements(tmp_path):
    text = SMALL.replace("{kind: value, value: {agg: sum, of: v}}", "{kind: list, value: {agg: collect, of: v}}")
    (state,) = load_pipeline(small(tmp_path, text)).schema().states
    assert (state.kind, str(state.value_type)) == (StateKind.LIST, "long")


def test_optional_keys_have_defaults(tmp_path):
    pipeline = load_pipeline(small(tmp_path))
    assert (pipeline.parallelism, pipeline.max_parallelism, pipeline.key) == (1, 128, ("k",))
    assert (pipeline.on_null_key, pipeline.on_gap, pipeline.schedule) == ("fail", "fail", None)
    assert (pipeline.checkpoint.strategy, pipeline.checkpoint.inline_threshold_bytes) == ("full", 20 * 1024)
    assert (pipeline.retries.count, pipeline.retries.delay_s) == (2, 10)
    heap = load_pipeline(small(tmp_path, SMALL.replace("rocksdb", "heap")))
    assert heap.checkpoint.strategy == "canonical"
    native = load_pipeline(small(tmp_path, SMALL.replace("rocksdb", "heap") + "checkpoint: {strategy: full}\n"))
    assert native.checkpoint.strategy == "full"
    inlined = load_pipeline(small(tmp_path, SMALL + "checkpoint: {inline_threshold_bytes: 0}\n"))
    assert (inlined.checkpoint.strategy, inlined.checkpoint.inline_threshold_bytes) == ("full", 0)
    assert not inlined.checkpoint.local_recovery
    assert load_pipeline(small(tmp_path, SMALL + "checkpoint: {local_recovery: true}\n")).checkpoint.local_recovery


def test_a_schedule_may_be_an_asset_or_manual(tmp_path):
    by_asset = load_pipeline(small(tmp_path, SMALL + "schedule: {asset: 's3://raw/orders', start: 2026-01-01}\n"))
    assert by_asset.schedule is not None
    assert (by_asset.schedule.text, by_asset.cron_schedule) == ("asset s3://raw/orders", None)
    assert load_pipeline(small(tmp_path, SMALL + "schedule: manual\n")).schedule is None


def test_times_of_the_schedule_are_in_utc(tmp_path):
    text = SMALL + 'schedule: {cron: "@daily", start: 2013-01-01, end: "2013-12-31T12:00:00+02:00"}\n'
    schedule = load_pipeline(small(tmp_path, text)).schedule
    assert schedule is not None
    assert (schedule.start, schedule.end) == (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 12, 31, 10, tzinfo=UTC))
    assert schedule.catchup is False


def test_the_path_of_an_interval_follows_from_the_template(tmp_path):
    source = load_pipeline(small(tmp_path)).source
    third = DataInterval(1_359_849_600_000, 1_359_936_000_000)
    assert source_part(source, "source", "/srv/data", third, UTC).path == "/srv/data/x/2013-02-03"


def test_a_copied_or_pickled_pipeline_is_equal_to_the_original(tmp_path):
    for path in (*SHIPPED.iterdir(), small(tmp_path)):
        pipeline = load_pipeline(path)
        copies = (
            Pipeline.model_validate(pipeline.model_dump()),
            Pipeline.model_validate_json(pipeline.model_dump_json()),
            pickle.loads(pickle.dumps(pipeline)),
        )
        for copy in copies:
            assert copy == pipeline
            assert hash(copy) == hash(pipeline)
            assert copy.schema() == pipeline.schema()
    assert len({load_pipeline(path) for path in SHIPPED.iterdir() for _ in range(2)}) == 3


def test_there_is_one_picklable_function_per_state():
    for path in SHIPPED.iterdir():
        pipeline = load_pipeline(path)
        functions = pipeline.functions()
        assert [f.state for f in functions] == [s.name for s in pipeline.schema().states]
        assert pickle.loads(pickle.dumps(functions)) == functions


def test_loading_imports_neither_arrow_nor_user_code():
    code = (
        "import sys; from statelib.definition.pipeline import load_pipelines; "
        f"assert len(load_pipelines({str(SHIPPED)!r})[0]) == 3; "
        "heavy = ('pyarrow', 'pandas', 'pyspark', 'rocksdict', 'statelib_jobs'); "
        "print([m for m in sys.modules if m.split('.')[0] in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_file_or_directory_is_an_error(tmp_path):
    with pytest.raises(NotFoundError, match=r"no file .*nothing\.yaml"):
        load_pipeline(tmp_path / "nothing.yaml")
    with pytest.raises(NotFoundError, match="no directory"):
        load_pipelines(tmp_path / "nothing")


def test_a_file_is_checked_again_when_its_text_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its size, its time of change and its inode are those of before."""
    path = small(tmp_path)
    before, stat = load_pipeline(path), path.stat()
    monkeypatch.setattr("statelib.definition.pipeline.read_document", _refuse)
    assert load_pipeline(path) is before
    monkeypatch.undo()
    with path.open("r+") as file:
        file.write(SMALL.replace("small", "other"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    assert load_pipeline(path).name == "other"
    copied = small(tmp_path, SMALL, "copy.yaml")
    assert load_pipeline(copied).path == str(copied)


def _refuse(_: str) -> None:
    raise AssertionError("the text was parsed again")


def test_a_bad_file_does_not_hide_the_others(tmp_path):
    small(tmp_path, SMALL, "a.yaml")
    small(tmp_path, "name: [", "b.yaml")
    small(tmp_path, SMALL.replace("small", "other"), "c.yml")
    small(tmp_path, "not a pipeline", "notes.txt")
    pipelines, errors = load_pipelines(tmp_path)
    assert [p.name for p in pipelines] == ["small", "other"]
    (error,) = errors
    assert error.path == str(tmp_path / "b.yaml")
    assert "not valid YAML" in error.message


def test_only_files_that_may_have_a_name_are_loaded(tmp_path: Path) -> None:
    """Among them are those that write it in another way, that have it as a group, or that are called like it."""
    small(tmp_path, SMALL, "a.yaml")
    small(tmp_path, SMALL.replace("small", "other"), "b.yaml")
    small(tmp_path, SMALL.replace("name: small", 'name: "s\\x6dall"'), "c.yaml")
    small(tmp_path, SMALL.replace("name: small", "name: third\ngroup: small"), "d.yaml")
    small(tmp_path, "name: [", "small.yaml")
    small(tmp_path, "name: [", "unrelated.yaml")
    pipelines, errors = load_pipelines(tmp_path, "small")
    assert [p.name for p in pipelines] == ["small", "third"]
    assert [Path(error.path).name for error in errors] == ["c.yaml", "small.yaml"]
    assert "a.yaml has the name 'small' already" in errors[0].message
    everything, all_errors = load_pipelines(tmp_path)
    assert [p.name for p in everything] == ["small", "other", "third"]
    assert len(all_errors) == 3


def test_two_files_cannot_have_the_same_pipeline_name(tmp_path):
    small(tmp_path, SMALL, "a.yaml")
    small(tmp_path, SMALL, "b.yaml")
    pipelines, (error,) = load_pipelines(tmp_path)
    assert [Path(p.path).name for p in pipelines] == ["a.yaml"]
    assert error.path.endswith("b.yaml")
    assert "a.yaml has the name" in error.message


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        load_pipeline(path)


@pytest.mark.parametrize(
    ("text", "count", "days"),
    [("{}", 20, None), ("{count: 3}", 3, None), ("{days: 30}", 20, 30), ("{count: 1, days: 7}", 1, 7)],
)
def test_retention_keeps_twenty_checkpoints_by_default(tmp_path: Path, text: str, count: int, days: int | None):
    pipeline = load_pipeline(small(tmp_path, SMALL + f"checkpoint: {{retain: {text}}}\n")).checkpoint.retain
    assert (pipeline.count, pipeline.days) == (count, days)
    assert load_pipeline(small(tmp_path, SMALL, "plain.yaml")).checkpoint.retain.count == 20


@pytest.mark.parametrize("text", ["{count: 0}", "{count: -1}", "{count: 1.5}", "{days: 0}", "{cuont: 3}", "7", "[1]"])
def test_a_retention_that_keeps_nothing_or_is_invalid_is_refused(tmp_path: Path, text: str):
    with pytest.raises(InvalidRequestError, match="retain"):
        load_pipeline(small(tmp_path, SMALL + f"checkpoint: {{retain: {text}}}\n"))


def test_file_merging_is_off_by_default(tmp_path: Path) -> None:
    assert not load_pipeline(small(tmp_path, SMALL, "plain.yaml")).checkpoint.file_merging.enabled
    text = "{enabled: true, max_file_size_bytes: 1048576, max_space_amplification: 1.5}"
    merging = load_pipeline(small(tmp_path, SMALL + f"checkpoint: {{file_merging: {text}}}\n")).checkpoint.file_merging
    assert (merging.enabled, merging.max_file_size_bytes, merging.max_space_amplification) == (True, 1 << 20, 1.5)


@pytest.mark.parametrize("text", ["{enabled: 1}", "{max_file_size_bytes: 0}", "{max_space_amplification: 0.5}", "true"])
def test_bad_file_merging_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="file_merging"):
        load_pipeline(small(tmp_path, SMALL + f"checkpoint: {{file_merging: {text}}}\n"))


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_limits_of_a_changelog_can_be_set(tmp_path: Path, backend: str):
    text = SMALL.replace("backend: rocksdb", f"backend: {backend}\ncheckpoint: {{strategy: changelog}}")
    limits = "changelog, materialize_after_bytes: 4096, materialize_after_checkpoints: 7"
    pipeline = load_pipeline(small(tmp_path, text.replace("changelog", limits)))
    assert (pipeline.checkpoint.materialize_after_bytes, pipeline.checkpoint.materialize_after_checkpoints) == (4096, 7)
    assert Pipeline.model_validate(pipeline.model_dump()) == pipeline
    usual = load_pipeline(small(tmp_path, text)).checkpoint
    assert (usual.strategy, usual.materialize_after_bytes) == ("changelog", 16 * 1024 * 1024)
    assert usual.materialize_after_checkpoints == 20


def test_a_checkpoint_has_default_limits_for_time_and_failures(tmp_path: Path) -> None:
    """The defaults are six hours per attempt, any number of failures, and no deletion when a pipeline ends."""
    plain = load_pipeline(small(tmp_path, SMALL)).checkpoint
    result = (plain.timeout_s, plain.tolerable_failures, plain.execution, plain.retain.after_termination)
    assert result == (21_600, None, "async", None)
    retain = "{after_termination: RETAIN_ON_FAILURE}"
    text = f"checkpoint: {{timeout_s: 60, tolerable_failures: 0, execution: sync, retain: {retain}}}\n"
    pipeline = load_pipeline(small(tmp_path, SMALL + text, "said.yaml"))
    assert (pipeline.checkpoint.timeout_s, pipeline.checkpoint.tolerable_failures, pipeline.checkpoint.execution) == (
        60,
        0,
        "sync",
    )
    assert pipeline.checkpoint.retain.after_termination is CheckpointRetentionPolicy.RETAIN_ON_FAILURE
    assert Pipeline.model_validate(pipeline.model_dump()) == pipeline


def test_files_beside_those_that_an_editor_has_open_are_left_out(tmp_path):
    small(tmp_path)
    (tmp_path / ".#small.yaml").symlink_to("somebody@host.17:1")
    (tmp_path / ".hidden.yaml").write_text("name: [")
    pipelines, errors = load_pipelines(tmp_path)
    assert ([pipeline.name for pipeline in pipelines], errors) == (["small"], [])


def test_a_file_that_does_not_load_still_names_its_group(tmp_path):
    texts = {"a": "group: g  # hourly\noops: [\n", "b": "group: 'h'\nnmae: x\n", "c": "x:\n  group: g\n", "d": SMALL}
    for name, text in texts.items():
        small(tmp_path, text, f"{name}.yaml")
    small(tmp_path, SMALL + "group: g\n", "e.yaml")
    errors = load_pipelines(tmp_path)[1]
    named = {Path(error.path).stem: error.group for error in errors}
    assert named == {"a": "g", "b": "h", "c": "", "e": ""}, "e loads, but has the name of d"
