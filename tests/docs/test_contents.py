"""The contents of docs/: the sidebar lists each page once, and no two drawings share a name."""

from __future__ import annotations

import re
from collections import Counter

from support.doc_pages import ROOT

DOCS = ROOT / "docs"
MOST_ENTRIES = 25
TABLE = re.compile(r"^```\{toctree\}\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def test_the_sidebar_lists_each_page_once() -> None:
    listed: Counter[str] = Counter()
    for table in TABLE.findall((DOCS / "index.md").read_text(encoding="utf-8")):
        listed.update(line for line in table.splitlines() if line and not line.startswith(":"))
    assert 15 < len(listed) <= MOST_ENTRIES
    assert {page: count for page, count in listed.items() if count > 1} == {}


def test_each_drawing_has_a_name_of_its_own() -> None:
    names = Counter(path.name for path in DOCS.rglob("*.svg"))
    assert {name: count for name, count in names.items() if count > 1} == {}
