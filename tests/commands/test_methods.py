"""`vlcpctl methods` prints everything in the table of methods."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import pytest

from vlcpctl.commands.methods import bibtex, cited, describe, run
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Paper
from vlcpctl.methods import TABLE

PAPER = Paper(
    title="On Emoji", authors="Ada, Bell and Cox", venue="ICCV", year=2023, url="https://x.org/1"
)


def test_the_list_has_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TABLE)


def test_json_has_every_parameter_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    run(as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [method["name"] for method in shown["methods"]] == list(TABLE)
    for about in shown["methods"]:
        fields = dataclasses.fields(cast("Any", TABLE[about["name"]]))
        assert [parameter["name"] for parameter in about["parameters"]] == [f.name for f in fields]
        assert all(parameter["origin"] and parameter["help"] for parameter in about["parameters"])


@pytest.mark.parametrize("name", TABLE)
def test_a_description_names_every_parameter(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name)
    out = capsys.readouterr().out
    for parameter in describe(TABLE[name])["parameters"]:
        assert f"\n{name}.{parameter['name']}=" in out


def test_hooks_are_those_that_a_method_overrides() -> None:
    assert describe(TABLE["seqf"])["hooks"] == []
    hooks = ["before_forward", "loss", "token_loss", "after_step"]
    assert describe(TABLE["ctp"])["hooks"] == hooks


def test_bibtex_is_an_entry_with_its_authors_apart() -> None:
    assert bibtex(PAPER).splitlines() == [
        "@inproceedings{ada2023on,",
        "  title = {{On Emoji}},",
        "  author = {Ada and Bell and Cox},",
        "  booktitle = {ICCV},",
        "  year = {2023},",
        "  url = {https://x.org/1},",
        "}",
    ]


def test_three_authors_are_et_al() -> None:
    assert cited(PAPER) == "Ada et al., ICCV 2023"


@pytest.mark.parametrize("name", [name for name, method in TABLE.items() if method.papers])
def test_every_paper_can_be_cited(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name, cite=True)
    out = capsys.readouterr().out
    assert out.count("@") == len(TABLE[name].papers)


@pytest.mark.parametrize("cite", [False, True])
def test_the_name_of_the_paper_is_known(capsys: pytest.CaptureFixture[str], *, cite: bool) -> None:
    run("derpp", cite=cite)
    expected = capsys.readouterr().out
    run("der++", cite=cite)
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("name", "cite", "said"),
    [
        ("ctpp", False, "did you mean 'ctp'"),
        (None, True, "needs a method"),
        ("seqf", True, "seqf has no paper to cite"),
        ("ema", True, "ema has no paper to cite: it is not a published method"),
        ("ctp+er", False, "give one at a time"),
    ],
)
def test_a_mistake_is_answered(name: str | None, cite: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(name, cite=cite)
