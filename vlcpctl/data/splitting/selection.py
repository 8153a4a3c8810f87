"""The pairs that a split keeps, in order: read, identified, deduplicated, assigned to a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.discovery import NamedSource, Source
from vlcpctl.data.splitting.pseudo_labels import PseudoLabels, labelled
from vlcpctl.data.splitting.rules import Rule
from vlcpctl.data.splitting.seen_keys import SeenKeys, scratch_table
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.samples import Pair, Sample, UnusablePair, identify
from vlcpctl.data.tasks.skips import SkipLog

# The task, the sample, and the split that its row names (None: the hold-out decides). A plain
# tuple, because one is created for every pair.
SelectedPair = tuple[str, Sample, str | None]


@dataclass(frozen=True)
class PairReader:
    """What is read and how; the same in every pass."""

    inputs: list[NamedSource]
    columns: ColumnOptions
    decode: bool = False
    limit: int | None = None
    take: int | None = None
    labels: PseudoLabels | None = None  # replace the labels of the sources

    def batches(self, *, images: bool = True) -> Iterator[tuple[str, Source, list[Pair]]]:
        """Yield (name of the source, file, pairs) for every batch, up to the limit."""
        batches = self._batches(images=images)
        if self.labels is None:
            yield from batches
            return
        labels = self.labels.read()
        for source, file, pairs in batches:
            yield source, file, labelled(pairs, labels)

    def _batches(self, *, images: bool) -> Iterator[tuple[str, Source, list[Pair]]]:
        remaining = self.limit
        for one in self.inputs:
            for file in one.files:
                for pairs in file.pairs(self.columns, images=images):
                    batch = pairs if images else self._without_long_names(pairs)
                    part = batch if remaining is None else batch[:remaining]
                    yield one.name, file, part
                    if remaining is not None:
                        remaining -= len(part)
                        if remaining <= 0:
                            return

    def _without_long_names(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs without labels and values beyond a cap, which are skipped later."""
        exceeded = self.columns.caps.exceeded
        return [pair._replace(label=None, value=None) if exceeded(pair) else pair for pair in pairs]


@dataclass
class SelectionPass:
    """One pass over the kept pairs; counts the pairs read, skipped and beyond --take."""

    reader: PairReader
    rule: Rule
    skips: SkipLog
    read: int = 0
    beyond_take: Counter[str] = field(default_factory=Counter)
    _per_task: Counter[str] = field(default_factory=Counter)
    _digests: dict[Source, Any] = field(default_factory=dict)

    def batches(self, scratch: Path) -> Iterator[list[SelectedPair]]:
        """Yield the kept pairs in batches; image bytes are valid until the next batch."""
        task_of = self.rule.begin()
        with scratch_table(scratch, SeenKeys.COLUMNS) as table:
            seen = SeenKeys(table)
            for source, file, pairs in self.reader.batches():
                self.read += len(pairs)
                identified = self._identified(file, pairs)
                fresh = seen.add_new([place for _, _, place in identified])
                unique = self._without_repeats(file, identified, fresh)
                kept = self._assigned(file, unique, partial(task_of, source))
                self._digest(file, kept)
                yield kept

    def inputs(self) -> list[dict[str, Any]]:
        """The fingerprint of each file read, with a hash of the keys of the pairs kept from it."""
        return [
            {**file.fingerprint(), "content": digest.hexdigest()}
            for file, digest in self._digests.items()
        ]

    def _identified(self, file: Source, pairs: list[Pair]) -> list[tuple[Pair, Sample, bytes]]:
        identified = []
        decode, by_row = self.reader.decode, self.reader.columns.split is not None
        exceeded = self.reader.columns.caps.exceeded
        for pair in pairs:
            try:
                if why := exceeded(pair):
                    raise UnusablePair("too large", why)
                sample = identify(pair, decode=decode)
                key = bytes.fromhex(sample.key)
                if by_row:
                    # The same pair may be a query and in the gallery: duplicates are per split.
                    key += _split_of_row(pair).encode()
            except UnusablePair as error:
                self.skips.add(file.path, pair.place, error.reason, str(error))
                continue
            identified.append((pair, sample, key))
        return identified

    def _without_repeats(
        self, file: Source, identified: list[tuple[Pair, Sample, bytes]], fresh: set[bytes]
    ) -> Iterator[tuple[Pair, Sample]]:
        for pair, sample, key in identified:
            if key in fresh:
                fresh.remove(key)  # the batch may hold it twice
                yield pair, sample
            else:
                detail = f"repeats an earlier pair (key {sample.key})"
                self.skips.add(file.path, pair.place, "duplicate", detail)

    def _assigned(
        self, file: Source, unique: Iterator[tuple[Pair, Sample]], task_of: Callable[[Pair], str]
    ) -> list[SelectedPair]:
        by_row = self.reader.columns.split is not None
        kept: list[SelectedPair] = []
        for pair, sample in unique:
            try:
                task = task_of(pair)
            except UnusablePair as error:
                self.skips.add(file.path, pair.place, error.reason, str(error))
                continue
            if self._takes(task):
                kept.append((task, sample, split_named(pair.split) if by_row else None))
        return kept

    def _takes(self, task: str) -> bool:
        if self.reader.take is None:
            return True
        self._per_task[task] += 1
        if self._per_task[task] > self.reader.take:
            self.beyond_take[task] += 1
            return False
        return True

    def _digest(self, file: Source, kept: list[SelectedPair]) -> None:
        digest = self._digests.setdefault(file, blake2b(digest_size=16))
        digest.update("".join([sample.key for _, sample, _ in kept]).encode())


def _split_of_row(pair: Pair) -> str:
    split = split_named(pair.split)
    if split is None:
        raise UnusablePair(
            "unknown split", f"split {pair.split!r} is not one of train, val, test, query, gallery"
        )
    return split
