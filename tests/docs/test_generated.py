"""The generated parts of the pages: Sphinx fills them in, from what the code declares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from support.doc_pages import DOCS, generator, name_of, pages

from vlcpctl.commands import COMMANDS
from vlcpctl.core.method import Method
from vlcpctl.methods import TABLE

MARKED = [page for page in pages() if "<!-- generated:" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", MARKED, ids=name_of)
def test_every_part_of_a_page_is_filled_in(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    filled = generator("pages").filled(text)
    assert len(filled) > len(text)
    assert "<!-- generated" not in filled


def test_every_command_has_a_page_and_a_line_in_their_list(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("# A command that is no more\n")
    generator("pages").write_commands(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {*COMMANDS, "index"}
    listed = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert all(f"]({name}.md)" in listed for name in COMMANDS)
    assert "`--holdout" in (tmp_path / "split.md").read_text(encoding="utf-8")


def test_every_method_has_a_page_with_its_parts() -> None:
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {*TABLE, "index"}
    for name in TABLE:
        page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
        assert f"<!-- generated: method-head {name} -->" in page
        assert f"<!-- generated: method {name} -->" in page


def test_a_method_that_declares_too_little_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Bare(Method):
        """A method that does not declare what it should."""

        name: ClassVar[str] = "bare"

    with pytest.raises(AttributeError, match="Bare does not declare 'title'"):
        generator("methods").facts_of(Bare)
