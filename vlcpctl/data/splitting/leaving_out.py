"""Pairs that a split leaves out: those of a deletion, those that other tasks have, and leaks.

A leak is a pair for training whose image is in a test split.
Shapes: N keys on all lists, B samples of a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vlcpctl.core.errors import BadInput, missing, some_names
from vlcpctl.data.splitting.keys import SortedKeys
from vlcpctl.data.splitting.known_keys import is_known_keys, read_known
from vlcpctl.data.splitting.stop_lists import read_stop_list
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.files.manifest import kind_of

DELETED, KNOWN, LEAKED = "deleted", "known", "leaked"
SELF = "self"  # the stream that is being made, of --not-test-images
Counts = dict[str, dict[str, int]]  # by reason, then by the name of the list


@dataclass(frozen=True)
class LeftOutList:
    """Pairs to leave out and why; `name` is that of a task, or the id of a deletion request."""

    reason: str
    name: str
    content: str  # an id of what is listed
    keys: Keys
    images: frozenset[str] = frozenset()
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)


def read_lists(paths: Iterable[Path]) -> list[LeftOutList]:
    """The lists that --not names: of receipts and stop lists, tasks, and all tasks of streams.

    Raises BadInput if a path is nothing of these, or is damaged.
    """
    found: list[LeftOutList] = []
    for path in paths:
        kind = kind_of(path)
        if kind in {"task", "stream"}:
            tasks = [open_task(path)] if kind == "task" else open_stream(path)
            found += map(_of_task, tasks)
        elif not path.exists():
            raise BadInput(f"--not {missing(path)}")
        elif is_known_keys(path):
            known = read_known(path)
            found.append(LeftOutList(KNOWN, known.name, known.content, known.keys))
        else:
            stop = read_stop_list(path)
            try:
                keys = Keys.of(sorted(stop.keys))
            except ValueError as error:
                raise BadInput(f"{path}: {error}") from error
            found.append(
                LeftOutList(DELETED, stop.request, stop.content, keys, stop.images, stop.values)
            )
    return found


def _of_task(task: Task) -> LeftOutList:
    keys = Keys.joined([task.split(name).keys for name in task.manifest.splits])
    # By its id, so that a split stays the same one after `forget` in the task.
    return LeftOutList(KNOWN, task.name, task.id, keys)


def images_of(task: Task, split: str) -> Keys:
    """The first 16 bytes of the sha256 of the images of a split; none if the task lacks it.

    Raises BadInput as `Task.split` does.
    """
    if split not in task.manifest.splits:
        return Keys.of([])
    return Keys(np.ascontiguousarray(task.split(split).digests()[:, :KEY_BYTES]))


def read_test_images(paths: Iterable[Path]) -> list[LeftOutList]:
    """The test images of the tasks that --not-test-images names, and of all tasks of streams.

    Raises BadInput if a path is neither, is damaged, or has no test split.
    """
    found: list[LeftOutList] = []
    for path in paths:
        tasks = open_stream(path) if kind_of(path) == "stream" else [open_task(path)]
        if not any("test" in task.manifest.splits for task in tasks):
            raise BadInput(f"--not-test-images {path} has no test split; give a task that has one")
        found += [LeftOutList(LEAKED, one.name, one.id, images_of(one, "test")) for one in tasks]
    return found


class _Lookup:
    """Finds keys on some lists, in 20 bytes of memory for each key; the first list counts."""

    def __init__(self, lists: Sequence[LeftOutList]) -> None:
        self._keys, order = SortedKeys.of(Keys.joined([one.keys for one in lists]))
        sizes = [len(one.keys) for one in lists]
        places = np.repeat(np.arange(len(lists), dtype=np.int32), sizes)[order]
        self._place_N = np.append(places, np.int32(-1))  # the last for a key that is not there

    def places(self, keys: Keys) -> np.ndarray:
        """(B,) int32: the first list that has each key; -1 if none has it."""
        places: np.ndarray = self._place_N[self._keys.rows(*keys.numbers())]
        return places


class ImagesOfTests:
    """Test images that no pair for training may have; those of several lists count for the first.

    Two images are the same if the first 16 bytes of their sha256 are.
    """

    def __init__(self, lists: Sequence[LeftOutList]) -> None:
        self.lists, self._lookup = lists, _Lookup(lists)

    def places(self, samples: Sequence[Pair]) -> np.ndarray:
        """(B,) int32: the first list that has the image of each sample; -1 if none has it."""
        return self._lookup.places(Keys.of([one.sha256[: 2 * KEY_BYTES] for one in samples]))


class LeftOut:
    """The pairs on some lists. A pair on several lists counts for the first.

    `kept` are the kept columns of the split.
    """

    def __init__(self, lists: Sequence[LeftOutList], kept: Sequence[str] = ()) -> None:
        self.lists, self._kept = lists, kept
        self._lookup = _Lookup(lists)
        self._images: dict[str, int] = {}
        self._values: dict[tuple[str, str], int] = {}  # by column and sha256
        for place, one in enumerate(lists):
            for image in one.images:
                self._images.setdefault(image, place)
            for name, digests in one.values.items():
                for digest in digests:
                    self._values.setdefault((name, digest), place)

    @property
    def identity(self) -> list[str]:
        """The ids of the lists, sorted: their order does not decide which pairs are left out."""
        return sorted({one.content for one in self.lists})

    @property
    def columns_not_kept(self) -> list[str]:
        """The columns whose values are listed and cannot be compared: the split does not keep them.

        Copies with other bytes of a pair that they selected are not found.
        """
        return sorted({name for name, _ in self._values} - set(self._kept))

    def places(self, samples: Sequence[Pair]) -> np.ndarray:
        """(B,) int32: the first list that names each sample; -1 for those to keep."""
        found = self._lookup.places(Keys.of([sample.key for sample in samples]))
        if self._images or self._values:
            for row in np.flatnonzero(found < 0).tolist():
                found[row] = self._by_content(samples[row])
        return found

    def _by_content(self, sample: Pair) -> int:
        places = [self._images.get(sample.sha256)]
        places += [
            self._values.get((name, hashlib.sha256(value.encode()).hexdigest()))
            for name, values in zip(self._kept, sample.kept, strict=False)
            for value in values
        ]
        return min((place for place in places if place is not None), default=-1)


def counts_of(lists: Sequence[LeftOutList], of_places: Mapping[int, int]) -> Counts:
    """Numbers of pairs by place in the lists, as numbers by reason and name."""
    found: Counts = {}
    for place, count in sorted(of_places.items()):
        of_reason = found.setdefault(lists[place].reason, {})
        name = lists[place].name
        of_reason[name] = of_reason.get(name, 0) + count
    return found


def sentence(counts: Counts, read: int) -> str:
    """What was left out, for people; "" if nothing was.

    >>> sentence({"known": {"week-0001": 10}, "deleted": {"ab": 3}}, 106)
    '13 of 106 pairs left out: 3 deleted, 10 known from week-0001'
    """
    deleted = sum(counts.get(DELETED, {}).values())
    parts = [f"{deleted} deleted"] if deleted else []
    parts += [f"{count} known from {name}" for name, count in counts.get(KNOWN, {}).items()]
    parts += [
        f"{count} with test images of {'this stream' if name == SELF else name}"
        for name, count in counts.get(LEAKED, {}).items()
    ]
    total = sum(count for names in counts.values() for count in names.values())
    return f"{total} of {read} pairs left out: {some_names(parts)}" if total else ""
