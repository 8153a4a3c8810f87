"""What `vlcpctl split` reads: its options, understood, its sources, found, and their pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.options import options_of
from vlcpctl.data.sources.find import NamedSource, find_inputs
from vlcpctl.data.sources.identity import identify, identity_of
from vlcpctl.data.sources.pairs import Columns, pairs, too_large
from vlcpctl.data.sources.source import FileLog, Source
from vlcpctl.data.sources.tars import tar
from vlcpctl.data.sources.values import is_unicode
from vlcpctl.data.splitting.holdout import Holdout, parse_holdout, parse_most
from vlcpctl.data.splitting.labels import LabelsFrom, PredictedLabels, labels_from
from vlcpctl.data.splitting.leaving_out import (
    SELF,
    LeftOut,
    LeftOutList,
    read_lists,
    read_test_images,
)
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.rules import SplitBy
from vlcpctl.data.tasks.index import is_own_column
from vlcpctl.data.tasks.samples import Pair, Tolerance
from vlcpctl.data.tasks.tars import DEFAULT_SHARD_BYTES, parse_bytes

DEFAULT_HOLDOUT = "test=0.1"
_MOST_KEPT = 100  # kept columns


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A split that is ready to read; the same in every pass over the data."""

    options: SplitOptions
    by: SplitBy
    inputs: list[NamedSource]
    columns: Columns
    only: tuple[str, ...]  # the tasks that are made; (): all
    holdout: Holdout | None  # None: --split-column decides
    tolerance: Tolerance
    shard_bytes: int
    left_out: LeftOut | None
    tests: tuple[LeftOutList, ...]  # whose images no pair for training may have
    labels: PredictedLabels | None = None  # replace the labels of the sources

    @property
    def files(self) -> list[Source]:
        """The files of all sources."""
        return [file for one in self.inputs for file in one.files]

    @property
    def tests_itself(self) -> bool:
        """Whether no pair for training may have an image that a test row of this stream has."""
        return SELF in self.options.not_test_images

    def rows(self) -> int:
        """The number of pairs to read, or 0 if a source does not store it."""
        counts = [file.start.rows for file in self.files]
        known = 0 if None in counts else sum(count or 0 for count in counts)
        return min(known, self.options.limit or known)

    def batches(
        self, *, images: bool = True, done: Callable[[Source, FileLog], None] | None = None
    ) -> Iterator[tuple[str, Source, list[Pair]]]:
        """Yield (name of the source, file, pairs) for every batch, up to the limit.

        `done` is called after each file with the log of what was read for it. Without images, pairs
        only serve to assign tasks.
        """
        read, limit = 0, self.options.limit
        for one in self.inputs:
            for file in one.files:
                log = None if done is None else FileLog(file.path)
                for batch in pairs(file, replace(self.columns, log=log), images=images):
                    part = batch if limit is None else batch[: limit - read]
                    if not images:  # what is beyond a limit is skipped later
                        part = [
                            pair._replace(label=None, value=None) if too_large(pair) else pair
                            for pair in part
                        ]
                    yield one.name, file, self.labels.of(read, part) if self.labels else part
                    read += len(part)
                    if read == limit:
                        break
                if done is not None and log is not None:
                    done(file, log)
                if read == limit:
                    return


def plan_of(options: SplitOptions) -> Plan:
    """Parse and cross-check the options and find the sources. Raises UsageError or BadInput."""
    by = SplitBy.parse(options.by, options.tasks)
    labels = labels_of(options)
    roots = tuple(map(Path, options.image_root))
    if missing := [root for root in roots if not root.is_dir()]:
        raise BadInput(f"--image-root {missing[0]} is not a directory")
    columns = Columns(
        image=options.image_column,
        caption=options.caption_column,
        label=_label_column(options, labels),
        value=by.column,
        split=options.split_column,
        keep=kept_columns(options),
        image_roots=roots,
    )
    if SELF in options.not_test_images and options.split_column is None:
        raise UsageError(
            f"--not-test-images {SELF} has no effect without --split-column: --holdout never "
            "puts an image into two splits; leave it out"
        )
    inputs = find_inputs(options.sources)
    shard_bytes = parse_bytes(options.shard_size)
    if options.in_place:
        _check_in_place(inputs, shard_bytes)
    holdout = None if options.split_column else parse_holdout(options.holdout or DEFAULT_HOLDOUT)
    if options.holdout_most is not None:
        holdout = parse_most(options.holdout_most, holdout)
    lists = read_lists(map(Path, options.not_)) if options.not_ else None
    tests = [Path(one) for one in options.not_test_images if one != SELF]
    return Plan(
        options=options,
        by=by,
        inputs=inputs,
        columns=columns,
        only=_only(options.only),
        holdout=holdout,
        tolerance=Tolerance.parse(options.max_skip),
        shard_bytes=shard_bytes,
        left_out=None if lists is None else LeftOut(lists, columns.keep),
        tests=tuple(read_test_images(tests)),
    )


def labels_of(options: SplitOptions) -> LabelsFrom | None:
    """Where the labels come from, if --labels-from says so. Raises as `labels_from` does."""
    if options.labels_from is None:
        return None
    return labels_from(options.labels_from, options.class_names, options.templates)


def identity(
    plan: Plan, fingerprints: Mapping[Source, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """What distinguishes this split from others: settings, and fingerprints of the sources.

    Without those of an earlier pass over the sources, their files are hashed unless that was
    done before; raises BadInput if they cannot be read.
    """
    options, columns, labels = plan.options, plan.columns, labels_of(plan.options)
    settings = {name: getattr(options, name) for name in options_of(SplitOptions)}
    settings["cap"] = ()  # streams that were made when there was --cap keep their identity
    for name in (
        *("sources", "not_", "not_test_images", "labels_from", "class_names", "templates"),
        # Streams that were made before there was one of these keep their identity, too.
        *(name for name in ("only", "time_format", "in_place") if not settings[name]),
    ):
        del settings[name]
    if options.not_test_images:
        itself = [SELF] if plan.tests_itself else []
        settings["not_test_images"] = sorted({one.content for one in plan.tests}) + itself
    settings["not"] = None if plan.left_out is None else plan.left_out.identity
    settings["keep_columns"] = list(columns.keep)
    settings["label_column"] = columns.label
    if labels is not None and labels.is_classifier:
        settings["labels_from"] = labels.identity()
    # The name only: an id must not depend on local paths.
    settings["image_root"] = [Path(root).resolve().name for root in options.image_root]
    settings["holdout"] = options.holdout or (None if options.split_column else DEFAULT_HOLDOUT)
    if fingerprints is None:
        fingerprints = identify(plan.inputs, columns, options.limit)
    settings["source_order"] = [one.name for one in plan.inputs]
    return {**settings, "sources": identity_of(plan.inputs, fingerprints)}


def _label_column(options: SplitOptions, labels: LabelsFrom | None) -> str | None:
    return labels.name if labels and not labels.is_classifier else options.label_column


def _check_in_place(inputs: list[NamedSource], shard_bytes: int) -> None:
    """Raise UsageError for sources that are not tars, and for a size of tars to write."""
    for file in (file for one in inputs for file in one.files):
        if file.read is not tar:
            raise UsageError(
                f"--in-place: {file.path} is not a tar; leave it out to copy its images"
            )
    if shard_bytes != DEFAULT_SHARD_BYTES:
        raise UsageError("--shard-size has no effect with --in-place: no tar is written")


def kept_columns(options: SplitOptions) -> tuple[str, ...]:
    """The columns of --keep-columns, in order.

    Raises UsageError for one that the index uses itself.
    """
    text = options.keep_columns
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names) or not is_unicode(text):
        raise UsageError(f"--keep-columns {text!r}: write it like customer,date, each name once")
    if len(names) > _MOST_KEPT:
        raise UsageError(f"--keep-columns has {len(names)} names, the limit is {_MOST_KEPT}")
    own = next((name for name in names if is_own_column(name)), None)
    if own is not None:
        raise UsageError(
            f"--keep-columns {own}: the index has a column of its own of that name; rename yours"
        )
    return names


def _only(text: str | None) -> tuple[str, ...]:
    """The names of --only, in order. Raises UsageError for an empty or repeated one."""
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise UsageError(f"--only {text!r}: write each name once, with commas between them")
    return names
