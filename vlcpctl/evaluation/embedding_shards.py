"""The embeddings of one evaluation, computed by several commands and joined by one more.

.ROWS.vlcpctl/partial/NAME-NNNNNN.npy         what shard N computed of the array NAME
.ROWS.vlcpctl/partial/part-NAME-NNNNNN.json   written when it is complete, see `resumable_parts`
.ROWS.vlcpctl/partial/part-shard-NNNNNN.json  written when all arrays of shard N are

A shard has whole batches, because the last bits of an embedding may depend on the other rows of its
batch. So it has the bytes that one process computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from vlcpctl.core.atomic import is_pipe_or_device
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.hashing import content_id
from vlcpctl.core.resumable_parts import IDENTITY, claim, is_finished, record_part, verify_part
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.staging import Staging
from vlcpctl.core.versions import Versions
from vlcpctl.data.precomputed.vector_files import write_vectors

_COUNT = "shards"  # the number of them, among the facts that shards record
Array = np.ndarray[Any, np.dtype[Any]]


@final
@dataclass(frozen=True)
class EmbeddingShards:
    """The shards beside a file of rows; `index` is the one of this command, None joins all."""

    out: Path
    count: int
    index: int | None

    @contextmanager
    def computing(
        self, identity: dict[str, Any], numeric: Mapping[str, Any], versions: Versions
    ) -> Iterator[None]:
        """Within the block, the shard is computed; if the block does not raise, it is complete.

        Raises as `claim` and `Staging.locked_part` do.
        """
        with Staging(self.out).locked_part(f"{self.index}-of-{self.count}"):
            self._claim(identity, numeric, versions)
            yield
            record_part(_shard(self.index), [self._partial / IDENTITY])
        say(f"{self.out}: shard {self.index} of {self.count} is complete")

    def check(
        self, identity: dict[str, Any], numeric: Mapping[str, Any], versions: Versions
    ) -> None:
        """Raise OutputExists for shards of something else, BadInput if one is not complete."""
        known = [self._partial / IDENTITY]
        if known[0].exists():
            self._claim(identity, numeric, versions)
        self._refuse([one for one in range(self.count) if not is_finished(_shard(one), known)])

    def share(self, batches: int) -> range:
        """The numbers of the batches that are this command's, of so many."""
        assert self.index is not None
        return range(batches * self.index // self.count, batches * (self.index + 1) // self.count)

    def compute(self, about: Mapping[str, Any], make: Callable[[], Array]) -> None:
        """Store this command's share of an array, which `make` computes unless it is there."""
        assert self.index is not None
        part, file = self._part(about, self.index)
        if is_finished(part, [file]):
            verify_part(part, [file])
            return
        vectors = make()
        write_vectors(file, [vectors], vectors.shape, np.float32)
        record_part(part, [file])

    def joined(self, about: Mapping[str, Any]) -> Array:
        """All rows of an array, (N, D) float32.

        Raises BadInput if a shard lacks it, and Incompatible if it is not what was written.
        """
        parts = [self._part(about, index) for index in range(self.count)]
        has = [is_finished(part, [file]) for part, file in parts]
        self._refuse([index for index in range(self.count) if not has[index]])
        for part, file in parts:
            verify_part(part, [file])
        found = [np.load(file) for _, file in parts]
        return np.concatenate([one for one in found if len(one)] or found[:1])

    @property
    def _partial(self) -> Path:
        return Staging(self.out).partial

    def _part(self, about: Mapping[str, Any], index: int) -> tuple[str, Path]:
        name = f"{content_id(about)}-{index:06d}"
        return name, self._partial / f"{name}.npy"

    def _claim(
        self, identity: dict[str, Any], numeric: Mapping[str, Any], versions: Versions
    ) -> None:
        own = {**numeric, _COUNT: self.count}
        claim(self.out, identity, own, force=False, versions=versions)

    def _refuse(self, missing: list[int]) -> None:
        if missing:
            one = f"shard {missing[0]} of {self.count} of {self.out} is missing"
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise BadInput(f"{one}{more}; first run this line with --shard-index {missing[0]}")


def has_shards(out: Path) -> bool:
    """Whether shards are beside a file of rows, rather than unfinished work of another command."""
    try:
        numeric = read_json_object(Staging(out).partial / IDENTITY).get("numeric")
    except BadInput:
        return False
    return isinstance(numeric, dict) and _COUNT in numeric


def _shard(index: int | None) -> str:
    return f"shard-{index:06d}"


def embedding_shards(
    out: Path, count: int | None, index: int | None, *, force: bool
) -> EmbeddingShards | None:
    """The shards that --num-shards and --shard-index mean; None for a command without them.

    Raises UsageError for values that do not fit, or without a file of rows.
    """
    if count is None:
        if index is not None:
            raise UsageError("--shard-index has no effect without --num-shards")
        return None
    if index is not None and index >= count:
        raise UsageError(
            f"--shard-index {index} is too large: with --num-shards {count} the last is {count - 1}"
        )
    if force:
        raise UsageError(
            "--force would remove the shards of other commands; give it without --num-shards, or "
            "choose another --out"
        )
    if out == Path("-") or is_pipe_or_device(out):
        raise UsageError("--num-shards stores shards beside the rows; give their file with --out")
    return EmbeddingShards(out, count, index)
