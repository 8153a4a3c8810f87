"""The page about troubleshooting quotes messages: those that the program prints, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
# Between two parts of one literal.
JOINT = re.compile(r"""["']\s*\n\s*f?["']""")
SHORTEST = 8  # letters of a fragment that says something
# Fragments that the program puts together from several texts.
JOINED = {
    "does not fit: it lacks": ("does not fit: it", "lacks"),
    "has changed since it was written: its xxh3_128 differs": (
        *("has changed since it was written:", ": its ", "xxh3_128", " differs"),
    ),
    "is not a task: it has no task.json": ("is not ", ": it has no ", "task.json"),
    "the loss diverged at step": ("the loss diverged at ", "step "),
    "unknown column": ("unknown ", "column"),
    "unknown method": ("unknown ", "method"),
}


def quoted() -> list[str]:
    """The messages that the items of the page's lists start with."""
    found = re.findall(r"^- `([^`]+)`\\$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return sorted(set(found))


@pytest.fixture(scope="module")
def messages() -> str:
    """The package's code, with each literal in one piece."""
    sources = sorted((ROOT / "vlcpctl").rglob("*.py"))
    return "\n".join(JOINT.sub("", path.read_text(encoding="utf-8")) for path in sources)


def test_the_page_has_messages_for_each_code() -> None:
    assert len(quoted()) >= 40


@pytest.mark.parametrize("message", quoted())
def test_each_message_is_in_the_code(message: str, messages: str) -> None:
    fragments = [part.strip(" ,:;'\"()") for part in message.split("...")]
    assert any(len(part) >= SHORTEST for part in fragments), "quote more of it"
    for part in fragments:
        if part and part != "No space left on device":  # the operating system's own words
            for text in JOINED.get(part, (part,)):
                assert text in messages, f"no message says {text!r}"
