"""Towers of transformers and timm: built, trained through, and carried along in the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vlcpctl.core.errors import BadInput
from vlcpctl.models import dual_encoder, towers
from vlcpctl.models.configuration import find_configuration
from vlcpctl.models.dual_encoder import DualEncoder

VISION = {"image_size": 32, "timm_model_name": "resnet10t", "timm_pool": "", "timm_proj": "linear"}

pytestmark = pytest.mark.slow


def write_config(directory: Path, **text: object) -> Path:
    """A ResNet of timm and a small BERT whose config and tokenizer are in directories beside it."""
    from transformers import BertConfig, BertTokenizerFast

    tower = directory / "small-bert"
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"intermediate_size": 16, "vocab_size": 40, "max_position_embeddings": 24}
    BertConfig(**shape, **sizes).save_pretrained(tower)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghij",
        *(f"##{c}" for c in "abc"),
    ]
    (tower / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(tower / "vocab.txt")).save_pretrained(tower)
    named = {"hf_model_name": "small-bert", "hf_tokenizer_name": "small-bert"}
    more = {"hf_model_pretrained": False, "hf_pooler_type": "cls_pooler", "context_length": 8}
    model = {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": {**named, **more, **text}}
    path = directory / "model.json"
    path.write_text(json.dumps(model))
    return path


@pytest.fixture
def encoder(tmp_path: Path) -> DualEncoder:
    return dual_encoder.build(write_config(tmp_path), temperature="learn:0.07")


def outputs(encoder: DualEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.arange(3 * 2 * 32 * 32).remainder(251).to(torch.uint8).view(2, 32, 32, 3)
    return encoder.features(*encoder.inputs(images, encoder.tokenize(["a cab", "b"])))


def test_an_image_size_that_a_tower_is_not_made_for_is_one_line(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    model = json.loads(path.read_text())
    model["vision_cfg"] |= {
        "timm_model_name": "vit_tiny_patch16_224",
        "timm_pool": "token",
        "image_size": 64,
    }
    path.write_text(json.dumps(model))
    line = "image_size is 64, but vit_tiny_patch16_224 takes images of 224 pixels"
    with pytest.raises(BadInput, match=line):
        dual_encoder.build(path)
    assert dual_encoder.build(path, image_size=224).module.visual.trunk.patch_embed


def test_gradients_reach_both_towers(encoder: DualEncoder) -> None:
    image, text = outputs(encoder)
    (image.sum() + text.sum()).backward()
    without = {name for name, weight in encoder.weights().items() if weight.grad is None}
    assert without == {"logit_scale"}


def test_a_checkpoint_loads_where_the_towers_own_files_are_gone(
    encoder: DualEncoder, tmp_path: Path
) -> None:
    encoder.module.eval()
    out, moved = tmp_path / "out", tmp_path / "moved"
    out.mkdir()
    dual_encoder.save(encoder, out)
    (tmp_path / "small-bert").rename(tmp_path / "gone")
    out.rename(moved)
    loaded = dual_encoder.load(moved)
    loaded.module.eval()
    for one, other in zip(outputs(encoder), outputs(loaded), strict=True):
        assert torch.equal(one, other)
    again = tmp_path / "again"
    again.mkdir()
    dual_encoder.save(loaded, again)
    for path in moved.rglob("*.*"):
        data = path.read_bytes()
        assert str(tmp_path).encode() not in data
        assert data == (again / path.relative_to(moved)).read_bytes()


def test_a_tower_of_the_hub_keeps_its_name_and_needs_no_hub(
    encoder: DualEncoder, tmp_path: Path
) -> None:
    dual_encoder.save(encoder, tmp_path)
    path = tmp_path / "open_clip_config.json"
    path.write_text(path.read_text().replace('"text_tower"', '"bert-base-uncased"'))
    loaded = dual_encoder.load(tmp_path)
    dual_encoder.save(loaded, tmp_path)
    assert '"hf_model_name": "bert-base-uncased"' in path.read_text()


def test_open_clip_loads_the_checkpoint_when_the_tower_is_at_hand(
    encoder: DualEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import open_clip

    out = tmp_path / "out"
    out.mkdir()
    dual_encoder.save(encoder, out)
    monkeypatch.chdir(out)
    bare = open_clip.create_model(f"local-dir:{out}")
    tokens = open_clip.get_tokenizer(f"local-dir:{out}")(["a cab", "b"])
    encoder.module.eval()
    bare.eval()
    assert torch.equal(tokens, encoder.tokenize(["a cab", "b"]))
    assert torch.equal(bare.encode_text(tokens), outputs(encoder)[1])


def test_an_image_tower_without_positions_takes_other_sizes() -> None:
    """Of ViTamin-XL-384 the configuration has images of 256 pixels."""
    found = find_configuration("ViTamin-XL-384")
    with torch.device("meta"):
        module = towers.new_module(found.model, 0)
        assert module.encode_image(torch.zeros(1, 3, 256, 256)).shape == (1, 1152)
