"""What was forgotten, to look at: a section of the report, and a page of examples for each task.

Every line of these pages that has something of a pair also has its key, so that `vlcpctl forget`
can remove the lines of a pair.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from vlcpctl.report.forgotten.changes import (
    CLASSES,
    DIRECTORY,
    WAYS,
    Example,
    Forgotten,
    Instead,
    TaskChanges,
    page_names,
)
from vlcpctl.report.markup import Markup
from vlcpctl.report.render.templates import render, source
from vlcpctl.report.report import TITLE, Document
from vlcpctl.report.scores import START, track_key
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables import ordered_runs

HEADING = "What was forgotten"
ABOUT = (
    "A query is forgotten if its right answer came first (rank 1) for the model that had just "
    "learned its task, and no longer does for the last model of the run. Gained is the reverse."
)

_OF_GUARDS = " On guards, the earlier model is the baseline."

_EXCERPT = 12  # examples in the report itself
_MOST_RUNS = 8  # that are columns of the table of tasks
_LONGEST_TEXT = 160  # characters
_EXCERPT_BYTES = 150_000  # of its pictures, as text
_REMOVED = "a pair that was deleted since"
_DOTS = "\u2026"
_TEMPLATE = "forgotten.html"


def forgotten_tables(document: Document) -> list[Table]:
    """The counts of forgotten and gained queries: by run, and by task, for each track."""
    found = document.forgotten
    tables: list[Table] = []
    for title, runs in _by_track(document):
        tables.append(_runs_table(f"Forgotten and gained queries: {title}", runs))
        if found is not None:
            tables.append(_tasks_table(f"Forgotten queries of each task: {title}", runs, found))
    return tables


def forgotten_sections(document: Document) -> list[tuple[str, list[Table]]]:
    """The section of report.md, as (heading, tables): counts, and a few examples in words."""
    tables = [table for table in (*forgotten_tables(document), excerpt_table(document)) if table]
    return [(HEADING, tables)] if tables else []


def forgotten_section(document: Document) -> Markup:
    """The section of report.html: counts, links to the pages, and a few examples.

    Empty if no ranks belong to a run that has learned two tasks.
    """
    found = document.forgotten
    if found is None or not found.tasks:
        return Markup("")
    chosen = _excerpt(document)
    pictures = _pictures(found, (key for _, _, shown in chosen for key in shown.named()))
    pictures.most = _EXCERPT_BYTES
    return render(
        _TEMPLATE, "section", HEADING, _about(found), forgotten_tables(document), chosen, pictures
    )


def lost_cards(found: Forgotten, chosen: Sequence[tuple[TaskChanges, str, Example]]) -> Markup:
    """Chosen queries as cards, by the names of their data."""
    pictures = _pictures(found, (key for _, _, shown in chosen for key in shown.named()))
    pictures.most = _EXCERPT_BYTES
    return render(_TEMPLATE, "lost", chosen, pictures)


def forgotten_pages(document: Document) -> Iterator[tuple[str, str]]:
    """The name and the text of the page of each task."""
    found = document.forgotten
    if found is None:
        return
    names = page_names(found.by_task())
    order = list(names)
    for place, task in enumerate(order):
        near = [
            (word, names[other], other)
            for word, other in (
                ("Previous", order[place - 1] if place else None),
                ("Next", order[place + 1] if place + 1 < len(order) else None),
            )
            if other is not None
        ]
        yield names[task], _page(document, found, task, near)


def excerpt_table(document: Document) -> Table | None:
    """The examples of the report itself as a table of texts and keys, for report.md."""
    chosen = _excerpt(document)
    found = document.forgotten
    if not chosen or found is None:
        return None
    if found.library is not None:
        found.library.find(key for _, _, shown in chosen for key in shown.named())
    words = ("run", "task", "direction", "query", "right answer", "retrieved now", "key", "its key")
    columns = (*(Column(name, is_number=False) for name in words), Column("rank now"))
    rows = tuple(
        tuple(
            TableCell(text)
            for text in (
                *(one.run, one.task, WAYS.get(way, way), *_in_words(found, way, shown)),
                *(shown.key, shown.wrong or "" if way != CLASSES else "", str(shown.rank_now)),
            )
        )
        for one, way, shown in chosen
    )
    return Table("Queries that fell furthest", columns, (RowGroup("", rows),), (_about(found),))


def _about(found: Forgotten) -> str:
    """What forgotten and gained mean, also of guards if there are any."""
    has_guards = any(one.learned == START for one in found.tasks)
    return f"{ABOUT}{_OF_GUARDS if has_guards else ''}"


def _by_track(document: Document) -> Iterator[tuple[str, list[TaskChanges]]]:
    """Title and changes of each track, runs in the order of its tables."""
    found = document.forgotten
    for track in document.tracks if found is not None else ():
        runs = ordered_runs(track, document.key(track))
        place = {run.name: number for number, run in enumerate(runs)}
        own = [one for one in found.tasks if one.track == track_key(track)] if found else []
        if own:
            yield track.title, sorted(own, key=lambda one: (place[one.run], one.learned))


def _runs_table(title: str, tasks: Sequence[TaskChanges]) -> Table:
    """A row for each run: its queries over all tasks, how many were right, forgotten, gained."""
    columns = (
        *(Column("run", is_number=False), Column("queries", rank=2), Column("right then")),
        *(Column("forgotten"), Column("share"), Column("gained"), Column("right now")),
    )
    by_run: dict[str, list[TaskChanges]] = {}
    for one in tasks:
        by_run.setdefault(one.run, []).append(one)
    rows = []
    for name, members in by_run.items():
        queries, then, lost, gained, now = (
            sum(one.total(count) for one in members)
            for count in ("queries", "right_then", "n_forgotten", "n_gained", "right_now")
        )
        share = TableCell(f"{100 * lost / then:.0f} %" if then else "-")
        counts = [TableCell(str(one), value=one) for one in (queries, then, lost, gained, now)]
        rows.append((TableCell(name), *counts[:3], share, *counts[3:]))
    notes = dict.fromkeys(note for one in tasks for note in _notes(one))
    return Table(title, columns, (RowGroup("", tuple(rows)),), tuple(notes))


def _notes(one: TaskChanges) -> Iterator[str]:
    if len(one.seeds) > 1:
        yield f"Only seed {one.seed} is counted, the first of several with ranks."
    if one.gallery == "own":
        yield "On the own gallery of each task."
    else:
        yield "On the merged gallery of the tasks up to each one, the queries of that task."


def _tasks_table(title: str, tasks: Sequence[TaskChanges], found: Forgotten) -> Table:
    """A row for each task: the share forgotten by each run, or by the best and worst of many."""
    links = page_names(found.by_task())
    runs = list(dict.fromkeys(one.run for one in tasks))
    by_task: dict[str, dict[str, TaskChanges]] = {}
    for one in sorted(tasks, key=lambda one: (one.learned, one.task)):
        by_task.setdefault(one.task, {})[one.run] = one
    is_many = len(runs) > _MOST_RUNS
    names = ("least forgotten", "most forgotten") if is_many else tuple(runs)
    rows = []
    for task, found_by_run in by_task.items():
        shares = [TableCell("")] * len(runs)
        for run, one in found_by_run.items():
            lost, of = one.total("n_forgotten"), one.total("right_then")
            shares[runs.index(run)] = TableCell(f"{lost} of {of}", value=lost / of if of else 0.0)
        known = sorted((one for one in shares if one.text), key=lambda one: one.value or 0.0)
        shown = [known[0], known[-1]] if is_many else shares
        rows.append((TableCell(task, link=f"{DIRECTORY}/{links[task]}"), *shown))
    columns = (Column("task", is_number=False), *(Column(name) for name in names))
    note = "Forgotten of right then. The name of a task leads to its examples."
    return Table(title, columns, (RowGroup("", tuple(rows)),), (note,))


def _excerpt(document: Document) -> list[tuple[TaskChanges, str, Example]]:
    """The deepest fall of each run in each direction, of the first runs."""
    by_run: dict[tuple[str, str], dict[str, list[tuple[TaskChanges, str, Example]]]] = {}
    for title, tasks in _by_track(document):
        for one in tasks:
            for way, changed in one.ways.items():
                of_run = by_run.setdefault((title, one.run), {}).setdefault(way, [])
                of_run += [(one, way, shown) for shown in changed.forgotten[:1]]
    deepest = (
        min(falls, key=lambda fall: (-fall[2].rank_now, fall[0].learned, fall[2].key))
        for ways in by_run.values()
        for falls in ways.values()
        if falls
    )
    return list(islice(deepest, _EXCERPT))


def _page(
    document: Document, found: Forgotten, task: str, near: Iterable[tuple[str, str, str]]
) -> str:
    members = found.by_task()[task]
    pictures = _pictures(found, (key for one in members for key in one.named()))
    links = [(TITLE, "../report.html"), *((f"{word}: {name}", to) for word, to, name in near)]
    tracks = []
    for heading, tasks in _by_track(document):
        own = [one for one in tasks if one.task == task]
        if own:
            tracks.append((heading, _runs_table("Queries", own), own))
    title, style = f"{HEADING}: {task}", Markup(source("style.css"))
    return render(_TEMPLATE, "page", title, _about(found), links, tracks, pictures, style)


def _pictures(found: Forgotten, keys: Iterable[str]) -> _Pictures:
    if found.library is not None:
        found.library.find(keys)
    return _Pictures(found, found.page_bytes())


@dataclass(frozen=True)
class _Answer:
    """What is shown of a pair: its picture, if it has a frame, or words, or its key."""

    text: str
    key: str | None = None  # that the line has, for `forget`, if it is shown by itself
    frame: str | None = None
    is_known: bool = False
    is_removed: bool = False


@dataclass
class _Pictures:
    """The pictures of a page, each defined once; once they take `most` bytes, others are left out.

    Without --images, and for pairs that its tasks do not have, keys are shown.
    """

    found: Forgotten
    most: int
    images: list[dict[str, Any]] = field(default_factory=list)
    _frames: dict[str, str] = field(default_factory=dict)  # the view box of each
    _bytes: int = 0
    _is_full: bool = False

    def of(self, key: str) -> _Answer:
        """The picture of a pair, or its key."""
        if key not in self._frames and not self._is_full:
            self._define(key)
        words = _words(self.found, key, None)
        return _Answer(words or _key(key), key, self._frames.get(key))

    def text(self, key: str, caption: int | None) -> _Answer:
        """A caption of a pair (None: the first), or its key."""
        words = _words(self.found, key, caption)
        return _Answer(words or _key(key), is_known=bool(words))

    def sides(self, way: str, shown: Example) -> tuple[_Answer, _Answer, _Answer]:
        """The query, its right answer and the wrong one, as pictures or texts."""
        if way == CLASSES:
            right, wrong = self.words(shown.label or ""), self.words(shown.wrong or _REMOVED)
            return self.of(shown.key), right, wrong
        if shown.wrong is None:
            wrong = _Answer(_REMOVED, is_removed=True)
        else:
            wrong = self.answer(way, shown)
        if way == "i2t":
            return self.of(shown.key), self.text(shown.key, None), wrong
        return self.text(shown.key, shown.caption), self.of(shown.key), wrong

    def answer(self, way: str, one: Example | Instead) -> _Answer:
        """The wrong answer of a query."""
        assert one.wrong is not None, "it was removed"
        if way == CLASSES:
            return self.words(one.wrong)
        return self.text(one.wrong, one.wrong_caption) if way == "i2t" else self.of(one.wrong)

    def words(self, text: str) -> _Answer:
        """The name of a class."""
        return _Answer(_clipped(text), is_known=True)

    def _define(self, key: str) -> None:
        library = self.found.library
        picture = None if library is None else library.thumbnail(key)
        if picture is None:
            return
        text = b64encode(picture.data).decode()
        if self._bytes + len(text) > self.most:
            self._is_full = True
            return
        self._bytes += len(text)
        self._frames[key] = f"0 0 {picture.width} {picture.height}"
        size = {"width": picture.width, "height": picture.height}
        self.images.append({"key": key, **size, "kind": picture.kind, "data": text})


def _words(found: Forgotten, key: str, caption: int | None) -> str:
    """A caption of a pair, cut if it is long; empty if it is not known."""
    captions = [] if found.library is None else found.library.captions(key)
    place = caption or 0
    return _clipped(captions[place]) if place < len(captions) else ""


def _clipped(text: str) -> str:
    """The text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}{_DOTS}"


def _key(key: str) -> str:
    return f"key {_clipped(key)}"


def _in_words(found: Forgotten, way: str, shown: Example) -> tuple[str, str, str]:
    """The query, its right answer and the wrong one, for a table of texts."""
    query = _words(found, shown.key, shown.caption)
    if way == "t2i":
        query, right = query or _key(shown.key), "its image"
    else:
        query = f"image of: {query}" if query else "image"
        right = _words(found, shown.key, None)
    if shown.wrong is None:
        wrong = _REMOVED
    elif way == CLASSES:
        wrong = _clipped(shown.wrong)
    else:
        wrong = _words(found, shown.wrong, shown.wrong_caption)
        wrong = f"image of: {wrong}" if wrong and way != "i2t" else wrong
    return query, _clipped(shown.label or "") if way == CLASSES else right, wrong
