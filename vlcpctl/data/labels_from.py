"""Where the class labels of a split come from: a column, or a classifier that looks at images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.artifacts import read_manifest
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.hashing import content_id, file_sha256

FORMS = {
    "column": "COLUMN",
    "timm": "timm:MODEL[,WEIGHTS]",
    "checkpoint": "checkpoint:DIR",
    "open_clip": "open_clip:MODEL,WEIGHTS",
}


@dataclass(frozen=True)
class LabelsFrom:
    """What --labels-from says: a kind, the column, model or directory, and perhaps weights."""

    kind: str
    name: str
    weights: str | None

    @property
    def is_zeroshot(self) -> bool:
        """Whether class names are all that the classifier knows of its classes."""
        return self.kind in {"checkpoint", "open_clip"}

    def identity(self) -> dict[str, Any]:
        """What tells this source of labels from others, without a path of this machine."""
        if self.kind == "checkpoint":
            content = read_manifest(Path(self.name), "checkpoint")["content"]
            return {"kind": self.kind, "of": content}
        names = [name for name in (self.name, self.weights) if name is not None]
        return {"kind": self.kind, "of": [_told(name) for name in names]}


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """A classifier and what its classes are called; `names` is None where it knows them itself."""

    source: LabelsFrom
    names: tuple[str, ...] | None
    templates: Path | None

    def identity(self) -> dict[str, Any]:
        """What decides the labels."""
        names = None if self.names is None else content_id(list(self.names))
        templates = None if self.templates is None else file_sha256(self.templates)
        return {**self.source.identity(), "class_names": names, "templates": templates}


def parse_labels_from(text: str) -> LabelsFrom:
    """Read --labels-from.

    >>> parse_labels_from("timm:resnet50,weights.safetensors")
    LabelsFrom(kind='timm', name='resnet50', weights='weights.safetensors')
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return LabelsFrom("column", text, None)
    if kind not in FORMS:
        raise UsageError(f"--labels-from: {unknown_name('source', kind, FORMS)}")
    if kind == "column":
        return LabelsFrom(kind, rest, None)
    name, comma, weights = rest.partition(",")
    if not name or bool(comma) != bool(weights) or (kind == "checkpoint" and weights):
        raise UsageError(f"--labels-from {text!r}: write it as {FORMS[kind]}")
    if kind == "open_clip" and not weights and not Path(name).is_dir():
        raise UsageError(
            f"--labels-from {text!r}: say with which weights, as {FORMS[kind]}: a file, or a name "
            "that open_clip knows"
        )
    return LabelsFrom(kind, name, weights or None)


def labelling_of(
    source: LabelsFrom | None, class_names: Path | None, templates: Path | None
) -> Labelling | None:
    """The classifier that is asked for, if one is; options that it has no use for are refused."""
    looks = source is not None and source.kind != "column"
    if class_names is not None and not looks:
        raise UsageError("--class-names has no effect without a classifier in --labels-from")
    if templates is not None and not (looks and source is not None and source.is_zeroshot):
        raise UsageError("--templates has no effect without a zero-shot classifier (--labels-from)")
    if source is None or not looks:
        return None
    names = None if class_names is None else read_class_names(class_names)
    if names is None and source.is_zeroshot:
        raise UsageError(
            f"--labels-from {source.kind}:... needs --class-names, a file with a class a line"
        )
    return Labelling(source=source, names=names, templates=templates)


def read_class_names(path: Path) -> tuple[str, ...]:
    """The class names in a text file, one a line, each once."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text: {error}") from error
    names = [line.strip() for line in lines]
    if not names or not all(names):
        raise BadInput(f"{path} must name a class on every line")
    return tuple(names)


def _told(name: str) -> str | list[str]:
    """A name that a library knows, or the hashes of the files that it names."""
    path = Path(name)
    if path.is_file():
        return file_sha256(path)
    if path.is_dir():
        return [file_sha256(file) for file in sorted(path.iterdir()) if file.is_file()]
    return name
