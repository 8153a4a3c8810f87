"""Read pairs from lists of images and captions (JSON, JSON Lines, CSV, TSV), record by record."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.columns import ColumnOptions, Roles, roles_of
from vlcpctl.data.sources.csv_tables import (
    MISSHAPEN,
    SEPARATORS,
    number_in,
    separator_of,
    table_records,
)
from vlcpctl.data.sources.image_files import ImageFiles
from vlcpctl.data.sources.json_lines import line_records
from vlcpctl.data.sources.json_lists import NumberedRecord, described, is_lines, json_records
from vlcpctl.data.sources.limits import Caps
from vlcpctl.data.sources.records import (
    FIRST_ROWS,
    LISTS,
    Record,
    are_lists,
    captions_in,
    in_batches,
    pair_of,
    text_of,
)
from vlcpctl.data.tasks.index import split_named
from vlcpctl.data.tasks.kept_columns import united
from vlcpctl.data.tasks.samples import Pair

TABLES = frozenset({".csv", ".tsv", ".txt"})
_SPLIT = "split"
_MANY_COLUMNS = 10_000
# P9D's directories of images, beside its lists or beside their directory.
_FOLDERS = ("train_images", "gallery_images")


@dataclass(frozen=True)
class ListFile:
    """One list; consecutive rows with the same image are captions of that image."""

    path: Path

    def rows(self) -> None:
        """None: the number of images is not known in advance."""

    def check_columns(self, columns: ColumnOptions) -> None:
        """Raise BadInput if a column is missing; print how the list is read."""
        if self._roles(columns).lists:
            say(LISTS.format(path=self.path))
        if self._is_table():
            say(f"{self.path}: columns separated by {SEPARATORS[separator_of(self.path)]}")

    def names_files(self, columns: ColumnOptions) -> bool:
        """True: a list gives its images by path."""
        return True

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The images in order, in batches; with `images=False`, image files are not read.

        Raises BadInput if the list is empty, malformed or lacks a column.
        """
        files = ImageFiles(
            columns.image_roots or tuple(self._places()), columns.log, columns.is_contained
        )
        listed = self._listed(columns)
        yield from in_batches(
            files.with_image(pair, name) if images else pair for pair, name in listed
        )

    def image_paths(self, columns: ColumnOptions) -> Iterator[str | None]:
        """The path of the image of each row. Raises BadInput as `pairs` does."""
        return self.texts([self._roles(columns).image or ""], columns.caps)

    def split(self) -> str | None:
        """The one split in the file's name, such as test in coco_karpathy_test.json, or None."""
        words = re.split(r"[^a-z]+", self.path.stem.lower())
        found = {split_named(word) for word in words} - {None}
        return found.pop() if len(found) == 1 else None

    def names(self, most: int = _MANY_COLUMNS) -> list[str]:
        """The columns: those of the first record, in JSON Lines of the first 100 records.

        Collects no more records when there are more than `most`. Raises BadInput if the list is
        empty, or its first record malformed.
        """
        return self._start(most)[0]

    def texts(self, names: Collection[str], caps: Caps) -> Iterator[str | None]:
        """The values of these columns in every row. Raises BadInput if the list is malformed."""
        for _, record in self._records():
            yield from (text_of(record.get(name)) for name in names)

    def _start(self, most: int) -> tuple[list[str], list[Record]]:
        """The columns and the first records, as `names`."""
        names: dict[str, None] = {}
        records: list[Record] = []
        # Writers of JSON Lines leave out fields without a value; of others the first record counts.
        naming = 1 if self._is_table() or not is_lines(self.path) else FIRST_ROWS
        for _, record in islice(self._records(), FIRST_ROWS):
            if len(records) < naming and len(names) <= most:
                names.update(dict.fromkeys(name for name in record if name != MISSHAPEN))
            records.append(record)
            if len(names) > most:
                break
        flaw = next((record[MISSHAPEN] for record in records if MISSHAPEN in record), None)
        if not records:
            raise BadInput(f"{self.path} lists no images")
        if flaw and not names:
            raise BadInput(f"{self.path}, {flaw}")
        return list(names), records

    def _records(self) -> Iterator[NumberedRecord]:
        if not self._is_table() and not is_lines(self.path):
            return json_records(self.path)
        records = table_records(self.path) if self._is_table() else line_records(self.path)
        return ((place, described(record)) for place, record in records)

    def _is_table(self) -> bool:
        return self.path.suffix in TABLES

    def _roles(self, columns: ColumnOptions) -> Roles:
        names, first = self._start(columns.caps.columns)
        if _SPLIT not in names and self.split() is not None:
            names.append(_SPLIT)
        roles = roles_of(self.path, names, columns, images=True)
        captions = [one for row in first for one in captions_in(row.get(roles.caption or ""))[0]]
        return replace(roles, lists=are_lists(captions))

    def _listed(self, columns: ColumnOptions) -> Iterator[tuple[Pair, str | None]]:
        """Each image with the captions of the consecutive rows that name it."""
        roles, split, most = self._roles(columns), self.split(), columns.caps
        before: tuple[Pair, str | None] | None = None
        length = 0  # characters in the captions of `before`
        for place, record in self._records():
            pair = pair_of(place, {_SPLIT: split, **record}, roles)
            name = text_of(record.get(roles.image or ""))
            if MISSHAPEN in record:
                pair = pair._replace(flaw=record[MISSHAPEN], reason="malformed line")
            elif self._is_table():
                pair = pair._replace(value=number_in(pair.value))
            if before is not None and _is_same(before, (pair, name)):
                # Beyond a cap the image is skipped: its other captions need not be kept.
                before = _with_kept_of(before[0], pair, most), name
                if len(before[0].captions) <= most.captions and length <= most.caption_length:
                    before[0].captions.extend(pair.captions)
                    length += sum(map(len, pair.captions))
                continue
            if before is not None:
                yield before
            before, length = (pair, name), sum(map(len, pair.captions))
        if before is not None:
            yield before

    def _places(self) -> Iterator[Path]:
        """Where to look for images: beside the list, then in P9D's directories, likeliest first."""
        yield self.path.parent
        for folder in _FOLDERS if self.split() == "train" else reversed(_FOLDERS):
            for base in (self.path.parent, self.path.parent.parent):
                if (base / folder).is_dir():
                    yield base / folder


def _with_kept_of(first: Pair, second: Pair, caps: Caps) -> Pair:
    """The first pair, with the kept values of both unless it exceeds a cap already."""
    if first.kept == second.kept or caps.exceeded_by(first.kept) is not None:
        return first
    return first._replace(kept=united(first.kept, second.kept))


def _is_same(before: tuple[Pair, str | None], after: tuple[Pair, str | None]) -> bool:
    """Whether two rows are about the same image and agree on its label, task and split."""
    (first, first_name), (second, second_name) = before, after
    if first.flaw or second.flaw or first_name != second_name or first_name is None:
        return False
    alike = ("source_key", "label", "value", "split")
    return all(getattr(first, name) == getattr(second, name) for name in alike)
