"""`vlcpctl split` as a whole: from its options to a stream directory with its manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vlcpctl.core.console import progress, say, warn
from vlcpctl.core.errors import MOST_NAMES, UsageError, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.core.words import counted, printable, shortened
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.discovery import Source, failed_downloads
from vlcpctl.data.sources.fingerprints import size_of
from vlcpctl.data.sources.list_files import ListFile
from vlcpctl.data.sources.parquet import ParquetFile
from vlcpctl.data.splitting.holdout import Holdout
from vlcpctl.data.splitting.leaving_out import sentence
from vlcpctl.data.splitting.options import identity as identity_of
from vlcpctl.data.splitting.options import plan as plan_of
from vlcpctl.data.splitting.pseudo_labels import Classifier, LoadClassifier, write_labels
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.rules import ByTime
from vlcpctl.data.splitting.writing import SplitPlan, WrittenTasks, make_rule, write_tasks
from vlcpctl.data.tasks.manifests import (
    digits_for,
    slug,
    stream_content,
    write_task_manifest,
)
from vlcpctl.data.tasks.samples import DUPLICATE, FAILED_DOWNLOAD
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import is_artifact, kind_of, read_manifest, write_manifest
from vlcpctl.files.outputs import new_directory

_TWO_DIGITS = 100  # tasks, numbered from 00
_NEAR = 10  # tasks before that at which a growing stream is warned of: ten weeks


def make_stream(
    options: SplitOptions,
    out: Path,
    *,
    force: bool = False,
    classifier: LoadClassifier | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Write the stream, unless it is already finished, and return its manifest.

    The classifier is loaded only if it is needed; `threads` preprocess images for it. Raises
    UsageError, BadInput, TooManySkipped, or OutputExists if `out` is something else.
    """
    plan = plan_of(options)
    if _is_finished(options, plan, out, force=force):
        say(f"{out} is already finished")
        return read_manifest(out, "stream")
    check_columns(plan)
    with new_directory(out, is_artifact) as directory:
        if classifier is not None:
            plan = _with_labels(plan, classifier(), directory / "labels", threads)
        with progress("split", _rows(plan), "pairs") as bar:
            result = write_tasks(plan, directory, bar.advance)
        identity = identity_of(options, plan, result.fingerprints)
        (directory / "labels").unlink(missing_ok=True)
        names = [task.name for task in result.tasks]
        order = order_of(names, options.order or _only_in_order(plan), options.seed)
        body = {"name": out.name, **_recorded(options, plan, identity["holdout"])}
        if plan.reader.left_out is not None or options.not_test_images:
            body["left_out"] = result.left_out
        manifest = publish_stream(result, order, directory, identity, body)
    if result.skipped:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(result.skipped.items()))
        total, listed = sum(result.skipped.values()), out / "skipped.ndjson"
        warn(f"skipped {total} of {result.read} samples ({counts}); listed in {listed}")
    _warn(plan, result, manifest)
    if result.others:
        pairs = counted(sum(result.others.values()), "pair")
        say(f"split: {pairs} of other tasks than those of --only are not in the stream")
    say(f"split: {summary(manifest, _distinct_images(out))}")
    return manifest


def _recorded(options: SplitOptions, plan: SplitPlan, holdout: str | None) -> dict[str, Any]:
    """What stream.json has of the options."""
    rule = {
        "by": options.by,
        "labels_from": options.labels_from,
        "tasks": options.tasks,
        **({"time_format": options.time_format} if options.time_format else {}),
        "order": options.order,
        **({"only": list(plan.reader.only)} if plan.reader.only else {}),
        "holdout": holdout,
        "holdout_most": options.holdout_most,
    }
    found: dict[str, Any] = {"rule": rule, "seed": options.seed}
    if plan.reader.columns.keep:
        found["kept_columns"] = list(plan.reader.columns.keep)
    if options.in_place:
        found["in_place"] = True
    return found


def _distinct_images(out: Path) -> dict[str, int]:
    """The number of different images in each split of a stream, and in all of them (`all`)."""
    found: dict[str, list[np.ndarray]] = {}
    for task in open_stream(out):
        for name in task.manifest.splits:
            first_N = np.ascontiguousarray(task.split(name).digests()[:, :8]).view(np.uint64)
            found.setdefault(name, []).append(np.unique(first_N))
    parts = {name: np.unique(np.concatenate(lists)) for name, lists in found.items()}
    every = np.unique(np.concatenate(list(parts.values())))
    return {name: len(part) for name, part in parts.items()} | {"all": len(every)}


def summary(manifest: dict[str, Any], images: Mapping[str, int]) -> str:
    """What a stream contains, in one line for people; `images` as of `_distinct_images`.

    >>> skipped = {"duplicate": 3, "no caption": 1}
    >>> totals = {"train": {"images": 90, "captions": 180}, "test": {"images": 10, "captions": 20}}
    >>> made = {"tasks": [{}] * 2, "totals": totals, "skipped": skipped}
    >>> summary(made, {"train": 90, "test": 10, "all": 100})
    '2 tasks, 100 images with 200 captions; held out: test 10; 3 duplicates skipped'
    >>> summary(made, {"train": 80, "test": 8, "all": 88})[9:-22]
    '100 pairs of 88 images with 200 captions; held out: test 8 images, 10 pairs'
    """
    totals = manifest["totals"]
    pairs, captions = (
        sum(split[name] for split in totals.values()) for name in ("images", "captions")
    )
    held_out = [
        f"{name} {images[name]}"
        + ("" if images[name] == split["images"] else f" images, {split['images']} pairs")
        for name, split in totals.items()
        if name != "train"
    ]
    duplicates = manifest["skipped"].get(DUPLICATE, 0)
    failed = manifest["skipped"].get(FAILED_DOWNLOAD, 0)
    content = "" if images["all"] == pairs else f"{counted(pairs, 'pair')} of "
    content += f"{counted(images['all'], 'image')} with {counted(captions, 'caption')}"
    parts = [f"{counted(len(manifest['tasks']), 'task')}, {content}"]
    parts.append(f"held out: {', '.join(held_out) or 'nothing'}")
    if duplicates:
        parts.append(f"{counted(duplicates, 'duplicate')} skipped")
    if failed:
        parts.append(counted(failed, "failed download"))
    return "; ".join(parts)


def _warn(plan: SplitPlan, result: WrittenTasks, manifest: dict[str, Any]) -> None:
    """Print what may not be intended in a new stream."""
    if result.left_out:
        say(sentence(result.left_out, result.read))
    _warn_of_columns(plan)
    for warning in result.warnings[:MOST_NAMES]:
        warn(warning)
    if len(result.warnings) > MOST_NAMES:
        warn(f"{len(result.warnings)} tasks in all hold out fewer images (--holdout-most)")
    if plan.holdout:
        _warn_of_one_image(plan.holdout)
        _warn_of_empty_parts(plan.holdout, manifest["tasks"])
    images = sum(split["images"] for split in manifest["totals"].values())
    for column, count in result.lacking.items():
        if count:
            warn(
                f"column {printable(column)!r} has no value for {count} of {images} images; they "
                "cannot be found by it"
            )
    if _is_near_renaming(plan, len(manifest["tasks"])):
        warn(
            f"the stream has {len(manifest['tasks'])} tasks: with more than {_TWO_DIGITS} their "
            "directories are numbered with three digits, so that all of them get other names "
            "(000-... for 00-...)"
        )


def _warn_of_one_image(holdout: Holdout) -> None:
    """Warn of test=1, which may be meant as all images, or as 1 %."""
    single = [name for name, count in holdout.parts.items() if holdout.counted and count == 1]
    if single:
        warn(
            f"--holdout {single[0]}=1 holds out one image of each task; a share is written as "
            f"{single[0]}=0.1 or {single[0]}=10%"
        )


def _warn_of_columns(plan: SplitPlan) -> None:
    left_out = plan.reader.left_out
    if left_out is not None and left_out.columns_not_kept:
        names = ",".join(map(printable, left_out.columns_not_kept))
        warn(
            f"--not: deleted pairs were selected by {names}, which is not kept: copies of them "
            f"with other bytes are not found; --keep-columns {names} compares it"
        )


def _is_near_renaming(plan: SplitPlan, tasks: int) -> bool:
    """Whether a stream that may have more tasks next time will soon number them otherwise."""
    grows = plan.by.kind in {"source", "column", "time"} and plan.tasks is None
    return grows and _TWO_DIGITS - _NEAR < tasks <= _TWO_DIGITS


def _is_finished(options: SplitOptions, plan: SplitPlan, out: Path, *, force: bool) -> bool:
    """Whether the finished stream of this split exists; raises OutputExists if another one does.

    The sources are hashed only if there is a stream to compare with.
    """
    identity: dict[str, Any] = {}
    if not force and kind_of(out) == "stream":
        identity = identity_of(options, plan)
    return already_made(out, "stream", identity, force=force)


def _warn_of_empty_parts(holdout: Holdout, tasks: list[dict[str, Any]]) -> None:
    """Warn of tasks that got no images in one of the parts to hold out."""
    for part in holdout.parts:
        empty = [str(task["path"]) for task in tasks if part not in task["splits"]]
        if not empty:
            continue
        names = ", ".join(empty[:MOST_NAMES])
        rest = f", ... {len(empty)} in all" if len(empty) > MOST_NAMES else ""
        if holdout.counted:
            warn(f"no {part} images in {names}{rest}: too few to hold one out with --holdout-most")
            continue
        way_out = ",".join(f"{name}=N" for name in holdout.parts)
        warn(
            f"no {part} images in {names}{rest}: the share is small and drawn by image hash; "
            f"use --holdout {way_out} to hold out N images per task"
        )


def _with_labels(plan: SplitPlan, classifier: Classifier, path: Path, threads: int) -> SplitPlan:
    """The plan with labels predicted by the classifier, which are stored at `path`."""
    with progress("labels", _rows(plan), "images") as bar:
        batches = (pairs for _, _, pairs in plan.reader.batches())
        labels = write_labels(batches, classifier, path, threads=threads, advance=bar.advance)
    return replace(plan, reader=replace(plan.reader, labels=labels))


def describe_plan(options: SplitOptions, out: Path, *, force: bool = False) -> dict[str, Any]:
    """What a split would read and by which rule, as JSON values; no image is read.

    By time, the column is read, so that the first and last time of each task are known.
    """
    plan = plan_of(options)
    if _is_finished(options, plan, out, force=force):
        say(f"{out} is already finished")
    check_columns(plan)
    files = [file for one in plan.reader.inputs for file in one.files]
    times = []
    if plan.by.kind == "time":
        with TemporaryDirectory() as scratch:
            rule = make_rule(plan, Path(scratch))
        assert isinstance(rule, ByTime)
        times = [dict(zip(("task", "first", "last"), one, strict=True)) for one in rule.times()]
    failed, rows = sum(map(failed_downloads, files)), _rows(plan)
    return {
        "sources": {one.name: [str(file.path) for file in one.files] for one in plan.reader.inputs},
        "bytes": sum(map(size_of, files)),
        "pairs": (rows if plan.reader.limit else rows - failed) if rows else None,
        **({"failed_downloads": failed} if failed else {}),
        "by": options.by,
        "labels_from": options.labels_from,
        "tasks": len(times) or _known_tasks(plan),
        **({"times": times} if times else {}),
        "holdout": dict(plan.holdout.parts) if plan.holdout else f"column {options.split_column}",
        "shard_bytes": plan.shard_bytes,
        **({"holdout_most": options.holdout_most} if options.holdout_most else {}),
        **({"kept_columns": list(plan.reader.columns.keep)} if plan.reader.columns.keep else {}),
    }


def _known_tasks(plan: SplitPlan) -> int | None:
    """The number of tasks, if it is known before the pairs are read."""
    of_rule = {"source": len(plan.reader.inputs), "all": 1}
    return of_rule.get(plan.by.kind, plan.tasks)


def check_columns(plan: SplitPlan) -> None:
    """Raise BadInput if a source lacks a column, and UsageError if --image-root has no effect."""
    wanted = plan.reader.columns
    files = [file for one in plan.reader.inputs for file in one.files]
    for file in files:
        file.check_columns(wanted)
    if wanted.image_roots and not any(file.names_files(wanted) for file in files):
        raise UsageError("--image-root has no effect: these sources contain their images")
    if wanted.image_roots:
        _check_paths(files, wanted)


def _check_paths(files: list[Source], wanted: ColumnOptions) -> None:
    """Say how many paths of images are absolute. Raises UsageError if all are."""
    lists = [file for file in files if isinstance(file, ListFile | ParquetFile)]
    first, absolute, total = "", 0, 0
    for path in (path for file in lists for path in file.image_paths(wanted) if path):
        total += 1
        if Path(path).is_absolute():
            first, absolute = first or path, absolute + 1
    if not absolute:
        return
    said = (
        f"--image-root has no effect on absolute paths: {absolute} of {total} paths of images are "
        f"absolute; the first: {shortened(first)}"
    )
    if absolute == total and len(lists) == len(files):
        raise UsageError(said)
    warn(said)


def _rows(plan: SplitPlan) -> int:
    """The number of pairs to read, or 0 if a source does not store it."""
    counts = [file.rows() for one in plan.reader.inputs for file in one.files]
    known = 0 if None in counts else sum(count or 0 for count in counts)
    return min(known, plan.reader.limit or known)


def _only_in_order(plan: SplitPlan) -> str | None:
    return ",".join(plan.reader.only) or None


def order_of(names: list[str], text: str | None, seed: int) -> list[int]:
    """The indices of the tasks in stream order: by name, reverse, shuffle, or None for as they are.

    Raises UsageError if --order does not name every task exactly once.

    >>> order_of(["a", "b", "c"], "c,a,b", 0)
    [2, 0, 1]
    """
    places = list(range(len(names)))
    if text is None:
        return places
    if text == "reverse":
        return places[::-1]
    if text == "shuffle":
        return [int(place) for place in generator(seed, "order of tasks").permutation(len(names))]
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in names:
            raise UsageError(f"--order: {unknown_name('task', name, names)}")
    missing = [name for name in names if name not in wanted]
    if missing or len(wanted) != len(names):
        raise UsageError(
            f"--order must name every task exactly once; it has {len(wanted)} names, "
            f"the tasks are: {', '.join(names)}"
        )
    return [names.index(name) for name in wanted]


def publish_stream(
    result: WrittenTasks,
    order: list[int],
    directory: Path,
    identity: dict[str, Any],
    body: dict[str, Any],
) -> dict[str, Any]:
    """Rename the task directories, write each task.json and then stream.json; return its body."""
    tasks = [result.tasks[place] for place in order]
    content = stream_content(tasks)
    kept: dict[str, Any] = {
        name: body[name] for name in ("kept_columns", "in_place") if name in body
    }
    entries = []
    for step, (place, task) in enumerate(zip(order, tasks, strict=True)):
        path = directory / slug(step, task.name, digits_for(len(tasks)))
        result.directories[place].rename(path)
        more = {"tasks_in_stream": len(tasks), "stream": content, "inputs": result.inputs, **kept}
        write_task_manifest(path, task, identity, step=step, more=more)
        entries.append(
            {"path": path.name, "name": task.name, "content": task.content, "splits": task.counts()}
        )
    full = {
        **body,
        "tasks": entries,
        "totals": _totals(entries),
        "read": result.read,
        "skipped": result.skipped,
        "inputs": result.inputs,
    }
    write_manifest(directory, "stream", identity, content, full)
    return {"content": content, **full}


def _totals(entries: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for entry in entries:
        for name, counts in entry["splits"].items():
            total = totals.setdefault(name, dict.fromkeys(counts, 0))
            for field, count in counts.items():
                total[field] += count
    return totals
