"""Where the class labels of a split come from: a column, or a classifier run on the images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.data.splitting.request import CLASSIFIERS, ZEROSHOT
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import open_regular, read_text
from vlcpctl.files.manifest import content_of

FORMS = {
    "column": "COLUMN",
    "timm": "timm:MODEL[,WEIGHTS]",
    "checkpoint": "checkpoint:DIR",
    "open_clip": "open_clip:MODEL,WEIGHTS",
}


@dataclass(frozen=True)
class LabelsFrom:
    """The value of --labels-from: its kind; the column, model or directory; optional weights."""

    kind: str
    name: str
    weights: str | None

    def identity(self) -> dict[str, Any]:
        """What identifies this source of labels: names and hashes, without local paths."""
        if self.kind == "checkpoint":
            return {"kind": self.kind, "of": content_of(Path(self.name), "checkpoint")}
        names = [name for name in (self.name, self.weights) if name is not None]
        return {"kind": self.kind, "of": [_identity_of(name) for name in names]}


@dataclass(frozen=True, kw_only=True)
class Labelling:
    """A classifier and its class names; `names` is None if the classifier comes with its own."""

    source: LabelsFrom
    names: tuple[str, ...] | None
    templates: Path | None

    def identity(self) -> dict[str, Any]:
        """Everything that determines the labels, files by their hash."""
        names = None if self.names is None else content_id(list(self.names))
        templates = None if self.templates is None else file_sha256(self.templates)
        return {**self.source.identity(), "class_names": names, "templates": templates}


def parse_labels_from(text: str) -> LabelsFrom:
    """Parse --labels-from. Raises UsageError if it is malformed.

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
            f"--labels-from {text!r} does not name weights; write it as {FORMS[kind]}, "
            "where WEIGHTS is a file or a name known to open_clip"
        )
    return LabelsFrom(kind, name, weights or None)


def labelling_of(
    source: LabelsFrom | None, class_names: Path | None, templates: Path | None
) -> Labelling | None:
    """The classifier to use, or None.

    Raises UsageError if it needs class names and there are none, and BadInput if a file cannot be
    read.
    """
    if source is None or source.kind not in CLASSIFIERS:
        return None
    names = None if class_names is None else read_class_names(class_names)
    if templates is not None:
        open_regular(templates).close()  # it is hashed before it is read
    if names is None and source.kind in ZEROSHOT:
        raise UsageError(
            f"--labels-from {source.kind}:... needs --class-names, a file with one class per line"
        )
    return Labelling(source=source, names=names, templates=templates)


def read_class_names(path: Path) -> tuple[str, ...]:
    """The class names in a text file, one per line. Raises BadInput if it is unusable."""
    names = [line.strip() for line in read_text(path).splitlines()]
    if not names or not all(names):
        raise BadInput(f"{path} must have a class name on every line")
    return tuple(names)


def _identity_of(name: str) -> str | list[str]:
    """The name itself if it is known to a library, else the hashes of the files it refers to."""
    path = Path(name)
    if path.is_file():
        return file_sha256(path)
    if path.is_dir():
        return [file_sha256(file) for file in sorted(path.iterdir()) if file.is_file()]
    return name
