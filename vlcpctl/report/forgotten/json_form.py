"""What was forgotten, as it is in summary.json: `vlcpctl forget` finds the keys of pairs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from vlcpctl.report.forgotten.changes import (
    DIRECTORY,
    Changes,
    Confusion,
    Example,
    Forgotten,
    TaskChanges,
    page_names,
)


def forgotten_json(found: Forgotten) -> dict[str, object]:
    """Counts, keys and ranks of what was forgotten, for summary.json."""
    names = page_names(found.by_task())
    return {
        "examples": found.examples,
        "tasks": [_task_json(one, f"{DIRECTORY}/{names[one.task]}") for one in found.tasks],
    }


def _task_json(one: TaskChanges, page: str) -> dict[str, object]:
    evaluator, protocol, variant, split = one.track
    about = {"evaluator": evaluator, "protocol": protocol, "map_variant": variant, "split": split}
    confused: Mapping[str, Sequence[Confusion]] = {
        "confused_now": one.confused_now,
        "confused_then": one.confused_then,
    }
    return {
        **about,
        "run": one.run,
        "seed": one.seed,
        "task": one.task,
        "steps": [one.learned, one.last],
        "gallery": one.gallery,
        "page": page,
        "directions": {way: _changes_json(changed) for way, changed in one.ways.items()},
        **{
            name: [
                {"class": c.label, "wrong": c.wrong, "counts": [c.then, c.now], "keys": [*c.keys]}
                for c in pairs
            ]
            for name, pairs in confused.items()
            if pairs
        },
    }


def _changes_json(changed: Changes) -> dict[str, object]:
    return {
        "queries": changed.queries,
        "right": [changed.right_then, changed.right_now],
        "n_forgotten": changed.n_forgotten,
        "n_gained": changed.n_gained,
        "forgotten": [_example_json(shown) for shown in changed.forgotten],
        "gained": [_example_json(shown) for shown in changed.gained],
        "retrieved_instead": [asdict(one) for one in changed.instead],
    }


def _example_json(shown: Example) -> dict[str, object]:
    return {
        "key": shown.key,
        "caption": shown.caption,
        "ranks": [shown.rank_then, shown.rank_now],
        "wrong": shown.wrong,
        "wrong_caption": shown.wrong_caption,
    }
