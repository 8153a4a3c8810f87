"""Targets: what a teacher says of the pairs of tasks, kept so that it need not be asked again.

images.parquet   the raw embedding of each view of each image, by (key, view)
texts.parquet    that of each caption, by (key, caption)
targets.json     the teacher and its logit scale, the data, the views' number, seed and transform

Shapes: K samples, V views of each, n pairs asked for, D channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.artifacts import MANIFESTS, read_manifest, write_manifest
from vlcpctl.core.atomic import new_directory
from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.core.hashing import content_id
from vlcpctl.data.task import Split
from vlcpctl.data.vector_files import VectorFile, join_vectors

IMAGES, TEXTS = "images.parquet", "texts.parquet"
VIEW, CAPTION = "view", "caption"


@dataclass(frozen=True)
class Targets:
    """A directory of targets; embeddings are read when they are asked for."""

    path: Path
    manifest: dict[str, Any]

    @property
    def content(self) -> str:
        """The id of its data."""
        return str(self.manifest["content"])

    @property
    def views(self) -> int:
        """V."""
        return int(self.manifest["identity"]["views"])

    @property
    def seed(self) -> int:
        """Of the views."""
        return int(self.manifest["identity"]["seed"])

    @property
    def scale(self) -> float:
        """The teacher's 1 / temperature."""
        return float(self.manifest["scale"])

    @property
    def width(self) -> int:
        """D."""
        return int(self.manifest["width"])

    @cached_property
    def images(self) -> VectorFile:
        """The file of image embeddings."""
        return VectorFile(self.path / IMAGES, VIEW)

    @cached_property
    def texts(self) -> VectorFile:
        """The file of text embeddings."""
        return VectorFile(self.path / TEXTS, CAPTION)

    def of(self, splits: Sequence[Split]) -> Taught:
        """The targets of these splits' pairs, all of which there must be."""
        first_K = np.flatnonzero(self.texts.numbers == 0)
        place = {self.texts.keys[row]: number for number, row in enumerate(first_K.tolist())}
        if len(self.images) != len(first_K) * self.views:
            raise BadInput(f"{self.path} has not {self.views} views of each image")
        places = []
        for split in splits:
            lacking = [key for key in split.keys if key not in place]
            if lacking:
                raise Incompatible(
                    f"{self.path} has no targets of {len(lacking)} of {len(split)} pairs of "
                    f"{split.path}, such as {lacking[0]}"
                )
            places.append(np.array([place[key] for key in split.keys], dtype=np.int64))
        return Taught(self, places, first_K)


@dataclass(frozen=True)
class Taught:
    """Targets of open splits, by their rows."""

    targets: Targets
    places: list[np.ndarray]  # of each split's rows among the K samples
    texts_K: np.ndarray  # where a sample's texts begin

    @property
    def seed(self) -> int:
        """Of the views."""
        return self.targets.seed

    def view(self, visit: int) -> int:
        """The view that a visit sees."""
        return visit % self.targets.views

    def of(
        self, source: np.ndarray, row: np.ndarray, caption: np.ndarray, visit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Raw image and text embeddings, (n, D) each, of rows of splits."""
        pairs = zip(source.tolist(), row.tolist(), strict=True)
        place = np.array([self.places[split][at] for split, at in pairs], dtype=np.int64)
        images = self.targets.images.take(place * self.targets.views + visit % self.targets.views)
        return images, self.targets.texts.take(self.texts_K[place] + caption)


def open_targets(path: Path) -> Targets:
    """Open a directory of targets."""
    return Targets(path, read_manifest(path, "targets"))


def write_targets(
    out: Path, parts: Sequence[tuple[Path, Path]], identity: dict[str, Any], facts: dict[str, Any]
) -> None:
    """Write what the parts make, a file of images and one of texts each; `facts` is for readers."""
    with new_directory(out, MANIFESTS["targets"]) as directory:
        images, image_id = join_vectors(directory / IMAGES, [part[0] for part in parts], VIEW)
        texts, text_id = join_vectors(directory / TEXTS, [part[1] for part in parts], CAPTION)
        files = {
            IMAGES: {"rows": images, "content": image_id},
            TEXTS: {"rows": texts, "content": text_id},
        }
        content = content_id({"identity": identity, "files": files, "scale": facts["scale"]})
        write_manifest(directory, "targets", identity, content, {**facts, "files": files})
