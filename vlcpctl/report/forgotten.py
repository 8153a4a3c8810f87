"""What runs forgot and gained since they learned each task: counts, queries and their pictures.

A card of the page is one line with the keys of its pairs, so that `vlcpctl forget` can remove the
lines of a pair.
"""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, islice
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
    grouped,
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
_AT_ONCE = 8  # pairs of rows whose ranks are read together
_LONGEST_TEXT = 160  # characters
_QUALITY = 82  # of JPEG
_OF_TRACK = ("evaluator", "protocol", "map_variant", "split")
_COUNTS = ("queries", "right_then", "right_now", "forgotten", "gained")
_REMOVED = "a pair that was deleted since"


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


@dataclass(frozen=True)
class Forgotten:
    """What all runs forgot, and the pictures and captions of --images."""

    tallies: tuple[Tally, ...]
    library: Library
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = field(default=frozenset(), compare=False)  # files of ranks


class _Compared(NamedTuple):
    """The rows of an earlier and a later model on the data called `task`."""

    then: Row
    now: Row
    task: str
    seeds: tuple[int, ...]


def find_forgotten(
    tracks: Iterable[Track], files: Sequence[SavedRanks], library: Library
) -> Forgotten:
    """What each run forgot of each task but its last, on the task's own gallery.

    Of several seeds, the first one with ranks is shown. Raises BadInput if a file of ranks cannot
    be read.
    """
    tallies, notes, used = [], dict[str, None](), set[Path]()
    for run in (run for track in tracks for run in track.runs):
        for number in range(len(run.seeds)):
            of = {
                (step, task): row
                for (n, step, task), row in run.rows.items()
                if n == number and step > START and task < len(run.tasks)
            }
            last = max((step for step, _ in of), default=START)
            compared = [
                _Compared(of[task, task], of[last, task], run.tasks[task], run.seeds)
                for task in range(last)
                if (task, task) in of and (last, task) in of
            ]
            found = list(_tallies(compared, files, notes, used))
            tallies += found
            if found:
                break
    return Forgotten(tuple(tallies), library, tuple(notes), frozenset(used))


def find_lost(
    curves: Iterable[Curve], files: Sequence[SavedRanks], against: Sequence[Against]
) -> list[Tally]:
    """What the last model of a run lost on the data of each curve, in its first seed.

    The earlier model is the first of `against` that has ranks; `learned` is its step, or START.
    Data without ranks are left out. Raises BadInput if a file of ranks cannot be read.
    """
    found = []
    for curve in curves:
        for one in against:
            pairs = [_Compared(*rows, curve.data, curve.run.seeds) for rows in curve.pairs(one)[:1]]
            if tallies := list(_tallies(pairs, files, {}, set())):
                found += [replace(of, learned=step_of(pairs[0].then)) for of in tallies]
                break
    return found


def _tallies(
    compared: Sequence[_Compared],
    files: Sequence[SavedRanks],
    notes: dict[str, None],
    used: set[Path],
) -> Iterator[Tally]:
    """What changed between two models in each direction, of the pairs of rows that have ranks.

    It adds to the notes and to the files that are used.
    """
    for at in range(0, len(compared), _AT_ONCE):
        some = compared[at : at + _AT_ONCE]
        ranks = RanksOfRows(files, [row for one in some for row in one[:2]], has_answers=True)
        for one in some:
            then, now = ranks.of(one.then), ranks.of(one.now)
            if then is not None and now is not None:
                then, now = then.shared_with(now), now.shared_with(then)
                for way in sorted(then.ways):
                    yield _tally(one, way, then.ways[way], now.ways[way])
        notes |= ranks.notes
        used |= ranks.used


def _tally(one: _Compared, way: str, then: QueryRanks, now: QueryRanks) -> Tally:
    was_right, is_right = then.rank == 1, now.rank == 1
    lost = np.flatnonzero(was_right & ~is_right)
    return Tally(
        track=track_key(one.then),
        run=one.now.run,
        seed=one.now.seed,
        seeds=one.seeds,
        task=one.task,
        learned=one.then.step or 0,
        last=one.now.step or 0,
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


@dataclass
class Library:
    """The pairs of some tasks, found by their keys; only what is shown is read.

    `splits` are those that are searched, None for all.
    """

    tasks: Sequence[Task]
    splits: frozenset[str] | None = None
    _places: dict[str, tuple[Split, int]] = field(default_factory=dict)
    _pictures: dict[str, str] = field(default_factory=dict)

    def find(self, keys: Iterable[str]) -> None:
        """Look for pairs, all at once: each index is read once a call.

        Raises BadInput if an index is damaged.
        """
        from vlcpctl.data.tasks.keys import Keys

        is_key = (one for one in dict.fromkeys(keys) if _KEY.fullmatch(one))
        wanted = Keys.of([one for one in is_key if one not in self._places])
        for split in self._opened if len(wanted) else ():
            for row in np.flatnonzero(split.keys.among(wanted)).tolist():
                self._places.setdefault(split.keys[row], (split, row))

    def caption(self, key: str, place: int | None) -> str:
        """A caption of a pair that was looked for (None: the first), on one line; empty if unknown.

        It is cut if it is long.
        """
        found = self._places.get(key)
        captions = [] if found is None else found[0].captions(found[1])
        return _clipped(captions[place or 0]) if (place or 0) < len(captions) else ""

    def picture(self, key: str) -> str:
        """A pair's picture as the address of a JPEG, data and all; empty if no task has it.

        Raises BadInput if its bytes have changed or cannot be decoded.
        """
        if key in self._places and key not in self._pictures:
            split, row = self._places[key]
            data = small_picture(split.image(row), f"{split.path} (key {key})")
            self._pictures[key] = f"data:image/jpeg;base64,{b64encode(data).decode()}"
        return self._pictures.get(key, "")

    @cached_property
    def _opened(self) -> list[Split]:
        return [
            task.split(name)
            for task in self.tasks
            for name in task.manifest.splits
            if (self.splits is None or name in self.splits) and task.counts[name]
        ]


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


def small_picture(data: bytes, what: str = "image") -> bytes:
    """An encoded image as a JPEG of at most EDGE pixels at each edge.

    The ratio of its edges stays, smaller images are not enlarged, and transparency becomes white.
    Raises BadInput if it cannot be decoded; `what` names it.
    """
    from PIL import Image

    from vlcpctl.data.images.transforms import decode_reduced

    # A JPEG is decoded smaller, with twice the pixels to spare.
    decoded = decode_reduced(
        data, lambda size: next((by for by in (8, 4, 2) if max(size) // by >= 2 * EDGE), 1), what
    )
    width, height = decoded.size
    scale = min(1.0, EDGE / max(width, height))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = decoded.pixels if size == decoded.pixels.size else decoded.resize(size, "bicubic")
    file = io.BytesIO()  # without comments and profiles of the image
    Image.fromarray(np.asarray(small)).save(file, "JPEG", optimize=True, quality=_QUALITY)
    return file.getvalue()


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

    Empty if no ranks belong to a run that has learned two tasks.
    """
    if found is None or not found.tallies:
        return ""
    order = {name: place for place, name in enumerate(names)}
    every = sorted(
        found.tallies, key=lambda one: (one.learned, one.task, one.track, order.get(one.run, 0))
    )
    chosen = grouped(deepest(every, MOST_EXAMPLES), lambda pair: id(pair[0]))
    shown = [replace(one, changes=tuple(of for _, of in chosen[id(one)])) for one in every]
    _find(found.library, [change for one in shown for change in one.changes])
    tasks: dict[str, list[tuple[str, str, list[Tally]]]] = {}
    for (track, run, task), found_of in groupby(shown, attrgetter("track", "run", "task")):
        of = list(found_of)
        then = "the baseline" if of[0].learned == START else "the model that had just learned it"
        about = f"{track[0]}, seed {of[0].seed}; then: {then}, now: the last model"
        tasks.setdefault(task, []).append((run, about, of))
    values = (HEADING, ABOUT, tasks, WAYS, partial(sides, found.library), source("style.css"))
    return render("forgotten.html", "page", *values)


def lost_cards(library: Library, chosen: Sequence[tuple[Tally, Change]], count: int) -> Markup:
    """The chosen ones of so many queries as cards, by the names of their data."""
    _find(library, [change for _, change in chosen])
    return render("forgotten.html", "lost", chosen, count, partial(sides, library))


def _find(library: Library, changes: Sequence[Change]) -> None:
    library.find(key for one in changes for key in (one.key, one.wrong) if key)


class Answer(NamedTuple):
    """What is shown of a pair: its picture, if `address` is not empty, or a text, or its key."""

    text: str
    is_known: bool
    address: str = ""


def sides(library: Library, way: str, one: Change) -> tuple[Answer, Answer, Answer]:
    """The query, its right answer and the wrong one, as pictures or texts.

    Keys are shown of pairs that no task of the library has.
    """

    def text(key: str, caption: int | None = None) -> Answer:
        words = library.caption(key, caption)
        return Answer(words or f"key {_clipped(key)}", bool(words))

    def image(key: str) -> Answer:
        return text(key)._replace(is_known=False, address=library.picture(key))

    if way == CLASSES:
        label, given = (Answer(_clipped(name or ""), True) for name in (one.label, one.wrong))
        return image(one.key), label, given
    removed = Answer(_REMOVED, False)
    if way == "i2t":
        wrong = text(one.wrong, one.wrong_caption) if one.wrong else removed
        return image(one.key), text(one.key), wrong
    wrong = image(one.wrong) if one.wrong else removed
    return text(one.key, one.caption), image(one.key), wrong


def deepest(tallies: Sequence[Tally], most: int) -> list[tuple[Tally, Change]]:
    """The deepest falls of each list in turn, at most so many."""
    falls = (
        (depth, place, one, change)
        for place, one in enumerate(tallies)
        for depth, change in enumerate(one.changes)
    )
    ordered = sorted(falls, key=lambda fall: fall[:2])
    return [(one, change) for _, _, one, change in islice(ordered, most)]
