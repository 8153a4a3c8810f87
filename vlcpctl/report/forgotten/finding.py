"""Which saved ranks are of the models just after a task and at the end, run by run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vlcpctl.evaluation.rank_files import GalleryRanks, SavedRanks
from vlcpctl.files.rows import Row
from vlcpctl.report.forgotten.changes import (
    CLASSES,
    Changes,
    Confusion,
    Forgotten,
    TaskChanges,
    most_of_page,
    share_of_page,
)
from vlcpctl.report.forgotten.choice import changes, confusions
from vlcpctl.report.ranks import agrees
from vlcpctl.report.scores import Against, Curve, TrackKey, step_of, track_key

_MOST_AT_ONCE = 2_000_000  # ranks of a run that are read at once: about 600 MB
_LISTS = 4  # of a run on a page: two directions, or two lists of classes and two of images


@dataclass(frozen=True)
class _Wanted:
    """The rows of one task of a run before and after, and which gallery they are of."""

    then: Row
    now: Row
    gallery: str
    earlier: Row | None = None  # of a merged gallery: the last model without this task

    def rows(self) -> list[Row]:
        """All rows whose ranks are needed."""
        return [self.then, self.now, *([] if self.earlier is None else [self.earlier])]


@dataclass
class _Chain:
    """The rows of one seed of a run on its stream, by (step, task), and its last step."""

    own: dict[tuple[int, int], Row] = field(default_factory=dict)
    merged: dict[tuple[int, int], Row] = field(default_factory=dict)
    last: int = -1

    def add(self, row: Row, step: int) -> None:
        """Add a row of the model of a stream step."""
        rows = self.own if row.gallery == "own" else self.merged
        rows[step, len(row.tasks) - 1 if row.task_step is None else row.task_step] = row
        self.last = max(self.last, step)

    def checkpoints(self) -> set[str]:
        """The checkpoints of the models."""
        rows = (*self.own.values(), *self.merged.values())
        return {row.checkpoint for row in rows}

    def last_task(self) -> str:
        """The name of the last task that the run has learned."""
        place = (self.last, self.last)
        row = self.own.get(place) or self.merged.get(place)
        return f"task {self.last}" if row is None else _name(row)

    def on_own(self, task: int) -> _Wanted | None:
        """The rows of a task alone, before and after; None without them."""
        then, now = self.own.get((task, task)), self.own.get((self.last, task))
        return None if then is None or now is None else _Wanted(then, now, "own")

    def on_merged(self, task: int) -> _Wanted | None:
        """The rows on the tasks up to this one, and of the last model on those before it."""
        then, now = self.merged.get((task, task)), self.merged.get((self.last, task))
        earlier = self.merged.get((self.last, task - 1))
        if then is None or now is None or (task > 0 and earlier is None):
            return None
        return _Wanted(then, now, "merged", earlier)

    def learned(self) -> list[int]:
        """The tasks after which the run has learned another, by their step."""
        return sorted(
            {task for step, task in (*self.own, *self.merged) if step == task < self.last}
        )


def _name(row: Row) -> str:
    """The name of a task, or of the last task of a merged gallery."""
    return row.task if row.gallery == "own" or not row.tasks else row.tasks[-1]


class _Ranks:
    """The ranks of some rows, found in all files."""

    def __init__(self, files: Sequence[SavedRanks]) -> None:
        self._files = files
        self.used: set[Path] = set()
        self.notes: dict[str, None] = {}

    def size(self, checkpoints: Collection[str]) -> int:
        """How many ranks the files have that contain some of these checkpoints."""
        found = (one for one in self._files if not one.checkpoints.isdisjoint(checkpoints))
        return sum(one.rows for one in found)

    def of(self, rows: Collection[Row], gallery: str) -> dict[int, GalleryRanks]:
        """By the id of a row: the ranks that belong to it, if there are any."""
        places = {(row.checkpoint, data) for row in rows for data in row.of_ranks}
        found: dict[tuple[str, str, str], list[GalleryRanks]] = {}
        for file in self._files:
            for one in file.read(places, gallery, has_answers=True):
                found.setdefault((one.checkpoint, one.data, one.split), []).append(one)
        chosen = {id(row): self._chosen(row, found) for row in rows}
        return {place: one for place, one in chosen.items() if one is not None}

    def _chosen(
        self, row: Row, found: Mapping[tuple[str, str, str], list[GalleryRanks]]
    ) -> GalleryRanks | None:
        places = ((row.checkpoint, data, row.split) for data in row.of_ranks)
        every = [one for place in places for one in found.get(place, ())]
        candidates = [one for one in every if one.may_be_of(row) and one.ways]
        whole = [one for one in candidates if agrees(one, row)]
        chosen = next(iter([*whole, *(one for one in candidates if one.is_reduced)]), None)
        if chosen is not None:
            self.used.add(chosen.path)
        elif candidates:
            self.notes[
                f"no examples of what {row.run!r} forgot of {row.task!r}: the ranks do not give "
                "the scores in the rows, so they were made with another --limit or other options"
            ] = None
        return chosen


def find_forgotten(rows: Sequence[Row], files: Sequence[SavedRanks], most: int) -> Forgotten:
    """What each run forgot of each task but its last, with at most `most` examples in a list.

    `rows` are those of the report. Of several seeds, the first one with ranks is shown. The own
    gallery of a task is used if rows and ranks have it, else the merged gallery up to the task.
    Many runs or tasks share `most_of_page`. Raises BadInput if a file of ranks cannot be read.
    """
    chains: dict[tuple[TrackKey, str, int], _Chain] = {}
    for row in rows:
        is_inside = row.gallery == "merged" or row.task_step is not None
        if row.since is None and row.step is not None and is_inside:
            chain = chains.setdefault((track_key(row), row.run, row.seed), _Chain())
            chain.add(row, row.step)
    runs: dict[tuple[TrackKey, str], list[int]] = {}
    for track, run, seed in sorted(chains):
        runs.setdefault((track, run), []).append(seed)
    ranks = _Ranks(files)
    budget = _Budget(runs, chains, most)
    tasks: list[TaskChanges] = []
    for (track, run), seeds in runs.items():
        for seed in seeds:
            found = list(_of_chain(chains[track, run, seed], ranks, budget, tuple(seeds)))
            tasks += found
            if found:
                break
    return Forgotten(tuple(tasks), most, notes=tuple(ranks.notes), used=frozenset(ranks.used))


def find_lost(
    curves: Iterable[Curve], files: Sequence[SavedRanks], most: int, against: Sequence[Against]
) -> list[TaskChanges]:
    """What the last model of a run lost on the data of each curve, in its first seed.

    The earlier model is the first of `against` that has ranks; `learned` is its step, or START.
    Data without ranks are left out. Raises BadInput if a file of ranks cannot be read.
    """
    known = list(curves)
    pairs = [[pair for one in against for pair in curve.pairs(one)[:1]] for curve in known]
    rows = [row for found in pairs for pair in found for row in pair]
    of_rows = _Ranks(files).of(rows, "own")
    found = []
    for curve, candidates in zip(known, pairs, strict=True):
        wanted = [one for pair in candidates if _has_ranks(one := _Wanted(*pair, "own"), of_rows)]
        for one in wanted[:1]:
            changed = _changes(one, of_rows, most)
            name, learned = curve.data, step_of(one.then)
            found.append(replace(changed, task=name, learned=learned, seeds=curve.run.seeds))
    return found


class _Budget:
    """How many examples the lists of a page may still have."""

    def __init__(
        self,
        runs: Mapping[tuple[TrackKey, str], Sequence[int]],
        chains: Mapping[tuple[TrackKey, str, int], _Chain],
        most: int,
    ) -> None:
        lists: dict[int, int] = {}
        for (track, run), seeds in runs.items():
            for task in chains[track, run, seeds[0]].learned():
                lists[task] = lists.get(task, 0) + _LISTS
        self._share = {task: share_of_page(len(lists), n, most) for task, n in lists.items()}
        self._left = dict.fromkeys(lists, most_of_page(len(lists)))

    def take(self, task: int) -> int:
        """How many examples each list of the next run may have; 0 once the page is full."""
        share = self._share.get(task, 1)
        left = self._left.get(task, 0)
        if left < _LISTS * share:
            return 0
        self._left[task] = left - _LISTS * share
        return share


def _of_chain(
    chain: _Chain, ranks: _Ranks, budget: _Budget, seeds: tuple[int, ...]
) -> Iterator[TaskChanges]:
    """What one seed of a run forgot, task by task; of large files, one task is read at a time."""
    tasks = chain.learned()
    is_large = ranks.size(chain.checkpoints()) > _MOST_AT_ONCE
    for batch in [[task] for task in tasks] if is_large else [tasks]:
        yield from _of_tasks(batch, chain, ranks, budget, seeds)


def _of_tasks(
    tasks: Sequence[int],
    chain: _Chain,
    ranks: _Ranks,
    budget: _Budget,
    seeds: tuple[int, ...],
) -> Iterator[TaskChanges]:
    own = {task: chain.on_own(task) for task in tasks}
    merged = {task: chain.on_merged(task) for task in tasks}
    of_own = ranks.of([row for one in own.values() if one for row in one.rows()], "own")
    lacking = {
        task: one for task, one in merged.items() if one and not _has_ranks(own[task], of_own)
    }
    of_merged = ranks.of([row for one in lacking.values() for row in one.rows()], "merged")
    for task, wanted in {**own, **lacking}.items():
        found = of_merged if task in lacking else of_own
        if wanted is not None and _has_ranks(wanted, found):
            changed = _changes(wanted, found, budget.take(task))
            yield replace(changed, seeds=seeds, last=chain.last, last_task=chain.last_task())


def _has_ranks(wanted: _Wanted | None, found: Mapping[int, GalleryRanks]) -> bool:
    return wanted is not None and all(id(row) in found for row in wanted.rows())


def _changes(wanted: _Wanted, found: Mapping[int, GalleryRanks], most: int) -> TaskChanges:
    then, now = found[id(wanted.then)], found[id(wanted.now)]
    earlier = None if wanted.earlier is None else found[id(wanted.earlier)]
    then, now = then.shared_with(now), now.shared_with(then)
    ways: dict[str, Changes] = {}
    confused: tuple[tuple[Confusion, ...], tuple[Confusion, ...]] = ((), ())
    for way in sorted(then.ways):
        one, other = then.ways[way], now.ways[way]
        if earlier is not None and way in earlier.ways:
            one, other = (ranks.without_keys_of(earlier.ways[way]) for ranks in (one, other))
        ways[way] = changes(one, other, most)
        if way == CLASSES:
            confused = confusions(one, other, most)
    row = wanted.then
    return TaskChanges(
        track=track_key(row),
        run=row.run,
        seed=row.seed,
        seeds=(row.seed,),
        task=_name(row),
        learned=row.step or 0,
        last=wanted.now.step or 0,
        last_task="",
        gallery=wanted.gallery,
        ways=ways,
        confused_now=confused[0],
        confused_then=confused[1],
    )
