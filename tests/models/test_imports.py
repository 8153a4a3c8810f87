"""open_clip arrives without what a run does not use, and with it when a tower needs it."""

from __future__ import annotations

import subprocess
import sys

import ftfy
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


def test_what_runs_use_comes_without_the_rest() -> None:
    """The parts of open_clip and of timm, what forked children share, and ASCII captions."""
    others = "('open_clip.factory', 'torchvision', 'huggingface_hub', 'sympy', 'torch._dynamo')"
    lines = (
        "library = open_clip(); library.CLIP; library.tokenizer.SimpleTokenizer; library.convert",
        "library.OPENAI_DATASET_MEAN; library.__version__",
        f"print([name for name in ('timm', *{others}) if name in sys.modules])",
        "tokenise = library.tokenizer.SimpleTokenizer(); ids = tokenise(['a dog!'])",
        "print('ftfy' in sys.modules); broken = tokenise(['caf\\u00c3\\u00a9', 'a &amp;amp; b'])",
        "print('ftfy' in sys.modules, bool((broken == tokenise(['caf\\u00e9', 'a & b'])).all()))",
        "import ftfy; print(ftfy.fix_text('a'), ftfy.__version__[:1].isdigit())",
        f"preload(); print('open_clip.model' in sys.modules, {HEAVY})",
        "from vlcpctl.models.imports import timm_parts",
        "with timm_parts(): from timm.models.vision_transformer import VisionTransformer",
        "others = ('timm.models.resnet', 'timm.data.loader', 'torch._dynamo', 'sympy')",
        "print([name for name in others if name in sys.modules])",
    )
    wanted = ["[]", "False", "True True", "a True", "True []", "[]"]
    assert _printed(*lines).split("\n") == wanted


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
        "with imports.put_off(imports._stand_ins(imports._COMPILER)):",
        f"    from torch._dynamo.{wanted}",
        "import torch._dynamo.utils as utils",
        "print(type(utils).__name__, utils is torch._dynamo.utils, utils.counters is not None)",
    )
    assert _printed(*lines) == "module True True"


def test_ftfy_leaves_plain_ascii_as_it_is() -> None:
    plain = [one for one in map(chr, range(32, 127)) if one != "&"]
    texts = [first + second for first in plain for second in plain]
    for text in (*texts, "".join(texts)):
        assert ftfy.fix_text(text) == text
