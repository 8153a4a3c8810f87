"""Every command block of the documentation runs; the few that do not are listed with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.doc_pages import (
    QUICK,
    RUN,
    SHOWN,
    Terminal,
    blocks_of,
    name_of,
    pages,
    unexecuted,
)

MOST_UNEXECUTED = 10
BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUN_PAGES = [page for page in pages() if any(block.language in RUN for block in blocks_of(page))]


def page_cases() -> list[object]:
    return [
        pytest.param(
            page, id=name_of(page), marks=() if name_of(page) in QUICK else pytest.mark.slow
        )
        for page in RUN_PAGES
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", page_cases())
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    for block in blocks_of(page):
        if block.language in RUN:
            terminal.run(block)


def test_every_block_names_a_known_language() -> None:
    directive = re.compile(r"\{[a-z-]+\}")
    for block in BLOCKS:
        known = block.language in RUN | SHOWN or directive.fullmatch(block.language)
        assert known, f"{block.page}:{block.line}: language {block.language!r}; shell blocks are sh"


def test_every_console_block_is_listed_with_a_reason_and_no_other() -> None:
    consoles = {(block.page, block.first_line) for block in BLOCKS if block.language == "console"}
    assert consoles == {(one["page"], one["first_line"]) for one in unexecuted()}
    assert len(consoles) <= MOST_UNEXECUTED
    assert all(one["reason"].strip() for one in unexecuted())


def test_directory_functions_and_variables_carry_over_until_a_block_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nmkdir one && cd one\nexport CHOSEN=5\nshow() { echo $CHOSEN > chosen; }\n```\n\n"
        "- one\n\n  ```python\n  from pathlib import Path\n  Path('made').touch()\n  ```\n\n"
        '```sh\nshow\ntest -f made\ntest "$(basename "$PWD")" = one\n```\n'
        "```sh\ncat chosen\nls nowhere\n```\n"
    )
    terminal, (*fine, failing) = Terminal(tmp_path / "run"), blocks_of(page)
    for block in fine:
        terminal.run(block)
    with pytest.raises(AssertionError, match=r"page\.md:19: exit code 2\n(?s:.*)5\n.*nowhere"):
        terminal.run(failing)
