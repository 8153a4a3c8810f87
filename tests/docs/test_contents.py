"""What docs/ lists and draws is there, once: pages, drawings, links, packages, published tables."""

from __future__ import annotations

import re
import tomllib
from collections import Counter

from support.doc_pages import DOCS, ROOT, generator

from vlcpctl.report.papers import shipped_names

MOST_ENTRIES = 25
TABLE = re.compile(r"^```\{toctree\}\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_sidebar_lists_each_page_once_and_drawings_have_names_of_their_own() -> None:
    listed: Counter[str] = Counter()
    for table in TABLE.findall((DOCS / "index.md").read_text(encoding="utf-8")):
        listed.update(line for line in table.splitlines() if line and not line.startswith(":"))
    assert 15 < len(listed) <= MOST_ENTRIES
    drawings = Counter(path.name for path in DOCS.rglob("*.svg"))
    assert {name: count for name, count in (listed + drawings).items() if count > 1} == {}


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_every_relative_link_of_the_readme_leads_somewhere() -> None:
    """Sphinx checks those of docs/ when it builds them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for link in LINK.findall(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / (path or "README.md")
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), link


def test_each_package_is_on_the_page_of_the_architecture_and_in_its_drawing() -> None:
    page = (DOCS / "extend" / "architecture.md").read_text(encoding="utf-8")
    drawing = (DOCS / "drawings" / "layers.svg").read_text(encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    for name in " | ".join(layers).split(" | "):
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", page, re.MULTILINE), name
        assert f">{name}</text>" in drawing, name


def test_every_published_table_has_a_line_with_its_commands() -> None:
    text = generator("published_tables").catalogue()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(lines) == len(shipped_names())
    for line in lines:
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert len(cells) == 5
        assert cells[2].strip().startswith("`bash recipes/")
        assert "--emoji9" in cells[3]
        assert "--data" not in cells[3]
