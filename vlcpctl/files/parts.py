"""The work of one output, done in parts by one command or by several, and then joined.

.OUT.vlcpctl/partial/identity.json       the settings; a command with others is refused
.OUT.vlcpctl/partial/NAME.DIGEST.SUFFIX  a complete part, with the xxh3_128 of its bytes

A part gets its name when it is whole, so a command that was killed computes only what has none.
One whose bytes have another digest is deleted, and computed again.

Several commands each compute a share (a shard), of whole items of work, such as batches: the last
bits of an embedding may depend on the other rows of its batch. So what they join has the bytes that
one process computes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np

from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, Incompatible, OutputExists, UsageError
from vlcpctl.files.digests import file_digest
from vlcpctl.files.finished import UNFINISHED, refuse_other
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.outputs import Output, check_output_path, new_part, unfinished

SHARDS = "shards"  # their number, in the facts that parts are of; None if it may change
_IDENTITY = "identity.json"
Result = tuple[np.ndarray[Any, np.dtype[Any]], ...]  # the arrays of an item, as many for each


class MissingShard(BadInput):
    """What is to be joined has not been computed."""


@final
@dataclass(frozen=True)
class Parts:
    """The parts beside an output, of `count` shards; this command's is `index`, None joins all."""

    out: Path
    count: int = 1
    index: int | None = 0

    @contextmanager
    def claimed(
        self, identity: dict[str, Any], numeric: Mapping[str, Any], *, force: bool = False
    ) -> Iterator[None]:
        """Hold the lock of the shard within the block, for work with these settings.

        `numeric` are the facts that decide the last bits. Raises as `Output.locked` does,
        OutputExists if parts of other settings are there, and Incompatible if it is unknown of
        which; `force` deletes them first.
        """
        with Output(self.out).locked(f"{self.index}-of-{self.count}"):
            self._claim(identity, numeric, force=force)
            yield

    def check(self, identity: dict[str, Any], numeric: Mapping[str, Any]) -> None:
        """Raise OutputExists for shards of something else, MissingShard if one is not complete."""
        if Output(self.out).partial.exists():
            self._claim(identity, numeric, force=False)
        self._require(self.find([f"shard-{index:06d}" for index in range(self.count)]))

    def _claim(self, identity: dict[str, Any], numeric: Mapping[str, Any], *, force: bool) -> None:
        output = Output(self.out)
        own = {**identity, "numeric": {SHARDS: self.count, **numeric}}
        # Two shards may start at the same moment: without a lock, both would find no settings.
        with output.locked("settings", wait_s=math.inf):
            if force:
                output.drop_partial()
            stored = output.open_partial() / _IDENTITY
            if not any(output.partial.glob("[!.]*")):  # hidden: what a killed command was writing
                with new_part(stored) as temporary:
                    temporary.write_text(json.dumps(own, indent=1))
                return
        try:
            found = read_json_object(stored)
        except BadInput as error:
            raise Incompatible(f"{error}; --force starts over") from error
        advice = "choose another --out; --force without --num-shards replaces it"
        refuse_other(output.partial, found, own, UNFINISHED, advice)

    def listed(self) -> dict[str, Path]:
        """The files of all parts by their names; they are not read."""
        partial = Output(self.out).partial
        files = list(partial.iterdir()) if partial.exists() else []
        return {path.name.partition(".")[0]: path for path in files}

    def find(self, names: Sequence[str]) -> list[Path | None]:
        """The file of each part; None if it is not there, or is not what was written."""
        listed = self.listed()
        return [self._verified(listed.get(name)) for name in names]

    def _verified(self, path: Path | None) -> Path | None:
        if path is None or [file_digest(path)] == path.name.split(".")[1:2]:
            return path
        warn(f"{path} has changed since it was written; it is deleted, to be computed again")
        path.unlink(missing_ok=True)
        return None

    def keep(self, name: str, suffix: str, write: Callable[[Path], object]) -> None:
        """Add a part, of which `write` makes the file."""
        partial = Output(self.out).partial
        temporary = unfinished(partial / f"{name}{suffix}")
        write(temporary)
        temporary.rename(partial / f"{name}.{file_digest(temporary)}{suffix}")

    def complete(self) -> bool:
        """Record that all of this shard is there; returns whether that was recorded before."""
        name = f"shard-{self.index:06d}"
        was_complete = any(self.find([name]))
        if not was_complete:
            self.keep(name, "", Path.touch)
        return was_complete

    def share(self, items: int) -> range:
        """The numbers of the items that are this shard's, of so many."""
        return self._shares(items)[self.index or 0]

    def keep_share(
        self, about: Mapping[str, Any], suffix: str, write: Callable[[Path], object]
    ) -> None:
        """Add this shard's share of what `about` identifies, unless it is there."""
        name = f"{content_id(about)}-{self.index:06d}"
        if not any(self.find([name])):
            self.keep(name, suffix, write)

    def keep_arrays(
        self, about: Mapping[str, Any], items: int, results: Callable[[range], Iterable[Result]]
    ) -> None:
        """Add the results of this shard's share of so many items, unless they are there.

        `results` computes those of the items with these numbers, in order.
        """

        def write(file: Path) -> None:
            arrays: dict[str, Any] = {
                f"{number}-{place}": array
                for number, result in enumerate(results(self.share(items)))
                for place, array in enumerate(result)
            }
            with new_part(file) as temporary, temporary.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        self.keep_share(about, ".npz", write)

    def files(self, about: Mapping[str, Any]) -> list[Path]:
        """The file of each shard's share. Raises MissingShard if a shard lacks it."""
        return self._require(self._found(about))

    def arrays(self, about: Mapping[str, Any], items: int) -> Iterator[Result]:
        """Yield the results of all items, in order. Raises MissingShard if a shard lacks them."""
        for file, share in zip(self.files(about), self._shares(items), strict=True):
            yield from _results(file, len(share))

    def shared(
        self, about: Mapping[str, Any], count: int, find: Callable[[range], Result]
    ) -> Result | None:
        """What `find` finds for queries in these rows, of all: arrays with a column for each.

        What shards have stored is read, and the rest found. For a shard, its share is stored, and
        None is returned.
        """
        if self.index is not None:
            self.keep_arrays(about, self.count, lambda _: [find(self.share(count))])
            return None
        files = self._found(about)
        if not any(files):
            return find(range(count))
        found = [
            find(share) if file is None else next(_results(file, 1))
            for file, share in zip(files, self._shares(count), strict=True)
        ]
        return tuple(np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))

    def _found(self, about: Mapping[str, Any]) -> list[Path | None]:
        return self.find([f"{content_id(about)}-{index:06d}" for index in range(self.count)])

    def _shares(self, items: int) -> list[range]:
        ends = [items * index // self.count for index in range(self.count + 1)]
        return [range(start, stop) for start, stop in pairwise(ends)]

    def _require(self, files: Sequence[Path | None]) -> list[Path]:
        missing = [index for index, file in enumerate(files) if file is None]
        if missing:
            one = f"shard {missing[0]} of {self.count} of {self.out} is missing"
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise MissingShard(f"{one}{more}; first run this line with --shard-index {missing[0]}")
        return [file for file in files if file is not None]


def parts_of(out: Path, count: int | None, index: int | None, *, force: bool) -> Parts | None:
    """The parts that --num-shards and --shard-index mean; None for a command without them.

    Raises UsageError for values that do not fit, or an output that is neither a file nor a
    directory.
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
    check_output_path(out)  # what has shards beside it is neither stdout nor a pipe
    return Parts(out, count, index)


def drop_parts(out: Path) -> None:
    """Delete the parts of an output that is finished, unless another process is at work on them."""
    if _has_parts(out):
        with suppress(OSError, OutputExists):
            Output(out).drop_partial()


def refuse_parts(out: Path) -> None:
    """Raise OutputExists if shards are beside an output that is to be made without them."""
    if _has_parts(out):
        raise OutputExists(
            f"{Output(out).partial} has shards of {out}; join them with --num-shards, or "
            "--force replaces them"
        )


def _has_parts(out: Path) -> bool:
    """Whether the unfinished work beside an output is parts, and not that of a training."""
    try:
        numeric = read_json_object(Output(out).partial / _IDENTITY).get("numeric")
    except BadInput:
        return False
    return isinstance(numeric, dict) and SHARDS in numeric


def _results(file: Path, count: int) -> Iterator[Result]:
    """So many results from the file of a share."""
    with np.load(file) as found:
        places = range(len(found.files) // max(count, 1))
        for number in range(count):
            yield tuple(found[f"{number}-{place}"] for place in places)
