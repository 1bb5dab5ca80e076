"""The pages of a report, which need no network and no scripts. Data appears in them as text only.

The pages of Great Expectations load styles and scripts from other servers. Here a page is parsed and written again
with only the elements and attributes that a report needs. So it looks the same in ten years and behind a firewall, and
no server learns that it was opened. Everything else is left out.
"""

import re
from collections.abc import Callable, Iterable
from html import escape
from html.parser import HTMLParser

from statelib.quality.report.masking import unmasked

CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy of each page: a browser loads nothing and runs no scripts."""
STYLE = """<style>
:root { color-scheme: light dark; --good: #1a7f37; --bad: #c62828; --warned: #9a6700; --line: #8884; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.6rem; } a { color: #1f6feb; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .92em; overflow-wrap: anywhere; white-space: pre-wrap; }
.good, .text-success { color: var(--good); } .bad, .text-danger { color: var(--bad); }
.warned, .text-warning { color: var(--warned); }
.alert, .card { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; margin: .75rem 0; }
.fas { font-style: normal; } .fa-check-circle::before { content: "\\2714"; } .fa-times::before { content: "\\2718"; }
.fa-exclamation-triangle::before { content: "\\26A0"; }
.cooltip > .top { display: none; } .cooltip:hover > .top { display: inline; margin-left: .5em; opacity: .7; }
.nav, .breadcrumb { list-style: none; padding: 0; display: flex; gap: 1rem; flex-wrap: wrap; }
</style>"""

_ELEMENTS = frozenset({
    "a", "b", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "nav", "ol", "p", "pre",
    "section", "small", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
})  # fmt: skip
_EMPTY = frozenset({"br", "hr"})
_DROPPED = frozenset({"script", "style", "footer", "noscript", "template", "svg", "iframe", "object", "label"})
"""Elements that are left out with their content, because most of them need scripts or files from a server."""
_ATTRIBUTES = frozenset({"class", "id", "lang", "hidden", "colspan", "rowspan", "role"})
_NAME = re.compile(r"[\w -]*", re.ASCII)
"""The pattern of all attribute values that the templates write. Other values are left out."""
_LINK = re.compile(r"#[\w-]+|(?:\.\./)*[\w-][\w./-]*\.html", re.ASCII)


def page(title: str, body: str) -> str:
    """Return a whole page in the style of the report. ``body``: HTML; ``title``: text."""
    return f'<!DOCTYPE html><html lang="en"><head>{_head(title)}</head><body>{body}</body></html>\n'


def text(data: str) -> str:
    """Return text as HTML, with its special characters escaped."""
    return escape(data)


def self_contained(html: str, is_page: Callable[[str], bool]) -> str:
    """Return the page with the allowed elements and attributes only, with the style sheet of the report, and with
    masked text put back.

    ``is_page``: returns whether a relative link leads to a page of the report; other links become text."""
    filtered = _Filter(is_page)
    filtered.feed(html)
    filtered.close()
    return page(unmasked(filtered.title.strip()), "".join(filtered.written))


def _head(title: str) -> str:
    return (
        f'<meta charset="UTF-8"><meta http-equiv="Content-Security-Policy" content="{CSP}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{text(title)}</title>{STYLE}'
    )


class _Filter(HTMLParser):
    """A parser that collects the allowed elements and text in ``written``. Comments, declarations and processing
    instructions are left out."""

    def __init__(self, is_page: Callable[[str], bool]) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.written: list[str] = []
        self._is_page = is_page
        self._open: list[str] = []
        self._dropped: list[str] = []
        self._in_body = False
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropped:
            self._dropped += [tag] if tag == self._dropped[0] else []
        elif tag in _DROPPED:
            self._dropped = [tag]
        elif tag in ("body", "title"):
            self._in_body, self._in_title = tag == "body", tag == "title" and not self.title
        elif self._in_body and tag in _ELEMENTS:
            self.written.append(f"<{tag}{''.join(self._attributes(attrs))}>")
            self._open += [] if tag in _EMPTY else [tag]

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            self._dropped = self._dropped[1:] if tag == self._dropped[0] else self._dropped
        elif tag == "title":
            self._in_title = False
        elif tag in self._open:
            while (closed := self._open.pop()) != tag:
                self.written.append(f"</{closed}>")
            self.written.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        if self._in_title:
            self.title += data
        elif self._in_body:
            self.written.append(text(unmasked(data)))

    def close(self) -> None:
        super().close()
        self.written += [f"</{tag}>" for tag in reversed(self._open)]

    def _attributes(self, attrs: Iterable[tuple[str, str | None]]) -> Iterable[str]:
        for name, value in attrs:
            written = value or ""
            if name in _ATTRIBUTES and _NAME.fullmatch(written):
                yield f' {name}="{written}"'
            elif name == "href" and _LINK.fullmatch(written) and (written.startswith("#") or self._is_page(written)):
                yield f' href="{written}"'
