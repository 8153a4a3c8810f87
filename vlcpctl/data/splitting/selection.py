"""The pairs that a split keeps, in order: read, identified, deduplicated, assigned to a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import NamedSource, failed_by_statistics
from vlcpctl.data.sources.identity import fingerprint
from vlcpctl.data.sources.pairs import Columns, pairs, too_large, too_many
from vlcpctl.data.sources.reading import FileLog
from vlcpctl.data.sources.source import Source
from vlcpctl.data.splitting.keys import SeenKeys
from vlcpctl.data.splitting.leaving_out import LeftOut
from vlcpctl.data.splitting.pseudo_labels import PseudoLabels, labelled
from vlcpctl.data.splitting.rules import Rule
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.kept_columns import united
from vlcpctl.data.tasks.keys import KEY_BYTES
from vlcpctl.data.tasks.samples import (
    DUPLICATE,
    FAILED_DOWNLOAD,
    KeptValues,
    Pair,
    UnusablePair,
    identify,
)
from vlcpctl.data.tasks.skips import SkipLog

# The task, the pair, and the split that its row names (None: the hold-out decides). A plain
# tuple, because one is created for every pair.
SelectedPair = tuple[str, Pair, str | None]
FileLogs = dict[Source, FileLog]
_MOST_OTHERS = 1000


@dataclass(frozen=True)
class PairReader:
    """What is read and how; the same in every pass."""

    inputs: list[NamedSource]
    columns: Columns
    decode: bool = False
    limit: int | None = None
    take: int | None = None
    only: tuple[str, ...] = ()  # the tasks that are made; (): all
    labels: PseudoLabels | None = None  # replace the labels of the sources
    left_out: LeftOut | None = None
    in_place: bool = False  # whether the images stay in their tars

    def batches(
        self, *, images: bool = True, logs: FileLogs | None = None
    ) -> Iterator[tuple[str, Source, list[Pair]]]:
        """Yield (name of the source, file, pairs) for every batch, up to the limit.

        `logs` gets a log for each file that is opened.
        """
        batches = self._batches(images=images, logs=logs)
        if self.labels is None:
            yield from batches
            return
        labels = self.labels.read()
        for source, file, batch in batches:
            yield source, file, labelled(batch, labels)

    def _batches(
        self, *, images: bool, logs: FileLogs | None
    ) -> Iterator[tuple[str, Source, list[Pair]]]:
        remaining = self.limit
        for one in self.inputs:
            for file in one.files:
                columns = self.columns
                if logs is not None:
                    columns = replace(columns, log=logs.setdefault(file, FileLog(file.path)))
                for read in pairs(file, columns, images=images):
                    batch = read if images else _without_long_names(read)
                    part = batch if remaining is None else batch[:remaining]
                    yield one.name, file, part
                    if remaining is not None:
                        remaining -= len(part)
                        if remaining <= 0:
                            return


def _without_long_names(batch: list[Pair]) -> list[Pair]:
    """The pairs without labels and values beyond a limit, which are skipped later."""
    return [pair._replace(label=None, value=None) if too_large(pair) else pair for pair in batch]


@dataclass
class SelectionPass:
    """One pass over the kept pairs; counts the pairs read, skipped, left out and beyond --take.

    The last pass also fingerprints the files, as soon as each has been read.
    """

    reader: PairReader
    rule: Rule
    skips: SkipLog
    is_last: bool = True
    # The kept values of rows that repeat a pair, which belong to the sample of the first: a
    # deletion request for a value must find a pair if any of its rows had that value.
    repeats: dict[bytes, KeptValues] = field(default_factory=dict)
    read: int = 0
    beyond_take: Counter[str] = field(default_factory=Counter)
    left_out: Counter[int] = field(default_factory=Counter)  # by the place of the list
    others: Counter[str] = field(default_factory=Counter)  # pairs by task, of those not in `only`
    _per_task: Counter[str] = field(default_factory=Counter)
    _digests: dict[Source, Any] = field(default_factory=dict)
    _logs: FileLogs = field(default_factory=dict)
    _fingerprints: dict[Source, dict[str, Any]] = field(default_factory=dict)

    def batches(self) -> Iterator[list[SelectedPair]]:
        """Yield the kept pairs in batches; image bytes are valid until the next batch."""
        task_of, logs = self.rule.begin(), self._logs if self.is_last else None
        seen = SeenKeys()
        for source, file, batch in self.reader.batches(logs=logs):
            if file not in self._digests:
                self._fingerprint_all_but(file)
                self._count_failed(file)
            self.read += len(batch)
            identified = self._without_left_out(self._identified(file, batch))
            fresh = seen.add_new([place for _, place in identified])
            unique = self._without_repeats(file, identified, fresh)
            kept = self._assigned(file, unique, partial(task_of, source))
            self._digest(file, kept)
            yield kept

    def fingerprints(self) -> dict[Source, dict[str, Any]]:
        """The fingerprint of each file that was read, after the pass."""
        self._fingerprint_all_but(None)
        return self._fingerprints

    def inputs(self) -> list[dict[str, Any]]:
        """The fingerprint of each file read, with a hash of the keys of the pairs kept from it."""
        found = self.fingerprints()
        return [
            {"name": file.path.name, **found[file], "content": digest.hexdigest()}
            for file, digest in self._digests.items()
        ]

    def values_of(self, split: str, keys: list[str]) -> dict[str, KeptValues]:
        """The kept values of rows that repeat pairs of a split, by the keys of those that have."""
        of_row = split if self.reader.columns.split is not None else None
        places = {key: place_of(key, of_row) for key in keys}
        return {key: self.repeats[one] for key, one in places.items() if one in self.repeats}

    def _count_failed(self, file: Source) -> None:
        """Count the downloads that img2dataset left out of a tar or folder."""
        for statistics, count, why in failed_by_statistics(file):
            self.read += count
            self.skips.add(file.path, statistics, FAILED_DOWNLOAD, why, count)

    def _fingerprint_all_but(self, current: Source | None) -> None:
        """Fingerprint the files that have been read, while their bytes are still in memory."""
        for file, log in self._logs.items():
            if file != current and file not in self._fingerprints:
                log.check_unchanged()
                log.remember()
                self._fingerprints[file] = fingerprint(file, self.reader.columns, log.facts())

    def _identified(self, file: Source, batch: list[Pair]) -> list[tuple[Pair, bytes]]:
        identified = []
        decode, by_row = self.reader.decode, self.reader.columns.split is not None
        for read in batch:
            try:
                if why := too_large(read):
                    raise UnusablePair("too large", why)
                pair = identify(read, decode=decode)
                key = place_of(pair.key, _split_of_row(pair) if by_row else None)
            except UnusablePair as error:
                self.skips.add(file.path, read.place, error.reason, str(error))
                continue
            identified.append((pair, key))
        return identified

    def _without_left_out(self, identified: list[tuple[Pair, bytes]]) -> list[tuple[Pair, bytes]]:
        """Leave pairs out before repeats are listed: nothing of a deleted pair is written."""
        if self.reader.left_out is None:
            return identified
        places = self.reader.left_out.places([pair for pair, _ in identified]).tolist()
        self.left_out.update(place for place in places if place >= 0)
        return [one for one, place in zip(identified, places, strict=True) if place < 0]

    def _without_repeats(
        self, file: Source, identified: list[tuple[Pair, bytes]], fresh: set[bytes]
    ) -> Iterator[Pair]:
        for pair, key in identified:
            if key in fresh:
                fresh.remove(key)  # the batch may hold it twice
                yield pair
            else:
                self._keep_values(pair.key, key, pair.kept)
                detail = f"repeats an earlier pair (key {pair.key})"
                self.skips.add(file.path, pair.place, DUPLICATE, detail)

    def _keep_values(self, name: str, key: bytes, kept: KeptValues) -> None:
        if not any(kept) or not self.is_last:
            return
        values = united(self.repeats.get(key, ((),) * len(kept)), kept)
        if why := too_many(values):
            raise BadInput(f"the rows that repeat the pair {name} have {why}")
        self.repeats[key] = values

    def _assigned(
        self, file: Source, unique: Iterator[Pair], task_of: Callable[[Pair], str]
    ) -> list[SelectedPair]:
        by_row = self.reader.columns.split is not None
        kept: list[SelectedPair] = []
        for pair in unique:
            try:
                task = task_of(pair)
            except UnusablePair as error:
                self.skips.add(file.path, pair.place, error.reason, str(error))
                continue
            if self.reader.only and task not in self.reader.only:
                # Any value of a column is a task: beyond many, their names are not kept.
                self.others[task if len(self.others) < _MOST_OTHERS else ""] += 1
            elif self._takes(task):
                kept.append((task, pair, split_named(pair.split) if by_row else None))
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
        digest.update("".join([pair.key for _, pair, _ in kept]).encode())


def place_of(key: str, split: str | None) -> bytes:
    """What duplicates share: the key, and the split if rows name theirs.

    The same pair may be a query and in the gallery.
    """
    if split is None:
        return bytes.fromhex(key)
    return blake2b(f"{key}{split}".encode(), digest_size=KEY_BYTES).digest()


def _split_of_row(pair: Pair) -> str:
    split = split_named(pair.split)
    if split is None:
        raise UnusablePair(
            "unknown split", f"split {pair.split!r} is not one of train, val, test, query, gallery"
        )
    return split


def all_left_out(reader: PairReader) -> Counter[int] | None:
    """The pairs by the place of the list, if all usable ones are left out; None if any is not.

    Reads up to the first pair that is not. Raises BadInput as reading does.
    """
    counts: Counter[int] = Counter()
    for _, _, batch in reader.batches() if reader.left_out is not None else ():
        samples = []
        for pair in batch:
            with suppress(UnusablePair):
                samples.append(identify(pair))
        assert reader.left_out is not None
        places = reader.left_out.places(samples)
        if (places < 0).any():
            return None
        counts.update(places.tolist())
    return counts or None
