"""Running statistics of batch norms, computed for weights that were not trained as they are.

Those of several models are not those of merged weights, so that they are taken anew, as stochastic
weight averaging does (Izmailov et al., 2018, arXiv 1803.05407, section 3.1).
"""

from __future__ import annotations

import math

import numpy as np
import torch

from vlcpctl.core.console import progress
from vlcpctl.core.errors import UsageError
from vlcpctl.data.loading.eval_batches import EvalImages
from vlcpctl.data.tasks.task import Task
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.execution import BATCH_NORMS

_MOST = 2048  # with a ResNet-50 they take minutes of a CPU core
_BATCH = 256


def recompute(encoder: Encoder, task: Task) -> None:
    """Set the running means and variances of all batch norms from a task's training images.

    They are the averages, over batches of about 256 images, of the mean and the unbiased variance
    of what a batch norm gets when all of them normalise by the batch. Of more than 2,048 images
    those with the lowest keys are taken, with the evaluation transform. Everything else is in eval
    mode. Raises UsageError if the model has no batch norm, or the task fewer than two images.
    """
    norms = [part for part in encoder.module.modules() if isinstance(part, BATCH_NORMS)]
    if not norms:
        raise UsageError("--batch-norm-from has no effect: the model has no batch norms")
    task.require("train")
    split = task.split("train", _MOST)
    if len(split) < 2:
        raise UsageError(f"--batch-norm-from {task.path} has fewer than two training images")
    encoder.module.eval()
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # all batches count alike
        norm.train()
    rows = np.arange(len(split))
    with torch.inference_mode(), progress("batch norms", len(rows), "images") as bar:
        # Batches of almost one size: a last one of few images would count as much as the others.
        for part in np.array_split(rows, math.ceil(len(rows) / _BATCH)):
            images = EvalImages(split, part, encoder.transform, len(part))[0]
            encoder.features(encoder.pixels(images), None)
            bar.advance(len(part))
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
        norm.eval()
