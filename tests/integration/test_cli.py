"""The command line on a real deployment: its commands, and its answers to mistakes."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
import typer

from statelib.cli.main import app
from statelib.flows.wiring import VARIABLES, Deployment
from tests.integration.foreign import KEYED, savepoint, write_several_operators
from tests.integration.shop import environment, open_shop
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import CHECKOUT

KINDS = savepoint("1.20.5/kinds-hashmap-canonical-p1")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return open_shop(tmp_path_factory.mktemp("shop"))


def listed(deployment: Deployment, *words: str) -> list[tuple[str, int, str, bool]]:
    records = json.loads(said(deployment, "checkpoints", "list", "--json", *words))
    return [(r["pipeline"], r["checkpoint_id"], r["state"], r["in_head_lineage"]) for r in records]


def test_the_list_is_in_order_and_marks_the_history_of_the_head(shop: Deployment) -> None:
    completed = [
        ("sales", 1, "COMPLETED", True),
        ("sales", 2, "COMPLETED", False),
        ("sales", 4, "COMPLETED", False),
        ("sales", 5, "COMPLETED", True),
        ("tours", 1, "COMPLETED", True),
    ]
    assert listed(shop) == completed
    assert listed(shop, "-p", "tours") == completed[-1:]
    unfinished = [("sales", 3, "ABORTED", False), ("sales", 6, "PENDING", False)]
    assert listed(shop, "--all") == sorted(completed + unfinished)


def process(shop: Deployment, *words: str, stdout: object = subprocess.PIPE, **variables: str) -> tuple[int, str, str]:
    """Return exit status, output and errors of the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "statelib", *words], env={**environment(shop), **variables}, cwd=CHECKOUT, check=False,
        stdout=stdout, stderr=subprocess.PIPE,
    )  # fmt: skip
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


def test_a_terminal_may_lack_a_character_and_programs_get_utf8(shop: Deployment) -> None:
    for words in (["checkpoints", "list"], ["pipelines", "list"], ["inspect", str(KINDS)], ["--help"]):
        status, text, errors = process(shop, *words, PYTHONIOENCODING="ascii")
        assert (status, errors) == (0, ""), words
    text = process(shop, "checkpoints", "list", PYTHONIOENCODING="ascii")[1]
    assert "-----" in text
    assert "\\u2500" not in text
    for words in (["checkpoints", "diff", "sales/1", "sales/5", "--json"], ["export", "sales/1"]):
        status, text, errors = process(shop, *words, PYTHONIOENCODING="latin-1")
        assert (status, errors) in ((0, ""), (1, "")), words
        assert [json.loads(part) for part in ([text] if "--json" in words else text.splitlines())]


@pytest.mark.parametrize("command", ["--help | true", "history --json | true", "history --json >&-", "--version >&-"])
def test_nobody_reads_the_output(shop: Deployment, command: str) -> None:
    shell = f"set -o pipefail; {sys.executable} -m statelib {command}"
    done = subprocess.run(
        ["bash", "-c", shell], env=environment(shop), cwd=CHECKOUT, check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [["history", "--json"], ["checkpoints", "list"], ["export", "sales/1"]])
def test_a_full_disk_behind_the_output_is_one_line(shop: Deployment, words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        status, _, errors = process(shop, *words, stdout=full)
    assert (status, errors) == (2, "statelib: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("columns", [None, 100, 80, 20])
def test_the_list_is_readable_at_any_width(shop: Deployment, columns: int | None) -> None:
    lines = said(shop, "checkpoints", "list", "--all", columns=columns).splitlines()
    rows = [line.split() for line in lines if re.match(r" *\d+ ", line)]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5", "6", "1"]
    assert [row[1] == "*" for row in rows] == [True, False, False, False, True, False, True]
    assert [row[-1] for row in rows if len(row) < 11 and row[-1].isalpha()] == ["aborted", "pending"]
    assert sum("2013-01-02" in row for row in rows) == 2
    if columns is None or columns >= 80:
        assert max(map(len, lines)) <= (columns or 100)
    assert ("strategy" in lines[2]) is (columns in (None, 100))
    assert [line for line in lines if line in ("sales", "tours")] == ["sales", "tours"]


def test_an_empty_list_prints_a_message(shop: Deployment, tmp_path: Path) -> None:
    empty = environment(shop) | {"STATELIB_CATALOG": f"sqlite:///{tmp_path}/new.db"}
    deployment = Deployment(*(empty[name] for name in VARIABLES))
    deployment.catalog()
    assert json.loads(said(deployment, "checkpoints", "list", "--json")) == []
    result = call(deployment, "checkpoints", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no completed checkpoints\n")
    assert said(deployment, "checkpoints", "list", "-p", "sales") == ""


def test_an_unknown_pipeline_is_an_error_and_an_empty_one_is_not(shop: Deployment) -> None:
    for command in (["checkpoints", "list"], ["verify"]):
        line = refused(shop, *command, "-p", "sails")
        assert "'sails'" in line
        assert line.endswith("known are sales, tours")


def test_show_prints_the_record_and_the_content_of_a_checkpoint(shop: Deployment) -> None:
    shown = said(shop, "checkpoints", "show", "sales/5", columns=80)
    for words in (
        r"^kind +checkpoint, canonical, parallelism 2$", r"^interval +2013-01-02 00:00:00 to 2013-01-03 00:00:00 UTC$",
        r"^base +sales/1$", r"^events +6 read, 6 applied, 0 no key$", r"^contents +3 keys, 12 entries, ",
        r"Operator sales: parallelism 2 of 128, key string$", r"total: value, 3 entries$", r"per_item: map, 6 entries$",
        r"value row<sold: long, amount: long>$", r"items: list, 3 entries$", r"1 64-127 .*, \d\.\d KiB$",
        r"KeyGroupsSavepoint\w+$", r"[0-9a-f]{32}-0-0: \d\.\d KiB, crc32c [0-9a-f]{8}, 0-63$",
        rf"^file://{shop.storage_root}/sales/chk-5$",
    ):  # fmt: skip
        assert re.search(words, shown, re.MULTILINE), f"{words} is not in\n{shown}"
    aborted = said(shop, "checkpoints", "show", "sales/3")
    assert "aborted: TASK_FAILURE: a reason to stop" in aborted
    assert "Operator" not in aborted


def test_show_prints_the_record_and_the_snapshot_as_json(shop: Deployment) -> None:
    answer = json.loads(said(shop, "checkpoints", "show", "sales/5", "--json"))
    assert (answer["base"], answer["strategy"], answer["entries"]) == (1, "canonical", 12)
    (operator,) = answer["snapshot"]["operators"]
    assert (operator["uid"], operator["key_type"]) == ("sales", "string")
    assert [(s["name"], s["entries"]) for s in operator["states"]] == [("total", 3), ("per_item", 6), ("items", 3)]
    assert [f["key_groups"] for f in answer["snapshot"]["files"]] == ["0-63", "64-127"]
    assert json.loads(said(shop, "checkpoints", "show", "sales/6", "--json"))["snapshot"] is None


BAD_IDS = {
    "5": "ids count per pipeline",
    "sails": "pipeline 'sails' is neither in the catalog nor in",
    "sales/x": "expected <pipeline>/<id>",
    "sales/0": "expected <pipeline>/<id>",
    "sales/²": "expected <pipeline>/<id>",
    "sales/99999999999999999999999": "expected <pipeline>/<id>",
    "sales/-1": "expected <pipeline>/<id>",
    "a b/1": "pipeline name 'a b'",
    "sales/99": "pipeline sales has no checkpoint 99",
    "sails/1": "pipeline sails has no checkpoint 1",
    "sales@03.03.2026": "sales@03.03.2026: expected a moment such as sales@2026-03-31",
}


@pytest.mark.parametrize("command", ["inspect", "export", "verify", "checkpoints show"])
@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_bad_id_is_refused_in_one_line(shop: Deployment, command: str, bad: str) -> None:
    assert BAD_IDS[bad] in refused(shop, *command.split(), bad)


@pytest.mark.parametrize("command", ["inspect", "export", "verify"])
def test_the_error_for_an_unfinished_checkpoint_names_its_state(shop: Deployment, command: str) -> None:
    assert refused(shop, command, "sales/3").endswith("sales/3 is aborted: TASK_FAILURE: a reason to stop")
    assert refused(shop, command, "sales/6").endswith("sales/6 is pending")


def test_errors_are_printed_as_json_on_request(shop: Deployment) -> None:
    result = call(shop, "inspect", "sales/99", "--json")
    assert result.exit_code == 2
    assert result.stderr == ""
    error = json.loads(result.stdout)
    assert error["error"] == "no-checkpoint"
    assert error["message"].endswith("as the name of a checkpoint, pipeline sales has no checkpoint 99")
    assert error["hint"]


def test_inspect_prints_the_same_for_an_id_a_path_and_a_uri(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    output = said(shop, "inspect", "tours/1")
    assert re.search(r"best: reducing, 6 entries\n.* value long$", output, re.MULTILINE)
    assert output.count("IncrementalRemoteKeyedStateHandle") == 2
    directory = Path(shop.storage_root, "tours", "chk-1")
    monkeypatch.chdir(directory.parent)
    for path in (directory, directory / "_metadata", f"file://{directory}", "chk-1", "./chk-1", "chk-1/"):
        assert said(None, "inspect", path) == output


def test_paths_without_a_snapshot_are_refused_without_a_deployment(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        for command in ("inspect", "export", "verify"):
            assert refused(None, command, path).startswith(f"statelib: {path}: no _metadata file")
    assert "scheme 'hdfs'" in refused(None, "inspect", "hdfs://cluster/chk-1")


def test_inspect_reads_snapshots_of_flink() -> None:
    output = said(None, "inspect", KINDS, columns=80)
    assert "written by flink, _metadata version 4" in output
    assert re.search(rf"^├── Operator {KEYED}: parallelism \d+ of 128, key ", output, re.MULTILINE)
    operator = next(o for o in json.loads(said(None, "inspect", KINDS, "--json"))["operators"] if o["subtasks"])
    assert (operator["operator_id"], operator["uid"]) == (KEYED, None)
    about = json.loads((KINDS.parent / "about.json").read_text())
    states = [(s["name"], s["kind"]) for s in about["operators"][0]["states"]]
    timers = [(f"_timer_state/{domain}_user-timers", "timers") for domain in ("event", "processing")]
    assert sorted((s["name"], s["kind"]) for s in operator["states"]) == sorted(states + timers)
    assert {s["entries"] for s in operator["states"]} == {None}


def test_inspect_shows_every_operator_and_the_reason_if_one_cannot_be_read(tmp_path: Path) -> None:
    write_several_operators(tmp_path)
    operators = json.loads(said(None, "inspect", tmp_path, "--json"))["operators"]
    assert [(o["operator_id"][:2], o["key_type"]) for o in operators if o["subtasks"]] == [
        ("01", "long"), ("02", "string"), ("03", None)
    ]  # fmt: skip
    assert "LongSerializeX$" in operators[2]["unreadable"]
    assert str(tmp_path) in operators[2]["unreadable"]
    output = said(None, "inspect", tmp_path, columns=80)
    assert re.findall(r"^.── (Operator .+):", output, re.MULTILINE) == [
        f"Operator {n:02}" + "ab" * 15 for n in (1, 2, 3, 4)
    ]
    assert " ".join(output.split()).endswith("of 128, no keyed state")


@pytest.mark.parametrize("columns", [80, 30])
def test_no_word_is_cut_in_a_narrow_terminal(shop: Deployment, columns: int) -> None:
    wide = said(shop, "inspect", "sales/1")
    narrow = said(shop, "inspect", "sales/1", columns=columns)
    plain = re.compile(r"[^\s─│├└]+")
    assert sorted(plain.findall(narrow)) == sorted(plain.findall(wide))
    if columns == 80:
        assert max(map(len, narrow.splitlines()[1:])) <= 80


@pytest.mark.parametrize("missing", VARIABLES)
def test_the_error_names_a_missing_variable(shop: Deployment, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(*("" if name == missing else value for name, value in environment(shop).items()))
    for command in (["checkpoints", "list"], ["verify"], ["catalog", "migrate"], ["pipelines", "status", "sales"]):
        line = refused(deployment, *command)
        assert line.startswith(f"statelib: not set in the environment: {missing} (")
        assert sum(name in line for name in VARIABLES) == 1


def test_pipeline_files_need_one_setting_only(shop: Deployment) -> None:
    """A pipeline file is checked where nothing else exists yet, as on the computer of its author."""
    alone = Deployment(*(value if name == "STATELIB_PIPELINES" else "" for name, value in environment(shop).items()))
    for command in (["pipelines", "list"], ["pipelines", "validate"]):
        assert said(alone, *command) == said(shop, *command)
        line = refused(Deployment(*("" for _ in environment(shop))), *command)
        assert line.startswith("statelib: not set in the environment: STATELIB_PIPELINES (")
        assert "STATELIB_STORAGE" not in line


def test_single_pipelines_are_validated_by_name(shop: Deployment, tmp_path: Path) -> None:
    directory = tmp_path / "pipelines"
    shutil.copytree(shop.pipelines_directory, directory)
    own = replace(shop, pipelines_directory=str(directory))
    assert json.loads(said(own, "pipelines", "validate", "tours", "sales", "--json"))["valid"] == ["sales", "tours"]
    assert "no pipeline file has the name sale: expected some of" in refused(own, "pipelines", "validate", "sale")
    (directory / "broken.yaml").write_text("name: broken\n")
    assert call(own, "pipelines", "validate", "sales").stderr == "1 valid, 0 not\n"
    result = call(own, "pipelines", "validate", "sales", "broken")
    *problems, last = result.stderr.splitlines()
    assert (result.exit_code, last) == (1, "1 valid, 1 not")
    assert len(problems) > 1, "each problem of a file is a line"
    assert all("broken.yaml" in problem and "\\n" not in problem for problem in problems)


def test_the_error_names_the_setting_of_a_wrong_directory(shop: Deployment, tmp_path: Path) -> None:
    relative = call(replace(shop, storage_root="state"), "pipelines", "status", "sales")
    assert (relative.exit_code, relative.stdout) == (2, "")
    assert "STATELIB_STORAGE: expected an absolute path or a URI such as s3://bucket/state" in relative.stderr
    assert f"hint: write STATELIB_STORAGE={Path('state').absolute()}" in relative.stderr
    missing = call(replace(shop, pipelines_directory=str(tmp_path / "none")), "pipelines", "list")
    assert f"there is no directory {tmp_path}/none: expected the directory of the pipeline files" in missing.stderr
    assert "hint: correct STATELIB_PIPELINES" in missing.stderr


def test_the_error_names_a_catalog_that_cannot_be_opened(shop: Deployment) -> None:
    broken = environment(shop) | {"STATELIB_CATALOG": "sqlite:////nowhere/at/all.db"}
    line = refused(Deployment(*(broken[name] for name in VARIABLES)), "catalog", "migrate")
    assert "sqlite:////nowhere/at/all.db" in line
    assert "unable to open database file" in line


def test_migrating_twice_changes_nothing(shop: Deployment) -> None:
    assert said(shop, "catalog", "migrate") == "catalog is current\n"
    assert json.loads(said(shop, "catalog", "migrate", "--json")) == {"catalog": "current"}


def commands() -> list[str]:
    """Return every command as its words."""

    def below(command: click.Command, words: tuple[str, ...]) -> list[str]:
        if not hasattr(command, "commands"):
            return [" ".join(words)]
        return [each for name, inner in command.commands.items() for each in below(inner, (*words, name))]

    return below(typer.main.get_command(app), ())


@pytest.mark.parametrize("command", commands())
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    text = " ".join(said(None, *command.split(), "--help", columns=80).split())
    assert re.search(rf"Examples?: statelib {command}\b", text)


def test_export_ends_quietly_if_its_reader_stops_early(shop: Deployment) -> None:
    """In a shell, `| head -1` closes the pipe."""
    command = f"{sys.executable} -m statelib export {KINDS} | head -1"
    done = subprocess.run(
        command, shell=True, cwd=CHECKOUT, env={**os.environ, **environment(shop)}, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["op"] == KEYED
    assert done.stderr == b""
