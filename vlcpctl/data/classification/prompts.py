"""Prompts for zero-shot classification: from templates, or written out for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vlcpctl.core.errors import BadInput, unknown_name
from vlcpctl.core.words import shortened
from vlcpctl.files.inputs import parse_json, read_text

HERE = "{c}"  # placeholder for the class name in a template, as in CLIP_benchmark
DEFAULT_TEMPLATES = (f"a photo of a {HERE}.",)

# Templates for all classes, or the finished prompts of each class.
Templates = Sequence[str] | Mapping[str, Sequence[str]]
_Content = list[str] | dict[str, list[str] | dict[str, list[str]]]  # of a JSON file


@dataclass(frozen=True)
class TemplatesFile:
    """A file given with --templates: templates for every data set, or templates by data set."""

    path: Path
    content: Sequence[str] | Mapping[str, Templates]

    def of(self, dataset: str) -> Templates:
        """The templates for a data set. Raises BadInput if the file does not list it."""
        if not isinstance(self.content, Mapping):
            return self.content
        if dataset not in self.content:
            raise BadInput(f"{self.path}: {unknown_name('data set', dataset, self.content)}")
        return self.content[dataset]


def read_templates(path: Path) -> TemplatesFile:
    """Read a text file with one template per line, or JSON in CLIP_benchmark's form.

    The JSON is a list of templates, or maps each data set to a list of templates or to a mapping
    from class to finished prompts. Raises BadInput if the file cannot be read or has another form.
    """
    try:
        text = read_text(path)
        if path.suffix != ".json":
            lines = (line.strip() for line in text.splitlines())
            return TemplatesFile(path, [line for line in lines if line])
        return TemplatesFile(path, msgspec.convert(parse_json(text), _Content))
    except ValueError as error:
        raise BadInput(f"{path} is not a templates file: {error}") from error
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{path} is not a templates file: write a list of templates, or an object that maps "
            "data sets to lists of templates, or data sets and classes to lists of prompts"
        ) from error


def prompts_of(classes: Sequence[str], templates: Templates, where: object) -> list[list[str]]:
    """The prompts of each class, in the order of `classes`.

    `where` names the source of the templates in messages. Raises BadInput if a class has no prompts
    or a template has no placeholder.

    >>> prompts_of(["cat", "dog"], ["a photo of a {c}.", "a {c}"], "here")
    [['a photo of a cat.', 'a cat'], ['a photo of a dog.', 'a dog']]
    """
    if isinstance(templates, Mapping):
        missing = [name for name in classes if not templates.get(name)]
        if missing:
            first = shortened(missing[0])
            raise BadInput(f"{where} has no prompts for {len(missing)} classes, first {first!r}")
        return [list(templates[name]) for name in classes]
    without = [template for template in templates if HERE not in template]
    if without or not templates:
        found = (
            f"template {shortened(without[0])!r} lacks {HERE}"
            if without
            else "there are no templates"
        )
        raise BadInput(f"{where}: {found}; write {HERE} where the class name goes")
    return [[template.replace(HERE, name) for template in templates] for name in classes]
