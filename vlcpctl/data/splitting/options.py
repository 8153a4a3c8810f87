"""What the options of `vlcpctl split` mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.options import options_of
from vlcpctl.core.words import is_decimal
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.discovery import NamedSource, Source, find_inputs
from vlcpctl.data.sources.fingerprints import identify, identity_of
from vlcpctl.data.sources.limits import parse_caps
from vlcpctl.data.sources.records import is_unicode
from vlcpctl.data.sources.webdataset import TarFile
from vlcpctl.data.splitting.holdout import Holdout, parse_holdout, parse_most
from vlcpctl.data.splitting.labels_from import (
    Labelling,
    LabelsFrom,
    labelling_of,
    parse_labels_from,
)
from vlcpctl.data.splitting.leaving_out import SELF, LeftOut, read_lists, read_test_images
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.rules import SplitBy
from vlcpctl.data.splitting.selection import PairReader
from vlcpctl.data.splitting.writing import SplitPlan
from vlcpctl.data.tasks.index import is_own_column
from vlcpctl.data.tasks.shards import DEFAULT_SHARD_BYTES
from vlcpctl.data.tasks.skips import Tolerance

DEFAULT_HOLDOUT = "test=0.1"
_MOST_KEPT = 100  # kept columns

_BYTE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def plan(options: SplitOptions) -> SplitPlan:
    """Parse and cross-check the options and find the sources. Raises UsageError or BadInput."""
    by = SplitBy.parse(options.by, options.tasks)
    labelling(options)  # raises UsageError for a classifier without class names
    wanted = ColumnOptions(
        image=options.image_column,
        caption=options.caption_column,
        label=_label_column(options),
        value=by.column,
        split=options.split_column,
        keep=kept_columns(options),
        image_roots=tuple(map(Path, options.image_root)),
        caps=parse_caps(options.cap),
    )
    _check_roots(wanted.image_roots)
    inputs = find_inputs(options.sources)
    if options.in_place:
        _check_in_place(options, inputs)
    return SplitPlan(
        reader=PairReader(
            inputs,
            wanted,
            options.decode,
            options.limit,
            options.take,
            parse_names(options.only),
            left_out=_left_out(options, wanted.keep),
            in_place=options.in_place,
        ),
        by=by,
        tasks=options.tasks,
        time_format=options.time_format,
        seed=options.seed,
        holdout=_holdout(options),
        shard_bytes=parse_bytes(options.shard_size),
        tolerance=Tolerance.parse(options.max_skip),
        tests=tuple(read_test_images(Path(one) for one in options.not_test_images if one != SELF)),
        tests_itself=_tests_itself(options),
    )


def labelling(options: SplitOptions) -> Labelling | None:
    """The classifier that predicts the labels, if any. Raises as `labelling_of` does."""
    return labelling_of(_labels_from(options), options.class_names, options.templates)


def identity(
    options: SplitOptions,
    plan: SplitPlan,
    fingerprints: Mapping[Source, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What distinguishes this split from others: settings, and fingerprints of the sources.

    Without those of an earlier pass over the sources, their files are hashed unless that was
    done before; raises BadInput if they cannot be read.
    """
    settings = {name: getattr(options, name) for name in options_of(SplitOptions)}
    del settings["sources"], settings["not_"], settings["not_test_images"]
    for name in ("only", "time_format", "in_place"):
        if not settings[name]:  # streams that were made without it keep their identity
            del settings[name]
    if options.not_test_images:
        itself = [SELF] if plan.tests_itself else []
        settings["not_test_images"] = sorted({one.content for one in plan.tests}) + itself
    left_out = plan.reader.left_out
    settings["not"] = None if left_out is None else left_out.identity
    settings["keep_columns"] = list(kept_columns(options))
    classifier = labelling(options)
    for name in ("labels_from", "class_names", "templates"):
        del settings[name]
    settings["label_column"] = _label_column(options)
    if classifier is not None:
        settings["labels_from"] = classifier.identity()
    # The name only: an id must not depend on local paths.
    settings["image_root"] = [Path(root).resolve().name for root in options.image_root]
    settings["holdout"] = options.holdout or (None if options.split_column else DEFAULT_HOLDOUT)
    reader = plan.reader
    if fingerprints is None:
        fingerprints = identify(reader.inputs, reader.columns, reader.limit)
    settings["source_order"] = [one.name for one in reader.inputs]
    return {**settings, "sources": identity_of(reader.inputs, fingerprints)}


def kept_columns(options: SplitOptions) -> tuple[str, ...]:
    """The columns of --keep-columns, in order. Raises UsageError for one that cannot be."""
    return () if options.keep_columns is None else parse_columns(options.keep_columns)


def _labels_from(options: SplitOptions) -> LabelsFrom | None:
    return None if options.labels_from is None else parse_labels_from(options.labels_from)


def _label_column(options: SplitOptions) -> str | None:
    source = _labels_from(options)
    return source.name if source and source.kind == "column" else options.label_column


def _left_out(options: SplitOptions, kept: tuple[str, ...]) -> LeftOut | None:
    return LeftOut(read_lists(map(Path, options.not_)), kept) if options.not_ else None


def _tests_itself(options: SplitOptions) -> bool:
    if SELF not in options.not_test_images:
        return False
    if options.split_column is None:
        raise UsageError(
            f"--not-test-images {SELF} has no effect without --split-column: --holdout never "
            "puts an image into two splits; leave it out"
        )
    return True


def _check_in_place(options: SplitOptions, inputs: Sequence[NamedSource]) -> None:
    """Raise UsageError for sources that are not tars, and for a size of tars to write."""
    for file in (file for one in inputs for file in one.files):
        if not isinstance(file, TarFile):
            raise UsageError(
                f"--in-place: {file.path} is not a tar; leave it out to copy its images"
            )
    if parse_bytes(options.shard_size) != DEFAULT_SHARD_BYTES:
        raise UsageError("--shard-size has no effect with --in-place: no tar is written")


def _holdout(options: SplitOptions) -> Holdout | None:
    found = None if options.split_column else parse_holdout(options.holdout or DEFAULT_HOLDOUT)
    return found if options.holdout_most is None else parse_most(options.holdout_most, found)


def _check_roots(roots: tuple[Path, ...]) -> None:
    missing = [root for root in roots if not root.is_dir()]
    if missing:
        raise BadInput(f"--image-root {missing[0]} is not a directory")


def parse_columns(text: str) -> tuple[str, ...]:
    """The names in --keep-columns. Raises UsageError for one that the index uses itself.

    >>> parse_columns("customer, date")
    ('customer', 'date')
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--keep-columns {text!r}: write it like customer,date, each name once")
    if len(names) > _MOST_KEPT:
        raise UsageError(f"--keep-columns has {len(names)} names, the limit is {_MOST_KEPT}")
    own = next((name for name in names if is_own_column(name)), None)
    if own is not None:
        raise UsageError(
            f"--keep-columns {own}: the index has a column of its own of that name; rename yours"
        )
    if not is_unicode(text):
        raise UsageError(f"--keep-columns {text!r} is not UTF-8")
    return names


def parse_bytes(text: str) -> int:
    """A size such as 256MB or 1GiB in bytes. Raises UsageError if it is not one.

    >>> parse_bytes("256MB"), parse_bytes("1 KiB"), parse_bytes("300")
    (256000000, 1024, 300)
    """
    cleaned = text.replace(" ", "").upper()
    number = cleaned.rstrip("KMGIB")
    unit = cleaned[len(number) :] or "B"
    if unit not in _BYTE_UNITS or not is_decimal(number):
        raise UsageError(f"{text!r} is not a size; write it like 256MB or 1GiB")
    size = int(float(number) * _BYTE_UNITS[unit])
    if not 1 <= size < 2**63:
        what = "less than one byte" if size < 1 else "too large"
        raise UsageError(f"{text!r} is {what}; write it like 256MB or 1GiB")
    return size


def parse_names(text: str | None) -> tuple[str, ...]:
    """The names of --only, in order. Raises UsageError for an empty or repeated one.

    >>> parse_names("Food & Drink, Flags")
    ('Food & Drink', 'Flags')
    """
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--only {text!r}: write each name once, with commas between them")
    return names
