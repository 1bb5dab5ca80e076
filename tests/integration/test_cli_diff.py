"""``statelib checkpoints diff``: on our own checkpoints and on Flink's savepoints."""

import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from statelib.flows.wiring import Deployment
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import open_checkpoint
from tests.integration.foreign import savepoint, write_several_operators
from tests.integration.shop import open_shop
from tests.integration.shop_cli import call, refused, said

DIFF = ("checkpoints", "diff")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def counts(deployment: Deployment | None, *words: object) -> dict[str, tuple[object, ...]]:
    answer = json.loads(said(deployment, *DIFF, *words, "--json"))
    fields = ("entries_before", "entries_after", "added", "removed", "changed", "key_groups_read")
    return {state["name"]: tuple(state[f] for f in fields) for state in answer["states"]}


def test_the_diff_of_two_days_counts_the_changes_of_each_state(shop: Deployment) -> None:
    """Every shop sells both items on the first day; later days change only amounts and counts."""
    counted = counts(shop, "sales/1", "sales/2")
    assert counted == {"total": (3, 3, 0, 0, 3, 3), "per_item": (6, 6, 0, 0, 6, 3), "items": (3, 3, 0, 0, 0, 0)}
    output = said(shop, *DIFF, "sales/1", "sales/2")
    assert re.search(r"^total +differs +3 +3 +0 +0 +3 +3 +125$", output, re.MULTILINE)
    assert re.search(r"^items +equal +3 +3 +0 +0 +0 +0 +128$", output, re.MULTILINE)
    assert output.startswith(f"before  file://{shop.storage_root}/sales/chk-1\nafter   file://")


def test_keys_are_counted_once_over_all_states(shop: Deployment) -> None:
    """There are three shops, and each has entries in all three states."""
    assert "\nkeys    3 before, 3 after\n" in said(shop, *DIFF, "sales/1", "sales/2")
    answer = json.loads(said(shop, *DIFF, "sales/1", "sales/2", "--state", "total", "--json"))
    assert (answer["keys_before"], answer["keys_after"]) == (3, 3)
    flinks = savepoint("1.20.5/kinds-hashmap-canonical-p1")
    assert "\nkeys    - before, - after\n" in said(None, *DIFF, flinks, flinks)
    answer = json.loads(said(None, *DIFF, flinks, flinks, "--json"))
    assert (answer["keys_before"], answer["keys_after"]) == (None, None)


def test_samples_show_old_and_new_values(shop: Deployment) -> None:
    output = said(shop, *DIFF, "sales/1", "sales/2", "--state", "total", "--limit", "2")
    assert "per_item" not in output
    rows = [line for line in output.splitlines() if line.startswith("changed")]
    assert len(rows) == 2
    shops = {row.split()[2].strip('"'): row for row in rows}
    for name, row in shops.items():
        n = int(name.removeprefix("shop-"))
        assert f'{{"sold": 2, "amount": {2 * n + 3}}}  {{"sold": 4, "amount": {4 * n + 18}}}' in row
    (state,) = json.loads(said(shop, *DIFF, "sales/1", "sales/2", "--state", "total", "--limit", "9", "--json"))[
        "states"
    ]
    assert len(state["sample"]) == 3
    assert {entry["change"] for entry in state["sample"]} == {"changed"}


def test_each_state_is_written_to_a_parquet_file(shop: Deployment, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out"
    said(shop, *DIFF, "sales/1", "sales/2", "-o", target)
    first, second = (open_checkpoint(f"{shop.storage_root}/sales/chk-{n}") for n in (1, 2))
    names = {"total": ["key_group", "key"], "per_item": ["key_group", "key", "user_key"], "items": ["key_group", "key"]}
    assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.parquet" for name in names)
    for name, columns in names.items():
        table = pq.read_table(target / f"{name}.parquet")
        assert table.column_names == [*columns, "change", "before", "after"]
        assert table.equals(Diff(first, second).to_arrow(name))
    assert refused(shop, *DIFF, "sales/1", "sales/2", "-o", target).endswith(f"{target}/total.parquet exists already")
    assert len(list(target.iterdir())) == 3


def test_the_object_store_is_refused_as_the_place_of_differences(
    shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(shop, *DIFF, "sales/1", "sales/2", "-o", "s3://bucket/out", status=2)
    assert line == "statelib: --output s3://bucket/out: expected a path on this machine, found a URI"
    assert list(tmp_path.iterdir()) == []


def test_one_state_of_several_differs_in_the_singular(shop: Deployment) -> None:
    result = call(shop, *DIFF, "sales/1", "sales/2", "--state", "total")
    assert result.stderr == "1 of 1 state differs\n"


def test_the_exit_status_shows_differences_only_on_request(shop: Deployment) -> None:
    for words, status in ((["sales/1", "sales/2"], 1), (["sales/2", "sales/4"], 0), (["sales/1", "sales/1"], 0)):
        assert call(shop, *DIFF, *words).exit_code == 0
        assert call(shop, *DIFF, *words, "--exit-code").exit_code == status
    assert "pipeline sales has no checkpoint 99" in refused(shop, *DIFF, "sales/1", "sales/99", "--exit-code")
    assert "sales/6 is pending" in refused(shop, *DIFF, "sales/6", "sales/1")
    assert "known states are" in refused(shop, *DIFF, "sales/1", "sales/2", "--state", "totals")
    assert "limit -1" in refused(shop, *DIFF, "sales/1", "sales/2", "--limit", "-1")


def test_snapshots_with_different_key_types_have_no_comparable_state(shop: Deployment) -> None:
    """The key types differ: nothing can be compared, and the states of both sides are named."""
    output = said(shop, *DIFF, "sales/1", "tours/1", "--limit", "3")
    assert re.search(r"^total +only before +3 +0 +- +- +- ", output, re.MULTILINE)
    assert re.search(r"^best +only after +0 +6 +- +- +- ", output, re.MULTILINE)
    assert "best: not comparable, key: string before, tuple<string, string> after" in output
    assert call(shop, *DIFF, "sales/1", "tours/1", "--exit-code").exit_code == 1


def entries_of(fixture: str, state: str) -> dict[str, list[str]]:
    """Return the values that the Flink job wrote, as lines, by entry. A list is one entry."""
    entries: dict[str, list[str]] = {}
    for text in (savepoint(fixture).parent / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(text)
        if entry["state"] == state:
            entries.setdefault(json.dumps([entry["key"], entry.get("uk")]), []).append(json.dumps(entry["value"]))
    return entries


def test_canonical_savepoints_of_flink_are_compared(tmp_path: Path) -> None:
    """The savepoints are of two jobs with more and less state, and of one job on two backends, which write the same
    state differently."""
    few, many = "1.20.5/kinds-hashmap-canonical-p1", "1.20.5/kinds-hashmap-canonical-p4-files"
    counted = counts(None, savepoint(few), savepoint(many))
    # The job has both kinds of timers, and sets none.
    timers = {state for state in counted if state.startswith("_timer_state/")}
    assert (len(counted), {counted.pop(state)[:5] for state in timers}) == (6 + 2, {(0, 0, 0, 0, 0)})
    for state, row in counted.items():
        old, new = entries_of(few, state), entries_of(many, state)
        changed = sum(old[key] != new[key] for key in old.keys() & new.keys())
        expected = (len(old), len(new), len(new.keys() - old.keys()), len(old.keys() - new.keys()), changed, 128)
        assert row == expected, state
    rocksdb = counts(None, savepoint(few), savepoint("1.20.5/kinds-rocksdb-canonical-p1"))
    assert {row[2:5] for row in rocksdb.values()} == {(0, 0, 0)}
    assert {row[-1] for row in counts(None, savepoint(few), savepoint(few)).values()} == {0}
    copy = shutil.copytree(savepoint(many), tmp_path / "copy")
    assert {row[2:] for row in counts(None, savepoint(many), copy).values()} == {(0, 0, 0, 128)}


def test_an_option_selects_the_operator(tmp_path: Path) -> None:
    write_several_operators(tmp_path, readable=True)
    assert "several operators hold keyed state" in refused(None, *DIFF, tmp_path, tmp_path)
    assert {row[2:5] for row in counts(None, tmp_path, tmp_path, "--operator", "01" + "ab" * 15).values()} == {
        (0, 0, 0)
    }
