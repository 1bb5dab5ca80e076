"""Names that no run could use are refused by name; a file that is no pipeline file does not prevent loading the
others."""

import subprocess
import sys
from pathlib import Path

import pytest

from statelib.definition.pipeline import load_pipeline, load_pipelines
from statelib.errors import StatelibError

GOOD = """\
name: good
source: {path: "{data}/{start}", columns: {shop: string, amount: long}}
key: [shop]
states:
  total: {kind: value, fields: {sold: {agg: sum, of: amount}}}
backend: heap
parallelism: 2
schedule: {cron: "@daily", start: 2013-01-01}
"""
FILES: dict[str, str | bytes] = {
    "boolean": GOOD.replace("parallelism: 2", "parallelism: !!bool maybe"),
    "digits": GOOD.replace("parallelism: 2", f"parallelism: {'9' * 4000}"),
    "more-digits": GOOD.replace("parallelism: 2", f"parallelism: {'9' * 5000}"),
    "hexadecimal": GOOD.replace("parallelism: 2", f"parallelism: 0x{'f' * 100_000}"),
    "sexagesimal": GOOD.replace("parallelism: 2", f"parallelism: 1{':59' * 20_000}"),
    "retries": GOOD + f"retries: {{delay_s: {'9' * 400}}}\n",
    "empty-int": GOOD.replace("parallelism: 2", 'parallelism: !!int ""'),
    "float": GOOD.replace("parallelism: 2", "parallelism: !!float x"),
    "timestamp": GOOD.replace("parallelism: 2", "parallelism: !!timestamp x"),
    "no-date": GOOD.replace("2013-01-01", "2013-99-01"),
    "before-year-1": GOOD.replace("2013-01-01", "0001-01-01T00:00:00+14:00"),
    "merge": GOOD + "<<: 5\n",
    "merged-merges": "a0: &a0 {k: 1}\n"
    + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 9)),
    "merged-itself": "a: &a\n  <<: *a\n",
    "aliases": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
    "alias-of-itself": "a: &a [*a]\n",
    "unclosed": "a: " + "[" * 100_000,
    "deep": "a: " + "[" * 5000 + "]" * 5000,
    "deep-blocks": "".join(" " * i + "a:\n" for i in range(1000)),
    "object": GOOD.replace("parallelism: 2", "parallelism: !!python/object:os.system x"),
    "nul": GOOD + "\0",
    "no-utf-8": GOOD.encode() + b"\xff",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / f"{name}.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "directory.yaml").mkdir()
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "zz-good.yaml").write_text(GOOD)
    return tmp_path


def test_an_odd_file_is_refused_by_name_and_all_others_are_loaded(directory: Path) -> None:
    pipelines, errors = load_pipelines(directory)
    assert [pipeline.name for pipeline in pipelines] == ["good"]
    assert {Path(error.path).stem for error in errors} == {*FILES, "directory", "dangling", "loop"}
    assert all(error.path in error.message and len(error.message) < 1000 for error in errors)


def test_odd_files_take_little_memory(directory: Path) -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30));"
        "from statelib.definition.pipeline import load_pipelines; print(len(load_pipelines(sys.argv[1])[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(FILES) + 3}\n"


@pytest.mark.parametrize("name", ["boolean", "hexadecimal", "timestamp", "before-year-1", "merged-merges"])
def test_the_error_names_the_line(directory: Path, name: str) -> None:
    with pytest.raises(StatelibError) as caught:
        load_pipeline(directory / f"{name}.yaml")
    assert caught.value.kind == "bad-pipeline"
    line = {"before-year-1": 8, "merged-merges": 3}.get(name, 7)
    assert caught.value.message.startswith(f"{directory}/{name}.yaml:{line}: ")


LONG = "x" * 256
NAMES = {
    "a state": (GOOD.replace("total:", f"{LONG}:"), f"states.{LONG}: expected a name of at most 255 bytes, found 256"),
    "a state in bytes": (GOOD.replace("total:", f"{'é' * 128}:"), "expected a name of at most 255 bytes, found 256"),
    "a field": (GOOD.replace("sold:", f"{LONG}:"), "expected a name of at most 255 bytes"),
    "a column": (GOOD.replace("amount: long", f"amount: long, {LONG}: int"), f"columns.{LONG}: expected a name of"),
    "a uid": (GOOD + f"uid: {LONG}\n", "uid: expected a name of at most 255 bytes"),
    "a pipeline": (GOOD.replace("name: good", f"name: {LONG}"), "at most 128"),
    "marks": (GOOD.replace("sold:", '"so<ld":'), "states.total.fields.so<ld: expected a name without any of : < > ,"),
    "marks of a column": (GOOD.replace("amount: long", '"a:b": long, amount: long'), "source.columns.a:b: expected"),
    "blanks": (GOOD.replace("sold:", '" sold":'), "without blanks around it"),
    "a line break": (GOOD.replace("total:", '"to\\ntal":'), "expected a name without control characters"),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMES)
def test_a_name_that_no_run_could_use_is_refused(tmp_path: Path, what: str) -> None:
    text, message = NAMES[what]
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(StatelibError) as caught:
        load_pipeline(path)
    assert message in caught.value.message


def test_the_longest_allowed_names_are_accepted(tmp_path: Path) -> None:
    name = "x" * 255
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("total:", f"{name}:").replace("sold:", f"{name}:") + f"uid: {name}\n")
    assert load_pipeline(path).uid == name
