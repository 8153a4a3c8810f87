"""Methods that a file defines, and the line that each mistake in one gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.method_files import MINE, write_method

from vlcpctl.core.errors import BadInput
from vlcpctl.methods.plugins.method_file import load_method_file
from vlcpctl.methods.plugins.registry import source_of

HEAD, BODY = MINE.split("@dataclass", maxsplit=1)


def test_a_file_defines_its_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_method(tmp_path / "mine.py", MINE + "\nprint('hello')\n")
    file = load_method_file(path)
    assert list(file.methods) == ["mine"]
    source = source_of(file.methods["mine"])
    assert source is not None
    assert source.facts == {"file": file.digest}
    assert file.digest.startswith("sha256:")
    assert load_method_file(path).methods["mine"] is file.methods["mine"]  # loaded once
    assert capsys.readouterr() == ("", "hello\n")  # stdout is for results
    assert list(tmp_path.iterdir()) == [path]  # no compiled copy


def test_a_base_class_without_a_name_is_not_a_method(tmp_path: Path) -> None:
    base = "class Base(Method):\n    def loss(self, run, batch, out):\n        return {}, {}\n\n\n"
    code = HEAD + base + "@dataclass" + BODY.replace("Mine(Method)", "Mine(Base)")
    assert list(load_method_file(write_method(tmp_path / "mine.py", code)).methods) == ["mine"]


TITLE = '    title: ClassVar[str] = "Penalise changes to all weights"\n'


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def (:\n", "cannot import {path}: line 1: SyntaxError: "),
        ("\nx = 1 / 0\n", "cannot import {path}: line 2: ZeroDivisionError: division by zero"),
        ("x = 1\n", "{path} defines no method: it has no class that derives from"),
        (MINE.replace(TITLE, ""), "{path}: class Mine lacks a title; add title: ClassVar[str] ="),
        (MINE.replace('"mine"', '"my+method"'), "class Mine has the name 'my+method'; use letters"),
        (MINE.replace("@dataclass(frozen=True, kw_only=True)\n", ""), "class Mine is not a datacl"),
        (
            MINE.replace('hyper(1.0, doc="Weight of the penalty.", origin="ours")', "1.0"),
            "class Mine has the field strength, which is not made by hyper(default, doc=",
        ),
        (
            MINE.replace(
                "    def needs", "    def __post_init__(self):\n        1 / 0\n\n    def needs"
            ),
            "class Mine cannot be made with its default hyper-parameters: ZeroDivisionError",
        ),
        (
            MINE + "@dataclass" + BODY.replace("class Mine", "class Twin"),
            "{path}: classes Mine and Twin are both named 'mine'; give each method a name",
        ),
    ],
)
def test_a_mistake_gets_one_line(tmp_path: Path, code: str, words: str) -> None:
    path = write_method(tmp_path / "mine.py", code)
    with pytest.raises(BadInput) as error:
        load_method_file(path)
    said = str(error.value)
    assert "\n" not in said
    assert words.replace("{path}", str(path)) in said
