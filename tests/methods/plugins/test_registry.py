"""A method is found by name: built in, in a file, or in an installed distribution."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.method_files import MINE, install, write_method

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.methods import TABLE
from vlcpctl.methods.plugins import registry as module
from vlcpctl.methods.plugins.registry import MethodRegistry, source_of
from vlcpctl.training.methods import compose


def test_a_built_in_method_does_not_look_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed", lambda: pytest.fail("plug-ins were looked for"))
    assert MethodRegistry().find("ctp") is TABLE["ctp"]
    assert source_of(TABLE["ctp"]) is None


def test_a_method_of_a_file_is_composed_and_set(tmp_path: Path) -> None:
    registry = MethodRegistry.of([write_method(tmp_path / "mine.py")])
    ctp, mine = compose("mine+ctp", ["mine.strength=3"], registry)
    assert (ctp.name, mine.name, vars(mine)) == ("ctp", "mine", {"strength": 3.0})
    with pytest.raises(UsageError, match="unknown hyper-parameter of mine: 'strengthh'; did you"):
        compose("mine", ["mine.strengthh=3"], registry)


def test_an_unknown_name_says_how_to_add_it(tmp_path: Path) -> None:
    registry = MethodRegistry.of([write_method(tmp_path / "mine.py")])
    with pytest.raises(UsageError, match=r"'mime'; did you mean 'mine'\? .*--method-file FILE.py"):
        registry.find("mime")


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ctp.py: method 'ctp' is built in; give yours another"):
        MethodRegistry.of([write_method(tmp_path / "ctp.py", mine="ctp")])
    files = [write_method(tmp_path / "a.py"), write_method(tmp_path / "b.py", MINE + "\n# b\n")]
    with pytest.raises(BadInput, match=r"method 'mine' is defined in .*a.py and in .*b.py"):
        MethodRegistry.of(files)
    assert MethodRegistry.of([files[0], files[0]]).find("mine").name == "mine"  # given twice


def test_an_installed_method_is_found_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "mine = own_methods_a:Mine")
    (method,) = compose("mine")
    source = source_of(type(method))
    assert source is not None
    assert source.shown == "own-methods 1.2"
    assert (source.facts["distribution"], source.facts["version"]) == ("own-methods", "1.2")
    assert list(source.facts["modules"]) == ["own_methods_a"]
    assert [one.name for one in MethodRegistry().listed(pytest.fail)] == [*TABLE, "mine"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            "mine = own_methods_b:Nothing",
            "cannot be imported from own_methods_b:Nothing: Attrib",
        ),
        ("mine = own_methods_c:seen", "own_methods_c:seen is not a class derived from Method"),
        ("yours = own_methods_d:Mine", "class Mine is named 'mine'; the entry point must have"),
    ],
)
def test_a_broken_plug_in_is_named_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, words: str
) -> None:
    install(tmp_path, monkeypatch, entry)
    name = entry.split(maxsplit=1)[0]
    with pytest.raises(BadInput, match=f"plug-in '{name}' of own-methods 1.2") as error:
        MethodRegistry().find(name)
    assert words in str(error.value)
    warnings: list[str] = []
    assert [one.name for one in MethodRegistry().listed(warnings.append)] == [*TABLE]
    assert warnings == [str(error.value)]


def test_a_plug_in_does_not_replace_a_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path / "site", monkeypatch, "ctp = own_methods_e:Mine", MINE.replace('"mine"', '"ctp"')
    )
    assert MethodRegistry().find("ctp") is TABLE["ctp"]
    warnings: list[str] = []
    assert len(MethodRegistry().listed(warnings.append)) == len(TABLE)
    assert warnings == ["plug-in 'ctp' of own-methods 1.2 is not used: ctp is built in"]
    monkeypatch.undo()
    install(tmp_path / "more", monkeypatch, "mine = own_methods_f:Mine")
    both = MethodRegistry.of([write_method(tmp_path / "mine.py")])
    with pytest.raises(BadInput, match=r"'mine' is defined by own-methods 1.2 and by .*mine.py"):
        both.find("mine")
