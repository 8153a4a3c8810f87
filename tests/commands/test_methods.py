"""`vlcpctl methods` prints everything in the table of methods."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, cast

import pytest
from support.commands import methods as run

from vlcpctl.commands.methods import bibtex, cited, describe
from vlcpctl.core.method import Paper
from vlcpctl.methods import TABLE

PAPER = Paper(
    title="On Emoji & Co.",
    authors="A_B Eva Ada, A. Bell and Marc'O Cox",
    venue="ICCV",
    year=2023,
    url="https://x.org/1_1",
)


def shown(capsys: pytest.CaptureFixture[str], *names: str, **how: bool) -> str:
    run(list(names), **how)
    return capsys.readouterr().out


def test_the_list_has_every_method_and_parameter_with_its_origin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    listed, said = capsys.readouterr()
    assert [line.split()[0] for line in listed.splitlines()] == list(TABLE)
    named = said.removeprefix("good values for ").split(" depend on the run")[0].split(", ")
    assert {"modx", "dha", "ewc", "ema", "ctp"} <= set(named) <= set(TABLE)
    assert not {"seqf", "joint", "er"} & set(named)
    methods = json.loads(shown(capsys, json=True))["methods"]
    assert [method["name"] for method in methods] == list(TABLE)
    for about in methods:
        fields = dataclasses.fields(cast("Any", TABLE[about["name"]]))
        assert [parameter["name"] for parameter in about["parameters"]] == [f.name for f in fields]
        assert all(parameter["origin"] and parameter["help"] for parameter in about["parameters"])
        text = shown(capsys, about["name"])
        assert all(f"\n{about['name']}.{field.name}=" in text for field in fields)


def test_a_value_says_what_it_depends_on(capsys: pytest.CaptureFixture[str]) -> None:
    methods = json.loads(shown(capsys, "modx", "ewc", "ema", "seqf", json=True))["methods"]
    depends = {
        f"{about['name']}.{parameter['name']}": parameter["depends"].split(":")[0]
        for about in methods
        for parameter in about["parameters"]
        if parameter["depends"]
    }
    assert depends == {
        "modx.alpha": "the batch size",
        "ewc.strength": "the batch size",
        "ema.decay": "the number of steps",
    }
    assert [one["per_step"] for one in methods] == [[], [], ["decay"], []]
    assert describe(TABLE["dha"])["steps_per_task"] == 6090
    assert describe(TABLE["ctp"])["hooks"] == ["before_forward", "loss", "token_loss", "after_step"]


def test_a_paper_is_cited_with_its_authors_apart() -> None:
    assert cited(PAPER) == "Ada et al., ICCV 2023"
    assert bibtex(PAPER).splitlines() == [
        "@inproceedings{ada2023on,",
        r"  title = {{On Emoji \& Co.}},",
        r"  author = {A\_B Eva Ada and A. Bell and Marc'O Cox},",
        "  booktitle = {ICCV},",
        "  year = {2023},",
        "  url = {https://x.org/1_1},",
        "}",
    ]


def test_papers_of_several_methods_are_cited_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(["der", "der++", "ctp+ewc", "ctp", "seqf"], cite=True)
    found, warning = capsys.readouterr()
    assert re.findall(r"^@.*\{(.*),$", found, re.MULTILINE) == [
        "buzzega2020dark",
        "zhu2023ctp",
        "kirkpatrick2017overcoming",
        "schwarz2018progress",
    ]
    assert warning == "warning: no paper to cite: seqf\n"
    found = shown(capsys, *(name for name, one in TABLE.items() if one.papers), cite=True)
    papers = {paper for method in TABLE.values() for paper in method.papers}
    assert len(set(re.findall(r"^@.*", found, re.MULTILINE))) == len(papers)
    for authors in re.findall(r"author = \{(.*)\}", found):
        for author in authors.split(" and "):
            assert len(author.split()) > 1, f"{author} lacks a first name"
