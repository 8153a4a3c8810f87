"""`vlcpctl split` as a whole: from its options to a stream directory with its manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vlcpctl.core.console import progress, say, warn
from vlcpctl.core.errors import MOST_NAMES, UsageError, unknown_name
from vlcpctl.core.seeds import generator
from vlcpctl.core.words import counted, printable
from vlcpctl.data.sources.identity import size_of
from vlcpctl.data.sources.pairs import check, names_files
from vlcpctl.data.splitting.labels import LoadClassifier, PredictedLabels
from vlcpctl.data.splitting.leaving_out import sentence
from vlcpctl.data.splitting.plan import Plan, identity, plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.writing import WrittenTasks, rule_of, write_tasks
from vlcpctl.data.tasks.facts import digits_for, slug, stream_content, write_task_manifest
from vlcpctl.data.tasks.samples import DUPLICATE, FAILED_DOWNLOAD
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import is_artifact, kind_of, read_manifest, write_manifest
from vlcpctl.files.outputs import new_directory


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
    if _is_finished(plan, out, force=force):
        return read_manifest(out, "stream")
    check_columns(plan)
    with new_directory(out, is_artifact) as directory:
        if classifier is not None:
            with progress("labels", plan.rows(), "images") as bar:
                batches = (pairs for _, _, pairs in plan.batches())
                labels = PredictedLabels(batches, classifier(), threads, bar.advance)
            plan = replace(plan, labels=labels)
        with progress("split", plan.rows(), "pairs") as bar:
            result = write_tasks(plan, directory, bar.advance)
        manifest = _publish(plan, result, directory, out.name)
    if result.skipped:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(result.skipped.items()))
        total, listed = sum(result.skipped.values()), out / "skipped.ndjson"
        warn(f"skipped {total} of {manifest['read']} samples ({counts}); listed in {listed}")
    if result.left_out:
        say(sentence(result.left_out, manifest["read"]))
    for warning in _warnings(plan, result, manifest):
        warn(warning)
    if others := result.selection.others.total():
        pairs = counted(others, "pair")
        say(f"split: {pairs} of other tasks than those of --only are not in the stream")
    say(f"split: {summary(manifest, _distinct_images(out))}")
    return manifest


def _is_finished(plan: Plan, out: Path, *, force: bool) -> bool:
    """Whether the finished stream of this split exists; raises OutputExists if another one does.

    The sources are hashed only if there is a stream to compare with.
    """
    compares = not force and kind_of(out) == "stream"
    is_made = already_made(out, "stream", identity(plan) if compares else {}, force=force)
    if is_made:
        say(f"{out} is already finished")
    return is_made


# -- manifests


def _publish(plan: Plan, result: WrittenTasks, directory: Path, name: str) -> dict[str, Any]:
    """Name the task directories, write each task.json and then stream.json; returns its body."""
    options, selection = plan.options, result.selection
    of_split = identity(plan, selection.fingerprints)
    names = [task.name for task in result.tasks]
    order = order_of(names, options.order or ",".join(plan.only) or None, options.seed)
    tasks = [result.tasks[place] for place in order]
    content, inputs = stream_content(tasks), selection.inputs()
    marks: dict[str, Any] = {"kept_columns": list(plan.columns.keep)} if plan.columns.keep else {}
    marks |= {"in_place": True} if options.in_place else {}
    entries, totals = [], dict[str, Counter[str]]()
    for step, (place, task) in enumerate(zip(order, tasks, strict=True)):
        path = directory / slug(step, task.name, digits_for(len(tasks)))
        result.directories[place].rename(path)
        more = {"tasks_in_stream": len(tasks), "stream": content, "inputs": inputs, **marks}
        write_task_manifest(path, task, of_split, step=step, more=more)
        counts = task.counts()
        named = {"path": path.name, "name": task.name}
        entries.append({**named, "content": task.content, "splits": counts})
        for split, of_split_counts in counts.items():
            total = totals.setdefault(split, Counter(dict.fromkeys(of_split_counts, 0)))
            total.update(of_split_counts)
    leaves_out = plan.left_out is not None or options.not_test_images
    body = {
        "name": name,
        "rule": {
            "by": options.by,
            "labels_from": options.labels_from,
            "tasks": options.tasks,
            **({"time_format": options.time_format} if options.time_format else {}),
            "order": options.order,
            **({"only": list(plan.only)} if plan.only else {}),
            "holdout": of_split["holdout"],
            "holdout_most": options.holdout_most,
        },
        "seed": options.seed,
        **marks,
        **({"left_out": result.left_out} if leaves_out else {}),
        "tasks": entries,
        "totals": {split: dict(total) for split, total in totals.items()},
        "read": selection.read,
        "skipped": result.skipped,
        "inputs": inputs,
    }
    write_manifest(directory, "stream", of_split, content, body)
    return {"content": content, **body}


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
    if sorted(wanted) != sorted(names):
        raise UsageError(
            f"--order must name every task exactly once; it has {len(wanted)} names, "
            f"the tasks are: {', '.join(names)}"
        )
    return [names.index(name) for name in wanted]


# -- what is said


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
    totals, skipped = manifest["totals"], manifest["skipped"]
    pairs, captions = (
        sum(split[name] for split in totals.values()) for name in ("images", "captions")
    )
    held_out = [
        f"{name} {images[name]}"
        + ("" if images[name] == split["images"] else f" images, {split['images']} pairs")
        for name, split in totals.items()
        if name != "train"
    ]
    content = "" if images["all"] == pairs else f"{counted(pairs, 'pair')} of "
    content += f"{counted(images['all'], 'image')} with {counted(captions, 'caption')}"
    parts = [f"{counted(len(manifest['tasks']), 'task')}, {content}"]
    parts.append(f"held out: {', '.join(held_out) or 'nothing'}")
    if duplicates := skipped.get(DUPLICATE, 0):
        parts.append(f"{counted(duplicates, 'duplicate')} skipped")
    if failed := skipped.get(FAILED_DOWNLOAD, 0):
        parts.append(counted(failed, "failed download"))
    return "; ".join(parts)


def _warnings(plan: Plan, result: WrittenTasks, manifest: dict[str, Any]) -> Iterator[str]:
    """What may not be intended in a new stream."""
    if plan.left_out is not None and plan.left_out.columns_not_kept:
        names = ",".join(map(printable, plan.left_out.columns_not_kept))
        yield (
            f"--not: deleted pairs were selected by {names}, which is not kept: copies of them "
            f"with other bytes are not found; --keep-columns {names} compares it"
        )
    yield from result.warnings[:MOST_NAMES]
    if len(result.warnings) > MOST_NAMES:
        yield f"{len(result.warnings)} tasks in all hold out fewer images (--holdout-most)"
    yield from _empty_parts(plan, manifest["tasks"])
    images = sum(split["images"] for split in manifest["totals"].values())
    for column, count in result.lacking.items():
        if count:
            yield (
                f"column {printable(column)!r} has no value for {count} of {images} images; they "
                "cannot be found by it"
            )


def _empty_parts(plan: Plan, tasks: list[dict[str, Any]]) -> Iterator[str]:
    """A warning for each part to hold out of which some tasks got no images."""
    for part in plan.holdout.parts if plan.holdout else ():
        empty = [str(task["path"]) for task in tasks if part not in task["splits"]]
        if not empty:
            continue
        names = ", ".join(empty[:MOST_NAMES])
        rest = f", ... {len(empty)} in all" if len(empty) > MOST_NAMES else ""
        if plan.holdout and plan.holdout.counted:
            yield f"no {part} images in {names}{rest}: too few to hold one out with --holdout-most"
            continue
        way_out = ",".join(f"{name}=N" for name in plan.holdout.parts) if plan.holdout else ""
        yield (
            f"no {part} images in {names}{rest}: the share is small and drawn by image hash; "
            f"use --holdout {way_out} to hold out N images per task"
        )


# -- before the work


def describe_plan(options: SplitOptions, out: Path, *, force: bool = False) -> dict[str, Any]:
    """What a split would read and by which rule, as JSON values; no image is read.

    By time, the column is read, so that the first and last time of each task are known.
    """
    plan = plan_of(options)
    _is_finished(plan, out, force=force)
    check_columns(plan)
    times = list(rule_of(plan).times) if plan.by.kind == "time" else []
    tasks = {"source": len(plan.inputs), "all": 1}.get(plan.by.kind, options.tasks)
    return {
        "sources": {one.name: [str(file.path) for file in one.files] for one in plan.inputs},
        "bytes": sum(map(size_of, plan.files)),
        "pairs": plan.rows() or None,
        "by": options.by,
        "labels_from": options.labels_from,
        "tasks": len(times) or tasks,
        **({"times": _named(times)} if times else {}),
        "holdout": dict(plan.holdout.parts) if plan.holdout else f"column {options.split_column}",
        "shard_bytes": plan.shard_bytes,
        **({"holdout_most": options.holdout_most} if options.holdout_most else {}),
        **({"kept_columns": list(plan.columns.keep)} if plan.columns.keep else {}),
    }


def _named(times: list[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [dict(zip(("task", "first", "last"), one, strict=True)) for one in times]


def check_columns(plan: Plan) -> None:
    """Raise BadInput if a source lacks a column, and UsageError if --image-root has no effect."""
    for file in plan.files:
        check(file, plan.columns)
    has_roots = bool(plan.columns.image_roots)
    if has_roots and not any(names_files(file, plan.columns) for file in plan.files):
        raise UsageError("--image-root has no effect: these sources contain their images")
