"""Prompts: the texts that stand for a class, from templates or written for each class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, unknown_name

HERE = "{c}"  # where a template takes the class name, as CLIP_benchmark writes it
DEFAULT_TEMPLATES = (f"a photo of a {HERE}.",)

# Templates for all classes, or per class its own prompts.
Templates = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class TemplatesFile:
    """What --templates names: one list for every data set, or JSON that tells them apart."""

    path: Path
    content: Sequence[str] | Mapping[str, Templates]

    def of(self, dataset: str) -> Templates:
        """The templates of a data set."""
        if not isinstance(self.content, Mapping):
            return self.content
        if dataset not in self.content:
            raise BadInput(f"{self.path}: {unknown_name('data set', dataset, self.content)}")
        return self.content[dataset]


def read_templates(path: Path) -> TemplatesFile:
    """Read a text file of one template a line, or JSON as CLIP_benchmark takes it.

    JSON is a list of templates, or by data set a list or, by class, a list of finished prompts.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else _lines(text)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path} is no templates file: {error}") from error
    entries = content.values() if isinstance(content, dict) else [content]
    if not all(_is_templates(entry) for entry in entries):
        raise BadInput(
            f"{path}: templates are a list of texts, or by data set a list, or by data set and "
            "class a list"
        )
    return TemplatesFile(path, content)


def prompts_of(classes: Sequence[str], templates: Templates, where: object) -> list[list[str]]:
    """The prompts of each class; `where` is the source of the templates, for messages.

    >>> prompts_of(["cat", "dog"], ["a photo of a {c}.", "a {c}"], "here")
    [['a photo of a cat.', 'a cat'], ['a photo of a dog.', 'a dog']]
    """
    if isinstance(templates, Mapping):
        missing = [name for name in classes if not templates.get(name)]
        if missing:
            raise BadInput(
                f"{where} has no prompts for {len(missing)} classes, first {missing[0]!r}"
            )
        return [list(templates[name]) for name in classes]
    without = [template for template in templates if HERE not in template]
    if without or not templates:
        found = repr(without[0]) if without else "no template at all"
        raise BadInput(f"{where}: {found}, where each must hold {HERE} for the class")
    return [[template.replace(HERE, name) for template in templates] for name in classes]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_templates(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_texts(prompts) for prompts in value.values())
    return _is_texts(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
