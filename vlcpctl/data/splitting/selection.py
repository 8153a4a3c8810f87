"""A pass over the pairs that a split keeps: identified, without repeats, assigned to a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import failed_by_statistics
from vlcpctl.data.sources.identity import fingerprint
from vlcpctl.data.sources.pairs import too_large, too_many
from vlcpctl.data.sources.source import FileLog, Source
from vlcpctl.data.splitting.keys import SeenKeys
from vlcpctl.data.splitting.leaving_out import Counts, counts_of
from vlcpctl.data.splitting.plan import Plan
from vlcpctl.data.splitting.rules import Rule
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.keys import KEY_BYTES
from vlcpctl.data.tasks.samples import (
    DUPLICATE,
    FAILED_DOWNLOAD,
    KeptValues,
    Pair,
    UnusablePair,
    identify,
    united,
)
from vlcpctl.data.tasks.skips import SkipLog

# The task, the pair, and the split that its row names (None: the hold-out decides). A plain
# tuple, because one is created for every pair.
SelectedPair = tuple[str, Pair, str | None]
Identified = list[tuple[Pair, bytes]]  # with what its repeats share
_MOST_OTHERS = 1000


class Selection:
    """One pass over the kept pairs; counts the pairs read, skipped, left out and beyond --take.

    The last pass also fingerprints the files, as soon as each has been read, while their bytes are
    still in memory, and remembers the kept values of repeats.
    """

    def __init__(
        self, plan: Plan, rule: Rule, skips: SkipLog | None = None, *, is_last: bool = True
    ) -> None:
        self.plan, self.rule, self._is_last = plan, rule, is_last
        self.skips = skips or SkipLog(None)
        # The kept values of rows that repeat a pair, which belong to the sample of the first: a
        # deletion request for a value must find a pair if any of its rows had that value.
        self.repeats: dict[bytes, KeptValues] = {}
        self.read = 0
        self.beyond_take: Counter[str] = Counter()
        self.left_out: Counter[int] = Counter()  # by the place of the list
        self.others: Counter[str] = Counter()  # pairs by task, of those not in --only
        self.fingerprints: dict[Source, dict[str, Any]] = {}  # of each file read
        self._per_task: Counter[str] = Counter()
        self._contents: dict[Source, Any] = {}
        self._by_row = plan.columns.split is not None

    def batches(self) -> Iterator[list[SelectedPair]]:
        """Yield the kept pairs in batches; image bytes are valid until the next batch."""
        task_of, seen = self.rule.begin(), SeenKeys()
        for source, file, batch in self.plan.batches(done=self._done if self._is_last else None):
            if file not in self._contents:
                self._contents[file] = blake2b(digest_size=16)
                for name, count, why in failed_by_statistics(file):
                    self.read += count
                    self.skips.add(file.path, name, FAILED_DOWNLOAD, why, count)
            self.read += len(batch)
            identified = self._without_left_out(self._identified(file, batch))
            fresh = seen.add_new([place for _, place in identified])
            unique = self._without_repeats(file, identified, fresh)
            kept = self._assigned(file, unique, partial(task_of, source))
            self._contents[file].update("".join([pair.key for _, pair, _ in kept]).encode())
            yield kept

    def _done(self, file: Source, log: FileLog) -> None:
        log.check_unchanged()
        log.remember()
        self.fingerprints[file] = fingerprint(file, self.plan.columns, log.facts())

    def inputs(self) -> list[dict[str, Any]]:
        """The fingerprint of each file with pairs, with a hash of the keys of those kept of it."""
        return [
            {"name": file.path.name, **self.fingerprints[file], "content": content.hexdigest()}
            for file, content in self._contents.items()
        ]

    def left_out_counts(self) -> Counts:
        """The numbers of pairs left out by reason and list."""
        lists = self.plan.left_out.lists if self.plan.left_out else ()
        return counts_of(lists, self.left_out)

    def values_of(self, split: str, keys: list[str]) -> dict[str, KeptValues]:
        """The kept values of rows that repeat pairs of a split, by the keys of those that have."""
        places = {key: _shared(key, split if self._by_row else None) for key in keys}
        return {key: self.repeats[one] for key, one in places.items() if one in self.repeats}

    def _identified(self, file: Source, batch: list[Pair]) -> Identified:
        identified, decode = [], self.plan.options.decode
        for read in batch:
            try:
                if why := too_large(read):
                    raise UnusablePair("too large", why)
                pair = identify(read, decode=decode)
                split = split_named(pair.split) if self._by_row else None
                if self._by_row and split is None:
                    found = f"split {pair.split!r} is not one of train, val, test, query, gallery"
                    raise UnusablePair("unknown split", found)
            except UnusablePair as error:
                self.skips.add(file.path, read.place, error.reason, str(error))
                continue
            identified.append((pair, _shared(pair.key, split)))
        return identified

    def _without_left_out(self, identified: Identified) -> Identified:
        """Leave pairs out before repeats are listed: nothing of a deleted pair is written."""
        if self.plan.left_out is None:
            return identified
        places = self.plan.left_out.places([pair for pair, _ in identified]).tolist()
        self.left_out.update(place for place in places if place >= 0)
        return [one for one, place in zip(identified, places, strict=True) if place < 0]

    def _without_repeats(
        self, file: Source, identified: Identified, fresh: set[bytes]
    ) -> Iterator[Pair]:
        for pair, shared in identified:
            if shared in fresh:
                fresh.remove(shared)  # the batch may hold it twice
                yield pair
                continue
            if any(pair.kept) and self._is_last:
                values = united(self.repeats.get(shared, ((),) * len(pair.kept)), pair.kept)
                if why := too_many(values):
                    raise BadInput(f"the rows that repeat the pair {pair.key} have {why}")
                self.repeats[shared] = values
            detail = f"repeats an earlier pair (key {pair.key})"
            self.skips.add(file.path, pair.place, DUPLICATE, detail)

    def _assigned(
        self, file: Source, unique: Iterator[Pair], task_of: Callable[[Pair], str]
    ) -> list[SelectedPair]:
        only, take = self.plan.only, self.plan.options.take
        kept: list[SelectedPair] = []
        for pair in unique:
            try:
                task = task_of(pair)
            except UnusablePair as error:
                self.skips.add(file.path, pair.place, error.reason, str(error))
                continue
            if only and task not in only:
                # Any value of a column is a task: beyond many, their names are not kept.
                self.others[task if len(self.others) < _MOST_OTHERS else ""] += 1
                continue
            if take is not None:
                self._per_task[task] += 1
                if self._per_task[task] > take:
                    self.beyond_take[task] += 1
                    continue
            kept.append((task, pair, split_named(pair.split) if self._by_row else None))
        return kept


def _shared(key: str, split: str | None) -> bytes:
    """What repeats share: the key, and the split if rows name theirs.

    The same pair may be a query and in the gallery.
    """
    if split is None:
        return bytes.fromhex(key)
    return blake2b(f"{key}{split}".encode(), digest_size=KEY_BYTES).digest()


def all_left_out(plan: Plan) -> Counts | None:
    """The pairs by reason and list, if all usable ones are left out; None if any is not.

    Reads up to the first pair that is not. Raises BadInput as reading does.
    """
    if plan.left_out is None:
        return None
    counts: Counter[int] = Counter()
    for _, _, batch in plan.batches():
        samples = []
        for pair in batch:
            with suppress(UnusablePair):
                samples.append(identify(pair))
        places = plan.left_out.places(samples)
        if (places < 0).any():
            return None
        counts.update(places.tolist())
    return counts_of(plan.left_out.lists, counts) or None
