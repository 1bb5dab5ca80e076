"""Read-only commands change nothing: no byte and no time stamp of the storage and the catalog, and no object."""

import dataclasses
import os
from pathlib import Path

import pytest

from statelib.cli import completion
from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from tests.integration.shop import environment, open_shop
from tests.integration.shop_cli import call
from tests.integration.test_cli import commands
from tests.support.fault_proxy import Fault
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import day

LOOKS = [
    "checkpoints list",
    "checkpoints list --pipeline sales --all",
    "checkpoints show sales/5",
    "checkpoints diff sales/1 sales/5 --limit 5",
    "checkpoints dispose sales/4 --dry-run",
    "history",
    "pipelines list",
    "pipelines plan sales",
    "pipelines status sales",
    "pipelines schema",
    "pipelines validate",
    "inspect sales/5 --count",
    "inspect {state}/sales/chk-5",
    "inspect sales/head",
    "query sales FROM/**/total",
    "inspect sales/latest",
    "hexdump sales/5",
    "export sales/5 --state total",
    "export sales/5 --all",
    "verify",
    "verify --no-read-data",
    "gc --dry-run",
    "orphans",
    "orphans --grace 0h",
    "why {state}/sales/chk-5/_metadata",
    "why {state}/sales/chk-5/ffffffffffffffffffffffffffffffff-0-0",
    "restore sales 5 --dry-run",
    "restore sales {state}/sales/chk-1 --dry-run",
    "savepoint dispose sales/4 --dry-run",
    "publish sales --dry-run",
    "run sales --start 2013-01-03 --end 2013-01-04 --dry-run",
    "catalog rebuild --merge --dry-run",
    "catalog check",
]
WRITES = {
    "bootstrap",
    "catalog migrate",
    "checkpoints release",
    "import-statestore",
    "mend",
    "pipelines cancel",
    "pipelines discard",
    "pipelines fork",
    "pipelines resume",
    "pipelines seed",
    "pipelines stop",
    "savepoint create",
    "savepoint rewrite",
}
"""Commands whose purpose is to write. ``pipelines discard`` has a dry run, but only for a pipeline without a file;
those of ``pipelines seed`` and ``mend`` need Spark (test_seed_command.py, test_mend_command.py)."""
READ_ONLY = [Fault("status", method, times=1_000_000, status=403) for method in ("PUT", "POST", "DELETE")]
STRAY = "sales/chk-5/ffffffffffffffffffffffffffffffff-0-0"
"""A file of an attempt that is not in the catalog."""


def contents(*places: Path) -> dict[str, tuple[int, bytes]]:
    """Return files with their bytes, and directories with the time of their last change, which shows temporary
    files."""
    paths = [path for place in places for path in (place, *place.rglob("*"))]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def catalog_files(deployment: Deployment) -> list[Path]:
    file = Path(deployment.catalog_url.removeprefix("sqlite:///"))
    return sorted(file.parent.glob(f"{file.name}*"))


def looked(deployment: Deployment, words: str) -> None:
    result = call(deployment, *words.format(state=deployment.storage_root).split())
    assert result.exit_code == 0, f"{words}: {result.output}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    deployment = open_shop(tmp_path_factory.mktemp("shop"))
    stray = Path(deployment.storage_root) / STRAY
    stray.write_bytes(b"stray")
    os.utime(stray, (1_000_000_000, 1_000_000_000))
    return deployment


@pytest.mark.parametrize("words", LOOKS)
def test_read_only_commands_change_neither_files_nor_the_catalog(shop: Deployment, words: str) -> None:
    places = (Path(shop.storage_root), Path(shop.pipelines_directory), *catalog_files(shop))
    before = contents(*places)
    looked(shop, words)
    assert catalog_files(shop) == list(places[2:])
    assert contents(*places) == before


def test_read_only_commands_work_with_a_bucket_that_refuses_every_write(
    tmp_path: Path, s3: S3Endpoint, bucket: str
) -> None:
    deployment = open_shop(tmp_path, f"s3://{bucket}/state")
    s3.put_object(bucket, f"state/{STRAY}", b"stray")
    before = contents(*catalog_files(deployment))
    s3.break_next(*READ_ONLY)
    for words in LOOKS:
        looked(deployment, words)
    assert contents(*catalog_files(deployment)) == before


def test_every_command_is_listed_as_read_only_or_as_writing() -> None:
    looking = {name for name in commands() if any(f"{words} ".startswith(f"{name} ") for words in LOOKS)}
    assert looking | WRITES == set(commands())
    assert not looking & WRITES


NEED_A_CATALOG = [
    "checkpoints list", "checkpoints show sales/5", "checkpoints diff sales/1 sales/5", "checkpoints dispose sales/4",
    "checkpoints release sales/4 -m fine", "history", "pipelines status sales", "pipelines cancel sales",
    "pipelines resume sales", "pipelines stop sales --savepoint", "pipelines discard sales",
    "pipelines fork sales/5 two",
    "pipelines validate --state", "inspect sales/5", "hexdump sales/5", "export sales/5", "verify", "gc", "orphans",
    "why {state}/sales/chk-5/_metadata", "savepoint create sales", "savepoint dispose sales/4", "catalog check",
]  # fmt: skip


@pytest.mark.parametrize("words", NEED_A_CATALOG)
def test_a_mistyped_catalog_is_named_and_not_created(shop: Deployment, tmp_path: Path, words: str) -> None:
    mistyped = dataclasses.replace(shop, catalog_url=f"sqlite:///{tmp_path}/catlog.db")
    result = call(mistyped, *words.format(state=shop.storage_root).split())
    assert result.exit_code == 2, result.output
    assert f"there is no catalog at {tmp_path}/catlog.db" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_shell_completion_creates_no_catalog_and_offers_the_files(
    shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/catlog.db"
    for name, value in {**environment(shop), "STATELIB_CATALOG": url}.items():
        monkeypatch.setenv(name, value)
    assert "sales" in completion.pipelines("sa")
    assert completion.checkpoints("sales") == completion.snapshots("sales") == []
    assert list(tmp_path.iterdir()) == []


def test_the_first_run_of_a_pipeline_creates_the_catalog(shop: Deployment, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    new = dataclasses.replace(
        shop, catalog_url=f"sqlite:///{tmp_path}/catalog.db", storage_root=str(tmp_path / "state")
    )
    assert begin(new, new.pipeline("sales"), day(1), "test").checkpoint_id == 1
    looked(new, "checkpoints list --all")
