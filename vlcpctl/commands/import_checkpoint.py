"""`vlcpctl import-checkpoint`: convert weights from another program to a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from vlcpctl.commands.shared import Planned, Shared, run_name
from vlcpctl.core import console
from vlcpctl.core.errors import BadInput, missing
from vlcpctl.core.options import (
    INPUT,
    MODEL,
    MaybePath,
    MaybePathText,
    OnePath,
    argument,
    like,
    option,
    switch,
)
from vlcpctl.models.checkpoint_files import OPEN_CLIP


class ImportCheckpoint(Planned):
    r"""Convert weights that another program has trained to a checkpoint.

    Reads open_clip's epoch_N.pt and its directories, the CTP authors' task_NN.pth (as albef-base
    unless --model is given), bare state dicts and safetensors. Missing and unexpected tensors are
    reported by name. Without --step, the result counts as trained on no task of a stream: pass it
    as --previous to the train-step of a first task, and most methods then protect it.

    open_clip:MODEL,TAG is a pretrained model of open_clip; its weights are downloaded to the cache
    of its hub, or read from a file: open_clip:MODEL,FILE. Without a network, fetch the file
    elsewhere.

    A pickle can contain arbitrary code. By default it is read as data, and refused if that is not
    possible. With --trust-pickle, the code in the file is run: use it only for files that you
    trust.

    Examples:
      vlcpctl import-checkpoint open_clip:ViT-B-32,laion2b_s34b_b79k -o start
      vlcpctl import-checkpoint logs/run/checkpoints/epoch_32.pt -o run/start \
          --model ViT-B-32
      vlcpctl import-checkpoint CTP/task_08.pth -o ctp/08 \
          --tokenizer bert-base-chinese --step 8
    """

    source: OnePath = argument(
        "SOURCE",
        "File of weights, directory with weights and configuration, or open_clip:MODEL,TAG for "
        "pretrained weights of open_clip (downloaded if necessary)",
        kw_only=False,
    )
    model: MaybePathText = option(
        "Model architecture",
        "NAME|FILE.json",
        MODEL,
        otherwise="from SOURCE; required if SOURCE does not name it",
        offers="models",
        usual=True,
    )
    tokenizer: MaybePath = option(
        "Directory with the vocab.txt or tokenizer.json of a fusion model",
        "DIR",
        MODEL,
        otherwise="from its configuration",
        usual=True,
    )
    run: str | None = option(
        "Name of the run in rows", "NAME", otherwise="the file's name", parse=run_name, usual=True
    )
    step: int | None = option(
        "Stream step of a model that was trained on tasks of a stream, as a checkpoint of that run",
        "I",
        otherwise="none, for a model that a run starts from",
        within="[0, 9999]",
    )
    trust_pickle: bool = switch(
        "Run the code in SOURCE if it cannot be read otherwise; use it only if you trust SOURCE",
        INPUT,
    )
    threads: int = like(Shared, "threads", default=1)

    def execute(self) -> None:
        is_there = self.source.exists() or str(self.source).startswith(OPEN_CLIP)
        if not is_there:  # before torch is imported
            raise BadInput(missing(self.source))
        from vlcpctl.checkpoints.importing import ImportRequest, import_checkpoint, read

        request = ImportRequest(
            source=self.source,
            out=self.out,
            model=self.model,
            tokenizer=self.tokenizer,
            run=self.run,
            step=self.step,
            trusts_pickle=self.trust_pickle,
            force=self.force,
        )
        if self.dry_run:
            encoder, _ = read(request)
            tensors = len(encoder.module.state_dict())
            console.say(f"{tensors} tensors fit a {encoder.family} model")
        else:
            import_checkpoint(request)
        console.emit(_result(self.out) if self.json and not self.dry_run else self.out)


def _result(path: Path) -> str:
    from vlcpctl.checkpoints.manifest import CheckpointManifest

    made = CheckpointManifest.read(path)
    return json.dumps(
        {
            "path": str(path),
            "content": made.content,
            "run": made.run,
            "step": made.step,
            "origin": made.origin,
        }
    )
