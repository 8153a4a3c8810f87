"""A checkpoint is read into a model without random weights in front."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

from vlcpctl.models import encoders

DRAWS = {torch.Tensor.normal_, torch.Tensor.uniform_, torch.randn, init.normal_, init.uniform_}


class Drawn(TorchFunctionMode):
    """Counts what draws random numbers."""

    count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.count += func in DRAWS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("model", ["micro", "albef-micro"])
def test_a_loaded_model_is_the_saved_one_and_nothing_is_drawn_for_it(
    model: str, tmp_path: Path
) -> None:
    with Drawn() as drawn:
        built = encoders.build(model)
        assert drawn.count > 10
        encoders.save(built, tmp_path)
        drawn.count = 0
        found = encoders.load(tmp_path)
    assert drawn.count == 0
    for kind in ("named_parameters", "named_buffers"):
        one, other = (dict(getattr(each.module, kind)()) for each in (built, found))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
