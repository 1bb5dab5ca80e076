"""Pages of the gate's report over arbitrary text: the same elements and attributes as over harmless words, and the text
itself to be read."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from statelib.quality.report.masking import masked, unmasked
from statelib.quality.report.pages import CSP, self_contained
from statelib.visible import visible
from tests.support.extent import rounds
from tests.support.hostile_strings import ANY, hostile_text
from tests.support.reports import report_over

OWN = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=state_)[\w-]+|[0-9]{8}T[0-9.]+Z/|[0-9]+", re.ASCII)
"""The parts that differ between pages: random identifiers of the library, names of pages that contain names of
states, numbers."""


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: Counter[str] = Counter()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[f"{tag} {[(name, OWN.sub('#', value or '')) for name, value in attrs]}"] += 1

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.elements["comment"] += 1

    def handle_decl(self, decl: str) -> None:
        self.elements[decl] += 1


def parsed(words: list[str]) -> list[tuple[str, Parsed]]:
    """Return the pages of the report about these words, with their paths."""
    with TemporaryDirectory() as directory:
        report_over(words, directory)
        root = Path(directory)
        pages = [(str(path.relative_to(root)), path.read_text("utf-8")) for path in sorted(root.rglob("*.html"))]
    assert all(f'<meta http-equiv="Content-Security-Policy" content="{CSP}">' in page for _, page in pages)
    return [(OWN.sub("#", path), Parsed(page)) for path, page in pages]


PHASES = (Phase.explicit, Phase.generate)
"""The phases of hypothesis without shrinking, because a report takes a second."""
HARMLESS: dict[int, list[tuple[str, Parsed]]] = {}


@given(words=st.lists(hostile_text(), min_size=8, max_size=8, unique_by=visible))
@example(words=list(ANY))
@settings(max_examples=rounds(3, 40), phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_element_and_no_attribute_comes_from_data(words: list[str]) -> None:
    number = len(words)
    if number not in HARMLESS:
        HARMLESS[number] = parsed([f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(number)])
    pages = parsed(words)
    for (path, page), (alike, harmless) in zip(pages, HARMLESS[number], strict=True):
        assert path == alike
        assert page.elements == harmless.elements, path
    text = "\n".join(page.text for _, page in pages)
    for word in words:
        assert visible(word) in text or visible(word, lines=True) in text, word


@given(hostile_text())
def test_masked_text_has_no_special_characters_and_can_be_unmasked(text: str) -> None:
    assert not set(masked(text)) & set("<>&\"'`$\\{}[]|=#*%~^\n\r\t\0")
    assert unmasked(masked(text)) == visible(text, lines=True)
    assert masked({text: [text, 1, None]}) == {masked(text): [masked(text), 1, None]}


ALLOWED = re.compile(
    r"</?[a-z]+[0-9]?>"
    r'|<[a-z]+[0-9]?(?: (?:class|id|lang|hidden|colspan|rowspan|role)="[\w -]*"| href="[\w/.#-]*")+>'
)


@given(st.lists(st.one_of(hostile_text(), st.sampled_from(("<body>", "<p class=x id='y'>", "<a href=#z>", "</p>")))))
def test_only_allowed_elements_are_written_whatever_a_page_contains(parts: list[str]) -> None:
    page = self_contained("<body>" + "".join(parts), lambda _link: False)
    body = page[page.index("<body>") : page.index("</body>") + 7]
    assert body.count("<") == len(ALLOWED.findall(body)) == body.count(">")
    assert not re.search(r"<(script|style|img|svg|iframe|base|meta|link|form|input|object|embed)", body)
