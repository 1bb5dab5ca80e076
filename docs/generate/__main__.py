"""``python -m docs.generate``: write the pages of the reference."""

from docs.generate import PAGES

for path, text in PAGES.items():
    path.parent.mkdir(exist_ok=True)
    path.write_text(text(), encoding="utf-8")
