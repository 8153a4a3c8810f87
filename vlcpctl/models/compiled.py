"""Forward passes compiled with torch.compile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from vlcpctl.core.errors import VlcpError, first_line

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, compiled at its first call, and again for another mode or kind of input.

    The result raises VlcpError in one line if it cannot be compiled. Loads torch._dynamo.
    """
    from torch._dynamo.exc import TorchDynamoException

    # It warns of any CUDA toolkit that it finds no GPU for.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
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
