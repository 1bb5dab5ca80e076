"""``statelib restore``: the plan, the question, and what the next run then builds on."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.handles import FileStateHandle, KeyGroupsSavepointStateHandle, RelativeFileStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, PipelineHead
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.integration.foreign import savepoint
from tests.integration.shop import environment, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import CHECKOUT, checkpoint_of

SALES = PipelineName("sales")
REPLAY = (
    "clear the runs of sales.checkpoint whose intervals start from 2013-01-02 00:00:00 to 2013-01-02 00:00:00 UTC, the "
    "oldest first, or apply each with statelib run sales --start ... --end ..."
)
BACKFILL = (
    "airflow backfill create --dag-id {} --from-date 2013-01-02T00:00:00Z "
    "--to-date 2013-01-02T00:00:00Z --reprocess-behavior completed --max-active-runs 1"
)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def shop(tmp_path: Path) -> Deployment:
    """Return a deployment that a test may change."""
    return open_shop(tmp_path / "shop")


def head(deployment: Deployment) -> PipelineHead:
    return deployment.catalog().head(SALES)


def states(deployment: Deployment) -> dict[int, str]:
    return {r.checkpoint_id: r.state for r in deployment.catalog().list(SALES)}


def answered(deployment: Deployment, answer: str, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["restore", *words], input=answer, env=environment(deployment))
    return result.exit_code, result.output


def test_a_dry_run_shows_the_plan_and_changes_nothing(untouched: Deployment) -> None:
    before = head(untouched), states(untouched)
    output = said(untouched, "restore", "sales", "1", "--parallelism", "3", "--dry-run")
    for words in (
        r"^restore +sales to sales/1$", r"^claim mode +no-claim$", r"^entries +12$", r"^parallelism +2 to 3$",
        r"^leaves +sales/5$", r"^aborts +sales/6, which is under way$", r"^ +0 +0-42 +0-63 +\d\.\d KiB +4$",
        r"^ +1 +43-85 +0-63, 64-127 +\d\.\d KiB +\d+$", rf"^next: {re.escape(REPLAY)}$",
    ):  # fmt: skip
        assert re.search(words, output, re.MULTILINE), f"{words} is not in\n{output}"
    plan = json.loads(said(untouched, "restore", "sales", "sales/1", "--dry-run", "--json"))
    assert (plan["applied"], plan["head"], plan["next"]) == (False, None, REPLAY)
    assert plan["command"] == "", "there are no intervals without a schedule"
    assert (plan["plan"]["abandoned"], plan["plan"]["aborts"]) == ([5], [6])
    assert sum(read["entries"] for read in plan["plan"]["reads"]) == plan["plan"]["entries"] == 12
    assert (head(untouched), states(untouched)) == before


@pytest.mark.parametrize(("group", "dag"), [("", "sales.checkpoint"), ("group: hourly\n", "hourly.group")])
def test_the_next_step_is_a_backfill_of_the_dag_that_applies_the_intervals(
    shop: Deployment, group: str, dag: str
) -> None:
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(f'{file.read_text()}{group}schedule: {{cron: "@daily", start: 2013-01-01}}\n')
    plan = json.loads(said(shop, "restore", "sales", "1", "--dry-run", "--json"))
    assert plan["next"] == BACKFILL.format(dag)
    assert (plan["command"], plan["mend_again"]) == ("statelib run sales --end 2013-01-03T00:00:00", [])


def test_a_restore_moves_the_head_and_the_next_run_builds_on_it(shop: Deployment) -> None:
    output = said(shop, "restore", "sales", "1", "--parallelism", "3", "--yes")
    assert "the head of sales is sales/1, generation 2" in output
    assert f"next: {REPLAY}" in output
    assert (head(shop).head, head(shop).parallelism) == (1, 3)
    assert states(shop)[6] == CheckpointState.ABORTED
    replayed = checkpoint_of(shop, "sales", 2, sales(6))
    record = shop.catalog().get(SALES, replayed)
    assert (record.base, record.parallelism) == (1, 3)
    again = open_checkpoint(record.directory)
    first = open_checkpoint(shop.catalog().get(SALES, CheckpointId(2)).directory)
    assert not any(state.different for state in Diff(first, again).states)
    assert verify(again).problems == ()


def test_the_plan_states_if_there_is_nothing_to_replay(untouched: Deployment) -> None:
    output = said(untouched, "restore", "sales", "5", "--dry-run")
    assert "next: nothing to replay: the next run of sales.checkpoint is that of 2013-01-03 00:00:00 UTC" in output
    assert re.search(r"^leaves +nothing behind$", output, re.MULTILINE)
    output = said(untouched, "restore", "tours", "1", "--dry-run")
    assert re.search(r"^aborts +nothing$", output, re.MULTILINE)


def test_a_restore_needs_a_confirmation(shop: Deployment) -> None:
    before = head(shop), states(shop)
    for answer, status, words in (("n\n", 1, "nothing was changed"), ("", 2, "not confirmed")):
        code, output = answered(shop, answer, "sales", "1")
        assert code == status
        assert words in output
        assert "Restore? [y/N]" in output
    result = call(shop, "restore", "sales", "1", "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (2, "not-confirmed")
    assert (head(shop), states(shop)) == before
    assert answered(shop, "y\n", "sales", "1")[0] == 0
    assert head(shop).head == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sales", "99"], "pipeline sales has no checkpoint 99"),
        (["sales", "0"], "expected <pipeline>/<id>"),
        (["sales", "9" * 30], "expected <pipeline>/<id>"),
        (["sales", "one"], "pipeline 'one' is neither in the catalog nor in"),
        (["sales", "2026-03-02"], "2026-03-02: expected a checkpoint of sales, found a time"),
        (["sales", "3"], "checkpoint sales/3 is ABORTED"),
        (["sales", "6"], "checkpoint sales/6 is PENDING"),
        (["sales", "tours/1"], "tours/1 is a checkpoint of pipeline tours, not of sales"),
        (["sails", "1"], "pipeline 'sails' is not in"),
        (["sales", "1", "--parallelism", "129"], "parallelism 129: expected 1 to max_parallelism 128"),
        (["sales", "1", "--parallelism", "0"], "parallelism 0: expected 1 to max_parallelism 128"),
        (["sales", "1", "--claim-mode", "steal"], "claim mode 'steal'"),
        (["sales", str(savepoint("1.20.5/kinds-hashmap-canonical-p1"))], "has no statelib manifest"),
        (["sales", "/nowhere"], "/nowhere: no _metadata file"),
    ],
)
def test_bad_arguments_are_refused(untouched: Deployment, words: list[str], message: str) -> None:
    before = head(untouched), states(untouched)
    assert message in refused(untouched, "restore", *words, "--yes")
    assert (head(untouched), states(untouched)) == before


def test_the_directory_of_another_pipeline_is_refused(untouched: Deployment) -> None:
    path = f"{untouched.storage_root}/tours/chk-1"
    assert refused(untouched, "restore", "sales", path).endswith("is a snapshot of pipeline tours, not of sales")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("agg: max", "agg: min").replace("best:", "worst:"), "stored state 'best'"),
        (lambda text: text.replace("backend: rocksdb", "backend: heap"), "expected the native form of the backend"),
        (lambda text: text.replace("parallelism: 2", "parallelism: 2\nmax_parallelism: 64"), "max_parallelism"),
    ],
)
def test_a_pipeline_that_could_not_read_the_state_is_refused(
    shop: Deployment, change: Callable[[str], str], message: str
) -> None:
    file = Path(shop.pipelines_directory, "tours.yaml")
    file.write_text(change(file.read_text()))
    assert message in refused(shop, "restore", "tours", "1", "--yes")


def test_a_damaged_snapshot_is_detected_before_anything_changes(shop: Deployment) -> None:
    before = head(shop), states(shop)
    file = next(path for path in Path(shop.storage_root, "sales", "chk-1").iterdir() if path.name != "_metadata")
    file.write_bytes(file.read_bytes()[:-1] + b"\x00")
    result = call(shop, "restore", "sales", "1", "--yes")
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert (head(shop), states(shop)) == before
    assert call(shop, "restore", "sales", "1", "--yes", "--no-verify").exit_code == 0


def test_a_directory_that_is_not_in_the_catalog_is_restored_with_either_claim_mode(
    shop: Deployment, tmp_path: Path
) -> None:
    copy = shutil.copytree(f"{shop.storage_root}/sales/chk-2", tmp_path / "copy")
    said(shop, "restore", "sales", copy, "--yes")
    imported = head(shop).head
    assert imported == 7
    assert shop.catalog().get(SALES, imported).owner == "USER"
    said(shop, "restore", "sales", copy, "--yes", "--claim-mode", "claim")
    assert head(shop).head == imported
    assert shop.catalog().get(SALES, imported).owner == "SYSTEM"


def outside(directory: Path, elsewhere: Path) -> None:
    """Let the snapshot's handles and manifest name their files by paths outside the directory."""
    metadata, manifest = read_checkpoint_file((directory / "_metadata").read_bytes())
    assert manifest is not None
    (operator,) = metadata.operators
    subtasks = []
    for index, state in operator.subtasks:
        assert isinstance(state.keyed, KeyGroupsSavepointStateHandle)
        stream = state.keyed.stream
        assert isinstance(stream, RelativeFileStateHandle)
        moved = FileStateHandle(f"file://{elsewhere}/{stream.path}", stream.size_bytes)
        subtasks.append((index, replace(state, keyed=replace(state.keyed, stream=moved))))
    files = tuple(replace(f, path=f"file://{elsewhere}/{f.path}") for f in manifest.files)
    data = encode_metadata(replace(metadata, operators=(replace(operator, subtasks=tuple(subtasks)),)))
    (directory / "_metadata").write_bytes(append_manifest(data, replace(manifest, files=files)))


def test_files_outside_the_directory_are_refused_by_both_modes(untouched: Deployment, tmp_path: Path) -> None:
    """A dry run refuses them as well: no run could read them, and a claim would delete them."""
    source = f"{untouched.storage_root}/sales/chk-2"
    beside, inside = (Path(shutil.copytree(source, tmp_path / name)) for name in ("beside", "inside"))
    outside(beside, tmp_path / "beside-2")
    outside(inside, inside)
    before = head(untouched), states(untouched)
    claim = ("restore", "sales", "--claim-mode", "claim")
    for words in (claim, claim[:2]):
        for option in ("--yes", "--dry-run"):
            line = refused(untouched, *words, beside, option)
            assert str(tmp_path / "beside-2") in line
            assert line.endswith("which this snapshot did not write")
    assert "claim mode   claim\n" in said(untouched, *claim, inside, "--dry-run")
    assert (head(untouched), states(untouched)) == before


def test_a_removed_state_is_left_out_only_with_the_option_for_it(shop: Deployment) -> None:
    file = Path(shop.pipelines_directory, "sales.yaml")
    file.write_text(re.sub(r"  items: .*\n", "", file.read_text()))
    command = ("restore", "sales", "1", "--dry-run")
    assert "stored state 'items' (list<string, void>): the pipeline has no such state" in refused(shop, *command)
    result = call(shop, *command, "--allow-non-restored-state")
    assert result.exit_code == 0
    assert re.search(r"^not restored 'items' \(list<string, void>\), 3 entries$", result.stdout, re.MULTILINE)
    assert re.search(r"^state +'total': COMPATIBLE_AS_IS$", result.stdout, re.MULTILINE)
    assert "only if the pipeline file says 'allow_non_restored_state: true'" in result.stdout + result.stderr


def test_retention_keeps_a_checkpoint_while_a_restore_waits_for_confirmation(shop: Deployment) -> None:
    file = Path(shop.pipelines_directory, "sales.yaml")
    file.write_text(file.read_text().replace("bytes: 1}", "bytes: 1, retain: {count: 1}}"))
    checkpoint_of(shop, "sales", 3, sales(200))
    words = [sys.executable, "-m", "statelib", "restore", "sales", "1"]
    pipe = subprocess.PIPE
    env = os.environ | environment(shop)
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=CHECKOUT) as asked:
        assert asked.stderr is not None
        question = b""
        while not question.endswith(b"Restore? [y/N]:"):
            question += asked.stderr.read(1) or pytest.fail(f"never asked: {question.decode()}")
        meanwhile = retire(shop, "sales")[0].checkpoints
        collect_garbage(shop)
        asked.communicate(b"y\n")
    assert (asked.returncode, meanwhile, head(shop).head) == (0, (2, 5), 1)
    assert retire(shop, "sales")[0].checkpoints == (), "what is left behind is kept for a while, too"
    assert shop.catalog().cleanup.situation(SALES).in_use == frozenset(), "nothing is held any more"
