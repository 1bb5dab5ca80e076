"""Texts that try to have an effect: in HTML, in templates, in a terminal, in SQL and in paths."""

from hypothesis import strategies as st

SCRIPT = "<script>window.hacked = 1</script>"
ON_ERROR = "<img src=x onerror='window.hacked = 1'>"
MARKUP = (
    SCRIPT,
    ON_ERROR,
    "<scr<script></script>ipt>window.hacked = 1</scr</script>ipt>",
    "<lin<link>k rel=stylesheet href=//example.org/x>",
    "<<script>script>alert(1)<</script>/script>",
    "</title></style></head></table></div><script>window.hacked = 1</script>",
    "<style>* { display: none }</style>",
    "<svg onload=window.hacked=1><animate onbegin=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe>",
    "<base href='https://example.org/'><meta http-equiv=refresh content='0;url=https://example.org/'>",
    '" onmouseover="window.hacked = 1" x="',
    "' autofocus onfocus='window.hacked = 1",
    "javascript:window.hacked=1//",
    "<a href=javascript:window.hacked=1>here</a>",
    "&lt;script&gt;window.hacked = 1&lt;/script&gt;",
    "&#60;img src=x onerror=window.hacked=1&#62;",
    "<!--><script>window.hacked = 1</script>-->",
    "<![CDATA[<script>window.hacked = 1</script>]]>",
    "<?php x ?><!DOCTYPE x>",
    "${window.hacked}$hacked$$PARAMETER $column{{ 7 * 7 }}{% raw %}{# #}",
    "`${window.hacked = 1}`[x](javascript:window.hacked=1)<b>*bold*</b>",
    "\uff1cscript\uff1ewindow.hacked = 1\uff1c/script\uff1e",
    "<script\u2028>window.hacked = 1</script\u2029>",
    "\ue03cscript\ue03ewindow.hacked = 1\ue03c/script\ue03e",
    "<p title='\x00\x0b'>\x1b[2J\u202eevil\u2066\ufeff",
    "line\nbreak\r\n<td>\ttab",
    "'; DROP TABLE checkpoint; --",
    "../../etc/passwd",
)
"""Texts of markup, each used alone. A script that runs would set ``window.hacked``."""
TERMINAL = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31m",
    "\rover the line before",
    "one line\nanother line",
    "\u202egnp.exe",
    "\u2066\u2069\u061c\u200e\u200f",
    "in\u200bvisible\ufeff\u2060\xad",
    "\U000e0041\U000e007f",
    "[bold red]markup[/] [link=https://example.org]here[/link]",
)
"""Texts that a terminal, or its user, would misunderstand."""
ANY = MARKUP + TERMINAL


def hostile_text() -> st.SearchStrategy[str]:
    """Draw pieces of these texts, split and joined with arbitrary text."""
    pieces = st.sampled_from(ANY).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
            lambda ends: text[min(ends) : max(ends)]
        )
    )
    return st.lists(st.one_of(st.sampled_from(ANY), pieces, st.text(max_size=6)), min_size=1, max_size=4).map("".join)
