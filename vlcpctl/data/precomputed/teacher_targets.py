"""Targets: a teacher's embeddings of the pairs of tasks, precomputed for distillation.

images.npy       embedding of each view of each image, before L2 normalisation, (K * V, D) float32
images.parquet   key and view of each row of images.npy, in that order
texts.npy        embedding of each caption, before L2 normalisation, D channels, float32
texts.parquet    key and caption (its number) of each row of texts.npy, in that order
targets.json     the teacher and its logit scale, the data, and the views: number, seed, transform

With pandas, the embeddings of view 0 are numpy.load("images.npy", mmap_mode="r")[rows.view == 0],
where rows = pandas.read_parquet("images.parquet").
Shapes: K samples, V views of each image, n pairs of a batch, D channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.precomputed.vector_files import VectorFile, join_vectors, write_rows_without
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.digests import RESTORE, changed_files, digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import (
    is_artifact,
    read_manifest,
    rewrite_manifest,
    rewritten,
    write_manifest,
)
from vlcpctl.files.outputs import new_directory

# The tables; the manifest lists each with its .npy file under this name.
IMAGES, TEXTS = "images.parquet", "texts.parquet"
VIEW, CAPTION = "view", "caption"


@dataclass(frozen=True)
class TargetsDirectory:
    """A directory of targets; embeddings are read from disk only when they are used."""

    path: Path
    manifest: dict[str, Any]

    @property
    def content(self) -> str:
        """The content id of the targets."""
        return str(self.manifest["content"])

    @property
    def views(self) -> int:
        """The number of views per image, V."""
        return int(self.manifest["identity"]["views"])

    @property
    def seed(self) -> int:
        """The seed of the views' augmentation."""
        return int(self.manifest["identity"]["seed"])

    @property
    def scale(self) -> float:
        """The teacher's logit scale: 1 / temperature."""
        return float(self.manifest["scale"])

    @property
    def width(self) -> int:
        """The number of channels, D."""
        return int(self.manifest["width"])

    def verify(self) -> None:
        """Verify the files of the embeddings against the manifest.

        Raises BadInput, naming the file, if one was changed since it was written.
        """
        verify_files(self.path, self.manifest["digests"], advice=RESTORE)

    @cached_property
    def images(self) -> VectorFile:
        """The image embeddings, (K * V, D), all views of a sample together."""
        return VectorFile(self.path / IMAGES, VIEW)

    @cached_property
    def texts(self) -> VectorFile:
        """The text embeddings of all captions, D channels, all captions of a sample together."""
        return VectorFile(self.path / TEXTS, CAPTION)

    def of(self, splits: Sequence[Split]) -> TeacherTargets:
        """The targets of the pairs of these splits.

        Raises Incompatible if some pairs have no targets, BadInput if a file is damaged.
        """
        first_K, keys_K = self.texts.first_rows()
        if len(self.images) != len(first_K) * self.views:
            raise BadInput(
                f"{self.path} does not have {self.views} views of each image; run 'vlcpctl check'"
            )
        places = []
        for split in splits:
            place_N = split.keys.places_in(keys_K)
            missing = np.flatnonzero(place_N < 0)
            if len(missing):
                advice = (
                    "'vlcpctl forget' has removed pairs from the targets, remove them from the "
                    "data, too"
                    if not {"id", "was"}.isdisjoint(self.manifest)
                    else "run 'vlcpctl distill' on all tasks used"
                )
                raise Incompatible(
                    f"{self.path} has no targets for {len(missing)} of the {len(split)} pairs in "
                    f"{split.path}, such as {split.keys[int(missing[0])]}; {advice}"
                )
            places.append(place_N)
        return TeacherTargets(self, places, first_K)


@dataclass(frozen=True)
class TeacherTargets:
    """Targets of open splits, looked up by row."""

    targets: TargetsDirectory
    places: list[np.ndarray]  # for each split, (N,) int32: its rows' indices among the K samples
    texts_K: np.ndarray  # row of each sample's first caption among the text embeddings

    @property
    def seed(self) -> int:
        """The seed of the views' augmentation."""
        return self.targets.seed

    def view(self, visit: int) -> int:
        """The view, 0..V-1, to use on the `visit`-th use of an image: the views repeat in turn."""
        return visit % self.targets.views

    def of(
        self, source: np.ndarray, row: np.ndarray, caption: np.ndarray, visit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Image and text embeddings before L2 normalisation, each (n, D) float32.

        The arguments are (n,) each, as in `BatchPlan`.
        """
        pairs = zip(source.tolist(), row.tolist(), strict=True)
        place = np.array(
            [self.places[split][row_of_split] for split, row_of_split in pairs], dtype=np.int64
        )
        image = place * self.targets.views + visit % self.targets.views
        text = self.texts_K[place] + caption
        return self.targets.images.vectors(image), self.targets.texts.vectors(text)


def open_targets(path: Path) -> TargetsDirectory:
    """Open a directory of targets, without reading its embeddings; see `TargetsDirectory.verify`.

    Raises BadInput if it is not one, or its manifest has changed since it was written.
    """
    return TargetsDirectory(path, read_manifest(path, "targets"))


def _content(identity: Mapping[str, Any], files: Mapping[str, Any], scale: float) -> str:
    return content_id({"identity": identity, "files": files, "scale": scale})


@dataclass(frozen=True)
class Side:
    """The embeddings of one side, images or texts: .npy files whose rows follow each other."""

    counts_K: np.ndarray  # number of rows of each sample: of its views or of its captions
    paths: Sequence[Path]


def write_targets(
    out: Path,
    keys: Sequence[str],
    sides: tuple[Side, Side],
    identity: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """Join parts, of images and of texts, into a directory of targets for the K samples `keys`.

    `identity` is the settings that made them; `facts` are further manifest entries, among them
    "scale" and "width". Raises BadInput if a part cannot be read.
    """
    with new_directory(out, is_artifact) as directory:
        files = {}
        for name, number, side in zip((IMAGES, TEXTS), (VIEW, CAPTION), sides, strict=True):
            rows, content = join_vectors(
                directory / name, number, keys, side.counts_K, side.paths, facts["width"]
            )
            files[name] = {"rows": rows, "content": content}
        content = _content(identity, files, facts["scale"])
        body = {**facts, "files": files, "digests": digests_of(directory)}
        write_manifest(directory, "targets", identity, content, body)


def write_without(targets: TargetsDirectory, out: Path, keys: Collection[str]) -> dict[str, Any]:
    """Write targets again without those of the samples `keys`, into an existing directory.

    They get a new content id; returns the manifest. Raises BadInput if a file was changed since it
    was written.
    """
    targets.verify()
    files = {}
    for file in (targets.images, targets.texts):
        rows, content = write_rows_without(file, out / file.path.name, keys)
        files[file.path.name] = {"rows": rows, "content": content}
    pairs = len(set(targets.texts.keys) - set(keys))
    manifest = targets.manifest
    content = _content(manifest["identity"], files, manifest["scale"])
    names = [one for name in files for one in (name, str(Path(name).with_suffix(".npy")))]
    changes = {"files": files, "pairs": pairs, "digests": digests_of(out, names)}
    found = rewritten(manifest, content, changes)
    rewrite_manifest(out, "targets", found)
    return found


def check_targets(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each file that is not what was written; `deep` reads every embedding.

    Raises BadInput if the manifest cannot be read, or has changed since it was written.
    """
    targets = open_targets(path)
    yield from changed_files(path, targets.manifest["digests"], use_cache=not deep)
