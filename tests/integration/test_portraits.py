"""Descriptions and comparisons of checkpoints from their manifests, and samples of the storage's size by commands that
change it."""

from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.anatomy import portrait
from statelib.flows.views.comparison import compare
from statelib.flows.views.overview import check_known, names, overview, storage_now, storage_samples
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.garbage import days, save, tally
from tests.integration.shop import open_shop

TALLY, SALES = PipelineName("tally"), PipelineName("sales")


def incremental(root: Path) -> Deployment:
    """Return the pipeline tally on RocksDB with the checkpoints 1, 2 and 3, which share files."""
    deployment = tally(root, "{count: 9}")
    file = root / "pipelines" / "tally.yaml"
    file.write_text(
        file.read_text().replace("backend: heap", "backend: rocksdb").replace(
            "checkpoint: {", "checkpoint: {strategy: incremental, "
        )
    )  # fmt: skip
    days(deployment, 1, 3)
    return deployment


def test_a_shared_file_lists_the_checkpoints_that_share_it(tmp_path: Path) -> None:
    view = portrait(incremental(tmp_path), TALLY, CheckpointId(2))
    assert view.problem is None
    assert view.anatomy is not None
    shared = [f for f in view.anatomy.files if f.scope == "shared"]
    assert shared
    assert {f.scope for f in view.anatomy.files} == {"shared", "exclusive"}
    first = [f for f in shared if f.created_by == 1]
    assert first
    assert all(f.shared_with == (3, 1) and f.shared_with_total == 2 for f in first)
    assert all(f.shared_with == () for f in view.anatomy.files if f.scope == "exclusive")
    (subtask, other) = view.anatomy.subtasks
    assert (subtask.key_groups, other.key_groups) == ((0, 63), (64, 127))
    assert {subtask.restored_from, other.restored_from} <= {"remote", "local", "mixed"}
    assert sum(s.bytes for s in view.anatomy.subtasks) >= sum(f.size_bytes for f in view.anatomy.files)
    (total,) = view.anatomy.states
    assert (total.entries, sum(total.entries_by_key_group or ())) == (10, 10)


def test_a_comparison_counts_shared_files_once_and_names_changed_key_groups(tmp_path: Path) -> None:
    deployment = incremental(tmp_path)
    view = compare(deployment, TALLY, CheckpointId(2), CheckpointId(3))
    assert view.problem is None
    assert view.files is not None
    assert view.files.common > 0
    assert view.files.only_left > 0
    assert view.states is not None
    (total,) = view.states
    assert total.changed is not None
    assert len(total.changed) == total.key_groups_changed > 0
    same = compare(deployment, TALLY, CheckpointId(3), CheckpointId(3))
    assert same.states is not None
    assert same.files is not None
    assert (same.states[0].changed, same.files.only_left, same.files.only_right) == ([], 0, 0)
    assert same.files.common == view.files.common + view.files.only_right
    with pytest.raises(NotFoundError, match="no checkpoint 9"):
        compare(deployment, TALLY, CheckpointId(9), CheckpointId(1))


def test_storage_is_sampled_by_register_and_gc(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 4)
    save(deployment, "k")
    before = storage_samples(deployment, TALLY)
    assert len(before) == 5
    assert [s.usage.live_bytes for s in before][:4] == sorted(s.usage.live_bytes for s in before[:4])
    assert before[4].usage.savepoint_bytes > before[3].usage.savepoint_bytes == 0
    retire(deployment)
    garbage = storage_now(deployment, [TALLY])[TALLY].garbage_bytes
    assert garbage > 0
    (collected,) = collect_garbage(deployment)
    after = storage_samples(deployment, TALLY)[-1]
    assert after.usage == storage_now(deployment, [TALLY])[TALLY]
    assert after.usage.garbage_bytes == 0
    assert before[-1].usage.live_bytes - after.usage.live_bytes == garbage == collected.size_bytes
    assert len(collected.metadata) == len(collected.checkpoints)
    deleted = portrait(deployment, TALLY, CheckpointId(1))
    assert (deleted.entry.state, deleted.anatomy) == ("DELETED", None)
    assert "tally/1 was deleted" in str(deleted.problem)


def test_a_pipeline_exists_if_it_has_a_file_or_a_history(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    files = Path(deployment.pipelines_directory)
    (files / "tours.yaml").rename(files / "tours.aside")
    (files / "new.yaml").write_text((files / "sales.yaml").read_text().replace("sales", "new"))
    (files / "bad.yaml").write_text("name: [")
    (files / ".#sales.yaml").symlink_to("somebody@host.17:1")
    assert names(deployment) == ("bad", "new", "sales", "tours")
    (files / "gone.yaml").symlink_to(files / "nothing")
    assert "gone.yaml" in str(overview(deployment, [PipelineName("gone")])[0].error)
    (files / "gone.yaml").unlink()
    bad, new, sales, tours = overview(deployment, names(deployment))
    assert (bad.definition, bad.summary) == (None, None)
    assert "bad.yaml:" in str(bad.error)
    assert (new.error, new.summary) == (None, None)
    assert sales.summary is not None
    assert "no pipeline file" in str(tours.error)
    assert tours.summary is not None
    (files / "bad.yaml").write_text((files / "sales.yaml").read_text().replace("sales", "bad"))
    assert overview(deployment, [PipelineName("bad")])[0].error is None, "a file that was mended is read again"
    check_known(deployment, SALES)
    with pytest.raises(NotFoundError, match="no pipeline nobody"):
        check_known(deployment, PipelineName("nobody"))


def test_viewing_a_pipeline_creates_no_catalog(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    with pytest.raises(InvalidRequestError) as refusal:
        names(deployment)
    assert refusal.value.kind == "no-catalog"
    file = tmp_path / "catalog.db"
    assert not file.exists()
    file.touch()
    with pytest.raises(InvalidRequestError, match="expected schema"):
        names(deployment)
    assert file.stat().st_size == 0


def test_a_state_that_only_one_side_has_is_new_in_all_its_key_groups(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 1)
    file = tmp_path / "pipelines" / "tally.yaml"
    file.write_text(file.read_text().replace("states:\n", "states:\n  seen: {kind: value, value: {agg: count}}\n"))
    days(deployment, 2, 2)
    view = compare(deployment, TALLY, CheckpointId(1), CheckpointId(2))
    assert view.states is not None
    seen, total = view.states
    assert (seen.name, seen.left_entries, seen.right_entries) == ("seen", None, 10)
    assert (total.left_entries, total.right_entries) == (10, 10)
    assert seen.changed == total.changed, "the same keys"


def test_the_size_of_an_answer_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = incremental(tmp_path)
    whole = portrait(deployment, TALLY, CheckpointId(3)).anatomy
    monkeypatch.setattr("statelib.flows.views.anatomy.MAX_FILES", 2)
    monkeypatch.setattr("statelib.flows.views.anatomy.MAX_NUMBERS", 127)
    cut = portrait(deployment, TALLY, CheckpointId(3)).anatomy
    assert whole is not None
    assert cut is not None
    assert (len(cut.files), cut.files_total) == (2, len(whole.files))
    assert cut.states[0].entries_by_key_group is None
    assert cut.states[0].digest_hex == whole.states[0].digest_hex
