"""`vlcpctl buffer`: keep some pairs of a task for the tasks to come."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from vlcpctl.data import buffer_size
    from vlcpctl.data.stored_features import Projections
    from vlcpctl.data.task import Split, Task

Previous = Annotated[
    Path | None,
    typer.Option("--previous", help="The buffer after the task before; it stays as it is."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Model whose features are looked at, or stored."),
]
StoreFeatures = Annotated[
    bool,
    typer.Option(
        "--store-features", help="Keep the projections by --checkpoint with new items, for der."
    ),
]
Policy = Annotated[
    str, typer.Option("--policy", help="reservoir, ring, herding, kmeans or random.")
]
Variant = Annotated[
    str,
    typer.Option(
        "--variant", help="paper, or ctp: quotas, evictions and draws of the CTP authors' code."
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", help="Items (10000), or a share of every task (5%).")
]
Of = Annotated[
    str | None,
    typer.Option("--of", metavar="N|stream", help="Fix a size in percent: of so many images."),
]
Add = Annotated[
    int | None, typer.Option("--add", min=1, help="Random items to append; nothing is given up.")
]


def run(
    task: Annotated[Path, typer.Argument(help="The task directory just trained on.")],
    out: options.Out,
    previous: Previous = None,
    checkpoint: Checkpoint = None,
    policy: Policy = "reservoir",
    variant: Variant = "paper",
    size: Size = None,
    of: Of = None,
    add: Add = None,
    store_features: StoreFeatures = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Keep some pairs of a task, beside those of earlier tasks, to train on again.

    The result is a task directory that holds its images: the old task may be deleted.

      reservoir  a uniform sample of everything seen; the order of the tasks does not matter

      ring       the same number of every task

      herding    of every task in proportion, those that keep its mean feature (MoF)

      kmeans     of every task in proportion, those nearest to the centres of its clusters

      random     of every task in proportion, or --add with every task

    --variant ctp does as the CTP authors' code in reservoir, herding and kmeans: quotas are rounded
    each on its own, so that the buffer may be a little over its size; an earlier task keeps the
    first of its items in the order of the data set; the reservoir draws from Python's generator
    (theirs begins with --seed 42).

    --store-features keeps the raw projections of each new item beside it, of its image and of all
    its captions, at half precision; earlier items keep theirs, by the checkpoint of their time.

    vlcpctl buffer stream/00-smileys -o buffer/00 --policy reservoir --size 500

    vlcpctl buffer stream/01-people -o buffer/01 --previous buffer/00 --policy reservoir --size 500

    vlcpctl buffer stream/00-smileys -o mof/00 --policy herding --size 5% --checkpoint run/00
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.core.atomic import already_made
    from vlcpctl.data.buffer import open_buffer, plan_update, write_buffer
    from vlcpctl.data.buffer_request import Request

    new, wanted = _checked(task, checkpoint, policy, variant, (size, of, add), store_features)
    request = Request(
        task=new,
        previous=open_buffer(previous) if previous else None,
        policy=policy,
        variant=variant,
        size=wanted,
        seed=seed,
        checkpoint=_content(checkpoint) if checkpoint else None,
        stores_features=store_features,
    )
    if already_made(out, "task", request.identity(), force=force):
        say(f"buffer: {out} is there already")
    else:
        plan = plan_update(request)
        say(f"buffer: {plan}")
        if dry_run:
            return
        model = partial(_embed, checkpoint, device), partial(_project, checkpoint, device)
        write_buffer(out, request, plan, *model)
    emit(_result(out) if as_json else out)


def _checked(
    task: Path,
    checkpoint: Path | None,
    policy: str,
    variant: str,
    sizes: tuple[str | None, str | None, int | None],
    store_features: bool,
) -> tuple[Task, buffer_size.Size]:
    """The task and the size, once the options are found to go together."""
    from vlcpctl.data.buffer_ctp import check_variant
    from vlcpctl.data.buffer_policy import check_policy
    from vlcpctl.data.buffer_request import NAME
    from vlcpctl.data.buffer_size import parse_size
    from vlcpctl.data.task import open_task

    check_policy(
        policy,
        adds=sizes[2] is not None,
        has_checkpoint=checkpoint is not None,
        stores_features=store_features,
    )
    new = open_task(task)
    wanted = parse_size(*sizes, new)
    check_variant(variant, policy, wanted)
    if NAME in new.manifest:
        raise BadInput(f"{task} is a buffer; give a task, and the buffer as --previous")
    return new, wanted


def _content(checkpoint: Path) -> str:
    from vlcpctl.core.artifacts import read_manifest

    return str(read_manifest(checkpoint, "checkpoint")["content"])


def _embed(checkpoint: Path | None, device: str, split: Split, rows: np.ndarray) -> np.ndarray:
    """Features of some pairs of a task; called only by a policy that looks at them."""
    from vlcpctl.core.devices import torch_device
    from vlcpctl.engine.pair_features import pair_features
    from vlcpctl.eval.retrieval import require_finite
    from vlcpctl.models.encoders import load

    assert checkpoint is not None, "check_policy has seen to it"
    features = pair_features(load(checkpoint), split, rows, torch_device(device))
    require_finite(features, f"{checkpoint} on {split.directory}")
    return features


def _project(checkpoint: Path | None, device: str, split: Split, rows: np.ndarray) -> Projections:
    """Projections of some pairs of a task, to be stored with them."""
    from vlcpctl.core.devices import torch_device
    from vlcpctl.engine.pair_features import raw_projections
    from vlcpctl.eval.retrieval import require_finite
    from vlcpctl.models.encoders import load

    assert checkpoint is not None, "_checked has seen to it"
    maker = _content(checkpoint)
    found = raw_projections(load(checkpoint), split, rows, torch_device(device), maker)
    for side in (found.image_ND, found.text_TD):
        require_finite(side, f"{checkpoint} on {split.directory}, at half precision")
    return found


def _result(out: Path) -> str:
    from vlcpctl.data.buffer_request import NAME
    from vlcpctl.data.task import open_task

    buffer = open_task(out)
    split = buffer.manifest["splits"]["train"]
    fields = {name: split[name] for name in ("images", "captions", "bytes")}
    return json.dumps(
        {"path": str(out), "content": buffer.content, **fields, NAME: buffer.manifest[NAME]},
        ensure_ascii=False,
    )
