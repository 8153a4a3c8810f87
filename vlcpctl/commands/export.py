"""`vlcpctl export`: write tasks or a checkpoint in the form that another program reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.files.manifest import kind_of

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Task
    from vlcpctl.export import data_sets, model

MODEL, ONNX = "hf-model", "onnx"
_OF_DATA = ("clip-benchmark", "hf")

# Each option with the targets for which it has an effect.
_RULES = (
    GoesWith("split", "to", _OF_DATA),
    GoesWith("shard_size", "to", _OF_DATA),
    GoesWith("dataset_type", "to", ("clip-benchmark",)),
    GoesWith("templates", "to", ("clip-benchmark",)),
    GoesWith("rows", "to", (MODEL, ONNX)),
    GoesWith("trained_on", "to", (MODEL, ONNX)),
)

Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="TASK|CHECKPOINT",
        help="Tasks, buffers or streams; or one checkpoint, for --to hf-model and onnx.",
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="FORM",
        help="Form to write: clip-benchmark or hf for tasks, hf-model or onnx for a checkpoint.",
        rich_help_panel=options.OUTPUT,
    ),
]
Splits = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="Split to export; repeat for more (default: all).",
        rich_help_panel=options.INPUT,
    ),
]
ShardSize = Annotated[
    str | None,
    typer.Option(
        "--shard-size",
        metavar="BYTES",
        help="Maximum size of a tar or Parquet file (default: 256MB).",
        rich_help_panel=options.OUTPUT,
    ),
]
DatasetType = Annotated[
    str | None,
    typer.Option(
        "--dataset-type",
        metavar="TYPE",
        help="What CLIP_benchmark evaluates on the data set, retrieval or classification "
        "(default: retrieval).",
        rich_help_panel=options.OUTPUT,
    ),
]
Templates = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        metavar="FILE",
        help="File with a prompt template on each line, with {c} for the class, for "
        "CLIP_benchmark (default: 'a photo of a {c}.').",
        rich_help_panel=options.INPUT,
    ),
]
CardRows = Annotated[
    list[Path] | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        help="File of evaluation rows; the model card shows those of the checkpoint; repeat for "
        "more (default: none).",
        rich_help_panel=options.INPUT,
    ),
]
TrainedOn = Annotated[
    list[Path] | None,
    typer.Option(
        "--trained-on",
        metavar="PATH",
        help="Stream or task that the checkpoint was trained on; the model card says how many "
        "training images each task has; repeat for more (default: none).",
        rich_help_panel=options.INPUT,
    ),
]


def run(
    sources: Sources,
    out: options.Out,
    to: To,
    split: Splits = None,
    shard_size: ShardSize = None,
    dataset_type: DatasetType = None,
    templates: Templates = None,
    rows: CardRows = None,
    trained_on: TrainedOn = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write tasks or a checkpoint in the form that another program reads.

    Tasks become a data set: clip-benchmark is the layout that CLIP_benchmark reads as wds/NAME, hf
    a data set of Parquet files for the Hugging Face hub. Images are copied unchanged. The tars of a
    task are WebDataset shards as they are: trainers read them without an export.

    A checkpoint of a dual encoder becomes a model repository for the Hugging Face hub, without the
    state of training and with a model card. open_clip loads it as local-dir:PATH. Nothing is
    uploaded. onnx writes its two towers as ONNX files and checks them: onnxruntime's embeddings
    must be torch's.

    'vlcpctl forget' deletes exported data sets of tasks that contain the pairs, and lists exported
    models that were trained on them.

    Examples:
      vlcpctl export stream/00-food -o food --to clip-benchmark --split test
      vlcpctl export stream -o dataset --to hf
      vlcpctl export run/02 -o model --to hf-model --rows rows.ndjson
      vlcpctl export run/02 -o model --to onnx
    """
    options.start(quiet=quiet)
    given = {name: value or None for name, value in locals().items()}
    forms = (*_OF_DATA, MODEL, ONNX)
    if to not in forms:
        raise UsageError(unknown_name("form", to, forms))
    refuse_idle(_RULES, given)
    request = _data_request(given) if to in _OF_DATA else _model_request(given)
    if dry_run:
        for line in request.plan():
            say(line)
    else:
        request.export()
    emit(_result(out) if as_json and not dry_run else out)


def _data_request(given: Mapping[str, Any]) -> data_sets.DataSetExport:
    """The request of a command line for tasks; checks its options before anything is read."""
    from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES
    from vlcpctl.data.splitting.options import parse_bytes
    from vlcpctl.data.tasks.index import SPLITS
    from vlcpctl.export import data_sets
    from vlcpctl.export.clip_benchmark import RETRIEVAL, TYPES
    from vlcpctl.export.layout import DEFAULT_SHARD_BYTES

    splits = given["split"] or ()
    for name in splits:
        if name not in SPLITS:
            raise UsageError(unknown_name("split", name, SPLITS))
    kind = given["dataset_type"] or RETRIEVAL
    if kind not in TYPES:
        raise UsageError(unknown_name("--dataset-type", kind, TYPES))
    size, templates = given["shard_size"], given["templates"]
    return data_sets.DataSetExport(
        tasks=_tasks(given["sources"]),
        splits=splits,
        to=given["to"],
        out=given["out"],
        shard_bytes=DEFAULT_SHARD_BYTES if size is None else parse_bytes(size),
        dataset_type=kind,
        templates=DEFAULT_TEMPLATES if templates is None else _lines(templates),
        force=bool(given["force"]),
    )


def _tasks(sources: Sequence[Path]) -> list[Task]:
    """The tasks at these paths, those of a stream one by one; each only once."""
    from vlcpctl.data.tasks.task import open_stream, open_task

    found: list[Task] = []
    for path in sources:
        if kind_of(path) == "checkpoint":
            raise UsageError(f"{path} is a checkpoint; export it with --to {MODEL}")
        found += open_stream(path) if kind_of(path) == "stream" else [open_task(path)]
    known: dict[str, Task] = {}
    for task in found:
        if task.content in known:
            raise UsageError(f"{task.path} is the same task as {known[task.content].path}")
        known[task.content] = task
    return found


def _lines(path: Path) -> list[str]:
    """The templates in a file. Raises BadInput if it has prompts for each class instead."""
    from vlcpctl.data.classification.prompts import prompts_of, read_templates

    found = read_templates(path).content
    if isinstance(found, Mapping):
        raise BadInput(
            f"{path} has prompts by data set; CLIP_benchmark's layout takes a list of templates"
        )
    prompts_of(["class"], found, path)  # raises BadInput for a template without {c}
    return list(found)


def _model_request(given: Mapping[str, Any]) -> model.ModelExport:
    """The request of a command line for a checkpoint."""
    from vlcpctl.export import model

    checkpoint, *others = given["sources"]
    if others:
        raise UsageError(f"--to {given['to']} takes one checkpoint, not {len(others) + 1} paths")
    if kind_of(checkpoint) in {"task", "stream"}:
        raise UsageError(
            f"{checkpoint} is a {kind_of(checkpoint)}; export it with --to {', '.join(_OF_DATA)}"
        )
    return model.ModelExport(
        checkpoint=checkpoint,
        rows=given["rows"] or (),
        tasks=_tasks(given["trained_on"] or ()),
        out=given["out"],
        to=given["to"],
        force=bool(given["force"]),
    )


def _result(out: Path) -> str:
    """What --json prints about an export."""
    from vlcpctl.files.manifest import read_manifest

    made = read_manifest(out, "export")
    about = {name: made[name] for name in ("to", "content", "inputs")}
    splits = {"splits": made["splits"]} if "splits" in made else {}
    return json.dumps({"path": str(out), **about, **splits}, ensure_ascii=False)
