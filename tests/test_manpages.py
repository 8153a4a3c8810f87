"""The manual pages hold what --help prints, in roff that formatters read without a warning."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from vlcpctl import cli, manpages
from vlcpctl.commands import COMMANDS
from vlcpctl.core.errors import exit_codes

GROFF = shutil.which("groff")
MANDOC = shutil.which("mandoc")


@functools.cache
def page(name: str) -> str:
    return manpages.command_page(name)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return manpages.write(tmp_path_factory.mktemp("pages"))


def printed(roff: str) -> str:
    """The text that roff prints, without its fonts and requests."""
    lines = [line for line in roff.split("\n") if not line.startswith(".")]
    text = re.sub(r"\\f[BIR]|\\&", "", "\n".join(lines))
    for escape, character in (("-", "-"), ("(aq", "'"), ("(dq", '"'), ("(ga", "`")):
        text = text.replace(f"\\{escape}", character)
    return text.replace(r"\(ha", "^").replace(r"\(ti", "~").replace(r"\e", "\\")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_every_option_and_all_words_of_the_help(name: str) -> None:
    program: Any = typer.main.get_command(cli.application(name))
    command = program.commands[name]
    text, _, examples = inspect.cleandoc(command.help).partition("Examples:\n")
    flat = printed(page(name))
    for paragraph in text.split("\n\n"):
        assert words(paragraph) in words(flat)
    for line in inspect.cleandoc(examples).split("\n"):
        assert line in flat.split("\n")
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            assert words(parameter.help) in words(flat), parameter.name
            if parameter.param_type_name == "option":
                assert all(re.search(rf"^.*{one}\b", flat, re.M) for one in parameter.opts)
    assert "-h, --help" in flat


def test_the_programs_page_lists_commands_and_exit_codes() -> None:
    flat = printed(manpages.program_page())
    for name, command in COMMANDS.items():
        assert f"vlcpctl {name}\n{command.summary} See vlcpctl-{name}(1)." in flat
    assert [*exit_codes()] == [*range(9), 75, 129, 130, 141, 143]
    for code, text in exit_codes().items():
        assert f"\n{code}\n{text}\n" in flat


def test_the_synopsis_has_what_is_required() -> None:
    line = printed(page("train-step")).split("SYNOPSIS")[0]
    assert "vlcpctl train-step --out PATH --method NAME[+NAME...] [OPTION ...] TASK ..." in line
    assert "vlcpctl methods [OPTION ...] [NAME ...]" in printed(page("methods"))


@pytest.mark.parametrize(
    "checker",
    [
        pytest.param(
            ["groff", "-man", "-ww", "-z"], marks=pytest.mark.skipif(not GROFF, reason="")
        ),
        pytest.param(
            ["mandoc", "-Tlint", "-Wwarning"], marks=pytest.mark.skipif(not MANDOC, reason="")
        ),
    ],
    ids=["groff", "mandoc"],
)
def test_formatters_have_nothing_to_say(checker: list[str], paths: list[Path]) -> None:
    ended = subprocess.run([*checker, *paths], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.skipif(not GROFF, reason="needs groff")
def test_a_page_fits_a_terminal_of_80_columns(paths: list[Path]) -> None:
    command = ["groff", "-man", "-Tascii", "-P-cbou", "-rLL=78n", *paths]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line for line in text.split("\n") if len(line) > 80] == []


def test_the_command_writes_all_pages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vlcpctl.manpages", tmp_path / "man"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "86400"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout == f"{tmp_path / 'man' / 'man1'}\n"
    names = {path.name for path in (tmp_path / "man" / "man1").iterdir()}
    assert names == {"vlcpctl.1", *(f"vlcpctl-{name}.1" for name in COMMANDS)}
    first = (tmp_path / "man" / "man1" / "vlcpctl.1").read_text(encoding="ascii")
    assert ".TH VLCPCTL 1 1970-01-02 " in first


def test_a_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(sys, "argv", ["vlcpctl.manpages", str(file)])
    with pytest.raises(SystemExit, match=r"cannot write .*file/man1: Not a directory$"):
        manpages.main()


def test_man_finds_the_default_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", "/env")
    assert manpages.default_directory() == Path("/env/share/man")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert manpages.default_directory() == tmp_path / ".local/share/man"
