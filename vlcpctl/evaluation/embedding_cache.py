"""A directory of embeddings that evaluations share, each under the key that says what it is of.

AB/ID/embeddings.npy   embeddings, (N, D) float32
AB/ID/samples.parquet  keys of the samples that they are of: `vlcpctl forget` looks for them
AB/ID/cached.json      the key, and other facts

A key names all that decides the embeddings, to the last bit; ID is its content id. They are read by
memory map, and only if the files are what was written. Shapes: N embeddings, D dimensions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, OutputExists, UsageError, VlcpError
from vlcpctl.data.precomputed.store import Store, VectorFile, write_vectors
from vlcpctl.files.digests import digests_of, verify_files
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS, read_manifest, write_manifest
from vlcpctl.files.outputs import output_at, remove, rewriting

KIND = "cached-embeddings"
EMBEDDINGS, SAMPLES = "embeddings.npy", "samples.parquet"
_COLUMNS = pa.schema([pa.field("key", pa.string(), nullable=False)])

Key = Mapping[str, Any]
Facts = Mapping[str, Any]


@final
class EmbeddingCache:
    """The entries of a directory, which is made if it does not exist.

    Raises UsageError if it is not a directory, and OSError if it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"--embedding-cache {directory} is not a directory")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self._has_warned = directory, False
        for hidden in directory.glob("*/.*.vlcpctl"):
            if (output := output_at(hidden)) is not None:
                # What killed processes were writing is removed; others may still be at it.
                with suppress(OutputExists, OSError), output.locked(wait_s=0):
                    pass

    def get(self, key: Key) -> tuple[np.ndarray, Facts] | None:
        """The embeddings (N, D) of a key, and facts about them; None if they are not stored.

        An entry that is damaged is not used: a warning names it.
        """
        place = self._place(key)
        if not place.exists():
            return None
        try:
            manifest = read_manifest(place, KIND)
            verify_files(place, manifest["digests"], use_cache=False)
            return VectorFile(place / EMBEDDINGS, np.float32).mapped(), manifest["facts"]
        except BadInput as error:
            warn(f"{error}; computing the embeddings again")
            return None

    def put(self, key: Key, vectors: np.ndarray, samples: Sequence[str], facts: Facts) -> None:
        """Store embeddings (N, D) float32, the keys of their samples, and facts about them.

        A directory that cannot be written to is named in a warning, once.
        """
        place = self._place(key)
        try:
            with rewriting(place) as entry:
                entry.mkdir()
                write_vectors(entry / EMBEDDINGS, [vectors], vectors.shape, np.float32)
                table = pa.table([pa.array(samples, pa.string())], schema=_COLUMNS)
                _samples(entry).write(table, {}, 0)
                about = {"facts": facts, "digests": digests_of(entry)}
                write_manifest(entry, KIND, key, place.name, about)
        except OutputExists:  # another process stores the same
            return
        except (OSError, VlcpError) as error:
            if not self._has_warned:
                why = f"cannot write {place}: {error}" if isinstance(error, OSError) else str(error)
                warn(f"{why}; the embeddings are not kept")
            self._has_warned = True

    def _place(self, key: Key) -> Path:
        name = content_id(key)
        return self.directory / name[:2] / name


def samples_of(entry: Path) -> list[str]:
    """The keys of the samples of an entry. Raises BadInput if they cannot be read."""
    try:
        return _samples(entry).samples()
    except BadInput as error:
        raise BadInput(f"{error}; delete it, evaluations compute it again") from error


def _samples(entry: Path) -> Store:
    return Store(entry, SAMPLES, {}, np.float32, _COLUMNS)


def prune(directory: Path, checkpoints: Collection[str]) -> None:
    """Remove the entries that are not by one of these checkpoints, or are damaged."""
    for manifest in directory.glob(f"*/*/{MANIFESTS[KIND]}"):
        try:
            is_used = read_manifest(manifest.parent, KIND)["identity"]["checkpoint"] in checkpoints
        except (BadInput, KeyError):
            is_used = False
        if not is_used:
            remove(manifest.parent, strictly=False)
            with suppress(OSError):  # it has others
                manifest.parent.parent.rmdir()
