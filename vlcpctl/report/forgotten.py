"""What runs forgot and gained since they learned each task: counts, queries and their pictures.

A card of the page is one line with the keys of its pairs, so that `vlcpctl forget` can remove the
lines of a pair.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.words import counted
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.rows import Row
from vlcpctl.report.html import render, source
from vlcpctl.report.markup import Markup
from vlcpctl.report.ranks import RanksOfRows
from vlcpctl.report.scores import (
    START,
    Against,
    Curve,
    Track,
    TrackKey,
    step_of,
    track_key,
)
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables import ordered_runs

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Split, Task
    from vlcpctl.evaluation.rank_files import QueryRanks, SavedRanks

CLASSES = "i2c"
WAYS = {"i2t": "image to text", "t2i": "text to image", CLASSES: "image to class"}
PAGE = "forgotten.html"
HEADING = "What was forgotten"
ABOUT = (
    "A query is forgotten if its right answer came first (rank 1) for the model that had just "
    "learned its task, and no longer does for the last model of the run. Gained is the reverse. On "
    "guards, the earlier model is the baseline."
)
MOST_EXAMPLES = 200  # of a page
EDGE = 96  # pixels: the longest edge of a picture

_KEY = re.compile("[0-9a-f]{32}")
_OF_A_LIST = 12  # examples
_LONGEST_TEXT = 160  # characters
_OF_TRACK = ("evaluator", "protocol", "map_variant", "split")
_COUNTS = ("queries", "right_then", "right_now", "forgotten", "gained")
_REMOVED = "a pair that was deleted since"


Places = dict[str, tuple["Split", int]]  # by key: a split and the row of the pair


class Change(NamedTuple):
    """A query that the earlier model answered right and the later one does not, with both ranks.

    `wrong` is the best wrong answer now, a sample's key or a class; None if 'vlcpctl forget' has
    removed that sample. Captions are None for images and classes.
    """

    key: str
    caption: int | None
    label: str | None
    then: int
    now: int
    wrong: str | None
    wrong_caption: int | None


@dataclass(frozen=True)
class Tally:
    """The queries of one task in one direction, between two models of a run on its own gallery.

    `seeds` are all seeds of the run, of which `seed` is the one shown. `learned` and `last` are the
    steps of the models, START a baseline. Of the `forgotten`, `changes` are those shown, the worst
    rank first.
    """

    track: TrackKey
    run: str
    seed: int
    seeds: tuple[int, ...]
    task: str
    learned: int
    last: int
    way: str
    queries: int
    right_then: int
    right_now: int
    forgotten: int
    gained: int
    changes: tuple[Change, ...] = ()

    def records(self) -> Iterator[dict[str, Any]]:
        """The counts, as records of facts.csv."""
        about: dict[str, Any] = dict(zip(_OF_TRACK, self.track, strict=True))
        about |= {"run": self.run, "seeds": str(self.seed), "gallery": "own", "n": 1}
        about |= {"data": self.task, "step": str(self.last), "key": self.way}
        about |= {"since": "start" if self.learned == START else str(self.learned)}
        yield from (about | {"metric": one, "value": getattr(self, one)} for one in _COUNTS)


class Library(NamedTuple):
    """Tasks with pictures and captions of pairs, and the splits that are searched; None: all."""

    tasks: Sequence[Task] = ()
    splits: frozenset[str] | None = None

    def find(self, tallies: Iterable[Tally]) -> Places:
        """Where the queries and wrong answers of these tallies are; each index is read once.

        Raises BadInput if an index is damaged.
        """
        from vlcpctl.data.tasks.keys import Keys

        changes = [change for one in tallies for change in one.changes]
        named = dict.fromkeys(key for one in changes for key in (one.key, one.wrong) if key)
        wanted = Keys.of([key for key in named if _KEY.fullmatch(key)])
        found: Places = {}
        for task in self.tasks if len(wanted) else ():
            names = [one for one in task.manifest.splits if task.counts[one]]
            for name in names if self.splits is None else self.splits.intersection(names):
                split = task.split(name)
                for row in np.flatnonzero(split.keys.among(wanted)).tolist():
                    found.setdefault(split.keys[row], (split, row))
        return found


@dataclass(frozen=True)
class Forgotten:
    """What runs forgot, why ranks were not used, the files of those that were, and --images."""

    tallies: tuple[Tally, ...]
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = frozenset()
    library: Library = field(default_factory=Library)


def find_forgotten(
    curves: Iterable[Curve], files: Sequence[SavedRanks], against: Sequence[Against]
) -> Forgotten:
    """What the last model forgot on the data of each curve, and gained.

    The earlier model is the first of `against` that has ranks; of several seeds, the first one that
    has them is shown. Raises BadInput if a file of ranks cannot be read.
    """
    tallies, notes, used = [], dict[str, None](), set[Path]()
    for _, of_run in groupby(curves, lambda one: one.run):
        found = [(one, [pair for of in against for pair in one.pairs(of)]) for one in of_run]
        rows = (row for _, pairs in found for pair in pairs for row in pair)
        ranks = RanksOfRows(files, rows, has_answers=True)
        for curve, pairs in found:
            every = ([*_tallies(curve, pair, ranks)] for pair in pairs)
            tallies += next(filter(None, every), [])
        notes |= ranks.notes
        used |= ranks.used
    return Forgotten(tuple(tallies), tuple(notes), frozenset(used))


def _tallies(curve: Curve, rows: tuple[Row, Row], ranks: RanksOfRows) -> Iterator[Tally]:
    """What changed between two models in each direction; nothing if either has no ranks."""
    then, now = map(ranks.of, rows)
    if then is not None and now is not None:
        then, now = then.shared_with(now), now.shared_with(then)
        for way in sorted(then.ways):
            yield _tally(curve, rows, way, then.ways[way], now.ways[way])


def _tally(
    curve: Curve, rows: tuple[Row, Row], way: str, then: QueryRanks, now: QueryRanks
) -> Tally:
    was_right, is_right = then.rank == 1, now.rank == 1
    lost = np.flatnonzero(was_right & ~is_right)
    return Tally(
        track=track_key(rows[0]),
        run=curve.run.name,
        seed=rows[1].seed,
        seeds=curve.run.seeds,
        task=curve.data,
        learned=step_of(rows[0]),
        last=step_of(rows[1]),
        way=way,
        queries=len(then.rank),
        right_then=int(was_right.sum()),
        right_now=int(is_right.sum()),
        forgotten=len(lost),
        gained=int((is_right & ~was_right).sum()),
        changes=tuple(_changes(then, now, lost)),
    )


def _changes(then: QueryRanks, now: QueryRanks, rows: np.ndarray) -> Iterator[Change]:
    """The queries at some rows, those with the worst rank first, ties in the order of keys.

    An image and its captions are one sample: of each, only the first query is shown.
    """
    rows = rows[np.argsort(-now.rank[rows], kind="stable")]
    codes = then.keys.take(rows).dictionary_encode().indices.to_numpy()
    rows = rows[np.sort(np.unique(codes, return_index=True)[1])][:_OF_A_LIST]
    wrong, wrong_caption = ([None] * len(rows),) * 2
    if now.wrong is not None:
        wrong, wrong_caption = (column.to_pylist() for column in now.wrong.at(rows))
    labels = [None] * len(rows) if then.labels is None else then.labels.take(rows).to_pylist()
    captions = (None if one < 0 else one for one in then.captions[rows].tolist())
    ranks = then.rank[rows].tolist(), now.rank[rows].tolist()
    columns = then.keys.take(rows).to_pylist(), captions, labels, *ranks, wrong, wrong_caption
    return (Change(*of) for of in zip(*columns, strict=True))


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}\u2026"


def open_library(paths: Iterable[Path]) -> list[Task]:
    """The tasks of stream and task directories, each once.

    Raises BadInput if a path is neither, or if it has changed since it was written.
    """
    from vlcpctl.data.tasks.task import open_stream, open_task

    found: dict[str, Task] = {}
    for path in paths:
        if not path.exists():
            raise BadInput(f"--images: {missing(path)}")
        if kind_of(path) not in {"stream", "task"}:
            raise BadInput(f"--images: {path} is neither a stream nor a task directory")
        for task in open_stream(path) if kind_of(path) == "stream" else [open_task(path)]:
            found.setdefault(task.content, task)
    return list(found.values())


def forgotten_tables(
    found: Forgotten | None, tracks: Iterable[Track], key: Callable[[Track], str]
) -> list[Table]:
    """The counts of forgotten and gained queries by run, for each track.

    `key` gives the main metric of a track, by which its runs are ordered.
    """
    tables = []
    for track in tracks if found else ():
        runs = [run.name for run in ordered_runs(track, key(track))]
        every = found.tallies if found else ()
        own = [one for one in every if one.track == track_key(track)]
        own.sort(key=lambda one: (runs.index(one.run), one.learned))
        tables += [_runs_table(track.title, own)] if own else []
    return tables


def _runs_table(title: str, tallies: Sequence[Tally]) -> Table:
    """A row for each run: its queries over all tasks, how many were right, forgotten, gained."""
    names = ("right then", "forgotten", "share", "gained", "right now")
    columns = (Column("run", is_number=False), Column("queries"), *map(Column, names))
    rows = []
    for run in dict.fromkeys(one.run for one in tallies):
        of = [one for one in tallies if one.run == run]
        queries, then = sum(one.queries for one in of), sum(one.right_then for one in of)
        lost, gained = sum(one.forgotten for one in of), sum(one.gained for one in of)
        counts = [queries, then, lost, gained, sum(one.right_now for one in of)]
        cells = [TableCell(str(one), value=one) for one in counts]
        share = TableCell(f"{100 * lost / then:.0f} %" if then else "-")
        rows.append((TableCell(run), *cells[:3], share, *cells[3:]))
    several = {(one.seed, len(one.seeds)) for one in tallies if len(one.seeds) > 1}
    notes = (f"seed {seed} of {counted(count, 'seed')} is counted" for seed, count in several)
    group = RowGroup("", tuple(rows))
    title = f"Forgotten and gained queries: {title}"
    return Table(title, columns, (group,), tuple(sorted(notes)))


def forgotten_page(found: Forgotten | None, names: Sequence[str]) -> str:
    """The page of examples, runs in the order of `names`.

    Empty if no ranks belong to a run that has learned two tasks. Raises BadInput if a picture of
    --images has changed or cannot be decoded.
    """
    if found is None or not found.tallies:
        return ""
    order = {name: place for place, name in enumerate(names)}
    every = sorted(
        found.tallies, key=lambda one: (one.learned, one.task, one.track, order.get(one.run, 0))
    )
    shown = deepest(every, MOST_EXAMPLES)
    tasks: dict[str, list[tuple[str, str, list[Tally]]]] = {}
    for (track, run, task), found_of in groupby(shown, attrgetter("track", "run", "task")):
        of = list(found_of)
        then = "the baseline" if of[0].learned == START else "the model that had just learned it"
        about = f"{track[0]}, seed {of[0].seed}; then: {then}, now: the last model"
        tasks.setdefault(task, []).append((run, about, of))
    answers = partial(sides, found.library.find(shown))
    values = (HEADING, ABOUT, tasks, WAYS, answers, source("style.css"))
    return render("forgotten.html", "page", *values)


def lost_cards(tallies: Sequence[Tally], library: Library, most: int) -> Markup:
    """The deepest falls as cards, by the names of their data; raises as `forgotten_page`."""
    shown = deepest(tallies, most)
    counts = sum(len(one.changes) for one in shown), sum(one.forgotten for one in shown)
    return render("forgotten.html", "lost", shown, *counts, partial(sides, library.find(shown)))


def deepest(tallies: Sequence[Tally], most: int) -> list[Tally]:
    """The tallies with at most so many changes in all: the first of each, then the second ..."""
    falls = sorted(
        (depth, place) for place, one in enumerate(tallies) for depth in range(len(one.changes))
    )
    shown = Counter(place for _, place in falls[:most])
    return [replace(one, changes=one.changes[: shown[n]]) for n, one in enumerate(tallies)]


class Answer(NamedTuple):
    """What is shown of a pair: its picture, if `address` is not empty, or a text, or its key."""

    text: str
    is_known: bool
    address: str = ""


def sides(found: Places, way: str, one: Change) -> tuple[Answer, Answer, Answer]:
    """The query, its right answer and the wrong one, as pictures or texts.

    Keys are shown of pairs that were not found.
    """
    if way == CLASSES:
        label, given = (Answer(_clipped(name or ""), True) for name in (one.label, one.wrong))
        return _image(found, one.key), label, given
    shown, other = (_image, _text) if way == "i2t" else (_text, _image)
    wrong = other(found, one.wrong, one.wrong_caption) if one.wrong else Answer(_REMOVED, False)
    return shown(found, one.key, one.caption), other(found, one.key), wrong


def _text(found: Places, key: str, caption: int | None = None) -> Answer:
    """A caption of a pair (None: the first), on one line."""
    captions = found[key][0].captions(found[key][1]) if key in found else []
    is_known = (caption or 0) < len(captions)
    return Answer(_clipped(captions[caption or 0] if is_known else f"key {key}"), is_known)


def _image(found: Places, key: str, caption: int | None = None) -> Answer:
    """The picture of a pair as an address, data and all, beside a caption."""
    from vlcpctl.data.images.transforms import small_jpeg

    answer = _text(found, key, caption)._replace(is_known=False)
    if key not in found:
        return answer
    split, row = found[key]
    data = small_jpeg(split.image(row), EDGE, f"{split.path} (key {key})")
    return answer._replace(address=f"data:image/jpeg;base64,{b64encode(data).decode()}")
