"""`vlcpctl methods`: list the methods, and every hyper-parameter with its origin."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from vlcpctl.commands.shared import Json, Shared
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import HOOKS, Method, Paper
from vlcpctl.core.options import MaybePath, Paths, Texts, argument, like, option, switch
from vlcpctl.core.words import as_argument
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.methods.plugins.source import source_of
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
            _write_new(self.new)
            return
        registry = MethodRegistry.of(self.method_file)
        if self.names:
            registry.refuse_idle_files("+".join(self.names))
        if not self.names:
            if self.cite:
                raise UsageError("--cite needs a method, such as: vlcpctl methods --cite ctp")
            _list(registry.listed(console.warn), as_json=self.json)
        elif self.cite:
            entries = [bibtex(paper) for paper in _papers(self.names, registry)]
            for line in "\n\n".join(entries).split("\n"):
                console.emit(line)
        else:
            chosen = [_method_of(name, registry) for name in dict.fromkeys(self.names)]
            _describe(chosen, as_json=self.json)


def _write_new(path: Path) -> None:
    from vlcpctl.methods.plugins.skeleton import write_skeleton

    name = write_skeleton(path)
    how = f"--method {name} --method-file {shlex.quote(as_argument(path))}"
    console.say(f"train it: vlcpctl train-step TASK -o OUT {how}")
    console.say(f"test it: python -m vlcpctl.testing {how}")
    console.emit(path)


def _describe(methods: Sequence[type[Method]], *, as_json: bool) -> None:
    described = [describe(method) for method in methods]
    if not as_json:
        for number, facts in enumerate(described):
            for line in ["", *_description(facts)][number == 0 :]:
                _emit_wrapped(line)
    elif len(described) == 1:
        console.emit(json.dumps({"schema": SCHEMA, **described[0]}))
    else:
        console.emit(json.dumps({"schema": SCHEMA, "methods": described}))


def _papers(names: Sequence[str], registry: MethodRegistry) -> list[Paper]:
    """The papers of the methods, each once; a name such as `ctp+er` stands for all its parts.

    Warns of methods without a paper; raises UsageError if none has one.
    """
    found = (one for name in names for one in compose(name, registry=registry))
    methods = list(dict.fromkeys(type(one) for one in found))
    unpublished = [method.name for method in methods if not method.papers]
    papers = list(dict.fromkeys(paper for method in methods for paper in method.papers))
    why = f"{', '.join(unpublished)} has no paper to cite: it is not a published method"
    if len(unpublished) > 1:
        why = f"{', '.join(unpublished)} have no paper to cite: they are not published methods"
    if not papers:
        raise UsageError(why)
    if unpublished:
        console.warn(why)
    return papers


def _emit_wrapped(line: str) -> None:
    """Print a line of results; on a terminal, a long one is wrapped at its own indentation."""
    if not line or not console.results().isatty():
        console.emit(line)
        return
    indent = " " * (len(line) - len(line.lstrip()))
    for part in textwrap.wrap(
        line,
        shutil.get_terminal_size().columns,
        subsequent_indent=indent or " " * _NAMES,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        console.emit(part)


def _method_of(name: str, registry: MethodRegistry) -> type[Method]:
    """The method class of a name; raises UsageError for a name such as `ctp+er`."""
    first, *others = compose(name, registry=registry)
    if others:
        raise UsageError(f"{name} contains several methods; give them as separate names")
    return type(first)


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
    first, *others = map(_surname, _authors(paper))
    names = f"{first} and {others[0]}" if len(others) == 1 else f"{first} et al."
    return f"{names if others else first}, {paper.venue} {paper.year}"


def bibtex(paper: Paper) -> str:
    """A BibTeX entry for a paper, with the full names of its authors."""
    authors = _authors(paper)
    first_word = re.sub(r"\W", "", paper.title.split()[0])
    key = re.sub(r"[^a-z0-9]", "", f"{_surname(authors[0])}{paper.year}{first_word}".lower())
    kind, where = _ENTRIES.get(paper.venue, ("inproceedings", "booktitle"))
    fields = {
        "title": f"{{{_escaped(paper.title)}}}",
        "author": _escaped(" and ".join(authors)),
        where: _escaped(paper.venue),
        "year": paper.year,
        "url": paper.url,
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _authors(paper: Paper) -> list[str]:
    return paper.authors.replace(" and ", ", ").split(", ")


def _surname(author: str) -> str:
    """The last word of a name.

    >>> _surname("Philip H. S. Torr")
    'Torr'
    """
    return author.rsplit(maxsplit=1)[-1]


def _escaped(text: str) -> str:
    r"""Text with the characters escaped that TeX reserves.

    >>> print(_escaped("100% of A & B"))
    100\% of A \& B
    """
    return re.sub(r"([&%$#_])", r"\\\1", text)


def _list(methods: Sequence[type[Method]], *, as_json: bool) -> None:
    if as_json:
        described = [describe(method) for method in methods]
        console.emit(json.dumps({"schema": SCHEMA, "methods": described}))
        return
    for method in methods:
        _emit_wrapped("; ".join(filter(None, (_titled(method), _origin(method)))))
    depending = [
        method.name
        for method in methods
        if any(parameter["depends"] for parameter in describe(method)["parameters"])
    ]
    console.say(
        f"good values for {', '.join(depending)} depend on the run, such as on its batch size; "
        "'vlcpctl methods NAME' says which and how"
    )


def _titled(method: type[Method]) -> str:
    return f"{method.name:{_NAMES - 1}} {method.title}"


def _origin(method: type[Method]) -> str:
    """The papers of a method and, if it is not built in, where its code comes from."""
    source = source_of(method)
    papers = [cited(paper) for paper in method.papers]
    return "; ".join([*papers, *([f"from {source.shown}"] if source else [])])


def _description(facts: dict[str, Any]) -> list[str]:
    """The lines that `vlcpctl methods NAME` prints."""
    lines = [f"{facts['name']}: {facts['title']}"]
    lines += [f"paper    {paper['title']}, {paper['url']}" for paper in facts["papers"]]
    lines += [f"source   {facts['source']['shown']}"] if "source" in facts else []
    names = _NAMES - 1
    lines += [f"{word:{names}} {', '.join(facts[word]) or 'none'}" for word in ("needs", "hooks")]
    usual = INSTEAD.get(facts["preset"])
    instead = f" (without --preset: {usual}, with a dual encoder)" if usual else ""
    lines.append(f"preset   {facts['preset']}{instead}")
    for parameter in facts["parameters"]:
        default = parameter["default"]
        shown = str(default).lower() if isinstance(default, bool) else default
        allowed = f" One of {', '.join(parameter['choices'])}." if parameter["choices"] else ""
        other = presets_that_set(f"{facts['name']}.{parameter['name']}")
        allowed += f" Within {parameter['within']}." if parameter["within"] else ""
        lines += [
            "",
            f"{facts['name']}.{parameter['name']}={shown}",
            f"    {parameter['help']}{allowed}",
            f"    Origin: {parameter['origin']}{f'; {other}' if other else ''}",
        ]
        lines += [f"    Depends on {parameter['depends']}"] if parameter["depends"] else []
    return lines
