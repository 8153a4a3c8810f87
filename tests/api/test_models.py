"""A model of a checkpoint in a user's process, in which open_clip stays whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vlcpctl
from vlcpctl.data.images.transforms import eval_view
from vlcpctl.models import dual_encoder, encoders
from vlcpctl.testing.tiny_stream import make_task

# Both towers of other libraries, and no network.
TOWERS = """
import json, sys
from pathlib import Path
import open_clip
from open_clip import factory
from transformers import BertConfig

at = Path(sys.argv[2])
BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    vocab_size=40, max_position_embeddings=24).save_pretrained(at / "bert")
config = {
    "embed_dim": 8,
    "vision_cfg": {"timm_model_name": "resnet10t", "timm_pool": "", "timm_proj": "linear",
        "image_size": 32},
    "text_cfg": {"hf_model_name": str(at / "bert"), "hf_model_pretrained": False,
        "hf_tokenizer_name": str(at / "bert"), "context_length": 8},
}
(at / "mine.json").write_text(json.dumps(config))
open_clip.add_model_config(at / "mine.json")
model = factory.create_model("mine", pretrained_hf=False)
print(type(model.visual).__name__, type(model.text).__name__)
import torchvision, torch._dynamo.utils, timm
print(len(timm.list_models()) > 1000, torch._dynamo.utils.counters is not None)
from vlcpctl.models.imports import LazyPackage, StandIn
print([name for name, one in sys.modules.items() if isinstance(one, LazyPackage | StandIn)])
"""
BEFORE = {
    "nothing": "",
    "the program's modules": "from vlcpctl.models.imports import preload; preload()",
    "a fusion model": "from vlcpctl.models import encoders; encoders.build('albef-micro')",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    dual_encoder.save(dual_encoder.build("micro"), path)
    return path


def test_a_model_gives_the_projections_of_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    model, transform, tokenizer = vlcpctl.load_model(checkpoint)
    assert not model.training
    pair = vlcpctl.Task(make_task(tmp_path / "task", 1)).pairs()[0]
    encoder = encoders.load_for_inference(checkpoint, "cpu")
    view = torch.tensor(eval_view(pair.image, encoder.transform))[None]
    pixels, ids = encoder.inputs(view, encoder.tokenize(pair.captions))
    torch.testing.assert_close(transform(pair.image)[None], pixels)
    assert torch.equal(tokenizer(pair.captions), ids)
    assert torch.equal(tokenizer(pair.captions[0]), ids)
    with torch.no_grad():
        image, text = encoder.features(pixels, ids)
        torch.testing.assert_close(model.encode_image(transform(pair.image)[None]), image)
        torch.testing.assert_close(model.encode_text(ids), text)


@pytest.mark.slow
@pytest.mark.parametrize("before", BEFORE)
def test_open_clip_builds_towers_of_other_libraries_afterwards(
    before: str, checkpoint: Path, tmp_path: Path
) -> None:
    lines = f"{BEFORE[before]}\nimport vlcpctl, sys\nvlcpctl.load_model(sys.argv[1])\n{TOWERS}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", lines, checkpoint, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["TimmModel HFTextEncoder", "True True", "[]"], done.stderr


def test_a_fusion_model_is_refused(tmp_path: Path) -> None:
    encoders.save(encoders.build("albef-micro"), tmp_path)
    with pytest.raises(vlcpctl.Incompatible, match="has a fusion model"):
        vlcpctl.load_model(tmp_path)
