"""The second moments of the inputs of linear layers, from a pass of the model over a batch.

Shapes: n tokens of all samples, I inputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vlcpctl.core.batch import Batch, Weights
from vlcpctl.models.execution import evaluating
from vlcpctl.training.loop.train_run import TrainRun


@torch.no_grad()
def input_moments(run: TrainRun, batch: Batch, layers: Sequence[str]) -> Weights:
    """X^T X of the inputs X (n, I) of linear layers, (I, I) each, by the names of their weights.

    The tokens are those of the global batch, those of padding included; a fusion model also fuses
    its pairs. The model has its own weights, in eval mode.
    """
    module, found = run.encoder.module, {}
    hooks = []
    for name in layers:
        layer = module.get_submodule(name.removesuffix(".weight"))
        assert isinstance(layer, nn.Linear), f"{name} is not the weight of a linear layer"
        found[name] = layer.weight.new_zeros(layer.in_features, layer.in_features)
        hooks.append(layer.register_forward_pre_hook(_adding_to(found[name])))
    encode = run.encode_tokens if run.encoder.family == "fusion" else run.encode
    try:
        with run.encoder.uncompiled(), evaluating(module):
            for chunk in run.chunks(batch):
                encode(batch, chunk)
    finally:
        for hook in hooks:
            hook.remove()
    for moment_II in found.values():  # one by one: a message of all would double the memory
        run.world.sum_([moment_II])
    return found


def _adding_to(moment_II: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def add(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x_nI = inputs[0].reshape(-1, len(moment_II)).to(moment_II.dtype)
        moment_II.addmm_(x_nI.T, x_nI)  # in place: autocast does not round it to halves

    return add
