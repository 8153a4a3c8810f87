"""How a module is run: memory format, torch.compile, eval mode, activations computed again."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from vlcpctl.core.console import say
from vlcpctl.core.errors import VlcpError, first_line

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def place(module: nn.Module, device: torch.device) -> None:
    """Move the module to the device; on a GPU, convolutional networks become channels-last."""
    module.to(device)
    if device.type == "cuda":
        use_channels_last(module)


def use_channels_last(module: nn.Module) -> None:
    """Store the weights of convolutions channels-last, if the module has more than one.

    Pixels are channels-last already, and a GPU's kernels for convolutions are faster with it. A
    vision transformer has a single convolution, over its patches, and stays as it is.
    """
    convolutions = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    if len(convolutions) > 1:
        for part in convolutions:
            part.to(memory_format=torch.channels_last)


def pixels_for_gradients(module: nn.Module, pixels: Tensor) -> Tensor:
    """The pixels (B, 3, H, W) in a memory format in which the module's gradients can be computed.

    On a CPU the weight gradient of a strided 1 x 1 convolution over fewer than 16 channels writes
    beyond its memory if its input is channels-last, which ends the process without a message
    (oneDNN in torch 2.15). The stems of MobileCLIP's image encoders have such convolutions.
    """
    if pixels.device.type == "cpu" and any(map(_is_narrow, module.modules())):
        return pixels.contiguous()
    return pixels


def _is_narrow(part: nn.Module) -> bool:
    return (
        isinstance(part, nn.Conv2d)
        and part.kernel_size == (1, 1)
        and part.stride != (1, 1)
        and part.groups == 1
        and part.in_channels < 16
    )


def checkpoint_open_clip(module: nn.Module) -> None:
    """Let an open_clip module recompute the activations of its layers in backward.

    An image encoder with batch norms stays as it is, and a line says so: its running statistics
    would count each batch twice.
    """
    clip: Any = module
    if any(isinstance(part, BATCH_NORMS) for part in clip.visual.modules()):
        say("--grad-checkpointing covers the text encoder only: the image encoder has batch norms")
    else:
        clip.visual.set_grad_checkpointing()
    text = getattr(clip, "text", None)
    if text is None:
        clip.transformer.grad_checkpointing = True
    elif getattr(text, "config", None) is not None:  # a tower of transformers
        text.transformer.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        text.set_grad_checkpointing()


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, compiled at its first call, and again for another mode or kind of input.

    The result raises VlcpError in one line if it cannot be compiled. Loads torch._dynamo.
    """
    from torch._dynamo.exc import TorchDynamoException

    # It warns of any CUDA toolkit that it finds no GPU for.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    # Whether TF32 is used, --tf32 decides.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
    # Dropout draws from torch's generator, as without compilation: the second forward pass of a
    # micro-batch must draw the masks of the first.
    fast = torch.compile(function, options={"fallback_random": True})

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return fast(*args, **kwargs)
        except TorchDynamoException as error:
            raise VlcpError(
                f"torch cannot compile the model: {first_line(error)}; leave out --compile"
            ) from error

    return call


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run the block in eval mode; afterwards each submodule has its own mode again."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
