"""Every command block of the documentation runs; the few that do not are listed with a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.doc_pages import (
    QUICK,
    RUN,
    SHOWN,
    Block,
    Terminal,
    blocks_of,
    examples_of,
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
    for example in examples_of(page, Terminal(tmp_path)):
        example.evaluate()


@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_every_block_to_run_is_one_that_sybil_sees(page: Path, tmp_path: Path) -> None:
    """A block inside a list or after an open fence would silently be left out."""
    seen = [example.line for example in examples_of(page, Terminal(tmp_path))]
    assert seen == [block.line for block in blocks_of(page) if block.language in RUN]


def test_every_block_names_a_known_language() -> None:
    directive = re.compile(r"\{[a-z-]+\}")
    for block in BLOCKS:
        known = block.language in RUN | SHOWN or directive.fullmatch(block.language)
        assert known, f"{block.page}:{block.line}: language {block.language!r}; shell blocks are sh"


def listed(block: Block) -> bool:
    return any(
        one["page"] == block.page and one["first_line"] == block.first_line for one in unexecuted()
    )


def test_every_console_block_is_listed_with_a_reason() -> None:
    consoles = [block for block in BLOCKS if block.language == "console"]
    for block in consoles:
        assert listed(block), f"{block.page}:{block.line} is not in tests/docs/unexecuted.toml"
    assert len(consoles) <= MOST_UNEXECUTED


def test_every_listed_block_is_there() -> None:
    there = {(block.page, block.first_line) for block in BLOCKS if block.language == "console"}
    for one in unexecuted():
        assert (one["page"], one["first_line"]) in there, one
        assert one["reason"].strip(), one


def test_quick_pages_exist() -> None:
    assert {name_of(page) for page in RUN_PAGES} >= QUICK


def test_a_failing_block_shows_page_line_command_and_output(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(
        "# A page\n\n```sh\nvalue=5\n```\n\n```sh\necho found $value\nls nowhere\n```\n"
    )
    fine, failing = examples_of(copy, Terminal(tmp_path / "run"))
    fine.evaluate()
    with pytest.raises(AssertionError) as caught:
        failing.evaluate()
    shown = str(caught.value)
    assert f"{copy}:7: exit code 2\n" in shown
    assert "\nls nowhere\n" in shown
    assert "found 5\n" in shown
    assert "line 2 of the block ended with 2: ls nowhere" in shown


def test_directory_functions_and_variables_carry_over(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nmkdir one && cd one\nexport CHOSEN=5\nshow() { echo $CHOSEN > chosen; }\n```\n\n"
        "```python\nfrom pathlib import Path\nPath('made').touch()\n```\n\n"
        '```sh\nshow\ntest -f made\ntest "$(basename "$PWD")" = one\n```\n'
    )
    for example in examples_of(page, Terminal(tmp_path / "run")):
        example.evaluate()
    assert (tmp_path / "run" / "work" / "one" / "chosen").read_text() == "5\n"
