"""What runs forgot and gained since they learned each task: counts, queries and their pictures.

Every line of the page that has something of a pair also has its key, so that `vlcpctl forget` can
remove the lines of a pair.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.words import counted
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.rows import Row
from vlcpctl.report.html import render, source
from vlcpctl.report.markup import Markup
from vlcpctl.report.ranks import agrees
from vlcpctl.report.scores import START, Against, Curve, Track, TrackKey, step_of, track_key
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables import ordered_runs

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Split, Task
    from vlcpctl.evaluation.rank_files import GalleryRanks, QueryRanks, SavedRanks

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

_OF_A_LIST = 12  # examples
_MOST_COMMON = 3  # wrong answers to many queries
_MOST_AT_ONCE = 2_000_000  # ranks of a run that are read at once: about 600 MB
_MOST_RUNS = 8  # that are columns of the table of tasks
_LONGEST_TEXT = 160  # characters
_QUALITY = 82  # of JPEG
_OF_TRACK = ("evaluator", "protocol", "map_variant", "split")
_REMOVED = "a pair that was deleted since"


@dataclass(frozen=True)
class Change:
    """A query that one of two models answered right: the ranks of its best right answer.

    `wrong` is the best wrong answer of the model that was wrong, a sample's key or a class; None if
    'vlcpctl forget' has removed that sample. Captions are None for images and classes.
    """

    key: str
    caption: int | None
    label: str | None
    then: int
    now: int
    wrong: str | None
    wrong_caption: int | None

    @property
    def is_gain(self) -> bool:
        """Whether it was wrong then and is right now."""
        return self.now == 1


@dataclass(frozen=True)
class Tally:
    """The queries of one task in one direction, between two models of a run on the same gallery.

    `seeds` are all seeds of the run, of which `seed` is the one shown. `learned` and `last` are the
    steps of the models, START a baseline. `gallery` is own, or merged: then the tasks up to this
    one. `forgotten` and `gained` count the `changes`, which are those shown. `common` are the wrong
    answers that are given now to most of the forgotten queries, with a caption and a count.
    """

    track: TrackKey
    run: str
    seed: int
    seeds: tuple[int, ...]
    task: str
    learned: int
    last: int
    gallery: str
    way: str
    queries: int
    right_then: int
    right_now: int
    forgotten: int
    gained: int
    changes: tuple[Change, ...] = ()
    common: tuple[tuple[str, int | None, int], ...] = ()

    def shown(self, *, gained: bool) -> list[Change]:
        """The examples, worst rank first."""
        return [one for one in self.changes if one.is_gain == gained]

    def records(self) -> Iterator[dict[str, Any]]:
        """The counts, as records of facts.csv."""
        about: dict[str, Any] = dict(zip(_OF_TRACK, self.track, strict=True))
        about |= {"run": self.run, "seeds": str(self.seed), "gallery": self.gallery, "n": 1}
        about |= {"data": self.task, "step": str(self.last), "key": self.way}
        about |= {"since": "start" if self.learned == START else str(self.learned)}
        for metric in ("queries", "right_then", "right_now", "forgotten", "gained"):
            yield about | {"metric": metric, "value": getattr(self, metric)}


@dataclass(frozen=True)
class Forgotten:
    """What all runs forgot, and the pictures and captions, if --images gave any."""

    tallies: tuple[Tally, ...]
    library: Library | None = None
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = field(default=frozenset(), compare=False)  # files of ranks


def _place(one: Tally) -> tuple[TrackKey, str, str]:
    return one.track, one.run, one.task


def find_forgotten(rows: Iterable[Row], files: Sequence[SavedRanks]) -> Forgotten:
    """What each run forgot of each task but its last.

    `rows` are those of the report. Of several seeds, the first one with ranks is shown. The own
    gallery of a task is used if rows and ranks have it, else the merged gallery up to the task.
    Raises BadInput if a file of ranks cannot be read.
    """
    chains: dict[tuple[TrackKey, str, int], dict[tuple[str, int, int], Row]] = {}
    for row in rows:
        is_inside = row.gallery == "merged" or row.task_step is not None
        if row.since is None and row.step is not None and is_inside:
            column = len(row.tasks) - 1 if row.task_step is None else row.task_step
            chain = chains.setdefault((track_key(row), row.run, row.seed), {})
            chain[row.gallery, row.step, column] = row
    runs: dict[tuple[TrackKey, str], list[int]] = {}
    for track, run, seed in sorted(chains):
        runs.setdefault((track, run), []).append(seed)
    ranks = _Ranks(files)
    tallies: list[Tally] = []
    for (track, run), seeds in runs.items():
        for seed in seeds:
            found = list(_of_chain(chains[track, run, seed], ranks))
            tallies += [replace(one, seeds=tuple(seeds)) for one in found]
            if found:
                break
    return Forgotten(tuple(tallies), notes=tuple(ranks.notes), used=frozenset(ranks.used))


def find_lost(
    curves: Iterable[Curve], files: Sequence[SavedRanks], against: Sequence[Against]
) -> list[Tally]:
    """What the last model of a run lost on the data of each curve, in its first seed.

    The earlier model is the first of `against` that has ranks; `learned` is its step, or START.
    Data without ranks are left out. Raises BadInput if a file of ranks cannot be read.
    """
    known = list(curves)
    pairs = [[pair for one in against for pair in curve.pairs(one)[:1]] for curve in known]
    found = _Ranks(files).of([row for of in pairs for pair in of for row in pair], "own")
    tallies = []
    for curve, candidates in zip(known, pairs, strict=True):
        wanted = [pair for pair in candidates if all(id(row) in found for row in pair)]
        for then, now in wanted[:1]:
            tallies += [
                replace(one, task=curve.data, learned=step_of(then), seeds=curve.run.seeds)
                for one in _tallies((then, now), found)
            ]
    return tallies


def most_shown(tallies: Sequence[Tally]) -> list[Tally]:
    """The tallies with at most MOST_EXAMPLES: of many lists fewer of each, of the last none."""
    lists = sum(bool(one.shown(gained=gained)) for one in tallies for gained in (False, True))
    share, left = max(1, MOST_EXAMPLES // max(1, lists)), MOST_EXAMPLES
    found = []
    for one in tallies:
        both = (one.shown(gained=gained)[:share] for gained in (False, True))
        shown = tuple(islice(chain.from_iterable(both), left))
        left -= len(shown)
        found.append(replace(one, changes=shown))
    return found


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
        known: dict[tuple[str, str, str], list[GalleryRanks]] = {}
        for file in self._files:
            for one in file.read(places, gallery, has_answers=True):
                known.setdefault((one.checkpoint, one.data, one.split), []).append(one)
        found = {}
        for row in rows:
            of_row = ((row.checkpoint, data, row.split) for data in row.of_ranks)
            every = [one for place in of_row for one in known.get(place, ())]
            candidates = [one for one in every if one.may_be_of(row) and one.ways]
            whole = [one for one in candidates if agrees(one, row)]
            chosen = next(iter([*whole, *(one for one in candidates if one.is_reduced)]), None)
            if chosen is not None:
                found[id(row)] = chosen
                self.used.add(chosen.path)
            elif candidates:
                self.notes[
                    f"no examples of what {row.run!r} forgot of {row.task!r}: the ranks do not "
                    "give the scores in the rows, so they were made with another --limit or other "
                    "options"
                ] = None
        return found


def _of_chain(chain: Mapping[tuple[str, int, int], Row], ranks: _Ranks) -> Iterator[Tally]:
    """What one seed of a run forgot, task by task; of large files, one task is read at a time."""
    last = max(step for _, step, _ in chain)
    tasks = sorted({task for _, step, task in chain if step == task < last})
    is_large = ranks.size({row.checkpoint for row in chain.values()}) > _MOST_AT_ONCE
    for batch in [[task] for task in tasks] if is_large else [tasks]:
        found: dict[int, GalleryRanks] = {}
        left = batch
        for gallery in ("own", "merged"):
            # A merged gallery also has the queries of earlier tasks, which the third row names.
            of_task = {
                task: [
                    chain.get((gallery, step, column))
                    for step, column in ((task, task), (last, task), (last, task - 1))
                ][: 3 if gallery == "merged" and task else 2]
                for task in left
            }
            wanted = {task: [row for row in of if row] for task, of in of_task.items() if all(of)}
            found |= ranks.of([row for of in wanted.values() for row in of], gallery)
            for task, rows in wanted.items():
                if all(id(row) in found for row in rows):
                    for one in _tallies(rows, found):
                        yield replace(one, last=last)
                    left = [one for one in left if one != task]


def _tallies(rows: Sequence[Row], found: Mapping[int, GalleryRanks]) -> Iterator[Tally]:
    """What changed between two rows in each direction; without the queries of a third one."""
    then, now, *earlier = (found[id(row)] for row in rows)
    then, now = then.shared_with(now), now.shared_with(then)
    row = rows[0]
    for way in sorted(then.ways):
        before, after = then.ways[way], now.ways[way]
        for one in earlier:
            if way in one.ways:
                before, after = (of.without_keys_of(one.ways[way]) for of in (before, after))
        was_right, is_right = before.rank == 1, after.rank == 1
        lost, won = np.flatnonzero(was_right & ~is_right), np.flatnonzero(is_right & ~was_right)
        yield Tally(
            track=track_key(row),
            run=row.run,
            seed=row.seed,
            seeds=(row.seed,),
            task=row.task if row.gallery == "own" or not row.tasks else row.tasks[-1],
            learned=row.step or 0,
            last=rows[1].step or 0,
            gallery=row.gallery,
            way=way,
            queries=len(before.rank),
            right_then=int(was_right.sum()),
            right_now=int(is_right.sum()),
            forgotten=len(lost),
            gained=len(won),
            changes=(
                *_changes(before, after, after, lost),
                *_changes(before, after, before, won),
            ),
            common=_common(after, lost),
        )


def _changes(
    then: QueryRanks, now: QueryRanks, worse: QueryRanks, rows: np.ndarray
) -> Iterator[Change]:
    """The queries at some rows, those with the worst rank first, ties in the order of keys.

    An image and its captions are one sample: of each, only the first query is shown.
    """
    rows = rows[np.argsort(-worse.rank[rows], kind="stable")]
    codes = then.keys.take(rows).dictionary_encode().indices.to_numpy()
    rows = rows[np.sort(np.unique(codes, return_index=True)[1])][:_OF_A_LIST]
    wrong, wrong_caption = ([None] * len(rows),) * 2
    if worse.wrong is not None:
        wrong, wrong_caption = (column.to_pylist() for column in worse.wrong.at(rows))
    labels = [None] * len(rows) if then.labels is None else then.labels.take(rows).to_pylist()
    captions = (None if one < 0 else one for one in then.captions[rows].tolist())
    ranks = then.rank[rows].tolist(), now.rank[rows].tolist()
    columns = then.keys.take(rows).to_pylist(), captions, labels, *ranks, wrong, wrong_caption
    return (Change(*of) for of in zip(*columns, strict=True))


def _common(now: QueryRanks, rows: np.ndarray) -> tuple[tuple[str, int | None, int], ...]:
    """The most frequent wrong answers to the queries at some rows, of those given twice or more."""
    if now.wrong is None:
        return ()
    names, captions = (column.to_pylist() for column in now.wrong.at(rows))
    count = Counter(one for one in zip(names, captions, strict=True) if one[0] is not None)
    found = sorted(count.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or 0))
    return tuple((*answer, number) for answer, number in found[:_MOST_COMMON] if number > 1)


@dataclass
class Library:
    """The pairs of some tasks, found by their keys; only what is shown is read.

    `splits` are those that are searched, None for all.
    """

    tasks: Sequence[Task]
    splits: frozenset[str] | None = None
    _places: dict[str, tuple[Split, int]] = field(default_factory=dict)

    def find(self, keys: Iterable[str]) -> None:
        """Look for pairs, all at once: each index is read once a call.

        Raises BadInput if an index is damaged.
        """
        from vlcpctl.data.tasks.keys import Keys

        is_key = (one for one in dict.fromkeys(keys) if len(one) == 32 and _is_hex(one))
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

    def picture(self, key: str) -> tuple[str, bytes, int, int] | None:
        """The media type, bytes, width and height of a pair's picture; None if no task has it.

        Raises BadInput if its bytes have changed or cannot be decoded.
        """
        if key not in self._places:
            return None
        split, row = self._places[key]
        return small_picture(split.image(row), f"{split.path} (key {key})")

    @cached_property
    def _opened(self) -> list[Split]:
        return [
            task.split(name)
            for task in self.tasks
            for name in task.manifest.splits
            if (self.splits is None or name in self.splits) and task.counts[name]
        ]


def _is_hex(text: str) -> bool:
    return not set(text) - set("0123456789abcdef")


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


def small_picture(data: bytes, what: str = "image") -> tuple[str, bytes, int, int]:
    """An encoded image with at most EDGE pixels, as JPEG or PNG, whichever is smaller.

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
    small = Image.fromarray(np.asarray(small))  # without comments and profiles of the file
    encoded = {}
    for kind in ("JPEG", "PNG"):
        file = io.BytesIO()
        small.save(file, kind, optimize=True, quality=_QUALITY)
        encoded[f"image/{kind.lower()}"] = file.getvalue()
    kind = min(encoded, key=lambda name: len(encoded[name]))
    return kind, encoded[kind], *size


def forgotten_tables(
    found: Forgotten | None, tracks: Iterable[Track], key: Callable[[Track], str]
) -> list[Table]:
    """The counts of forgotten and gained queries: by run, and by task, for each track.

    `key` gives the main metric of a track, by which its runs are ordered.
    """
    tables = []
    for track in tracks if found else ():
        runs = [run.name for run in ordered_runs(track, key(track))]
        every = found.tallies if found else ()
        own = [one for one in every if one.track == track_key(track)]
        own.sort(key=lambda one: (runs.index(one.run), one.learned))
        tables += [_runs_table(track.title, own), _tasks_table(track.title, own)] if own else []
    return tables


def forgotten_page(found: Forgotten | None, names: Sequence[str]) -> str:
    """The page of examples, runs in the order of `names`.

    Empty if no ranks belong to a run that has learned two tasks.
    """
    if found is None or not found.tallies:
        return ""
    shown = most_shown(found.tallies)
    cards = Cards(found.library, shown)
    order = {name: place for place, name in enumerate(names)}
    shown.sort(key=lambda one: (one.learned, one.task, one.track, order.get(one.run, 0)))
    tasks: dict[str, list[tuple[str, str, list[Tally]]]] = {}
    for (track, run, task), found_of in groupby(shown, _place):
        of = list(found_of)
        then = "the baseline" if of[0].learned == START else "the model that had just learned it"
        about = f"{track[0]}, seed {of[0].seed}; then: {then}, now: the last model"
        tasks.setdefault(task, []).append((run, about, of))
    of_task = [(task, task_id(task), runs) for task, runs in tasks.items()]
    return render(
        "forgotten.html", "page", HEADING, ABOUT, of_task, cards, WAYS, source("style.css")
    )


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
    notes = {f"seed {one.seed} of {counted(len(one.seeds), 'seed')} is counted"
             for one in tallies if len(one.seeds) > 1}  # fmt: skip
    if any(one.gallery == "merged" for one in tallies):
        notes.add("on the merged gallery of the tasks up to each one where ranks have no own one")
    group = RowGroup("", tuple(rows))
    title = f"Forgotten and gained queries: {title}"
    return Table(title, columns, (group,), tuple(sorted(notes)))


def _tasks_table(title: str, tallies: Sequence[Tally]) -> Table:
    """A row for each task: the share forgotten by each run, or by the best and worst of many."""
    runs = list(dict.fromkeys(one.run for one in tallies))
    is_many = len(runs) > _MOST_RUNS
    rows = []
    for task in dict.fromkeys(one.task for one in sorted(tallies, key=lambda one: one.learned)):
        shares = []
        for run in runs:
            of = [one for one in tallies if (one.run, one.task) == (run, task)]
            lost, then = sum(one.forgotten for one in of), sum(one.right_then for one in of)
            share = TableCell(f"{lost} of {then}", value=lost / then if then else 0.0)
            shares.append(share if of else TableCell(""))
        known = sorted((one for one in shares if one.text), key=lambda one: one.value or 0.0)
        cells = [known[0], known[-1]] if is_many else shares
        rows.append((TableCell(task, link=f"{PAGE}#{task_id(task)}"), *cells))
    names = ("least forgotten", "most forgotten") if is_many else tuple(runs)
    columns = (Column("task", is_number=False), *(Column(name) for name in names))
    note = "forgotten of right then; the name of a task leads to its examples"
    title = f"Forgotten queries of each task: {title}"
    return Table(title, columns, (RowGroup("", tuple(rows)),), (note,))


def task_id(task: str) -> str:
    """The name of a task as that of a place on the page.

    >>> task_id("00 A/B")
    '00-A-B'
    """
    return "".join(one if one.isalnum() else "-" for one in task)


@dataclass(frozen=True)
class _Answer:
    """What is shown of a pair: its picture, if it has a frame, or words, or its key."""

    text: str
    key: str | None = None
    frame: str | None = None
    is_known: bool = False


class Cards:
    """Queries as cards with their answers, and the pictures, each defined once.

    Without --images, and for pairs that its tasks do not have, keys are shown.
    """

    def __init__(self, library: Library | None, tallies: Sequence[Tally]) -> None:
        self.images: dict[str, tuple[str, str, int, int]] = {}
        self._library = library
        if library is not None:
            named = [key for one in tallies for change in one.changes
                     for key in (change.key, change.wrong) if key]  # fmt: skip
            library.find([*named, *(key for one in tallies for key, *_ in one.common)])

    def sides(self, way: str, shown: Change) -> tuple[_Answer, _Answer, _Answer]:
        """The query, its right answer and the wrong one, as pictures or texts."""
        wrong = self.answer(way, shown.wrong, shown.wrong_caption)
        if way == CLASSES:
            right = _Answer(_clipped(shown.label or ""), is_known=True)
            return self._image(shown.key), right, wrong
        if way == "i2t":
            return self._image(shown.key), self._text(shown.key, None), wrong
        return self._text(shown.key, shown.caption), self._image(shown.key), wrong

    def answer(self, way: str, key: str | None, caption: int | None) -> _Answer:
        """A wrong answer."""
        if key is None or way == CLASSES:
            return _Answer(_clipped(key or _REMOVED), is_known=way == CLASSES)
        return self._text(key, caption) if way == "i2t" else self._image(key)

    def _text(self, key: str, caption: int | None) -> _Answer:
        words = "" if self._library is None else self._library.caption(key, caption)
        return _Answer(words or f"key {_clipped(key)}", key, is_known=bool(words))

    def _image(self, key: str) -> _Answer:
        if key not in self.images and self._library is not None:
            found = self._library.picture(key)
            if found is not None:
                kind, data, width, height = found
                self.images[key] = kind, b64encode(data).decode(), width, height
        frame = None
        if key in self.images:
            frame = "0 0 {} {}".format(*self.images[key][2:])
        return replace(self._text(key, None), frame=frame, is_known=False)


def lost_cards(library: Library | None, chosen: Sequence[tuple[Tally, Change]]) -> Markup:
    """Chosen queries as cards, by the names of their data, for the page of a week."""
    cards = Cards(library, [one for one, _ in chosen])
    return render("forgotten.html", "lost", chosen, cards)


def deepest(tallies: Sequence[Tally], most: int) -> list[tuple[Tally, Change]]:
    """The deepest falls of each list in turn, at most so many."""
    falls = (
        (depth, place, one, change)
        for place, one in enumerate(tallies)
        for depth, change in enumerate(one.shown(gained=False))
    )
    ordered = sorted(falls, key=lambda fall: fall[:2])
    return [(one, change) for _, _, one, change in islice(ordered, most)]
