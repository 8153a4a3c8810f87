"""Split pairs into a stream of tasks in one pass (two if images are held out by number)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.data.sources.discovery import Source
from vlcpctl.data.splitting.holdout import CountedHoldout, Holdout
from vlcpctl.data.splitting.leaving_out import (
    LEAKED,
    SELF,
    Counts,
    ImagesOfTests,
    LeftOutList,
    counts_of,
    sentence,
)
from vlcpctl.data.splitting.rules import (
    MAX_CLASSES,
    NO_CLASSES,
    AllInOne,
    ByColumn,
    BySource,
    ByTurn,
    Rule,
    SplitBy,
    by_class,
    by_time,
    numbered,
)
from vlcpctl.data.splitting.scratch_tables import RepeatedValues, repeated_values
from vlcpctl.data.splitting.selection import PairReader, SelectedPair, SelectionPass
from vlcpctl.data.tasks.index import SPLITS
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.manifests import TaskSummary
from vlcpctl.data.tasks.samples import KeptValues, Pair, Sample
from vlcpctl.data.tasks.shards import DEFAULT_SHARD_BYTES, LinkingSplitWriter, SplitWriter
from vlcpctl.data.tasks.skips import SkipLog, Tolerance
from vlcpctl.data.tasks.tar import Appender
from vlcpctl.files.inputs import MOST_TASKS

ELSEWHERE = "held out in another task"
BEYOND = "beyond --take"
SplitOf = Callable[[str, Sample, str | None], str | None]
MoreOfSplit = Callable[[str, list[str]], Mapping[str, KeptValues]]


@dataclass(frozen=True, kw_only=True)
class SplitPlan:
    """Everything that determines what a split writes."""

    reader: PairReader
    by: SplitBy
    tasks: int | None = None
    seed: int = 0
    holdout: Holdout | None = None  # None: --split-column decides
    shard_bytes: int = DEFAULT_SHARD_BYTES
    tolerance: Tolerance = field(default_factory=lambda: Tolerance.parse("0.1%"))
    time_format: str | None = None
    tests: tuple[LeftOutList, ...] = ()  # whose images no pair for training may have
    tests_itself: bool = False  # nor those that a test row of this stream has


@dataclass
class WrittenTasks:
    """What a split wrote: the tasks in the order of the rule, each in a numbered directory."""

    tasks: list[TaskSummary]
    directories: list[Path]
    skipped: dict[str, int]
    read: int
    inputs: list[dict[str, Any]]
    fingerprints: dict[Source, dict[str, Any]] = field(default_factory=dict)  # of the files read
    lacking: Counter[str] = field(default_factory=Counter)  # images without a value, by column
    warnings: list[str] = field(default_factory=list)
    left_out: Counts = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)  # pairs of the tasks not in --only


def write_tasks(plan: SplitPlan, directory: Path, advance: Callable[[int], None]) -> WrittenTasks:
    """Write the shards and indices of every task under `directory`, without manifests.

    `advance` is called with the number of pairs kept after every batch. Raises TooManySkipped, and
    BadInput if a task would be empty.
    """
    rule = make_rule(plan, directory)
    split_of, warnings = _split_chooser(plan, rule, directory)
    leaks = _leaks(plan, rule, directory)
    skips = SkipLog(directory / "skipped.ndjson")
    columns = plan.reader.columns
    writers = _Writers(directory, plan)
    gc.disable()  # the loop creates millions of small tuples, and no reference cycles
    try:
        with repeated_values(
            directory / "repeats.sqlite", len(columns.keep), columns.caps
        ) as repeats:
            selection = SelectionPass(plan.reader, rule, skips, repeats=repeats)
            for batch in selection.batches(directory / "seen"):
                writers.add(leaks.without(batch, split_of) if leaks else batch, split_of)
                advance(len(batch))
            more = _more_values(repeats, is_by_row=columns.split is not None)
            tasks = writers.close(rule.names, selection.beyond_take, more)
    except BaseException:
        writers.abandon()
        raise
    finally:
        gc.enable()
        skips.close()
    skips.check(plan.tolerance, selection.read)
    left_out = plan.reader.left_out
    counts = {} if left_out is None else counts_of(left_out.lists, selection.left_out)
    if leaks is not None:
        counts |= counts_of(leaks.images.lists, leaks.counts)
    _require_only(plan.reader.only, selection, [task.name for task in tasks])
    _check_filled(plan, tasks, selection.read, skips, counts)
    directories = [writers.directories[task.name] for task in tasks]
    return WrittenTasks(
        tasks,
        directories,
        dict(skips.counts),
        selection.read,
        selection.inputs(),
        selection.fingerprints(),
        writers.lacking,
        warnings,
        counts,
        selection.others,
    )


def _require_only(only: Sequence[str], selection: SelectionPass, made: Sequence[str]) -> None:
    """Raise UsageError for a name of --only that no pair has as its task."""
    for name in only:
        if name not in made:
            known = [*made, *filter(None, selection.others)]
            raise UsageError(f"--only: {unknown_name('task', name, known)}")


def _more_values(repeats: RepeatedValues | None, *, is_by_row: bool) -> MoreOfSplit | None:
    """The function that gives, by key, the kept values of rows that repeat pairs of a split."""
    if repeats is None or repeats.is_empty:
        return None

    def more(split: str, keys: list[str]) -> dict[str, KeptValues]:
        # As in `SelectionPass`: with a split column, duplicates are per split.
        suffix = split.encode() if is_by_row else b""
        place_of = {key: bytes.fromhex(key) + suffix for key in keys}
        found = repeats.of(list(place_of.values()))
        return {key: found[place] for key, place in place_of.items() if place in found}

    return more


def make_rule(plan: SplitPlan, scratch: Path) -> Rule:
    """The rule of the plan; the kinds `classes` and `time` scan the data first."""
    by, tasks = plan.by, plan.tasks
    if by.kind == "all":
        return AllInOne([str(by.task)])
    if by.kind == "source":
        return BySource([one.name for one in plan.reader.inputs])
    if by.kind == "column":
        return ByColumn(str(by.column), [])
    if by.kind == "iid":
        return ByTurn(numbered("part", tasks or 1), plan.seed)
    batches: Iterator[list[Pair]] = (batch for _, _, batch in plan.reader.batches(images=False))
    if by.kind == "classes":
        return by_class(batches, tasks or 1, plan.seed)
    return by_time(batches, str(by.column), tasks, scratch / "values.sqlite", plan.time_format)


def _split_chooser(plan: SplitPlan, rule: Rule, directory: Path) -> tuple[SplitOf, list[str]]:
    """The function that chooses the split of a sample, and warnings."""
    holdout = plan.holdout
    if holdout is None:
        return lambda _task, _sample, split: split, []
    if not holdout.counted:
        return lambda _task, sample, _split: holdout.split_of(sample.sha256), []
    counted = CountedHoldout(holdout)
    selection = SelectionPass(plan.reader, rule, SkipLog(None), is_last=False)
    for batch in selection.batches(directory / "seen"):
        for task, sample, _ in batch:
            counted.count(task, sample.sha256)
    warnings = counted.decide()
    return lambda task, sample, _split: counted.split_of(task, sample.sha256), warnings


class _Leaks:
    """Leaves out pairs for training that have a test image, and counts them by its list."""

    def __init__(self, lists: list[LeftOutList]) -> None:
        self.images = ImagesOfTests(lists)
        self.counts: Counter[int] = Counter()

    def without(self, batch: list[SelectedPair], split_of: SplitOf) -> list[SelectedPair]:
        """The pairs of a batch that are no leaks."""
        kept = []
        places = self.images.places([sample for _, sample, _ in batch]).tolist()
        for pair, place in zip(batch, places, strict=True):
            if place >= 0 and split_of(*pair) == "train":
                self.counts[place] += 1
            else:
                kept.append(pair)
        return kept


def _leaks(plan: SplitPlan, rule: Rule, directory: Path) -> _Leaks | None:
    """What leaves leaks out; None without --not-test-images. Reads the pairs for `self`."""
    lists = list(plan.tests)
    if plan.tests_itself:
        digits: set[str] = set()
        selection = SelectionPass(plan.reader, rule, SkipLog(None), is_last=False)
        for batch in selection.batches(directory / "seen"):
            digits |= {one.sha256[: 2 * KEY_BYTES] for _, one, split in batch if split == "test"}
        lists.append(LeftOutList(LEAKED, SELF, SELF, Keys.of(digits)))
    return _Leaks(lists) if lists else None


class _Writers:
    """The writers of all splits of all tasks."""

    def __init__(self, directory: Path, plan: SplitPlan) -> None:
        self._directory, self._shard_bytes = directory, plan.shard_bytes
        self._kept = plan.reader.columns.keep
        self._writer = LinkingSplitWriter if plan.reader.in_place else SplitWriter
        self.lacking: Counter[str] = Counter()  # images without a value of each kept column
        self._appender = Appender()
        self.directories: dict[str, Path] = {}
        self._splits: dict[str, dict[str, SplitWriter]] = {}
        self._labels: dict[str, set[str | None]] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, batch: list[SelectedPair], split_of: SplitOf) -> None:
        """Append each sample to its split, which is created for the first one."""
        groups: dict[tuple[str, str | None], list[Sample]] = {}
        for task, sample, requested in batch:
            split = split_of(task, sample, requested)
            groups.setdefault((task, split), []).append(sample)
        for (task, split), samples in groups.items():
            splits = self._splits.get(task)
            if splits is None:
                splits = self._new_task(task)
            if split is None:
                self._left_out[task] += len(samples)
                continue
            if split not in splits:
                splits[split] = self._writer(
                    self.directories[task],
                    split,
                    task,
                    self._appender,
                    self._shard_bytes,
                    self._kept,
                )
            splits[split].extend(samples)
            self._labels[task].update([sample.label for sample in samples])
            if len(self._labels[task]) > MAX_CLASSES:
                raise BadInput(f"task {task!r} has more than {MAX_CLASSES} labels {NO_CLASSES}")

    def close(
        self, names: list[str], beyond_take: Counter[str], more: MoreOfSplit | None = None
    ) -> list[TaskSummary]:
        """Finish every split; returns the tasks in the order of `names`, or of first appearance.

        `more` gives kept values of rows that repeat pairs of a split, by key.
        """
        tasks = []
        for name in names or list(self._splits):
            open_splits = self._splits.get(name, {})
            splits = {
                split: open_splits[split].close(more and partial(more, split))
                for split in SPLITS
                if split in open_splits
            }
            for writer in open_splits.values():
                self.lacking.update(writer.lacking)
            labels = sorted(label for label in self._labels.get(name, ()) if label is not None)
            skipped = {ELSEWHERE: self._left_out[name], BEYOND: beyond_take[name]}
            skipped = {reason: count for reason, count in skipped.items() if count}
            tasks.append(TaskSummary(name, splits, labels, skipped))
        return tasks

    def abandon(self) -> None:
        """Close open files after an error."""
        for splits in self._splits.values():
            for writer in splits.values():
                writer.abandon()

    def _new_task(self, task: str) -> dict[str, SplitWriter]:
        if len(self._splits) >= MOST_TASKS:
            raise BadInput(f"more than {MOST_TASKS} tasks; choose a column with fewer values")
        self._splits[task] = {}
        self._labels[task] = set()
        self.directories[task] = self._directory / f"task-{len(self.directories):04d}"
        self.directories[task].mkdir()
        return self._splits[task]


def _check_filled(
    plan: SplitPlan, tasks: list[TaskSummary], read: int, skips: SkipLog, counts: Counts
) -> None:
    if not read:
        files = [str(file.path) for one in plan.reader.inputs for file in one.files]
        raise BadInput(f"no pairs in {some_names(files)}")
    if not any(task.splits for task in tasks):
        if counts:
            raise BadInput(f"no pair is left to split: {sentence(counts, read)}")
        first = f"; the first: {skips.first}" if skips.first else ""
        why = f" ({skips.summary()}{first})" if skips.counts else ""
        raise BadInput(f"none of {read} pairs can be used{why}")
    empty = [task.name for task in tasks if not task.splits]
    if empty:
        raise BadInput(f"task {empty[0]!r} would be empty ({read} pairs in {len(tasks)} tasks)")
