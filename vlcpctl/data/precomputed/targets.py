"""Targets: a teacher's embeddings of the pairs of tasks, precomputed for distillation.

images.npy       embedding of each view of each image, before L2 normalisation, (S * V, D) float32
texts.npy        embedding of each caption, before L2 normalisation, D channels, float32
samples.parquet  key of each sample, and its number of captions, which are that many rows of
                 texts.npy; it has V rows of images.npy
targets.json     the teacher and its logit scale, the data, and the views: number, seed, transform

Shapes: S samples, V views of each image, n pairs of a batch, D channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.precomputed.store import Store, VectorFile, digest_of
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.digests import RESTORE, digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import is_artifact, read_manifest, write_manifest
from vlcpctl.files.outputs import new_directory

IMAGES, TEXTS, SAMPLES = "images.npy", "texts.npy", "samples.parquet"
_COLUMNS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("captions", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Targets:
    """A directory of targets; embeddings are read from disk only when they are used."""

    path: Path
    manifest: dict[str, Any]
    # Of the splits that `of_splits` was given: for each, (N,) int32, its rows' indices among the S
    # samples; and (S,), the row of each sample's first caption among the text embeddings.
    places: tuple[np.ndarray, ...] = ()
    texts_S: np.ndarray | None = None

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

    @property
    def store(self) -> Store:
        """The files of the embeddings."""
        return store_of(self.path, self.views)

    @cached_property
    def images(self) -> VectorFile:
        """The image embeddings, (S * V, D), all views of a sample together."""
        return self.store.vectors(IMAGES)

    @cached_property
    def texts(self) -> VectorFile:
        """The text embeddings of all captions, D channels, all captions of a sample together."""
        return self.store.vectors(TEXTS)

    def verify(self) -> None:
        """Verify the files of the embeddings against the manifest.

        Raises BadInput, naming the file, if one was changed since it was written.
        """
        verify_files(self.path, self.manifest["digests"], advice=RESTORE)

    def of_splits(self, splits: Sequence[Split]) -> Targets:
        """The targets with the places of the rows of these splits, for `of`.

        Raises Incompatible if a pair has none, and BadInput if a file cannot be read.
        """
        table = self.store.rows()
        try:
            keys_S = Keys.of_array(table["key"].cast(pa.large_string()).combine_chunks())
        except ValueError as error:
            raise BadInput(f"{self.path / SAMPLES}: {error}; run 'vlcpctl check'") from error
        places = tuple(split.keys.places_in(keys_S) for split in splits)
        for split, place_N in zip(splits, places, strict=True):
            missing = np.flatnonzero(place_N < 0)
            if len(missing):
                advice = "run 'vlcpctl distill' on all tasks used"
                if "id" in self.manifest:
                    advice = "'vlcpctl forget' has removed pairs from the targets, remove them "
                    advice += "from the data, too"
                raise Incompatible(
                    f"{self.path} has no targets for {len(missing)} of the {len(split)} pairs in "
                    f"{split.path}, such as {split.keys[int(missing[0])]}; {advice}"
                )
        ends_S = table["captions"].to_numpy().cumsum()
        return replace(self, places=places, texts_S=np.concatenate([[0], ends_S[:-1]]))

    def view(self, visit: int) -> int:
        """The view, 0..V-1, to use on the `visit`-th use of an image: the views repeat in turn."""
        return visit % self.views

    def of(
        self, source: np.ndarray, row: np.ndarray, caption: np.ndarray, visit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Image and text embeddings before L2 normalisation, each (n, D) float32.

        The arguments are (n,) each, as in `BatchPlan`.
        """
        assert self.texts_S is not None, "`of_splits` was called"
        pairs = zip(source.tolist(), row.tolist(), strict=True)
        place = np.array([self.places[split][at] for split, at in pairs], dtype=np.int64)
        image = place * self.views + visit % self.views
        return self.images[image], self.texts[self.texts_S[place] + caption]


def open_targets(path: Path) -> Targets:
    """Open a directory of targets, without reading its embeddings; see `Targets.verify`.

    Raises BadInput if it is not one, its manifest has changed since it was written, or version 0.3
    made it.
    """
    manifest = read_manifest(path, "targets")
    if "files" in manifest:
        raise BadInput(f"{path} has targets of version 0.3; make them again with 'vlcpctl distill'")
    return Targets(path, manifest)


def store_of(directory: Path, views: int) -> Store:
    """The files of targets of so many views of each image."""
    return Store(directory, SAMPLES, {IMAGES: views, TEXTS: "captions"}, np.float32, _COLUMNS)


def write_targets(
    out: Path,
    samples: tuple[Sequence[str], np.ndarray],
    parts: tuple[Sequence[Path], Sequence[Path]],
    identity: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """Join parts, of images and of texts, into a directory of targets.

    `samples` are the keys of the S samples and their numbers of captions, (S,); `identity` is the
    settings that made them; `facts` are further manifest entries, among them "scale" and "width".
    Raises BadInput if a part cannot be read, or the parts do not have the rows of the samples.
    """
    keys, captions_S = samples
    table = pa.table(
        [pa.array(keys, pa.string()), pa.array(captions_S, pa.int32())], schema=_COLUMNS
    )
    blocks = {
        name: chain.from_iterable(VectorFile(part, np.float32).blocks() for part in side)
        for name, side in zip((IMAGES, TEXTS), parts, strict=True)
    }
    with new_directory(out, is_artifact) as directory:
        store_of(directory, identity["views"]).write(table, blocks, facts["width"])
        digests = digests_of(directory)
        made = {"identity": identity, "scale": facts["scale"], "samples": digest_of(table)}
        content = content_id({**made, **{name: digests[name] for name in (IMAGES, TEXTS)}})
        write_manifest(directory, "targets", identity, content, {**facts, "digests": digests})
