"""Split pairs into a stream of tasks in one pass (two if images are held out by number)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
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
from vlcpctl.data.splitting.selection import SelectedPair, Selection
from vlcpctl.data.tasks.facts import TaskSummary
from vlcpctl.data.tasks.index import SPLITS
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.samples import KeptValues, Pair
from vlcpctl.data.tasks.skips import SkipLog
from vlcpctl.data.tasks.tars import Appender, SplitWriter, TarLinks, TarWriter
from vlcpctl.files.inputs import MOST_TASKS

ELSEWHERE = "held out in another task"
BEYOND = "beyond --take"
SplitOf = Callable[[str, Pair, str | None], str | None]
MoreOfSplit = Callable[[str, list[str]], Mapping[str, KeptValues]]


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
    leaks = _Leaks(plan, rule) if plan.tests or plan.tests_itself else None
    skips = SkipLog(directory / "skipped.ndjson")
    selection = Selection(plan, rule, skips)
    writers = _Writers(directory, plan)
    gc.disable()  # the loop creates millions of small tuples, and no reference cycles
    try:
        for batch in selection.batches():
            writers.add(leaks.without(batch, split_of) if leaks else batch, split_of)
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
    counts = selection.left_out_counts() | (counts_of(leaks.lists, leaks.counts) if leaks else {})
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


class _Leaks:
    """Leaves out pairs for training that have a test image, and counts them by its list.

    The pairs are read for the test images of the stream itself.
    """

    def __init__(self, plan: Plan, rule: Rule) -> None:
        self.lists, self.counts = list(plan.tests), Counter[int]()
        if plan.tests_itself:
            digits: set[str] = set()
            for batch in Selection(plan, rule, is_last=False).batches():
                tested = [pair for _, pair, split in batch if split == "test"]
                digits |= {pair.sha256[: 2 * KEY_BYTES] for pair in tested}
            self.lists.append(LeftOutList(LEAKED, SELF, SELF, images=Keys.of(digits)))
        self._left_out = LeftOut(self.lists)

    def without(self, batch: list[SelectedPair], split_of: SplitOf) -> list[SelectedPair]:
        """The pairs of a batch that are no leaks."""
        kept = []
        places = self._left_out.places([pair for _, pair, _ in batch]).tolist()
        for pair, place in zip(batch, places, strict=True):
            if place >= 0 and split_of(*pair) == "train":
                self.counts[place] += 1
            else:
                kept.append(pair)
        return kept


class _Writers:
    """The writers of all splits of all tasks."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._directory, self._plan = directory, plan
        self._appender = Appender()
        self.lacking: Counter[str] = Counter()  # images without a value of each kept column
        self.directories: dict[str, Path] = {}
        self._splits: dict[str, dict[str, SplitWriter]] = {}
        self._labels: dict[str, set[str | None]] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, batch: list[SelectedPair], split_of: SplitOf) -> None:
        """Append each sample to its split, which is created for the first one."""
        groups: dict[tuple[str, str | None], list[Pair]] = {}
        for task, sample, requested in batch:
            split = split_of(task, sample, requested)
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
