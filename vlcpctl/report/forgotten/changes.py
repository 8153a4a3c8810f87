"""What changed between the model that had just learned a task and the run's last model.

`as_json` is the form of summary.json, where `vlcpctl forget` finds the keys of pairs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlcpctl.report.forgotten.library import Library

CLASSES = "i2c"
WAYS = {"i2t": "image to text", "t2i": "text to image", CLASSES: "image to class"}
DIRECTORY = "forgotten"  # of the pages, in the report
# What a report holds at most, however many runs and tasks it has.
MOST_OF_A_PAGE = 400  # examples and pairs of classes, in all lists of a page
MOST_EXAMPLES = 20_000  # in all pages together
PAGE_BYTES = 1_000_000  # of the pictures of a page, as text
MOST_BYTES = 32_000_000  # of the pictures of all pages together

_NOT_SAFE = re.compile(r"[^a-z0-9._-]+")
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Example:
    """A query that changed: the ranks of its best right answer, and what was retrieved instead.

    `wrong` is the best wrong answer of the model that was wrong, a sample's key or a class; None if
    'vlcpctl forget' has removed that sample. `caption` and `wrong_caption` are None for images and
    classes.
    """

    key: str
    caption: int | None
    label: str | None
    rank_then: int
    rank_now: int
    wrong: str | None
    wrong_caption: int | None

    def named(self) -> list[str]:
        """The samples and classes that it names."""
        return [self.key] if self.wrong is None else [self.key, self.wrong]

    def as_json(self) -> dict[str, Any]:
        """The form that summary.json has."""
        return {
            "key": self.key,
            "caption": self.caption,
            "ranks": [self.rank_then, self.rank_now],
            "wrong": self.wrong,
            "wrong_caption": self.wrong_caption,
        }


@dataclass(frozen=True)
class Instead:
    """A wrong answer that is retrieved now for `count` of the forgotten queries."""

    wrong: str
    wrong_caption: int | None
    count: int


@dataclass(frozen=True)
class Changes:
    """The queries of one direction, those with a right answer at rank 1, and examples.

    `instead` are the wrong answers that are retrieved now for most of the forgotten queries.
    """

    queries: int
    right_then: int
    right_now: int
    n_forgotten: int  # right then and wrong now
    n_gained: int  # wrong then and right now
    forgotten: tuple[Example, ...] = ()
    gained: tuple[Example, ...] = ()
    instead: tuple[Instead, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The form that summary.json has."""
        return {
            "queries": self.queries,
            "right": [self.right_then, self.right_now],
            "n_forgotten": self.n_forgotten,
            "n_gained": self.n_gained,
            "forgotten": [shown.as_json() for shown in self.forgotten],
            "gained": [shown.as_json() for shown in self.gained],
            "retrieved_instead": [asdict(one) for one in self.instead],
        }


@dataclass(frozen=True)
class Confusion:
    """A class whose images are given another one: how many then and now, and some of them."""

    label: str
    wrong: str
    then: int
    now: int
    keys: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The form that summary.json has."""
        counts, keys = [self.then, self.now], list(self.keys)
        return {"class": self.label, "wrong": self.wrong, "counts": counts, "keys": keys}


@dataclass(frozen=True)
class TaskChanges:
    """What one run forgot of one task, between two of its models on the same gallery.

    `track` is evaluator, protocol, variant and split; `seeds` are all seeds of the run, of which
    `seed` is the one shown. `learned` and `last` are the stream steps of the models; the last one
    has learned `last_task`. `gallery` is own, or merged: then the tasks up to this one.
    `confused_now` and `confused_then` are the pairs of classes most confused by the last model and
    by the first.
    """

    track: tuple[str, str, str, str]
    run: str
    seed: int
    seeds: tuple[int, ...]
    task: str
    learned: int
    last: int
    last_task: str
    gallery: str
    ways: Mapping[str, Changes]
    confused_now: tuple[Confusion, ...] = ()
    confused_then: tuple[Confusion, ...] = ()

    def total(self, name: str) -> int:
        """A count of `Changes`, such as n_forgotten, over all directions."""
        return sum(getattr(one, name) for one in self.ways.values())

    def answers(self, way: str) -> int | None:
        """How many answers there are: the queries of the other direction, on an own gallery."""
        other = {"i2t": "t2i", "t2i": "i2t"}.get(way, "")
        return self.ways[other].queries if self.gallery == "own" and other in self.ways else None

    def named(self) -> Iterator[str]:
        """The samples and classes that its examples name, in the order in which they are shown."""
        for one in self.ways.values():
            yield from (hub.wrong for hub in one.instead)
        for name in ("forgotten", "gained"):
            for one in self.ways.values():
                for example in getattr(one, name):
                    yield from example.named()
        for confusion in (*self.confused_now, *self.confused_then):
            yield from confusion.keys

    def as_json(self, page: str) -> dict[str, Any]:
        """The form that summary.json has; `page` is where its examples are."""
        names = ("evaluator", "protocol", "map_variant", "split")
        confused = {"confused_now": self.confused_now, "confused_then": self.confused_then}
        return {
            **dict(zip(names, self.track, strict=True)),
            "run": self.run,
            "seed": self.seed,
            "task": self.task,
            "steps": [self.learned, self.last],
            "gallery": self.gallery,
            "page": page,
            "directions": {way: changed.as_json() for way, changed in self.ways.items()},
            **{name: [one.as_json() for one in found] for name, found in confused.items() if found},
        }


@dataclass(frozen=True)
class Forgotten:
    """What all runs forgot, by run and task; `examples` of a list at most were wanted.

    `library` has the pictures and captions, if --images gave any.
    """

    tasks: tuple[TaskChanges, ...]
    examples: int
    library: Library | None = None
    notes: tuple[str, ...] = ()
    used: frozenset[Path] = field(default=frozenset(), compare=False)  # files of ranks

    def by_task(self) -> dict[str, list[TaskChanges]]:
        """The changes of each task, tasks in the order of the stream."""
        found: dict[str, list[TaskChanges]] = {}
        for one in sorted(self.tasks, key=lambda one: (one.learned, one.task)):
            found.setdefault(one.task, []).append(one)
        return found

    def as_json(self) -> dict[str, Any]:
        """Counts, keys and ranks of what was forgotten, for summary.json."""
        names = page_names(self.by_task())
        tasks = [one.as_json(f"{DIRECTORY}/{names[one.task]}") for one in self.tasks]
        return {"examples": self.examples, "tasks": tasks}

    def page_bytes(self) -> int:
        """How many bytes the pictures of one page may take."""
        return min(PAGE_BYTES, MOST_BYTES // max(1, len(self.by_task())))


def page_names(tasks: Iterable[str]) -> dict[str, str]:
    """A file name for the page of each task, the same on every file system.

    >>> page_names(["00-smileys", "A/B", "a b"])
    {'00-smileys': '00-smileys.html', 'A/B': 'a-b.html', 'a b': 'a-b-2.html'}
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for task in tasks:
        stem = _NOT_SAFE.sub("-", task.lower()).strip(".-")[:_LONGEST_NAME] or "task"
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        names[task] = f"{name}.html"
    return names


def share_of_page(pages: int, lists: int, wanted: int) -> int:
    """How many examples each of the lists of a page may have, at least 1.

    >>> share_of_page(9, 12, 12), share_of_page(9, 100, 12), share_of_page(1000, 8, 12)
    (12, 4, 2)
    """
    return max(1, min(wanted, most_of_page(pages) // max(1, lists)))


def most_of_page(pages: int) -> int:
    """How many examples one of several pages may have in all its lists.

    >>> most_of_page(9), most_of_page(1000)
    (400, 20)
    """
    return min(MOST_OF_A_PAGE, MOST_EXAMPLES // max(1, pages))
