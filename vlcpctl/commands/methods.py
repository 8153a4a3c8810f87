"""`vlcpctl methods`: list the methods, and every hyper-parameter with its origin."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any, cast

from vlcpctl.commands.shared import Json, Shared
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import HOOKS, Method, Paper
from vlcpctl.core.options import MaybePath, Paths, Texts, argument, like, option, switch
from vlcpctl.core.words import as_argument
from vlcpctl.methods.plugins.registry import MethodRegistry, source_of
from vlcpctl.methods.plugins.skeleton import write_skeleton
from vlcpctl.training.methods import compose
from vlcpctl.training.presets import INSTEAD, presets_that_set

SCHEMA = "vlcpctl.methods/1"
# The kind of a BibTeX entry, and its field for the venue, where that is not a conference.
_ENTRIES = {"arXiv": ("misc", "howpublished"), "PNAS": ("article", "journal")}
_NAMES = 9  # the width of "paper", "needs", "hooks" and "preset" with the space after them


class Methods(Json):
    """List the methods, or describe some of them.

    --new writes a file with a small method that trains, for --method-file.

    Methods of installed plug-ins and of --method-file, whose code is run, are listed after the
    built-in ones.

    The origin of a parameter is the equation, table or code that its default comes from; 'ours'
    marks values that no paper gives. 'Depends on' says what a good value depends on besides the
    data, and how. Change a value with train-step --set METHOD.PARAMETER=VALUE.

    Examples:
      vlcpctl methods
      vlcpctl methods ctp
      vlcpctl methods --cite ctp ewc der >> references.bib
      vlcpctl methods --new mine.py
      vlcpctl methods mine --method-file mine.py
    """

    names: Texts = argument(
        "NAME",
        "Methods to describe",
        kw_only=False,
        default=(),
        otherwise="list all",
        offers="methods",
    )
    cite: bool = switch("Print the papers of the methods as BibTeX")
    method_file: Paths = like(Shared, "method_file", default=())
    new: MaybePath = option("Write the file of a new method, to begin your own", "NAME.py")

    def execute(self) -> None:
        if self.new is not None:
            if self.names or self.cite or self.method_file or self.json:
                raise UsageError("--new takes no other option and no NAME")
            name = write_skeleton(self.new)
            how = f"--method {name} --method-file {shlex.quote(as_argument(self.new))}"
            console.say(f"train it: vlcpctl train-step TASK -o OUT {how}")
            console.say(f"test it: python -m vlcpctl.testing {how}")
            console.emit(self.new)
            return
        registry = MethodRegistry.of(self.method_file)
        if self.cite:
            _cite(self.names, registry)
        elif self.names:
            self._describe(registry)
        else:
            _list(registry.listed(console.warn), as_json=self.json)

    def _describe(self, registry: MethodRegistry) -> None:
        chosen = [compose(name, registry=registry) for name in dict.fromkeys(self.names)]
        if any(len(several) > 1 for several in chosen):
            raise UsageError("NAME is one method: give those of ctp+er as two")
        described = [describe(type(method)) for (method,) in chosen]
        if self.json:
            found = described[0] if len(described) == 1 else {"methods": described}
            console.emit(json.dumps({"schema": SCHEMA, **found}))
            return
        for line in [line for about in described for line in ["", *_description(about)]][1:]:
            indent = line[: len(line) - len(line.lstrip())]
            console.emit_wrapped(line, indent or " " * _NAMES)


def _list(methods: Sequence[type[Method]], *, as_json: bool) -> None:
    described = [describe(method) for method in methods]
    if as_json:
        console.emit(json.dumps({"schema": SCHEMA, "methods": described}))
        return
    for method in methods:
        source = source_of(method)
        origin = [*map(cited, method.papers), *([f"from {source.shown}"] if source else [])]
        line = "; ".join([f"{method.name:{_NAMES - 1}} {method.title}", *origin])
        console.emit_wrapped(line, " " * _NAMES)
    depending = [
        about["name"] for about in described if any(one["depends"] for one in about["parameters"])
    ]
    console.say(
        f"good values for {', '.join(depending)} depend on the run, such as on its batch size; "
        "'vlcpctl methods NAME' says which and how"
    )


def _cite(names: Sequence[str], registry: MethodRegistry) -> None:
    """Print the papers of the methods, each once; a name such as `ctp+er` is all its parts.

    Warns of methods without a paper; raises UsageError if none has one.
    """
    found = (one for name in names for one in compose(name, registry=registry))
    methods = dict.fromkeys(type(one) for one in found)
    papers = dict.fromkeys(paper for method in methods for paper in method.papers)
    unpublished = ", ".join(method.name for method in methods if not method.papers)
    if not papers:
        said = f"; no paper: {unpublished}" if names else ""
        raise UsageError(f"--cite needs a method with a paper, such as ctp{said}")
    if unpublished:
        console.warn(f"no paper to cite: {unpublished}")
    for line in "\n\n".join(map(bibtex, papers)).split("\n"):
        console.emit(line)


def describe(method: type[Method]) -> dict[str, Any]:
    """Everything that a method declares, as plain values for JSON.

    `source` is where its code comes from, if it is not built in.
    """
    default = method()
    needs = default.needs(first=False)
    source = source_of(method)
    return {
        "name": method.name,
        **({"source": {"shown": source.shown, **source.facts}} if source else {}),
        "title": method.title,
        "papers": [dataclasses.asdict(paper) for paper in method.papers],
        "preset": method.preset,
        "needs": [field.name for field in dataclasses.fields(needs) if getattr(needs, field.name)],
        "hooks": [hook for hook in HOOKS if getattr(method, hook) is not getattr(Method, hook)],
        "per_step": list(default.per_step(first=False)),
        "steps_per_task": method.steps_per_task or None,
        "parameters": [
            {"name": field.name, "default": field.default, **field.metadata}
            for field in dataclasses.fields(
                cast("Any", method)
            )  # the base class is not a dataclass
        ],
    }


def cited(paper: Paper) -> str:
    """A short citation of a paper, such as `Zhu et al., ICCV 2023`.

    >>> li = "Zhizhong Li and Derek Hoiem"
    >>> cited(Paper(title="", authors=li, venue="ECCV", year=2016, url=""))
    'Li and Hoiem, ECCV 2016'
    """
    first, *others = (author.split()[-1] for author in _authors(paper))
    names = f"{first} and {others[0]}" if len(others) == 1 else f"{first} et al."
    return f"{names if others else first}, {paper.venue} {paper.year}"


def bibtex(paper: Paper) -> str:
    """A BibTeX entry for a paper, with the full names of its authors."""
    authors = _authors(paper)
    words = authors[0].split()[-1], paper.year, re.sub(r"\W", "", paper.title.split()[0])
    key = re.sub(r"[^a-z0-9]", "", "".join(map(str, words)).lower())
    kind, where = _ENTRIES.get(paper.venue, ("inproceedings", "booktitle"))
    fields = {
        "title": f"{{{paper.title}}}",
        "author": " and ".join(authors),
        where: paper.venue,
        "year": str(paper.year),
    }
    # TeX reserves these characters.
    fields = {name: re.sub(r"([&%$#_])", r"\\\1", value) for name, value in fields.items()}
    lines = [f"  {name} = {{{value}}}," for name, value in [*fields.items(), ("url", paper.url)]]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _authors(paper: Paper) -> list[str]:
    return paper.authors.replace(" and ", ", ").split(", ")


def _description(about: dict[str, Any]) -> list[str]:
    """The lines that `vlcpctl methods NAME` prints."""
    lines = [f"{about['name']}: {about['title']}"]
    lines += [f"paper    {paper['title']}, {paper['url']}" for paper in about["papers"]]
    lines += [f"source   {about['source']['shown']}"] if "source" in about else []
    names = _NAMES - 1
    lines += [f"{word:{names}} {', '.join(about[word]) or 'none'}" for word in ("needs", "hooks")]
    usual = INSTEAD.get(about["preset"])
    instead = f" (without --preset: {usual}, with a dual encoder)" if usual else ""
    lines.append(f"preset   {about['preset']}{instead}")
    for parameter in about["parameters"]:
        default = parameter["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        allowed = f" One of {', '.join(parameter['choices'])}." if parameter["choices"] else ""
        allowed += f" Within {parameter['within']}." if parameter["within"] else ""
        other = presets_that_set(f"{about['name']}.{parameter['name']}")
        lines += [
            "",
            f"{about['name']}.{parameter['name']}={shown}",
            f"    {parameter['help']}{allowed}",
            f"    Origin: {parameter['origin']}{f'; {other}' if other else ''}",
        ]
        lines += [f"    Depends on {parameter['depends']}"] if parameter["depends"] else []
    return lines
