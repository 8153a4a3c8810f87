"""The pages of the documentation: their code blocks, and how those are run.

A page's `sh` and `python` blocks run in order in one new directory. The shell's variables,
functions and working directory carry over from block to block, as in a terminal; a `python` block
is a script of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
UNEXECUTED = ROOT / "tests" / "docs" / "unexecuted.toml"
# Pages whose blocks take a second or two; all others run with `-m slow`.
QUICK = {"docs/guides/troubleshooting.md"}
RUN = {"sh", "python"}
SHOWN = {"text", "console", "yaml", "toml", "json", "ini", "diff", "bibtex", "markdown", "html"}
SHOWN |= {"csv", "latex", "math", "sql", "dockerfile", "css", "none", "shell-session"}
_LINES = 40  # of a failed block's output that are shown

# Before a block: the state that the last one left. After it: the state for the next one.
_SHELL = r"""
state=$1 code=$2
if [ -f "$state" ]; then source "$state" 2>/dev/null; cd "$(cat "$state.place")"; fi
state=$1 code=$2
leave() {
  { declare -f; declare -p | grep -v '^declare -[a-zA-Z]*r'; } > "$state"
  pwd > "$state.place"
}
trap leave EXIT
trap 'echo "line $((LINENO)) of the block ended with $?: $BASH_COMMAND" >&2' ERR
set -euo pipefail
source "$code"
"""


@dataclass(frozen=True)
class Block:
    """A fenced code block: its page, relative to the repository, its line, language and text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """The first line that is not empty."""
        return next(iter(self.text.strip().splitlines()), "")


def pages() -> list[Path]:
    """The README and every page of docs/ that somebody wrote."""
    made = {"_build", "commands"}
    return [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if not made & {*p.parts})]


def name_of(page: Path) -> str:
    """Its path from the root of the repository."""
    return str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page)


def blocks_of(page: Path) -> list[Block]:
    """Its fenced blocks, also those in a list."""
    found: list[Block] = []
    opened: tuple[int, str, str, list[str]] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if opened is None and text.startswith("```"):
            fence = text[: len(text) - len(text.lstrip("`"))]
            opened = (number, fence, text[len(fence) :].strip(), [])
        elif opened is not None and text == opened[1]:
            language = opened[2].split()[0] if opened[2] else ""
            text = textwrap.dedent("\n".join(opened[3]))
            found.append(Block(name_of(page), opened[0], language, text))
            opened = None
        elif opened is not None:
            opened[3].append(line)
    assert opened is None, f"{name_of(page)}:{opened[0]}: a code block without an end"
    return found


def unexecuted() -> list[dict[str, str]]:
    """The console blocks that are not run: page, first line, reason."""
    return tomllib.loads(UNEXECUTED.read_text(encoding="utf-8"))["block"]


class Terminal:
    """A directory in which the blocks of one page run, as one user would type them."""

    def __init__(self, place: Path) -> None:
        self.work, self._state = place / "work", place / "state"
        self.work.mkdir(parents=True)
        programs = place / "bin"
        programs.mkdir()
        for name, words in (("vlcpctl", "-m vlcpctl "), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            program.chmod(0o755)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        paths = [str(programs), str(Path(sys.executable).parent), kept["PATH"]]
        self._environment = {
            **kept,
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(place / "cache"),
            "HF_HUB_OFFLINE": "1",
        }

    def run(self, block: Block) -> None:
        """Run a block; AssertionError with page, line, command and output if it fails."""
        code = self._state.with_suffix(f".{block.line}")
        code.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            words = [sys.executable, str(code)]
        else:
            words = ["bash", "-c", _SHELL, "page", str(self._state), str(code)]
        place = self._state.with_suffix(".place")
        done = subprocess.run(
            words,
            cwd=place.read_text().strip() if place.is_file() else self.work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            shown = "\n".join(done.stdout.splitlines()[-_LINES:])
            where = f"{block.page}:{block.line}: exit code {done.returncode}"
            raise AssertionError(f"{where}\n{block.text}\n--- output\n{shown}")


def generator(name: str) -> ModuleType:
    """A module of docs/_generate, which makes parts of pages."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    return import_module(f"_generate.{name}")
