"""Characters that control a terminal or that are invisible are written as escapes. All others stay as they are."""

import json

import pytest
from hypothesis import example, given
from markdown_it import MarkdownIt

from statelib.visible import as_code, as_markdown, is_hidden, visible, visible_json
from tests.support.hostile_strings import TERMINAL, hostile_text


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "Zürich 東京\u3000駅",
        "\u0645\u06cc\u200c\u062e\u0648",
        "👩\u200d👩\u200d👧",
        "a\u0301",
        "1\u00a0000",
        "[b]:skull:",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert visible(text) == text
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\nb\r", "a\\nb\\r"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_hidden_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(hostile_text())
def test_no_hidden_character_is_left_and_escaping_twice_changes_nothing(text: str) -> None:
    shown = visible(text)
    assert not any(map(is_hidden, shown))
    assert visible(shown) == shown
    assert visible(text, lines=True).count("\n") == text.count("\n")


@given(hostile_text())
def test_escaped_json_has_the_same_value(text: str) -> None:
    document = visible_json(json.dumps({text: [text]}, indent=2, ensure_ascii=False))
    assert json.loads(document) == {text: [text]}
    assert not any(c != "\n" and is_hidden(c) for c in document)


@pytest.mark.parametrize("text", [*TERMINAL, "![x](https://example.org/x.png)", "<img src=x>", "`code`", "a\n# b"])
def test_a_name_in_markdown_is_one_line_without_links_elements_and_code(text: str) -> None:
    written = as_markdown(text)
    assert "\n" not in written
    bare = written.replace("\\\\", "")
    assert all(bare[i - 1] == "\\" for i, c in enumerate(bare) if c in "`*[]<>!")


@given(hostile_text())
@example("")
@example("  ")
@example("`` `")
def test_code_in_markdown_is_nothing_but_the_visible_text(text: str) -> None:
    (paragraph,) = MarkdownIt("gfm-like", {"linkify": False}).parse(f"before {as_code(text)}")[1:2]
    before, code = paragraph.children or []
    assert (before.type, code.type, code.content) == ("text", "code_inline", visible(text) or " ")
