"""`vlcpctl methods`: list the methods, and every hyper-parameter with its origin."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from vlcpctl.commands import options
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method, Paper
from vlcpctl.methods import TABLE

SCHEMA = "vlcpctl.methods/1"
HOOKS = (
    "before_forward",
    "loss",
    "token_loss",
    "after_backward",
    "add_gradients",
    "after_step",
)


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Method to describe (default: list all).")
    ] = None,
    cite: Annotated[
        bool, typer.Option("--cite", help="Print the papers of the method as BibTeX.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the methods, or describe one of them.

    The origin of a parameter is the equation, table or code that its default comes from; 'ours'
    marks values that no paper gives. Change it with train-step --set METHOD.PARAMETER=VALUE.

    Examples:
      vlcpctl methods
      vlcpctl methods ctp
      vlcpctl methods --cite ctp >> references.bib
    """
    if name is None:
        if cite:
            raise UsageError("--cite needs a method, such as: vlcpctl methods --cite ctp")
        _list(as_json)
        return
    method = _method_of(name)
    if cite and not method.papers:
        raise UsageError(f"{name} has no paper to cite: it is not a published method")
    if cite:
        _emit_lines("\n\n".join(bibtex(paper) for paper in method.papers))
    elif as_json:
        console.emit(json.dumps({"schema": SCHEMA, **describe(method)}))
    else:
        _emit_lines("\n".join(_description(describe(method))))


def _emit_lines(text: str) -> None:
    for line in text.split("\n"):
        console.emit(line)


def _method_of(name: str) -> type[Method]:
    """The method class of a name; raises UsageError for a name such as `ctp+er`."""
    from vlcpctl.training.config.composition import compose

    first, *others = compose(name)
    if others:
        raise UsageError(f"{name} contains several methods; give one at a time")
    return type(first)


def describe(method: type[Method]) -> dict[str, Any]:
    """Everything that a method declares, as plain values for JSON."""
    needs = method().needs(first=False)
    return {
        "name": method.name,
        "title": method.title,
        "papers": [dataclasses.asdict(paper) for paper in method.papers],
        "preset": method.preset,
        "needs": [field.name for field in dataclasses.fields(needs) if getattr(needs, field.name)],
        "hooks": [hook for hook in HOOKS if getattr(method, hook) is not getattr(Method, hook)],
        "parameters": [
            {"name": field.name, "default": field.default, **field.metadata}
            for field in dataclasses.fields(
                cast("Any", method)
            )  # the base class is not a dataclass
        ],
    }


def cited(paper: Paper) -> str:
    """A short citation of a paper, such as `Zhu et al., ICCV 2023`.

    >>> cited(Paper(title="", authors="Li and Hoiem", venue="ECCV", year=2016, url=""))
    'Li and Hoiem, ECCV 2016'
    """
    first, *others = _authors(paper)
    names = f"{first} and {others[0]}" if len(others) == 1 else f"{first} et al."
    return f"{names if others else first}, {paper.venue} {paper.year}"


def bibtex(paper: Paper) -> str:
    """A BibTeX entry for a paper."""
    authors = _authors(paper)
    key = f"{authors[0].lower()}{paper.year}{paper.title.split()[0].strip(':').lower()}"
    where = ("misc", "howpublished") if paper.venue == "arXiv" else ("inproceedings", "booktitle")
    fields = {
        "title": f"{{{paper.title}}}",
        "author": " and ".join(authors),
        where[1]: paper.venue,
        "year": paper.year,
        "url": paper.url,
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{where[0]}{{{key},", *lines, "}"])


def _authors(paper: Paper) -> list[str]:
    return paper.authors.replace(" and ", ", ").split(", ")


def _list(as_json: bool) -> None:
    if as_json:
        described = [describe(method) for method in TABLE.values()]
        console.emit(json.dumps({"schema": SCHEMA, "methods": described}))
        return
    rows = [
        (method.name, method.title, "; ".join(cited(paper) for paper in method.papers))
        for method in TABLE.values()
    ]
    for line in _columns(rows):
        console.emit(line)


def _description(facts: dict[str, Any]) -> list[str]:
    """The lines that `vlcpctl methods NAME` prints."""
    lines = [f"{facts['name']}: {facts['title']}"]
    lines += [f"paper    {paper['title']}, {paper['url']}" for paper in facts["papers"]]
    lines += [f"{word:8} {', '.join(facts[word]) or 'none'}" for word in ("needs", "hooks")]
    lines.append(f"preset   {facts['preset']}")
    for parameter in facts["parameters"]:
        allowed = f" One of {', '.join(parameter['choices'])}." if parameter["choices"] else ""
        allowed += f" Within {parameter['within']}." if parameter["within"] else ""
        lines += [
            f"\n{facts['name']}.{parameter['name']}={_value_text(parameter['default'])}",
            f"    {parameter['help']}{allowed}",
            f"    Origin: {parameter['origin']}",
        ]
    return lines


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
