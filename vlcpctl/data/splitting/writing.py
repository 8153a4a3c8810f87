"""Split pairs into a stream of tasks in one pass (two if images are held out by number).

A pass goes over the pairs that a split keeps: identified, without repeats, assigned to a task.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.data.sources.find import failed_by_statistics
from vlcpctl.data.sources.identity import fingerprint
from vlcpctl.data.sources.pairs import too_large, too_many
from vlcpctl.data.sources.source import FileLog, Source
from vlcpctl.data.splitting.holdout import CountedHoldout
from vlcpctl.data.splitting.leaving_out import (
    LEAKED,
    SELF,
    Counts,
    LeftOut,
    LeftOutList,
    counts_of,
    sentence,
)
from vlcpctl.data.splitting.plan import Plan
from vlcpctl.data.splitting.rules import (
    MAX_CLASSES,
    NO_CLASSES,
    Rule,
    by_class,
    by_column,
    by_time,
    by_turn,
)
from vlcpctl.data.tasks.facts import TaskSummary
from vlcpctl.data.tasks.index import SPLITS, split_named
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys, SeenKeys
from vlcpctl.data.tasks.samples import (
    DUPLICATE,
    FAILED_DOWNLOAD,
    KeptValues,
    Pair,
    SkipLog,
    UnusablePair,
    identify,
    united,
)
from vlcpctl.data.tasks.tars import Appender, SplitWriter, TarLinks, TarWriter
from vlcpctl.files.inputs import MOST_TASKS

ELSEWHERE = "held out in another task"
BEYOND = "beyond --take"
# The task, the pair, and the split that its row names (None: the hold-out decides). A plain
# tuple, because one is created for every pair.
SelectedPair = tuple[str, Pair, str | None]
Identified = list[tuple[Pair, bytes]]  # with what its repeats share
_MOST_OTHERS = 1000
SplitOf = Callable[[str, Pair, str | None], str | None]
MoreOfSplit = Callable[[str, list[str]], Mapping[str, KeptValues]]


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
        self.fingerprints[file] = fingerprint(file, self.plan.columns, log.finished())

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


# -- writing


@dataclass(frozen=True)
class WrittenTasks:
    """What a split wrote: the tasks in the order of the rule, each in a numbered directory."""

    tasks: list[TaskSummary]
    directories: list[Path]
    selection: Selection
    skipped: dict[str, int]
    left_out: Counts
    lacking: Counter[str]  # images without a value, by kept column
    warnings: list[str]


def write_tasks(plan: Plan, directory: Path, advance: Callable[[int], None]) -> WrittenTasks:
    """Write the shards and indices of every task under `directory`, without manifests.

    `advance` is called with the number of pairs kept after every batch. Raises TooManySkipped, and
    BadInput if a task would be empty.
    """
    rule = rule_of(plan)
    split_of, warnings = _split_chooser(plan, rule)
    leaks = _leaks(plan, rule)
    skips = SkipLog(directory / "skipped.ndjson")
    selection = Selection(plan, rule, skips)
    writers = _Writers(directory, plan, split_of, leaks)
    gc.disable()  # the loop creates millions of small tuples, and no reference cycles
    try:
        for batch in selection.batches():
            writers.add(batch)
            advance(len(batch))
        more = selection.values_of if selection.repeats else None
        tasks = writers.close(rule.names, selection.beyond_take, more)
    except BaseException:
        writers.abandon()
        raise
    finally:
        gc.enable()
        skips.close()
    skips.check(plan.tolerance, selection.read)
    counts = selection.left_out_counts() | counts_of(leaks.lists if leaks else (), writers.leaked)
    _check_filled(plan, tasks, selection, counts)
    directories = [writers.directories[task.name] for task in tasks]
    skipped = dict(skips.counts)
    return WrittenTasks(tasks, directories, selection, skipped, counts, writers.lacking, warnings)


def rule_of(plan: Plan) -> Rule:
    """The rule of a split; the kinds `classes` and `time` scan the data first."""
    by, tasks, seed = plan.by, plan.options.tasks, plan.options.seed
    if by.kind == "all":
        return Rule([str(by.task)], lambda: lambda _source, _pair: str(by.task))
    if by.kind == "source":
        return Rule([one.name for one in plan.inputs], lambda: lambda source, _pair: source)
    if by.kind == "column":
        return by_column(str(by.column))
    if by.kind == "iid":
        return by_turn(tasks or 1, seed)
    batches = (batch for _, _, batch in plan.batches(images=False))
    if by.kind == "classes":
        return by_class(batches, tasks or 1, seed)
    return by_time(batches, str(by.column), tasks, plan.options.time_format)


def _split_chooser(plan: Plan, rule: Rule) -> tuple[SplitOf, list[str]]:
    """The function that chooses the split of a sample, and warnings."""
    holdout = plan.holdout
    if holdout is None:
        return lambda _task, _sample, split: split, []
    if not holdout.counted:
        return lambda _task, sample, _split: holdout.split_of(sample.sha256), []
    counted = CountedHoldout(holdout)
    for batch in Selection(plan, rule, is_last=False).batches():
        for task, sample, _ in batch:
            counted.count(task, sample.sha256)
    warnings = counted.decide()
    return lambda task, sample, _split: counted.split_of(task, sample.sha256), warnings


def _leaks(plan: Plan, rule: Rule) -> LeftOut | None:
    """The test images that no pair for training may have, if there are any.

    For those of the stream itself the pairs are read.
    """
    lists = list(plan.tests)
    if plan.tests_itself:
        digits: set[str] = set()
        for batch in Selection(plan, rule, is_last=False).batches():
            tested = [pair for _, pair, split in batch if split == "test"]
            digits |= {pair.sha256[: 2 * KEY_BYTES] for pair in tested}
        lists.append(LeftOutList(LEAKED, SELF, SELF, images=Keys.of(digits)))
    return LeftOut(lists) if lists else None


class _Writers:
    """The writers of all splits of all tasks; they leave leaks out and count them by list."""

    def __init__(
        self, directory: Path, plan: Plan, split_of: SplitOf, leaks: LeftOut | None
    ) -> None:
        self._directory, self._plan, self._split_of, self._leaks = directory, plan, split_of, leaks
        self._appender, self.leaked = Appender(), Counter[int]()
        self.lacking: Counter[str] = Counter()  # images without a value of each kept column
        self.directories: dict[str, Path] = {}
        self._splits: dict[str, dict[str, SplitWriter]] = {}
        self._labels: dict[str, set[str | None]] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, batch: list[SelectedPair]) -> None:
        """Append each sample to its split, which is created for the first one."""
        groups: dict[tuple[str, str | None], list[Pair]] = {}
        pairs = [pair for _, pair, _ in batch] if self._leaks else []
        places = self._leaks.places(pairs).tolist() if self._leaks else repeat(-1)
        for (task, sample, requested), place in zip(batch, places, strict=False):
            split = self._split_of(task, sample, requested)
            if place >= 0 and split == "train":
                self.leaked[place] += 1
            else:
                groups.setdefault((task, split), []).append(sample)
        for (task, split), samples in groups.items():
            if task not in self._splits:
                self._begin(task)
            if split is None:
                self._left_out[task] += len(samples)
                continue
            if split not in self._splits[task]:
                self._splits[task][split] = self._writer(task, split)
            self._splits[task][split].extend(samples)
            self._labels[task].update([sample.label for sample in samples])
            if len(self._labels[task]) > MAX_CLASSES:
                raise BadInput(f"task {task!r} has more than {MAX_CLASSES} labels {NO_CLASSES}")

    def _begin(self, task: str) -> None:
        if len(self._splits) >= MOST_TASKS:
            raise BadInput(f"more than {MOST_TASKS} tasks; choose a column with fewer values")
        self._splits[task], self._labels[task] = {}, set()
        self.directories[task] = self._directory / f"task-{len(self.directories):04d}"
        self.directories[task].mkdir()

    def _writer(self, task: str, split: str) -> SplitWriter:
        plan, directory = self._plan, self.directories[task]
        tars = (
            TarLinks(directory, split)
            if plan.options.in_place
            else TarWriter(directory, split, self._appender, plan.shard_bytes)
        )
        return SplitWriter(split, task, tars, plan.columns.keep)

    def close(
        self, names: list[str], beyond_take: Counter[str], more: MoreOfSplit | None
    ) -> list[TaskSummary]:
        """Finish every split; returns the tasks in the order of `names`, or of first appearance.

        `more` gives kept values of rows that repeat pairs of a split, by key.
        """
        tasks = []
        for name in names or list(self._splits):
            writers = self._splits.get(name, {})
            splits = {
                split: writers[split].close(more and partial(more, split))
                for split in SPLITS
                if split in writers
            }
            for writer in writers.values():
                self.lacking.update(writer.lacking)
            labels = sorted(label for label in self._labels.get(name, ()) if label is not None)
            skipped = {ELSEWHERE: self._left_out[name], BEYOND: beyond_take[name]}
            skipped = {reason: count for reason, count in skipped.items() if count}
            tasks.append(TaskSummary(name, splits, labels, skipped))
        return tasks

    def abandon(self) -> None:
        """Close open files after an error."""
        for writer in (one for splits in self._splits.values() for one in splits.values()):
            writer.abandon()


def _check_filled(
    plan: Plan, tasks: list[TaskSummary], selection: Selection, counts: Counts
) -> None:
    """Raise UsageError for a name of --only without pairs, and BadInput for a task without any."""
    read, skips = selection.read, selection.skips
    made = [task.name for task in tasks]
    for name in plan.only:
        if name not in made:
            known = [*made, *filter(None, selection.others)]
            raise UsageError(f"--only: {unknown_name('task', name, known)}")
    if not read:
        raise BadInput(f"no pairs in {some_names([str(file.path) for file in plan.files])}")
    empty = [task.name for task in tasks if not task.splits]
    if len(empty) == len(tasks):
        if counts:
            raise BadInput(f"no pair is left to split: {sentence(counts, read)}")
        first = f"; the first: {skips.first}" if skips.first else ""
        why = f" ({skips.summary()}{first})" if skips.counts else ""
        raise BadInput(f"none of {read} pairs can be used{why}")
    if empty:
        raise BadInput(f"task {empty[0]!r} would be empty ({read} pairs in {len(tasks)} tasks)")
