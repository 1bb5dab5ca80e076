"""Each ``Source:`` in a docstring of the library leads into docs/spec, to a heading or a requirement that exists.

The form is ``Source: docs/spec/formats.md#values, #heap-stream; docs/spec/requirements.md R20 to R24``: anchors and
requirements belong to the page named before them.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.repository import ROOT, anchors, modules

SOURCE = re.compile(r"\bSource:(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
"""A source ends at the end of its paragraph."""
PAGE = re.compile(r"docs/spec/[\w-]+\.md")
OUTSIDE = re.compile(r"flink-\w+\.md|\bsections? \d")
"""References that only the author can follow."""
REQUIREMENTS = frozenset(re.findall(r"^\| (R\d+) \|", (ROOT / "docs/spec/requirements.md").read_text(), re.MULTILINE))


def dead_links(source: str) -> list[str]:
    """Return the problems of the text after one ``Source:``; an empty list if each of its links leads somewhere."""
    pages = list(PAGE.finditer(source))
    if not pages:
        return [f"no page of docs/spec in {source.strip()!r}"]
    wrong = OUTSIDE.findall(source)
    ends = [page.start() for page in pages[1:]] + [len(source)]
    for page, end in zip(pages, ends, strict=True):
        name, rest = page.group(), source[page.end() : end]
        if not (ROOT / name).is_file():
            wrong.append(name)
            continue
        headings = anchors(ROOT / name)
        wrong += [f"{name}#{anchor}" for anchor in re.findall(r"#([\w-]+)", rest) if anchor not in headings]
    return wrong + sorted(set(re.findall(r"\bR\d+\b", source)) - REQUIREMENTS)


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstring of the module and of each class and function in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_every_source_leads_into_the_specification() -> None:
    wrong: dict[str, list[str]] = {}
    count = 0
    for path, _, tree in modules("statelib", "jobs", "plugins"):
        for text in docstrings(tree):
            if OUTSIDE.search(text):
                wrong.setdefault(path, []).append("refers to a document outside of this repository")
            for source in SOURCE.findall(text):
                count += 1
                wrong.setdefault(path, []).extend(dead_links(source))
    assert {path: links for path, links in wrong.items() if links} == {}
    assert count > 50


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("docs/spec/formats.md#values, #no-such-heading (Some.Class)", "docs/spec/formats.md#no-such-heading"),
        ("docs/spec/no_page.md#values", "docs/spec/no_page.md"),
        ("docs/spec/requirements.md R20 to R999", "R999"),
        ("SomeClass of Flink", "no page of docs/spec"),
        ("docs/spec/formats.md#values; section 3.1", "section 3"),
    ],
)
def test_dead_links_are_detected(source: str, problem: str) -> None:
    assert any(problem in each for each in dead_links(source))


def test_valid_links_pass() -> None:
    assert dead_links(" docs/spec/formats.md#values,\n#heap-stream; docs/spec/requirements.md R20 to R24.") == []
