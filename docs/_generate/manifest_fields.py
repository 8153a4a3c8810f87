"""What each field of a manifest means; docs/reference/manifests.md is generated from this.

The fields of those that have a type of their own are described there, and only others here. A dot
leads into an object, `[]` into the objects of a list, and a name in capitals stands for any.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from itertools import pairwise
from typing import Any, get_args, get_origin, get_type_hints

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.data.tasks.facts import ExportManifest, StreamManifest, TaskManifest
from vlcpctl.files.manifest import MANIFESTS, Manifest


def described(struct: type) -> dict[str, str]:
    """The fields of a type that have a text below them, and the texts; not those of its base."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(made, ast.ClassDef)
    return {
        one.target.id: " ".join(text.value.value.split())
        for one, text in pairwise(made.body)
        if isinstance(one, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def fields_of(struct: type) -> dict[str, str]:
    """The texts of all fields, each followed by those of the fields of its objects."""
    types, found = get_type_hints(struct), {}
    for name, text in described(struct).items():
        inner = {
            f"{name}{way}{one}": of_one
            for way, kind in _inside(types[name])
            for one, of_one in fields_of(kind).items()
        }
        found |= {name: text} | inner
    return found


def _inside(kind: Any, way: str = ".") -> Iterator[tuple[str, type]]:
    """The types with fields in a type, and how the names of their fields begin."""
    if is_dataclass(kind):
        yield way, kind  # type: ignore[misc]
    for number, part in enumerate(get_args(kind)):
        if get_origin(kind) is dict and number == 1:
            yield from _inside(part, ".NAME.")
        elif get_origin(kind) is not dict:
            yield from _inside(part, "[]." if get_origin(kind) is tuple else way)


# Of every manifest.
COMMON = described(Manifest)
_NEVER_REWRITTEN = tuple(name for name in COMMON if name != "id")


@dataclass(frozen=True)
class Kind:
    """A kind of manifest: what its directory is, the manifest's file, and the fields of its own."""

    what: str
    file: str
    fields: dict[str, str]
    common: tuple[str, ...] = tuple(COMMON)


def kind_of(struct: type, file: str, common: tuple[str, ...] = tuple(COMMON)) -> Kind:
    """The kind whose fields are those of a type."""
    what, _, _ = (struct.__doc__ or "").partition("\n")
    return Kind(what, file, fields_of(struct), common)


# The identity of a checkpoint that train-step made.
_STEP = {
    "identity.run": "Name of the run.",
    "identity.method": "Method.",
    "identity.method_code": "Code of each method that is not built in: the digest of its "
    "`--method-file`, or its package and version. Only with such methods.",
    "identity.hyper": "Hyper-parameters of each method.",
    "identity.settings": "Settings of the training.",
    "identity.seed": "Seed of random choices.",
    "identity.attempt": "Value of `--attempt`.",
    "identity.tasks": "Content ids of the tasks of this train-step.",
    "identity.previous": "Content id of `--previous`; null without it.",
    "identity.teacher": "Content id of `--teacher`; null without it.",
    "identity.buffer": "Content id of `--buffer`; null without it.",
    "identity.targets": "Content id of `--targets`; null without them.",
    "identity.pseudo_texts": "Content id of `--pseudo-texts`; null without them.",
    "identity.from_scratch": "Whether `--from-scratch` was given.",
    "identity.fresh_state": "Whether `--fresh-state` was given.",
    "identity.limit": "Value of `--limit`; null without it.",
}
KINDS = {
    "stream": kind_of(StreamManifest, MANIFESTS["stream"]),
    "task": kind_of(TaskManifest, MANIFESTS["task"]),
    "checkpoint": Kind(
        "A model after a task, made by `train-step`, `import-checkpoint` or `interpolate`.",
        MANIFESTS["checkpoint"],
        _STEP | fields_of(CheckpointManifest),
        _NEVER_REWRITTEN,
    ),
    "targets": Kind(
        "A teacher's embeddings, made by `distill`.",
        "targets.json",
        {
            "teacher": "Content id of the teacher.",
            "sources": "Content ids of the tasks and of the buffer.",
            "width": "Channels of an embedding.",
            "scale": "Scale of the teacher's similarities: 1 / temperature.",
            "pairs": "Number of images.",
            "views": "Augmented views of each image.",
            "digests": "Size and digest of every file.",
        },
    ),
    "pseudo-texts": Kind(
        "Negative texts of IncCLIP, made by `invert-texts`.",
        MANIFESTS["pseudo-texts"],
        {
            "texts": "Number of texts.",
            "length": "Tokens of a text.",
            "width": "Channels of a token embedding.",
            "digests": "Size and digest of every file.",
        },
        _NEVER_REWRITTEN,
    ),
    "cached-embeddings": Kind(
        "Embeddings in the directory of `--embedding-cache`; the identity is their key.",
        MANIFESTS["cached-embeddings"],
        {
            "facts": "Images that cannot be decoded, by number.",
            "digests": "Size and digest of every file.",
        },
        _NEVER_REWRITTEN,
    ),
    "embeddings": Kind(
        "Embeddings of a checkpoint, made by `eval-retrieval --save-embeddings`.",
        "embeddings.json",
        {
            "tasks": "Directory names of the tasks.",
            "inputs": "Content ids of the checkpoint and of the tasks.",
            "digests": "Size and digest of every file.",
        },
        ("schema", "content", "identity", "seal", "id", "made_by"),
    ),
    "report": Kind(
        "A report, made by `forgetting-report`: what was asked and judged; facts.csv beside it has "
        "the numbers.",
        "summary.json",
        {
            "notes": "What the report warns about.",
            "tracks": "Title and main metric of each evaluator, protocol and split.",
            "baseline": "Baseline as given, and its models for each run.",
            "guards": "Data on which the model must not get worse.",
            "verdicts": "Each condition of `--fail-if`, and whether it holds.",
            "groups": "Runs of each line. Only with `--group-by`.",
            "best": "Best runs of sweeps. Only with `--best`.",
            "forgotten": "Queries that were forgotten or gained. Only with `--ranks`.",
            "checkpoints": "Cards of the checkpoints: training, settings, cost. Only with "
            "`--checkpoint`.",
        },
        ("schema", "content", "identity"),
    ),
    "tables": Kind(
        "Tables of a report, made by `forgetting-report --csv` and `--latex`.",
        "tables.json",
        {"files": "Names of the files of the tables."},
        ("schema", "content", "identity", "made_by"),
    ),
    "figures": Kind(
        "Charts of a report, made by `forgetting-report --figures`.",
        "figures.json",
        {"files": "Names of the files of the charts."},
        ("schema", "content", "identity", "made_by"),
    ),
    "export": kind_of(ExportManifest, MANIFESTS["export"], _NEVER_REWRITTEN),
}

# JSON files that are not manifests of a directory of data.
RECORDS = {
    "state": Kind(
        "The state of a model in production, written by `update`.",
        "state.json",
        {
            "head": "Numbers of the accepted attempts in order, the start first.",
            "attempts[].id": "Number of the attempt, and of its directory in `attempts/`.",
            "attempts[].key": "Id of what decides its training.",
            "attempts[].week": "Number of its week; 0: the start.",
            "attempts[].parent": "The attempt that it continues.",
            "attempts[].data": "Id of its data, and `names` of them.",
            "attempts[].settings": "What update.toml and the call said, by section.",
            "attempts[].status": "`making`, `passed` or `rejected`.",
            "attempts[].draw": "The training that counts; `lost` has the verdicts of others.",
            "attempts[].verdicts": "Each condition, its value, and whether it held.",
            "attempts[].checkpoint": "Content id of what is deployed.",
            "attempts[].dropped": "Number of pairs of its data that were left out: `deleted` by "
            "request, `known` by week, `leaked` by the task of the test images.",
            "event": "The last change, as events.ndjson has it.",
        },
        ("schema", "seal", "made_by"),
    ),
    "receipt": Kind(
        "A receipt of a deletion, written by `forget`.",
        "receipts/0001.json",
        {
            "state": "`pending` until everything is removed, then `finished`.",
            "ticket": "Text of `--ticket`; null without it.",
            "request": "Digest of what was asked for.",
            "started": "Time at which it started.",
            "finished": "Time at which it ended; null until then.",
            "paths": "Directories that were searched.",
            "selectors": "Options that selected the pairs, and how many `pairs` each selected "
            "before the removal.",
            "keys": "Keys of the removed samples.",
            "images": "Digests of the removed images.",
            "stop_lists": "Files that keep the pairs out of later weeks of `update`.",
            "second_search": "Search after the removal: its time, how many artifacts it read, and "
            "the pairs that it found, 0.",
            "artifacts": "What was rewritten or deleted, with its content id `before` and `after`, "
            "and the line that makes `again` what was deleted.",
            "checkpoints": "Checkpoints that were trained on the pairs.",
            "unknown": "Checkpoints, exports and unfinished work of data that was not searched.",
            "foreign": "Pairs that stay, by tar of others.",
            "caches": "Caches of object stores, which were emptied.",
            "notes": "What else the deletion does not cover.",
        },
        ("schema",),
    ),
    "stop-list": Kind(
        "The pairs of a deletion, which `update` leaves out; written by `forget` into a state.",
        "deleted/REQUEST.json",
        {
            "request": "Digest of what was asked for.",
            "selectors": "Keys, and digests of images and of values of kept columns.",
            "keys": "Keys of the removed samples.",
        },
        ("schema", "seal"),
    ),
}
