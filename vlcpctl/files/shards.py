"""The work of one command, computed by several commands and joined by one more.

.OUT.vlcpctl/partial/NAME-NNNNNN.npz or .npy  what shard N computed of the work NAME
.OUT.vlcpctl/partial/part-NAME-NNNNNN.json    written when it is complete, see `resumable_parts`
.OUT.vlcpctl/partial/part-shard-NNNNNN.json   written when all of shard N is

Work is numbered items, such as batches. A shard has whole ones, because the last bits of an
embedding may depend on the other rows of its batch. So it has the bytes that one process computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.files.atomic import is_pipe_or_device, new_part
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.resumable_parts import IDENTITY, claim, is_finished, record_part, verify_part
from vlcpctl.files.staging import Staging

START_OVER = "choose another --out; --force without --num-shards replaces it"
_ARRAYS = ".npz"
_COUNT = "shards"  # the number of them, among the facts that shards record
Result = tuple[np.ndarray[Any, np.dtype[Any]], ...]  # the arrays of an item, as many for each


class MissingShard(BadInput):
    """What is to be joined has not been computed."""


@final
@dataclass(frozen=True)
class Shards:
    """The shards beside an output; `index` is the one of this command, None joins all."""

    out: Path
    count: int
    index: int | None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the shard within the block. Raises as `Staging.locked_part` does."""
        with Staging(self.out).locked_part(f"{self.index}-of-{self.count}"):
            yield

    @contextmanager
    def computing(self, identity: dict[str, Any], numeric: Mapping[str, Any]) -> Iterator[None]:
        """Within the block, the shard is computed; if the block does not raise, it is complete.

        Raises as `claim` and `Staging.locked_part` do.
        """
        assert self.index is not None
        with self.held():
            self._claim(identity, numeric)
            yield
            record_part(_shard(self.index), [self._partial / IDENTITY])
        say(f"{self.out}: shard {self.index} of {self.count} is complete")

    def check(self, identity: dict[str, Any], numeric: Mapping[str, Any]) -> None:
        """Raise OutputExists for shards of something else, MissingShard if one is not complete."""
        known = [self._partial / IDENTITY]
        if known[0].exists():
            self._claim(identity, numeric)
        self._refuse([one for one in range(self.count) if not is_finished(_shard(one), known)])

    def finished(self) -> set[str]:
        """The names of what is complete of this command's shard."""
        assert self.index is not None
        return {path.name for path in self._partial.glob(f"part-*-{self.index:06d}.json")}

    def share(self, items: int) -> range:
        """The numbers of the items that are this command's, of so many."""
        assert self.index is not None
        return self._share_of(self.index, items)

    def keep(
        self, about: Mapping[str, Any], items: int, results: Callable[[range], Iterable[Result]]
    ) -> None:
        """Store the results of this command's share of so many items, unless they are there.

        `results` computes those of the items with these numbers, in order.
        """
        share = self.share(items)

        def write(file: Path) -> None:
            arrays: dict[str, Any] = {
                f"{number}-{place}": array
                for number, result in zip(share, results(share), strict=True)
                for place, array in enumerate(result)
            }
            with new_part(file) as temporary, temporary.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        self.keep_file(about, _ARRAYS, write)

    def keep_file(
        self, about: Mapping[str, Any], suffix: str, write: Callable[[Path], object]
    ) -> None:
        """Store this command's share in a file with this suffix, unless it is there.

        `write` makes the file, of which nothing is there before it is complete. Raises Incompatible
        if the file is not what was written.
        """
        assert self.index is not None
        part, file = self._part(about, self.index, suffix)
        if is_finished(part, [file]):
            verify_part(part, [file])
            return
        write(file)
        record_part(part, [file])

    def kept(self, about: Mapping[str, Any], items: int) -> Iterator[Result]:
        """Yield the results of all items, in order; raises as `kept_files` does."""
        for index, file in enumerate(self.kept_files(about, _ARRAYS)):
            yield from _results(file, self._share_of(index, items))

    def kept_files(self, about: Mapping[str, Any], suffix: str) -> list[Path]:
        """The file of each shard.

        Raises MissingShard if a shard lacks it, and Incompatible if one is not what was written.
        """
        parts = [self._part(about, index, suffix) for index in range(self.count)]
        has = [is_finished(part, [file]) for part, file in parts]
        self._refuse([index for index in range(self.count) if not has[index]])
        for part, file in parts:
            verify_part(part, [file])
        return [file for _, file in parts]

    def shared(
        self, about: Mapping[str, Any], count: int, find: Callable[[range], Result]
    ) -> Result | None:
        """What `find` finds for queries in these rows, of all: arrays with a column for each.

        What shards have stored is read, and the rest found. For a shard, its share is stored, and
        None is returned. Raises Incompatible if a share is not what was written.
        """
        rows = [self._share_of(index, count) for index in range(self.count)]
        if self.index is not None:
            self.keep(about, self.count, lambda shards: [find(rows[index]) for index in shards])
            return None
        parts = [self._part(about, index, _ARRAYS) for index in range(self.count)]
        has = [is_finished(part, [file]) for part, file in parts]
        if not any(has):
            return find(range(count))
        found: list[Result] = []
        for index, (part, file) in enumerate(parts):
            if has[index]:
                verify_part(part, [file])
                found += _results(file, range(index, index + 1))
            else:
                found.append(find(rows[index]))
        return tuple(np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))

    @property
    def _partial(self) -> Path:
        return Staging(self.out).partial

    def _share_of(self, index: int, items: int) -> range:
        return range(items * index // self.count, items * (index + 1) // self.count)

    def _part(self, about: Mapping[str, Any], index: int, suffix: str) -> tuple[str, Path]:
        name = f"{content_id(about)}-{index:06d}"
        return name, self._partial / f"{name}{suffix}"

    def _claim(self, identity: dict[str, Any], numeric: Mapping[str, Any]) -> None:
        own = {**numeric, _COUNT: self.count}
        claim(self.out, identity, own, force=False, advice=START_OVER)

    def _refuse(self, missing: list[int]) -> None:
        if missing:
            one = f"shard {missing[0]} of {self.count} of {self.out} is missing"
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise MissingShard(f"{one}{more}; first run this line with --shard-index {missing[0]}")


def has_shards(out: Path) -> bool:
    """Whether shards are beside an output, rather than unfinished work of another command."""
    try:
        numeric = read_json_object(Staging(out).partial / IDENTITY).get("numeric")
    except BadInput:
        return False
    return isinstance(numeric, dict) and _COUNT in numeric


def drop_joined(out: Path) -> None:
    """Delete the shards of an output that was finished from them, or in their place."""
    if has_shards(out):
        Staging(out).drop_partial()


def refuse_shards(out: Path, what: str) -> None:
    """Raise OutputExists if shards are beside an output, which is of `what`."""
    if has_shards(out):
        raise OutputExists(
            f"{Staging(out).partial} has shards of {what}; join them with --num-shards, or "
            "--force replaces them"
        )


def check_index(index: int, count: int) -> None:
    """Raise UsageError if --shard-index is too large for --num-shards."""
    if index >= count:
        raise UsageError(
            f"--shard-index {index} is too large: with --num-shards {count} the last is {count - 1}"
        )


def shards_of(out: Path, count: int | None, index: int | None, *, force: bool) -> Shards | None:
    """The shards that --num-shards and --shard-index mean; None for a command without them.

    Raises UsageError for values that do not fit, or an output that is no file or directory.
    """
    if count is None:
        if index is not None:
            raise UsageError("--shard-index has no effect without --num-shards")
        return None
    if index is not None:
        check_index(index, count)
    if force:
        raise UsageError(
            "--force would remove the shards of other commands; give it without --num-shards, or "
            "choose another --out"
        )
    if out == Path("-") or is_pipe_or_device(out):
        raise UsageError("--num-shards stores shards beside the rows; give their file with --out")
    return Shards(out, count, index)


def _shard(index: int) -> str:
    return f"shard-{index:06d}"


def _results(file: Path, share: range) -> Iterator[Result]:
    """The results of these items from the file of a shard."""
    with np.load(file) as found:
        places = range(len(found.files) // max(len(share), 1))
        for number in share:
            yield tuple(found[f"{number}-{place}"] for place in places)
