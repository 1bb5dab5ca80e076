"""The documents are written in plain words: a list of expressions that only their author would understand is held back.

Whether a sentence can be understood, a reader decides; this only finds the worst.
"""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT
from tests.architecture.test_language import ELLIPTICAL, PRIVATE

REFERENCE = ROOT / "docs" / "reference"
"""The reference is generated from the code, whose language has its own test."""
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLAIN = [path for path in DOCUMENTS if not path.is_relative_to(REFERENCE)]
ARTICLE = re.compile(r"\b(?:without|that|means) a ")
"""Words before an "a" that is an article."""


def prose(text: str) -> str:
    """Return the text of a page with its code left out. A paragraph becomes one line."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!\n)\n(?![\n|#\-])", " ", re.sub(r"`[^`\n]*`", "code", text))


def private_words(text: str) -> list[str]:
    """Return the expressions of a page that a stranger would not understand."""
    words = [match.group() for pattern in (PRIVATE, ELLIPTICAL) for match in pattern.finditer(prose(text))]
    return [word for word in words if not ARTICLE.search(word)]


@pytest.mark.parametrize("document", PLAIN, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_has_no_private_words(document: Path) -> None:
    assert private_words(document.read_text()) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "The pipeline stands on its newest checkpoint.",
        "Retention lets\ngo of it.",
        "The notifier is told about it.",
        "The manifest holds two counts a key group.",
    ],
)
def test_private_words_are_detected(sentence: str) -> None:
    assert len(private_words(sentence)) == 1


def test_code_and_plain_sentences_pass() -> None:
    assert (
        private_words(
            "Counts per key group, events without a key.\n\n```text\ncustomers stands on customers/4\n```\n`is told`\n"
        )
        == []
    )
