"""The links of the README lead somewhere; Sphinx checks those of docs/ when it builds them."""

from __future__ import annotations

import re

from support.doc_pages import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


def test_every_relative_link_of_the_readme_leads_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for link in LINK.findall(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / (path or "README.md")
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), link
