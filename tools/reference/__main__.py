"""``python -m tools.reference``: write the pages of the reference."""

from tools.reference import PAGES

for path, text in PAGES.items():
    path.parent.mkdir(exist_ok=True)
    path.write_text(text(), encoding="utf-8")
