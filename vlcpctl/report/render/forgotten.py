"""What was forgotten, to look at: a section of the report, and a page of examples for each task.

Every line of these pages that has something of a pair also has its key, so that `vlcpctl forget`
can remove the lines of a pair.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice

from vlcpctl.report.document import TITLE, Document
from vlcpctl.report.forgotten.changes import (
    CLASSES,
    DIRECTORY,
    Changes,
    Confusion,
    Example,
    Forgotten,
    Instead,
    TaskChanges,
    page_names,
)
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.scores.collect import track_key
from vlcpctl.report.tables.comparison import ordered_runs
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell

HEADING = "What was forgotten"
ABOUT = (
    "A query is forgotten if its right answer came first (rank 1) for the model that had just "
    "learned its task, and no longer does for the last model of the run. Gained is the reverse."
)

_EXCERPT = 12  # examples in the report itself
_MOST_RUNS = 8  # that are columns of the table of tasks
_LONGEST_TEXT = 160  # characters
_EXCERPT_BYTES = 150_000  # of its pictures, as text
_WAYS = {"i2t": "image to text", "t2i": "text to image", CLASSES: "image to class"}
_REMOVED = "a pair that was deleted since"
_RIGHT, _WRONG, _ARROW, _DOTS = "\u2713", "\u2717", "\u2192", "\u2026"


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
    tables = [element("div", html_table(table)) for table in forgotten_tables(document)]
    boxes = [
        element("div", *tables[at : at + 2], class_="side-by-side")
        for at in range(0, len(tables), 2)  # those of a track
    ]
    parts = [element("h2", HEADING), element("p", ABOUT), *boxes]
    chosen = _excerpt(document)
    if chosen:
        pictures = _pictures(found, (key for one, _, shown in chosen for key in _named(shown)))
        pictures.most = _EXCERPT_BYTES
        cards = [
            _card(pictures, one, way, example, f"{one.run}, {one.task}")
            for one, way, example in chosen
        ]
        parts += [
            element("h3", "Queries that fell furthest"),
            _cards(cards),
            pictures.definitions(),
        ]
    return joined(*parts)


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
        found.library.find(key for _, _, shown in chosen for key in _named(shown))
    words = ("run", "task", "direction", "query", "right answer", "retrieved now", "key", "its key")
    columns = (*(Column(name, is_number=False) for name in words), Column("rank now"))
    rows = tuple(
        tuple(
            TableCell(text)
            for text in (
                *(one.run, one.task, _WAYS.get(way, way), _words_of_query(found, way, shown)),
                *(_words_of_right(found, way, shown), _words_of_wrong(found, way, shown)),
                *(shown.key, shown.wrong or "" if way != CLASSES else "", str(shown.rank_now)),
            )
        )
        for one, way, shown in chosen
    )
    return Table("Queries that fell furthest", columns, (RowGroup("", rows),), (ABOUT,))


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
    rows = tuple((TableCell(name), *_counts(members)) for name, members in by_run.items())
    notes = dict.fromkeys(note for one in tasks for note in _notes(one))
    return Table(title, columns, (RowGroup("", rows),), tuple(notes))


def _counts(members: Sequence[TaskChanges]) -> list[TableCell]:
    names = ("queries", "right_then", "right_now", "n_forgotten", "n_gained")
    totals = {name: sum(one.total(name) for one in members) for name in names}
    lost, of = totals["n_forgotten"], totals["right_then"]
    share = TableCell(f"{100 * lost / of:.0f} %" if of else "-")
    queries, then, now, forgotten, gained = (_count(totals[name]) for name in names)
    return [queries, then, forgotten, share, gained, now]


def _count(number: int) -> TableCell:
    return TableCell(str(number), value=number)


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
    for task, by_run in by_task.items():
        shares = [_share(by_run[run]) if run in by_run else TableCell("") for run in runs]
        known = sorted((one for one in shares if one.text), key=lambda one: one.value or 0.0)
        shown = [known[0], known[-1]] if is_many and known else shares[: len(names)]
        rows.append((TableCell(task, link=f"{DIRECTORY}/{links[task]}"), *shown))
    columns = (Column("task", is_number=False), *(Column(name) for name in names))
    note = "Forgotten of right then. The name of a task leads to its examples."
    return Table(title, columns, (RowGroup("", tuple(rows)),), (note,))


def _share(one: TaskChanges) -> TableCell:
    lost, of = one.total("n_forgotten"), one.total("right_then")
    return TableCell(f"{lost} of {of}", value=lost / of if of else 0.0)


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
    style = files("vlcpctl.report").joinpath("style.css").read_text(encoding="utf-8")
    members = found.by_task()[task]
    pictures = _pictures(found, (key for one in members for key in one.named()))
    title = f"{HEADING}: {task}"
    links = [element("a", TITLE, href="../report.html")]
    links += [element("a", f"{word}: {name}", href=address) for word, address, name in near]
    parts = [
        element("nav", *(part for link in links for part in (link, " "))),
        element("h1", title),
        element("p", ABOUT, class_="about"),
    ]
    for heading, tasks in _by_track(document):
        own = [one for one in tasks if one.task == task]
        if own:
            parts += [element("h2", heading), html_table(_runs_table("Queries", own))]
            parts += [_run_section(pictures, one) for one in own]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element("body", *parts, pictures.definitions(), class_="forgotten")
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _run_section(pictures: _Pictures, one: TaskChanges) -> Markup:
    parts = [
        element("h3", one.run),
        element(
            "p",
            f"Seed {one.seed}. Then is the model that had just learned {one.task}, now the last "
            f"one, which has learned {one.last_task}.",
            class_="about",
        ),
    ]
    for way, changed in one.ways.items():
        parts.append(element("h4", _WAYS.get(way, way)))
        if way == CLASSES:
            parts.append(element("div", *_confusion_parts(pictures, one), class_="side-by-side"))
        parts += _list_parts(pictures, one, way, changed)
    return joined(*parts)


def _list_parts(
    pictures: _Pictures, one: TaskChanges, way: str, changed: Changes
) -> Iterator[Markup]:
    lost = [_card(pictures, one, way, shown) for shown in changed.forgotten]
    title = f"Forgotten: {changed.n_forgotten} of {changed.right_then} that were right"
    yield element("p", f"{title}{_shown(lost, changed.n_forgotten)}")
    yield _instead(pictures, way, changed.instead)
    yield _cards(lost)
    won = [_card(pictures, one, way, shown, is_gain=True) for shown in changed.gained]
    wrong = changed.queries - changed.right_then
    title = f"Gained: {changed.n_gained} of {wrong} that were wrong"
    summary = element("summary", f"{title}{_shown(won, changed.n_gained)}")
    if won:
        yield element("details", summary, _cards(won))
    else:
        yield element("p", title)


def _instead(pictures: _Pictures, way: str, found: Sequence[Instead]) -> Markup:
    """The answers that are retrieved now for several forgotten queries, each on its own line."""
    if not found:
        return Markup("")
    answers = [
        joined(Markup("\n"), _instead_answer(pictures, way, one), Markup("\n")) for one in found
    ]
    verb = "Given" if way == CLASSES else "Retrieved"
    return element("p", f"{verb} now for several of them:", *answers, class_="instead")


def _instead_answer(pictures: _Pictures, way: str, one: Instead) -> Markup:
    if way == CLASSES:
        answer, keys = element("q", _clipped(one.wrong)), None
    else:
        is_text = way == "i2t"
        answer = pictures.text(one.wrong, one.wrong_caption) if is_text else pictures.of(one.wrong)
        keys = one.wrong
    return element("span", answer, f" {one.count} times", data_keys=keys)


def _shown(cards: Sequence[Markup], count: int) -> str:
    return f"; {len(cards)} shown, worst rank first" if len(cards) < count else ""


def _confusion_parts(pictures: _Pictures, one: TaskChanges) -> Iterator[Markup]:
    for name, found in (("now", one.confused_now), ("then", one.confused_then)):
        if found:
            yield _confusion_table(pictures, f"Classes most confused {name}", found)


def _confusion_table(pictures: _Pictures, title: str, found: Sequence[Confusion]) -> Markup:
    names = ("class", "taken for", "then", "now", "such as")
    head = element(
        "tr",
        *(
            element("th", name, scope="col", class_=None if name in {"then", "now"} else "words")
            for name in names
        ),
    )
    rows = [
        element(
            "tr",
            *(element("td", _clipped(text), class_="words") for text in (one.label, one.wrong)),
            *(element("td", str(number)) for number in (one.then, one.now)),
            # Each picture on a line of its own, for `forget`.
            element(
                "td",
                *(part for key in one.keys for part in (Markup("\n"), pictures.of(key))),
                Markup("\n"),
                class_="words pics",
            ),
        )
        for one in found
    ]
    table = element(
        "table", element("caption", title), element("thead", head), element("tbody", *rows)
    )
    return element("div", table, class_="scroll")


def _cards(cards: Sequence[Markup]) -> Markup:
    """Cards, each on a line of its own."""
    if not cards:
        return Markup("")
    return element(
        "ul", Markup("\n"), *(joined(card, Markup("\n")) for card in cards), class_="cards"
    )


def _card(
    pictures: _Pictures,
    one: TaskChanges,
    way: str,
    shown: Example,
    place: str = "",
    *,
    is_gain: bool = False,
) -> Markup:
    """One query: what it is, the right answer, what was retrieved instead, and the ranks."""
    query, right, wrong = _sides(pictures, way, shown)
    answer, verb = ("class", "given") if way == CLASSES else ("answer", "retrieved")
    size = _gallery_size(one, way)
    before, after = shown.rank_then, shown.rank_now
    of = f" of {size}" if size >= max(before, after) else ""
    keys = " ".join(_named(shown)) if way != CLASSES else shown.key
    # A picture beside its answers, a text above them.
    css = None if way == "t2i" else "beside"
    return element(
        "li",
        element("div", query, class_="query"),
        _answer("right", f"{_RIGHT} right {answer}", right),
        _answer("wrong", f"{_WRONG} {verb} {'then' if is_gain else 'now'}", wrong),
        element(
            "p",
            f"rank {before} {_ARROW} ",
            element("b", str(after)),
            of,
            element("span", f" {place}") if place else "",
            class_="ranks",
        ),
        class_=css,
        data_keys=keys,
        title=f"key {shown.key}",
    )


def _answer(css: str, word: str, content: Markup) -> Markup:
    return element("div", element("span", word, class_="mark"), content, class_=css)


def _sides(pictures: _Pictures, way: str, shown: Example) -> tuple[Markup, Markup, Markup]:
    """The query, its right answer and the wrong one, as pictures or texts."""
    if way == CLASSES:
        wrong = element("q", _clipped(shown.wrong or _REMOVED))
        return pictures.of(shown.key), element("q", _clipped(shown.label or "")), wrong
    if shown.wrong is None:
        wrong = element("em", _REMOVED)
    elif way == "i2t":
        wrong = pictures.text(shown.wrong, shown.wrong_caption)
    else:
        wrong = pictures.of(shown.wrong)
    if way == "i2t":
        return pictures.of(shown.key), pictures.text(shown.key, None), wrong
    return pictures.text(shown.key, shown.caption), pictures.of(shown.key), wrong


def _gallery_size(one: TaskChanges, way: str) -> int:
    """How many answers there are: the queries of the other direction, on an own gallery."""
    other = {"i2t": "t2i", "t2i": "i2t"}.get(way, "")
    if one.gallery != "own" or other not in one.ways:
        return 0
    return one.ways[other].queries


def _named(shown: Example) -> Iterator[str]:
    yield shown.key
    if shown.wrong is not None:
        yield shown.wrong


def _pictures(found: Forgotten, keys: Iterable[str]) -> _Pictures:
    if found.library is not None:
        found.library.find(keys)
    return _Pictures(found, found.page_bytes())


@dataclass
class _Pictures:
    """The pictures of a page, each defined once; once they take `most` bytes, others are left out.

    Without --images, and for pairs that its tasks do not have, keys are shown.
    """

    found: Forgotten
    most: int
    _lines: dict[str, Markup] = field(default_factory=dict)
    _frames: dict[str, str] = field(default_factory=dict)  # the view box of each
    _bytes: int = 0
    _is_full: bool = False

    def of(self, key: str) -> Markup:
        """The picture of a pair, or its key."""
        if key not in self._frames and not self._is_full:
            self._define(key)
        words = self._words(key, None)
        if key not in self._frames:
            return element("span", words or _key(key), class_="no-picture", data_keys=key)
        use = element("use", href=f"#p-{key}")
        return element(
            "svg",
            use,
            class_="pic",
            viewBox=self._frames[key],
            role="img",
            aria_label=words or _key(key),
        )

    def text(self, key: str, caption: int | None) -> Markup:
        """A caption of a pair (None: the first), or its key."""
        words = self._words(key, caption)
        return element("q", words) if words else element("span", _key(key), class_="no-picture")

    def definitions(self) -> Markup:
        """The pictures, each on a line of its own, to be used anywhere on the page."""
        if not self._lines:
            return Markup("")
        lines = [part for line in self._lines.values() for part in (Markup("\n"), line)]
        return element("svg", *lines, Markup("\n"), class_="pictures", aria_hidden="true")

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
        self._lines[key] = Markup(
            f'<image id="p-{key}" width="{picture.width}" height="{picture.height}" '
            f'href="data:{picture.kind};base64,{text}"></image>'
        )

    def _words(self, key: str, caption: int | None) -> str:
        return _words(self.found, key, caption)


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


def _words_of_query(found: Forgotten, way: str, shown: Example) -> str:
    words = _words(found, shown.key, shown.caption)
    if way == "t2i":
        return words or _key(shown.key)
    return f"image of: {words}" if words else "image"


def _words_of_right(found: Forgotten, way: str, shown: Example) -> str:
    if way == CLASSES:
        return _clipped(shown.label or "")
    words = _words(found, shown.key, None)
    return words if way == "i2t" else "its image"


def _words_of_wrong(found: Forgotten, way: str, shown: Example) -> str:
    if shown.wrong is None:
        return _REMOVED
    if way == CLASSES:
        return _clipped(shown.wrong)
    words = _words(found, shown.wrong, shown.wrong_caption)
    return words if way == "i2t" or not words else f"image of: {words}"
