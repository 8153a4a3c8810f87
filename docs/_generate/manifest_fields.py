"""What each field of a manifest means; docs/reference/manifests.md is generated from this.

A dot leads into an object, `[]` into the objects of a list, and a name in capitals stands for any.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of every manifest.
COMMON = {
    "schema": "Kind and version of the format, such as `vlcpctl.task/1`.",
    "content": "Content id: a digest of the data, the same on every machine.",
    "identity": "Settings and inputs that decide the result; compared when the command runs again.",
    "seal": "Digest of all other fields but `schema` and `made_by`, which detects changes.",
    "was": "Earlier content ids. Only if `forget` has rewritten the artifact.",
    "made_by": "Version of vlcpctl and of Python, command line, and time; part of no id.",
}


@dataclass(frozen=True)
class Kind:
    """A kind of manifest: what its directory is, the manifest's file, and the fields of its own."""

    what: str
    file: str
    fields: dict[str, str]
    common: tuple[str, ...] = tuple(COMMON)


_INPUTS = {
    "inputs": "What it was made from: of a file of data its name, size, digest (`xxh3_128`) and "
    "content id, else a content id.",
}
_SPLITS = {
    "splits.SPLIT.images": "Number of images.",
    "splits.SPLIT.captions": "Number of captions.",
    "splits.SPLIT.bytes": "Size of the tars.",
    "splits.SPLIT.shards": "Names of the tars.",
    "splits.SPLIT.content": "Content id of the samples.",
    "splits.SPLIT.index": "Size and digest of the Parquet index, `SPLIT.parquet`.",
    "splits.SPLIT.rows": "Size and digest of the file of rows, which makes the index quick to "
    "read.",
    "splits.SPLIT.shard_bytes": "Size of each tar.",
}
_KEPT = {"kept_columns": "Columns kept from the sources. Only with `--keep-columns`."}
_DATA_WAS = {
    "data_was": "Earlier content ids of tasks that `forget` had rewritten before it was made. "
    "Only if there are any.",
}
# The identity of a checkpoint that train-step made.
_STEP = {
    "identity.run": "Name of the run.",
    "identity.method": "Method.",
    "identity.method_code": "Code of each method that is not built in: the digest of its "
    "`--method-file`, or its package and version. Only with such methods.",
    "identity.hyper": "Hyper-parameters of each method.",
    "identity.settings": "Settings of the training.",
    "identity.seed": "Seed of random choices.",
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
_WARNINGS = {"warnings": "Warnings about what it continued from. Only if there were any."}

KINDS = {
    "stream": Kind(
        "A stream of tasks, made by `split`.",
        "stream.json",
        {
            "name": "Name of the stream.",
            "rule": "How pairs were assigned to tasks: `by`, `labels_from`, `tasks`, `order`, "
            "`holdout`.",
            "seed": "Seed of random choices.",
            **_KEPT,
            "tasks[].path": "Directory of the task.",
            "tasks[].name": "Name of the task.",
            "tasks[].content": "Content id of the task.",
            "tasks[].splits": "Images, captions and bytes of each split.",
            "totals": "The same, summed over the tasks.",
            "read": "Number of pairs read.",
            "skipped": "Number of pairs left out, by reason.",
            "left_out": "Number of pairs that `--not` left out: `deleted` by request, `known` by "
            "task. Only with `--not`.",
            **_INPUTS,
        },
    ),
    "task": Kind(
        "A task of a stream, made by `split`, or a replay buffer, made by `buffer`.",
        "task.json",
        {
            "name": "Name of the task; `buffer` for a buffer.",
            "slug": "Name of its directory.",
            "step": "Position in the stream, from 0; null for a buffer.",
            "tasks_in_stream": "Number of tasks in the stream.",
            "stream": "Content id of the stream.",
            **_SPLITS,
            "labels": "Class labels that occur, sorted.",
            "skipped": "Number of pairs left out, by reason.",
            **_KEPT,
            **_INPUTS,
            "buffer.policy": "Rule that chose the pairs. This and the next are of buffers only.",
            "buffer.variant": "`paper` or `ctp`.",
            "buffer.size": "Size as it was given.",
            "buffer.of": "`--of`: what a percentage refers to.",
            "buffer.kind": "Whether the size is a count, a share, or a number to add.",
            "buffer.count": "Size as a number of images.",
            "buffer.share": "Size as a share.",
            "buffer.seed": "Seed of random choices.",
            "buffer.checkpoint": "Content id of the model that computed the features.",
            "buffer.seen": "Number of images of each task so far, by its content id.",
            "buffer.items": "Number of images in the buffer, by task.",
            "buffer.shard_rows": "Number of samples in each tar, evicted ones included.",
            "buffer.features": "Width, type and content id of stored features; null without.",
            **_DATA_WAS,
            **_WARNINGS,
        },
    ),
    "checkpoint": Kind(
        "A model after a task, made by `train-step`, `import-checkpoint` or `interpolate`.",
        "checkpoint.json",
        {
            **_STEP,
            "run": "Name of the run.",
            "method": "Method, such as `ctp+er`; `imported`, or `interpolate` for an average.",
            "alpha": "Share of the second checkpoint. Only of averages.",
            "seed": "Seed of random choices.",
            "buffer": "Policy and size of the replay buffer; null without one.",
            "stream": "Content id of the stream of the last tasks.",
            "stream_step": "Position of the last task in that stream.",
            "step": "Position of the last task in the run; null if not trained on a stream.",
            "task_steps": "Position of each task in the run; null for one learned before it.",
            "tasks": "Content ids of the tasks it was trained on, in order.",
            "task_names": "Their names.",
            "pairs": "Pairs seen in the last train-step, those of repeated epochs included.",
            "train_seconds": "Seconds that the last train-step trained, over all resumes.",
            "parent": "Content id of `--previous`; null without one.",
            "parents": "Content ids of both checkpoints. Only of averages.",
            "configs": "Ids of the settings of both. Only of averages.",
            "start": "Content id of the checkpoint that the run started from. Only if there is "
            "one.",
            "start_config": "Id of its settings. Only if it was trained here.",
            "fresh_state": "Whether `--fresh-state` was given.",
            "origins": "Where each setting comes from: a flag, the preset, the method, ...",
            "origin": "Name, size and digest of the imported file, and whether it ran code. Only "
            "of imported checkpoints.",
            "model": "Architecture, source of its first weights, family (`dual` or `fusion`), "
            "text length in tokens, image size in pixels, temperature and heads.",
            "asked": "Settings as they were asked for, where the data changed them.",
            "inverting_seconds": "Seconds spent on generating negative texts. Only if it did.",
            "peak_memory": "Most memory used, in bytes.",
            **_WARNINGS,
            **_DATA_WAS,
            "files": "sha256 of the files of the model and the method's state; with the identity, "
            "they decide the content id.",
            "digests": "Size and digest (`xxh3_128`) of every file; quicker to verify.",
        },
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
            "files.NAME.rows": "Number of rows of a file of embeddings.",
            "files.NAME.content": "Its content id.",
            "digests": "Size and digest of every file.",
        },
    ),
    "embeddings": Kind(
        "Embeddings of a checkpoint, made by `eval-retrieval --save-embeddings`.",
        "embeddings.json",
        {
            "tasks": "Directory names of the tasks.",
            "inputs": "Content ids of the checkpoint and of the tasks.",
            "digests": "Size and digest of every file.",
        },
        ("schema", "content", "identity", "was", "seal", "made_by"),
    ),
    "report": Kind(
        "A report, made by `forgetting-report`: every number of the page, for scripts.",
        "summary.json",
        {
            "definitions": "Formula, reading and source of every metric of forgetting.",
            "legend": "How to read the formulas.",
            "notes": "What the report warns about.",
            "mixed": "Fields that differ between rows and were allowed by `--allow-mixed`.",
            "groups": "Runs of each line. Only with `--group-by`.",
            "best": "Best runs of sweeps. Only with `--best`.",
            "tracks": "Scores of each evaluator, protocol and split: summary, matrices and scores "
            "per task of each run, and transfer.",
            "spatial": "Angles of `spatial-report`.",
            "baseline": "Baseline as given, and its models for each run.",
            "guards": "Data on which the model must not get worse.",
            "drops": "Drop of each run on each guard, with its interval.",
            "intervals": "How intervals are computed. Only with `--ranks`.",
            "forgotten": "Queries that were forgotten or gained. Only with `--ranks`.",
            "checkpoints": "Cards of the checkpoints: training, settings, cost.",
            "gates": "Each condition of `--fail-if`, and whether it holds.",
            "tables": "Tables in the layout of papers. Only with `--table`.",
        },
        ("schema", "content", "identity"),
    ),
    "tables": Kind(
        "Tables of a report, made by `forgetting-report --csv` and `--latex`.",
        "tables.json",
        {"files": "Names of the tables."},
        ("schema", "content", "identity", "made_by"),
    ),
    "figures": Kind(
        "Charts of a report, made by `forgetting-report --figures`.",
        "figures.json",
        {"figures": "Names of the charts, without their endings."},
        ("schema", "content", "identity", "made_by"),
    ),
    "export": Kind(
        "A data set or a model for other programs, made by `export`.",
        ".vlcpctl/export.json",
        {
            "to": "Its form: `clip-benchmark`, `img2dataset`, `hf`, `imagefolder` or `hf-model`.",
            "inputs": "Content ids of the tasks, or of the checkpoint.",
            "splits.SPLIT.images": "Number of images. Only of a data set.",
            "splits.SPLIT.captions": "Number of captions. Only of a data set.",
            "run": "Name of the run. Only of a model.",
            "method": "Name of the method. Only of a model.",
            "step": "Step of the last task in the run. Only of a model.",
            "seed": "Seed of the run. Only of a model.",
            "tasks": "Content ids of the tasks that it was trained on. Only of a model.",
            **_DATA_WAS,
            "card": "Size and digest of `README.md` as it was written. Only of a data set.",
            "digests": "Size and digest of every file but `README.md`, which people fill in.",
        },
        ("schema", "content", "identity", "seal", "made_by"),
    ),
}

# JSON files that are not manifests of a directory of data.
RECORDS = {
    "state": Kind(
        "The state of a model in production, written by `update`.",
        "state.json",
        {
            "start": "Model in production at the start, its buffer and its settings.",
            "settings": "Options of `update` that later calls keep.",
            "weeks[].number": "Number of the accepted week, from 1.",
            "weeks[].data": "Id of its data.",
            "weeks[].sources": "Names of its data.",
            "weeks[].pairs": "Number of images, those held out included.",
            "weeks[].checkpoint": "Content id of its checkpoint.",
            "weeks[].verdicts": "Each condition, its value, and whether it held.",
            "weeks[].measured": "Guards on which the start was first evaluated in this week.",
            "weeks[].left_out": "Number of pairs of its data that were left out: `deleted` by "
            "request, `known` by week. Only if there were any.",
            "rolling_back": "Weeks being moved by an interrupted `--rollback`.",
        },
        ("schema", "seal", "made_by"),
    ),
    "week": Kind(
        "What a week was made from, written by `update`.",
        "week.json",
        {
            "number": "Number of the week, from 1.",
            "parent": "Content id of the checkpoint that it continues.",
            "data": "Id of its data.",
            "sources": "Names of its data.",
            "settings": "Options of `update` in this week.",
            "fresh_state": "Whether `--fresh-state` was given.",
            "measured": "Guards on which the start is first evaluated in this week.",
            "deleted": "Content ids of the stop lists whose pairs are left out. Only if there are "
            "any.",
            "readmitted": "Requests whose pairs `--readmit` took in again. Only with it.",
        },
        ("schema", "seal", "made_by"),
    ),
    "verdict": Kind(
        "How a week was judged, written by `update`.",
        "verdict.json",
        {
            "accepted": "Whether the week was accepted.",
            "gates": "Conditions of `--fail-if`.",
            "undefined": "What a condition that is not defined yet does.",
            "verdicts": "Each condition, its value, and whether it held.",
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
            "not_found": "Keys and images that were asked for and not found.",
            "stop_lists": "Files that keep the pairs out of later weeks of `update`.",
            "second_search": "Search after the removal: its time, how many artifacts it read, and "
            "the pairs that it found, 0.",
            "artifacts": "What was rewritten or deleted, with earlier and new content ids.",
            "checkpoints": "Checkpoints that were trained on the pairs, and those of which this "
            "is not known.",
            "versions": "Versions of vlcpctl and Python.",
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
