"""Generated parts of the documentation are current, and every command and method has its page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.doc_pages import DOCS, ROOT

from vlcpctl.commands import COMMANDS
from vlcpctl.methods import TABLE

UNWRITTEN = "Write here"
METHOD = '''
from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method
from vlcpctl.methods import TABLE


@dataclass(frozen=True, kw_only=True)
class Bare(Method):
    """A method that does not declare what it should."""

    name: ClassVar[str] = "bare"


TABLE["bare"] = Bare
'''


def generate(*words: str, root: Path = ROOT, before: str = "") -> subprocess.CompletedProcess[str]:
    """docs/generate.py, after some lines of Python."""
    script = root / "docs" / "generate.py"
    code = f"import sys, runpy\nsys.path.insert(0, {str(script.parent)!r})\n{before}\n"
    code += f"sys.argv = {['generate.py', *words]!r}\n"
    code += f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )


def test_generated_parts_are_current() -> None:
    done = generate("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_command_and_method_has_a_page_that_somebody_wrote() -> None:
    for folder, names in (("commands", COMMANDS), ("methods", TABLE)):
        assert {path.stem for path in (DOCS / folder).glob("*.md")} == {*names, "index"}
    for path in (DOCS / "methods").glob("*.md"):
        assert UNWRITTEN not in path.read_text(encoding="utf-8"), path.name


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the README and the pages with generated parts."""
    for name in ("docs/_generate", "docs/results", "docs/methods"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "recipes").mkdir()
    for name in (
        "README.md",
        "docs/generate.py",
        "recipes/quickstart_output.txt",
        "recipes/styles_table.py",
        "recipes/protect_table.py",
    ):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "commands").mkdir()
    return tmp_path


def test_a_new_command_gets_a_page(copy: Path) -> None:
    checked = generate("--check", root=copy)
    assert checked.returncode == 1
    assert "docs/commands/sample.md: is missing" in checked.stderr
    assert not list((copy / "docs" / "commands").iterdir())
    written = generate(root=copy)
    assert written.returncode == 0, written.stderr
    made = (copy / "docs" / "commands" / "sample.md").read_text()
    assert made == (DOCS / "commands" / "sample.md").read_text().split("[[[end]]] -->\n")[0] + (
        "[[[end]]] -->\n"
    )


def test_what_a_new_method_lacks_is_one_line(copy: Path) -> None:
    done = generate(root=copy, before=METHOD)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "__main__.Bare does not declare 'title'" in done.stderr
