"""`vlcpctl methods` prints everything in the table of methods."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import Any, cast

import pytest
from support.commands import methods as run

from vlcpctl.commands.methods import bibtex, cited, describe
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Paper
from vlcpctl.methods import TABLE

PAPER = Paper(
    title="On Emoji & Co.",
    authors="Eva Ada, A. Bell and Marc'O Cox",
    venue="ICCV",
    year=2023,
    url="https://x.org/1_1",
)


def parsed_bibtex(text: str) -> dict[str, dict[str, str]]:
    """The fields of each entry by its key; fails for anything that is not an entry."""
    entries = {}
    for block in text.strip().split("\n\n"):
        head, *lines, end = block.splitlines()
        kind = re.fullmatch(r"@(inproceedings|article|misc)\{([a-z0-9]+),", head)
        assert kind, head
        assert end == "}"
        found = [re.fullmatch(r"  (\w+) = \{(.*)\},", line) for line in lines]
        fields = {field[1]: field[2] for field in found if field}
        assert len(fields) == len(lines)
        for value in fields.values():
            assert value.count("{") == value.count("}")
        where = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished"}
        assert where[kind[1]] in fields
        assert kind[2] not in entries
        entries[kind[2]] = fields
    return entries


def test_the_list_has_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TABLE)


def test_json_has_every_parameter_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    run(json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [method["name"] for method in shown["methods"]] == list(TABLE)
    for about in shown["methods"]:
        fields = dataclasses.fields(cast("Any", TABLE[about["name"]]))
        assert [parameter["name"] for parameter in about["parameters"]] == [f.name for f in fields]
        assert all(parameter["origin"] and parameter["help"] for parameter in about["parameters"])


@pytest.mark.parametrize("name", TABLE)
def test_a_description_names_every_parameter(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([name])
    out = capsys.readouterr().out
    for parameter in describe(TABLE[name])["parameters"]:
        assert f"\n{name}.{parameter['name']}=" in out


def test_a_value_says_what_it_depends_on(capsys: pytest.CaptureFixture[str]) -> None:
    run(["modx"])
    said = "Depends on the batch size: reduction=sum adds up its rows, so that 20 at 64 pairs "
    assert f"appendix B.1\n    {said}weighs 4.4 times less" in capsys.readouterr().out
    run(["modx", "ewc", "ema", "seqf"], json=True)
    shown = {one["name"]: one for one in json.loads(capsys.readouterr().out)["methods"]}
    depends = {
        f"{name}.{parameter['name']}": parameter["depends"].split(":")[0]
        for name, about in shown.items()
        for parameter in about["parameters"]
        if parameter["depends"]
    }
    assert depends == {
        "modx.alpha": "the batch size",
        "ewc.strength": "the batch size",
        "ema.decay": "the number of steps",
    }
    assert (shown["ema"]["per_step"], shown["ema"]["steps_per_task"]) == (["decay"], None)
    assert (shown["seqf"]["per_step"], describe(TABLE["dha"])["steps_per_task"]) == ([], 6090)


def test_a_terminal_gets_lines_that_fit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(console, "results", lambda: screen)
    monkeypatch.setenv("COLUMNS", "80")
    run(["modx"])
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    place = lines.index("    Origin: Mod-X eq. 5, table 4(a), appendix B.1")
    assert lines[place + 1].startswith("    Depends on the batch size: ")
    assert lines[place + 2].startswith("    pairs ")


def test_the_list_names_the_methods_whose_values_depend_on_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    (line,) = capsys.readouterr().err.splitlines()
    named = line.removeprefix("good values for ").split(" depend on the run")[0].split(", ")
    assert {"modx", "dha", "ewc", "ema", "ctp"} <= set(named) <= set(TABLE)
    assert not {"seqf", "joint", "er"} & set(named)


def test_hooks_are_those_that_a_method_overrides() -> None:
    assert describe(TABLE["seqf"])["hooks"] == []
    hooks = ["before_forward", "loss", "token_loss", "after_step"]
    assert describe(TABLE["ctp"])["hooks"] == hooks


def test_bibtex_is_an_entry_with_its_authors_apart() -> None:
    assert bibtex(PAPER).splitlines() == [
        "@inproceedings{ada2023on,",
        r"  title = {{On Emoji \& Co.}},",
        "  author = {Eva Ada and A. Bell and Marc'O Cox},",
        "  booktitle = {ICCV},",
        "  year = {2023},",
        "  url = {https://x.org/1_1},",
        "}",
    ]


def test_names_of_authors_are_text_for_tex() -> None:
    paper = dataclasses.replace(PAPER, authors="A_B Team and C & D Lab")
    assert r"  author = {A\_B Team and C \& D Lab}," in bibtex(paper).splitlines()


def test_three_authors_are_et_al() -> None:
    assert cited(PAPER) == "Ada et al., ICCV 2023"


@pytest.mark.parametrize("name", [name for name, method in TABLE.items() if method.papers])
def test_every_paper_can_be_cited(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([name], cite=True)
    entries = parsed_bibtex(capsys.readouterr().out)
    assert len(entries) == len(TABLE[name].papers)
    for fields in entries.values():
        assert {"title", "author", "year", "url"} < fields.keys()
        for author in fields["author"].split(" and "):
            assert len(author.split()) > 1, f"{author} lacks a first name"


def test_papers_of_several_methods_are_cited_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(["der", "derpp", "ctp+ewc", "ctp", "seqf"], cite=True)
    shown = capsys.readouterr()
    assert list(parsed_bibtex(shown.out)) == [
        "buzzega2020dark",
        "zhu2023ctp",
        "kirkpatrick2017overcoming",
        "schwarz2018progress",
    ]
    (warning,) = shown.err.splitlines()
    assert warning.startswith("warning: seqf has no paper to cite")


def test_every_paper_has_a_key_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    published = [name for name, method in TABLE.items() if method.papers]
    run(published, cite=True)
    papers = {paper for method in TABLE.values() for paper in method.papers}
    assert len(parsed_bibtex(capsys.readouterr().out)) == len(papers)


def test_methods_without_a_paper_cannot_be_cited() -> None:
    with pytest.raises(UsageError, match="seqf, joint have no paper to cite"):
        run(["seqf", "joint"], cite=True)


def test_several_methods_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    run(["er", "lwf"])
    out = capsys.readouterr().out
    assert out.startswith("er: ")
    assert "\n\nlwf: " in out
    run(["er", "lwf"], json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [method["name"] for method in shown["methods"]] == ["er", "lwf"]


@pytest.mark.parametrize("cite", [False, True])
def test_the_name_of_the_paper_is_known(capsys: pytest.CaptureFixture[str], *, cite: bool) -> None:
    run(["derpp"], cite=cite)
    expected = capsys.readouterr().out
    run(["der++"], cite=cite)
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("name", "cite", "said"),
    [
        ("ctpp", False, "did you mean 'ctp'"),
        (None, True, "needs a method"),
        ("seqf", True, "seqf has no paper to cite"),
        ("ema", True, "ema has no paper to cite: it is not a published method"),
        ("ctp+er", False, "give them as separate names"),
    ],
)
def test_a_mistake_is_answered(name: str | None, cite: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run([name] if name else None, cite=cite)
