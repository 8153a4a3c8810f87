"""`vlcpctl export`: write tasks or a checkpoint in the form that another program reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import SPLITS, Planned, Stored
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.options import (
    INPUT,
    MaybePath,
    Paths,
    Texts,
    argument,
    option,
    required,
    several,
)
from vlcpctl.files.manifest import kind_of

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Task
    from vlcpctl.export import data_sets, model

MODEL, ONNX = "hf-model", "onnx"
OF_DATA = ("clip-benchmark", "hf")


class Export(Planned, Stored):
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

    sources: Paths = argument(
        "TASK|CHECKPOINT",
        "Tasks, buffers or streams; or one checkpoint, for --to hf-model and onnx",
        kw_only=False,
        stored=True,
    )
    to: str = required(
        "Form to write: clip-benchmark or hf for tasks, hf-model or onnx for a checkpoint",
        "FORM",
        choices=(*OF_DATA, MODEL, ONNX),
    )
    split: Texts = several(
        "Split to export; repeat for more",
        "SPLIT",
        INPUT,
        choices=SPLITS,
        otherwise="all",
        goes_with=("to", OF_DATA),
        offers=("train", "val", "test", "query", "gallery"),
        usual=True,
    )
    shard_size: str | None = option(
        "Maximum size of a tar or Parquet file",
        "BYTES",
        otherwise="256MB",
        goes_with=("to", OF_DATA),
        usual=True,
    )
    dataset_type: str | None = option(
        "What CLIP_benchmark evaluates on the data set, retrieval or classification",
        "TYPE",
        choices=("retrieval", "classification"),
        otherwise="retrieval",
        goes_with=("to", ("clip-benchmark",)),
    )
    templates: MaybePath = option(
        "File with a prompt template on each line, with {c} for the class, for CLIP_benchmark",
        "FILE",
        INPUT,
        otherwise="'a photo of a {c}.'",
        goes_with=("to", ("clip-benchmark",)),
        usual=True,
    )
    rows: Paths = several(
        "File of evaluation rows; the model card shows those of the checkpoint; repeat for more",
        "FILE",
        INPUT,
        goes_with=("to", (MODEL, ONNX)),
        usual=True,
    )
    trained_on: Paths = several(
        "Stream or task that the checkpoint was trained on; the model card says how many "
        "training images each task has; repeat for more",
        "PATH",
        INPUT,
        goes_with=("to", (MODEL, ONNX)),
    )

    def execute(self) -> None:
        request = self._data_request() if self.to in OF_DATA else self._model_request()
        if self.dry_run:
            for line in request.plan():
                say(line)
        else:
            request.export()
        emit(_result(self.out) if self.json and not self.dry_run else self.out)

    def _data_request(self) -> data_sets.DataSetExport:
        """The request for tasks; checks its options before anything is read."""
        from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES
        from vlcpctl.data.tasks.tars import DEFAULT_SHARD_BYTES, parse_bytes
        from vlcpctl.export import data_sets
        from vlcpctl.export.clip_benchmark import RETRIEVAL

        size = self.shard_size
        return data_sets.DataSetExport(
            tasks=_tasks(self.sources),
            splits=self.split,
            to=self.to,
            out=self.out,
            shard_bytes=DEFAULT_SHARD_BYTES if size is None else parse_bytes(size),
            dataset_type=self.dataset_type or RETRIEVAL,
            templates=_lines(self.templates) if self.templates else DEFAULT_TEMPLATES,
            force=self.force,
        )

    def _model_request(self) -> model.ModelExport:
        """The request for a checkpoint."""
        from vlcpctl.export import model

        checkpoint, *others = self.sources
        if others:
            raise UsageError(f"--to {self.to} takes one checkpoint, not {len(others) + 1} paths")
        if kind_of(checkpoint) in {"task", "stream"}:
            raise UsageError(
                f"{checkpoint} is a {kind_of(checkpoint)}; export it with --to {', '.join(OF_DATA)}"
            )
        return model.ModelExport(
            checkpoint=checkpoint,
            rows=self.rows,
            tasks=_tasks(self.trained_on),
            out=self.out,
            to=self.to,
            force=self.force,
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


def _result(out: Path) -> str:
    """What --json prints about an export."""
    from vlcpctl.files.manifest import read_manifest

    made = read_manifest(out, "export")
    about = {name: made[name] for name in ("to", "content", "inputs")}
    splits = {"splits": made["splits"]} if "splits" in made else {}
    return json.dumps({"path": str(out), **about, **splits}, ensure_ascii=False)
