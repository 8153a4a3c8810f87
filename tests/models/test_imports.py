"""open_clip arrives without what a run does not use, and with it when a tower needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = "[name for name in ('timm', 'transformers', 'torch._dynamo') if name in sys.modules]"
TOWERS = "{'vision_cfg': {'timm_model_name': 'x'}, 'text_cfg': {'hf_model_name': 'y'}}"


def _printed(*lines: str) -> str:
    start = "import sys; from vlcpctl.models.imports import open_clip, preload"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join((start, *lines))],
        capture_output=True,
        text=True,
        check=True,
    )
    return ended.stdout.strip()


def test_open_clip_is_imported_without_heavy_libraries() -> None:
    assert _printed("open_clip()", f"print({HEAVY})") == "[]"


def test_a_model_with_a_tokenizer_is_built_without_heavy_libraries() -> None:
    lines = ("from vlcpctl.models import encoders; encoders.build('micro')", f"print({HEAVY})")
    assert _printed(*lines) == "[]"


@pytest.mark.slow
def test_what_was_left_out_can_be_imported_afterwards() -> None:
    lines = (
        "open_clip()",
        "import torchvision.ops.roi_align, sys",
        "print(sys.modules['torchvision.ops.roi_align'].is_compile_supported('cpu'))",
        "import torch._dynamo.utils; print(torch._dynamo.utils.is_compile_supported('cpu'))",
        "print(callable(torch.compile(lambda x: x)), torch._dynamo.__file__ is not None)",
    )
    assert _printed(*lines).split() == ["True", "True", "True", "True"]


@pytest.mark.slow
def test_towers_get_the_libraries_they_need() -> None:
    lines = (
        "open_clip(); from open_clip import model",
        "before = model.TimmModel, model.HFTextEncoder",
        f"open_clip({TOWERS})",
        "import open_clip.timm_model as t, open_clip.hf_model as h",
        "print(t.timm is not None and h.transformers is not None)",
        "print(model.TimmModel is t.TimmModel and model.HFTextEncoder is h.HFTextEncoder)",
        "print(model.TimmModel is not before[0])",
    )
    assert _printed(*lines).split() == ["True", "True", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["utils import counters", "config import verbose"])
def test_a_stand_in_gives_way_to_the_real_module(wanted: str) -> None:
    lines = (
        "from vlcpctl.models import imports; import torch",
        "with imports._utils_on_demand():",
        f"    from torch._dynamo.{wanted}",
        "import torch._dynamo.utils as utils",
        "print(type(utils).__name__, utils is torch._dynamo.utils, utils.counters is not None)",
    )
    assert _printed(*lines) == "module True True"
