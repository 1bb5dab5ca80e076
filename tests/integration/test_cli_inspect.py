"""``statelib inspect`` as a tree: what is where, how much of it, and how evenly it is spread."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.cli.presenters.snapshot_tree import bar, histogram
from statelib.flows.wiring import VARIABLES, Deployment
from tests.integration.foreign import savepoint
from tests.integration.shop import SALES, environment, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of, new_deployment

FLINK = Path(__file__).parents[1] / "golden" / "flink"
SNAPSHOTS = sorted(path.parent for path in FLINK.rglob("_metadata"))
FILES = savepoint("1.20.5/kinds-hashmap-canonical-p4-files")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def test_a_snapshot_of_statelib_has_entries_sizes_bars_and_files(shop: Deployment) -> None:
    output = said(shop, "inspect", "sales/5", columns=160)
    assert re.search(r"per_item: map, 6 entries\n.*├── user key string\n.*└── value long", output)
    assert re.search(r"├── 0 0-63   █+·* \d entries, \d\.\d KiB$", output, re.MULTILINE)
    assert re.search(
        r"key groups 0-127, 4 per bar, at most 4 entries in one\n.*└── \|[ ▁-█]{32}\|$", output, re.MULTILINE
    )
    assert re.search(r"canonical, \d\.\d KiB: [0-9a-f]{32}-0-0$", output, re.MULTILINE)
    assert "operator state, split_distribute, 1 element" in output


def test_the_numbers_of_the_json_add_up(shop: Deployment) -> None:
    answer = json.loads(said(shop, "inspect", "sales/5", "--json"))
    (operator,) = answer["operators"]
    groups = operator["entries_by_key_group"]
    assert (len(groups), sum(groups)) == (128, sum(state["entries"] for state in operator["states"]))
    assert [s["entries"] for s in operator["subtasks"]] == [sum(groups[:64]), sum(groups[64:])]
    for subtask in operator["subtasks"]:
        assert subtask["size_bytes"] == sum(stream["size_bytes"] for stream in subtask["streams"]) > 0
        assert {stream["role"] for stream in subtask["streams"]} == {"canonical"}
    assert json.loads(said(shop, "inspect", "sales/5", "--json", "--count")) == answer


def test_keys_are_counted_once_over_all_states(shop: Deployment) -> None:
    (operator,) = json.loads(said(shop, "inspect", "sales/5", "--json"))["operators"]
    assert operator["keys"] == 3
    assert "\n│   ├── 3 keys\n" in said(shop, "inspect", "sales/5")
    shown = json.loads(said(shop, "checkpoints", "show", "sales/5", "--json"))
    assert [o["keys"] for o in shown["snapshot"]["operators"]] == [shown["keys"]] == [3]
    assert "\n│   ├── 3 keys\n" in said(shop, "checkpoints", "show", "sales/5")


def test_entries_of_flinks_snapshots_are_counted_on_request() -> None:
    def entries(*words: str) -> list[int | None]:
        operators = json.loads(said(None, "inspect", FILES, "--json", *words))["operators"]
        return [s["entries"] for o in operators for s in o["states"] if s["kind"] != "timers"]

    assert set(entries()) == {None}
    truth = [json.loads(line) for line in (FILES.parent / "truth.jsonl").read_text().splitlines()]
    entry_keys = {(t["state"], json.dumps(t["key"]), json.dumps(t.get("uk"))) for t in truth if "key" in t}
    counted = entries("--count")
    (keys,) = (
        o["keys"] for o in json.loads(said(None, "inspect", FILES, "--json", "--count"))["operators"] if o["keys"]
    )
    assert keys == len({key for state, key, _ in entry_keys if state})
    assert {o["keys"] for o in json.loads(said(None, "inspect", FILES, "--json"))["operators"]} == {None}
    assert sum(number or 0 for number in counted) == len({k for k in entry_keys if k[0]})
    assert "by bytes" in said(None, "inspect", FILES)
    assert "by entries" in said(None, "inspect", FILES, "--count")


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.parent.name}-{path.name}"[:60])
def test_every_snapshot_of_flink_is_shown(path: Path, columns: int) -> None:
    output = said(None, "inspect", path, columns=columns)
    about = json.loads(said(None, "inspect", path, "--json"))
    assert len(re.findall(r"── Operator ", output)) == len(about["operators"])
    words = max(len(word) for line in output.splitlines()[1:] for word in line.split())
    assert max(map(len, output.splitlines()[1:])) <= max(columns, words + 24)


def test_segments_of_merged_files_and_the_uid_are_shown(tmp_path: Path) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    merging = SALES.replace("inline_threshold_bytes: 1", "inline_threshold_bytes: 1, file_merging: {enabled: true}")
    (pipelines / "sales.yaml").write_text(f"{merging}uid: shops\n")
    deployment = new_deployment(tmp_path, tmp_path, pipelines)
    checkpoint_of(deployment, "sales", 1, sales(0))
    output = said(deployment, "inspect", "sales/1")
    assert "Operator shops: " in output
    assert re.search(r"segment 0 to [\d,]+, \d", output)
    files = json.loads(said(deployment, "inspect", "sales/1", "--json"))["files"]
    assert any(file["segments"] for file in files)


def test_bars_and_histograms_are_scaled_to_their_width() -> None:
    assert bar(10, 10) == "█" * 20
    assert bar(1, 10_000) == "█" + "·" * 19
    assert bar(0, 0) == "·" * 20
    assert histogram([0, 1, 8, 4]) == " ▁█▄"
    assert len(histogram([1] * 128)) == 32
    assert len(histogram([1] * 33)) == 17


def test_counting_damaged_state_names_the_file(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    file = next(p for p in Path(deployment.storage_root, "sales", "chk-5").iterdir() if p.name != "_metadata")
    file.write_bytes(file.read_bytes()[:-1])
    assert call(deployment, "inspect", "sales/5").exit_code == 0
    assert refused(deployment, "inspect", "sales/5", "--count", status=1).count(file.name) == 1


def completions(deployment: Deployment | None, *words: str) -> list[str]:
    asked = {"_STATELIB_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    env = dict.fromkeys(VARIABLES) | (environment(deployment) if deployment else {}) | asked
    return CliRunner().invoke(app, [], prog_name="statelib", env=env).stdout.split()


def test_shell_completion_offers_ids_directories_and_options(shop: Deployment) -> None:
    assert completions(shop, "statelib", "inspect", "sal") == ["sales/5", "sales/4", "sales/2", "sales/1"]
    assert completions(shop, "statelib", "hexdump", "t") == ["tours/1"]
    directory = f"{shop.storage_root}/sales"
    assert f"{directory}/chk-5" in completions(shop, "statelib", "inspect", f"{directory}/chk")
    assert completions(shop, "statelib", "inspect", "/nowhere/at/all") == []
    assert completions(None, "statelib", "inspect", "sal") == []
    assert "hexdump" in completions(shop, "statelib", "he")


@pytest.mark.parametrize("command", ["inspect", "hexdump", "checkpoints diff", "restore"])
def test_the_help_of_each_command_has_an_example(command: str) -> None:
    assert f"statelib {command} " in " ".join(said(None, *command.split(), "--help", columns=160).split("Example")[-1:])
