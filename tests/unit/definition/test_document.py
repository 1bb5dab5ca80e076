import pytest

from statelib.definition.document import read_document


def test_a_document_has_the_data_and_the_line_of_each_value():
    document = read_document("a: 1\nb:\n  c: [x, y]\n  d:\n    - p\n    - q\n")
    assert document.data == {"a": 1, "b": {"c": ["x", "y"], "d": ["p", "q"]}}
    assert document.problems == ()
    lines = {("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", 1): 3, ("b", "d"): 4, ("b", "d", 1): 6}
    assert {where: document.line(where) for where in lines} == lines


def test_the_line_of_an_unknown_field_is_that_of_its_parent():
    document = read_document("a: 1\nb:\n  c: 2\n")
    assert document.line(("b", "missing", "too")) == 2
    assert document.line(("missing",)) == 1


def test_anchors_and_merge_keys_work():
    document = read_document("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n")
    assert document.problems == ()
    assert document.data == {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]",
        "x: " + "[" * 30 + "]" * 30,
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "\n".join(f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdef", "bcdefg", strict=True)),
    ],
    ids=["endless", "deep", "exploding"],
)
def test_a_document_that_expands_too_far_is_refused(text):
    document = read_document(text)
    assert document.data is None
    assert "larger than a pipeline file can be" in document.problems[0].text


@pytest.mark.parametrize(
    "text", ["a: [1", "a: b: c", "a: 2013-99-99", "a: !!python/object:os.x {}", "a: 1\n---\nb: 2\n"]
)
def test_invalid_yaml_is_refused(text):
    document = read_document(text)
    assert document.data is None
    assert document.problems[0].text.startswith("not valid YAML: ")


@pytest.mark.parametrize(("text", "number"), [("012", 10), ("-0_7", -7), ("1:30", 90), ("1:30.5", 90.5)])
def test_a_number_that_people_read_as_another_one_is_refused(text, number):
    document = read_document(f"a: {text}\n")
    assert document.problems[0].text.startswith(f"YAML takes {text} for the number {number}: write this number")
    assert read_document(f"a: [0, 10, 0x1F, 0.5, -1, '{text}', 08, 1e3, 01.5, 12:30:99x]\n").problems == ()
