"""``statelib verify`` on whole and damaged snapshots, ``statelib pipelines`` on good and broken files."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statelib.flows.wiring import Deployment
from statelib.formats.metadata.metadata_file import decode_metadata
from statelib.savepoints.opened import open_checkpoint
from tests.integration.foreign import FLINK, savepoint, write_several_operators
from tests.integration.shop import SALES, TOURS, open_shop
from tests.integration.shop_cli import call, refused, said


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def directory(deployment: Deployment, name: str, number: int) -> Path:
    return Path(deployment.storage_root, name, f"chk-{number}")


def data_files(where: Path) -> list[Path]:
    return sorted(path for path in where.iterdir() if path.name != "_metadata")


@pytest.fixture
def copy(shop: Deployment, tmp_path: Path) -> Callable[[str, int], Path]:
    """Return a copy of a checkpoint of the shop, which a test may damage."""
    return lambda name, number: Path(shutil.copytree(directory(shop, name, number), tmp_path / f"{name}-{number}"))


def damaged(snapshot: object, *words: str, deployment: Deployment | None = None) -> list[str]:
    """Return the problems that ``verify`` prints below the line DAMAGED."""
    result = call(deployment, "verify", snapshot, *words)
    assert result.exit_code == 1, result.output
    first, *problems = result.stdout.splitlines()
    assert first.startswith("DAMAGED ")
    assert result.stderr == "1 verified, 1 damaged\n"
    assert problems
    assert all(problem.startswith("    ") for problem in problems)
    return [problem.strip() for problem in problems]


def test_a_damaged_table_of_flink_is_named_as_it_is_stored(tmp_path: Path) -> None:
    name = "1.20.5/rocksdb-incremental-chain"
    chain = Path(shutil.copytree(FLINK / name, tmp_path / "chain"))
    (table,) = chain.rglob("023ccfa0-5efe-4304-b6e6-4722e58177ce")
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 4
    table.write_bytes(content)
    newest = max(chain.rglob("chk-*"))
    problems = damaged(newest, "--relocate", f"file:///flink-data/1.20.5/{name}={chain}")
    assert any(table.name in problem for problem in problems), problems
    assert not any("scratch" in problem for problem in problems), problems


@pytest.mark.parametrize("words", [[], ["--no-read-data"]])
def test_every_completed_checkpoint_is_verified_as_whole(shop: Deployment, words: list[str]) -> None:
    result = call(shop, "verify", *words)
    assert (result.exit_code, result.stderr) == (0, "5 verified, 0 damaged\n")
    rows = [line.split() for line in result.stdout.splitlines()]
    state = Path(shop.storage_root)
    places = ["sales/chk-1", "sales/chk-2", "savepoints/savepoint-sales-4", "sales/chk-5", "tours/chk-1"]
    assert [row[-1] for row in rows] == [f"file://{state / place}" for place in places]
    assert {row[0] for row in rows} == {"whole"}
    assert [row[row.index("entries") - 1] for row in rows] == ["12", "12", "12", "12", "6"]
    answer = json.loads(said(shop, "verify", "--json", *words))
    assert [(v["entries"], v["problems"]) for v in answer] == [(12, [])] * 4 + [(6, [])]
    sizes = [sum(f.stat().st_size for f in (state / place).iterdir()) for place in places]
    assert [v["size_bytes"] for v in answer] == sizes
    assert [v["files"] for v in answer] == [len(list((state / place).iterdir())) for place in places]


def test_the_line_of_a_snapshot_has_the_number_of_its_files(shop: Deployment) -> None:
    files = len(list(directory(shop, "sales", 5).iterdir()))
    assert files > 1
    assert said(shop, "verify", "sales/5").split()[:3] == ["whole", str(files), "files"]


def test_one_snapshot_or_one_pipeline_can_be_verified(shop: Deployment) -> None:
    assert said(shop, "verify", "tours/1") == said(shop, "verify", "-p", "tours")
    assert said(None, "verify", directory(shop, "tours", 1)) == said(shop, "verify", "tours/1")
    assert "both the snapshot sales/1 and the pipeline tours" in refused(shop, "verify", "sales/1", "-p", "tours")


def test_entries_of_flinks_savepoints_can_be_counted(tmp_path: Path) -> None:
    source = savepoint("1.20.5/keys-long-hashmap-canonical")
    lines = len(said(None, "export", source, "--state", "count").splitlines())
    assert lines > 10
    write_several_operators(tmp_path / "several", readable=True)
    for snapshot in (source, tmp_path / "several"):
        (answer,) = json.loads(said(None, "verify", snapshot, "--json"))
        opened = open_checkpoint(str(snapshot))
        states = [len(part.to_arrow(s.name)) for part in opened.each_operator() for s in part.schema().states]
        assert (answer["entries"], answer["files"]) == (sum(states), 1)
    (unread,) = json.loads(said(None, "verify", source, "--json", "--no-read-data"))
    assert unread["entries"] is None


@pytest.mark.parametrize("at", [0, 0.5, -1])
def test_one_flipped_bit_in_any_file_is_detected(copy: Callable[[str, int], Path], at: float) -> None:
    where = copy("sales", 5)
    for file in data_files(where):
        good = file.read_bytes()
        bad = bytearray(good)
        bad[int(at * len(bad))] ^= 0x10
        file.write_bytes(bad)
        (problem,) = damaged(where)
        groups = "0-63" if file.name.endswith("-0-0") else "64-127"
        begin = rf"{re.escape(str(file))} \(key groups {groups}\): expected crc32c"
        assert re.fullmatch(rf"{begin} [0-9a-f]{{8}}, found [0-9a-f]{{8}}", problem)
        assert said(None, "verify", where, "--no-read-data").startswith("whole ")
        file.write_bytes(good)
    assert said(None, "verify", where).startswith("whole ")


@pytest.mark.parametrize("words", [[], ["--no-read-data"]])
def test_missing_and_truncated_files_are_named(copy: Callable[[str, int], Path], words: list[str]) -> None:
    where = copy("sales", 5)
    first, second = data_files(where)
    size, other = first.stat().st_size, second.stat().st_size
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    assert damaged(where, *words) == [
        f"{first} (key groups 0-63): expected {size} bytes, found no file",
        f"{second} (key groups 64-127): expected {other} bytes, found {other - 1}",
    ]


def test_damaged_metadata_are_named(copy: Callable[[str, int], Path]) -> None:
    where = copy("sales", 5)
    file = where / "_metadata"
    good = file.read_bytes()
    _, end = decode_metadata(good)
    for size in (0, 1, 12, end // 2, end, end + 1, len(good) - 1):
        file.write_bytes(good[:size])
        (problem,) = damaged(where, "--no-read-data")
        assert problem.startswith(str(file)), size
    for at in (0, 11, end // 2, end, len(good) // 2, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 1
        file.write_bytes(bad)
        result = call(None, "verify", where)
        assert result.exit_code == 1, (at, result.output)
        assert str(file) in result.output, at


@contextmanager
def replaced(file: Path, data: bytes | None) -> Iterator[None]:
    """Replace the bytes of a file of the shop, or remove it, until the block ends."""
    good = file.read_bytes()
    try:
        file.unlink()
        if data is not None:
            file.write_bytes(data)
        yield
    finally:
        file.write_bytes(good)


def test_one_damaged_checkpoint_does_not_hide_the_others(shop: Deployment) -> None:
    where = directory(shop, "sales", 2)
    for file in (where / "_metadata", data_files(where)[1]):
        for data in (None, b"", file.read_bytes()[:-7]):
            with replaced(file, data):
                result = call(shop, "verify")
                answer = json.loads(call(shop, "verify", "sales/2", "--json").stdout)
                (problem,) = damaged("sales/2", deployment=shop)
            assert result.exit_code == 1
            states = [line.split()[0] for line in result.stdout.splitlines() if not line.startswith(" ")]
            assert states == ["whole", "DAMAGED", "whole", "whole", "whole"]
            assert str(where) in problem
            assert f"    {problem}" in result.stdout.splitlines()
            assert [len(v["problems"]) for v in answer] == [1]


BROKEN = {
    "unknown aggregate": ("agg: count}}", "agg: cuont}}", 6, "states.per_item.value.agg"),
    "unknown key": ("backend: heap", "bakend: heap", 8, "bakend"),
    "bad number": ("parallelism: 2", "parallelism: 200", 9, "parallelism"),
    "unknown column": ("key: [shop]", "key: [shopp]", 3, "key.0"),
    "wrong type": ("key: [shop]", "key: {a: b}", 3, "key"),
    "bad column type": ("amount: long}}", "amount: lonk}}", 2, "source.columns.amount"),
    "missing key": ("backend: heap\n", "", 1, "backend"),
    "given twice": ("parallelism: 2", "parallelism: 2\nparallelism: 3", 10, "parallelism"),
    "not YAML": ("key: [shop]", "key: [shop", 4, "not valid YAML"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_pipeline_file_gives_one_line(tmp_path: Path, fault: str) -> None:
    right, wrong, line, field = BROKEN[fault]
    assert SALES.count(right) == 1
    (tmp_path / "sales.yaml").write_text(SALES.replace(right, wrong))
    (tmp_path / "tours.yaml").write_text(TOURS)
    result = call(None, "pipelines", "validate", "--directory", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    outcome, last = result.stderr.splitlines()
    assert last == "1 valid, 1 not"
    assert outcome.startswith(f"{tmp_path}/sales.yaml:{line}: {field}: ")
    answer = json.loads(call(None, "pipelines", "validate", "--directory", tmp_path, "--json").stdout)
    assert answer["valid"] == ["tours"]
    assert [f["message"] for f in answer["faults"]] == [outcome]


def test_files_that_are_no_pipelines_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SALES)
    (tmp_path / "b.yaml").write_text("# the same name\n" + SALES)
    (tmp_path / "c.yaml").write_text("")
    (tmp_path / "d.yml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "e.yaml").mkdir()
    (tmp_path / "notes.txt").write_text("no pipeline")
    result = call(None, "pipelines", "validate", "--directory", tmp_path)
    assert result.exit_code == 1
    *faults, last = result.stderr.splitlines()
    assert last == "1 valid, 4 not"
    assert faults[0] == f"{tmp_path}/b.yaml:2: name: {tmp_path}/a.yaml has the name 'sales' already"
    assert [fault.split(":")[0] for fault in faults[1:]] == [f"{tmp_path}/{x}" for x in ("c.yaml", "d.yml", "e.yaml")]


def test_good_pipelines_are_listed(shop: Deployment, tmp_path: Path) -> None:
    result = call(shop, "pipelines", "validate")
    assert (result.exit_code, result.stderr) == (0, "2 valid, 0 not\n")
    answer = json.loads(said(shop, "pipelines", "list", "--json"))
    assert [(p["name"], p["backend"], p["key"], p["states"]) for p in answer] == [
        ("sales", "heap", ["shop"], ["total", "per_item", "items"]),
        ("tours", "rocksdb", ["shop", "item"], ["best"]),
    ]
    assert max(map(len, said(shop, "pipelines", "list", columns=60).splitlines())) <= 60
    for command in ("list", "validate"):
        line = refused(None, "pipelines", command, "--directory", tmp_path / "x")
        assert line == f"statelib: there is no directory {tmp_path}/x: expected the directory of the pipeline files"
    (tmp_path / "broken.yaml").write_text("name: [")
    result = call(None, "pipelines", "list", "--directory", tmp_path)
    assert result.stderr == "1 more do not load: statelib pipelines validate shows why\n"
