"""Initial weights of fusion models: a BERT and a timm transformer give their own numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.ctp_reference import split_tensors
from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible
from vlcpctl.models import encoders
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.key_mapping import ctp_names

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "red", "heart", "x"]
TEXTS = ["a red heart", "cats x", ""]
MORE_WORDS = 20  # rows without a word in the tokenizer

BERT = {
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "vocab_size": MORE_WORDS,
}
MODEL = {
    "family": "fusion",
    "embed_dim": 6,
    "image_cfg": {"image_size": 16, "patch_size": 8, "width": 8, "layers": 2, "heads": 2},
    "text_cfg": {
        "context_length": 8,
        "positions": 16,
        "width": 8,
        "layers": 3,
        "fusion_layers": 2,
        "heads": 2,
        "feed_forward": 12,
    },
}


def bert_directory(directory: Path, kind: str = "BertForMaskedLM", **changes: object) -> Path:
    """A BERT as transformers writes it, with weights far from their initial values."""
    import transformers

    config = transformers.BertConfig(**{**BERT, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(5)
        bert = getattr(transformers, kind)(config)
        for weight in bert.parameters():
            nn.init.normal_(weight, std=0.5)
    bert.save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    return directory


def model_file(directory: Path, **changes: object) -> Path:
    path = directory / "model.json"
    path.write_text(json.dumps({**MODEL, **changes}))
    return path


def build(model: str | Path, pretrained: str | None = None, **how: object) -> FusionEncoder:
    encoder = encoders.build(model, NewModelOptions(pretrained=pretrained, **how))  # type: ignore[arg-type]
    assert encoder.family == "fusion"
    encoder.module.eval()
    return encoder


def without_images(encoder: FusionEncoder) -> None:
    """Make cross-attention and its norm, which BERT lacks, the identity."""
    for layer in encoder.model.text_encoder.fusion_layers:
        nn.init.zeros_(layer.multihead_attn.out_proj.weight)
        nn.init.zeros_(layer.multihead_attn.out_proj.bias)
        layer.norm2 = nn.Identity()


def pairs(encoder: FusionEncoder) -> tuple[Tensor, Tensor]:
    size = encoder.transform.image_size
    images = torch.randint(
        256, (3, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return encoder.inputs(images, encoder.tokenize(TEXTS))


@torch.no_grad()
def test_a_berts_weights_give_its_own_states_and_predictions(tmp_path: Path) -> None:
    from transformers import BertForMaskedLM

    place = bert_directory(tmp_path / "bert")
    encoder = build(model_file(tmp_path, text_pretrained="bert"))
    bert = BertForMaskedLM.from_pretrained(place).eval()
    images, texts = pairs(encoder)
    mask = (texts != encoder.special.pad).long()
    theirs = bert(texts, attention_mask=mask, output_hidden_states=True)
    ours = encoder.outputs(images, texts, texts, None)
    at = mask.bool()
    torch.testing.assert_close(
        ours.text_tokens[at], theirs.hidden_states[1][at], rtol=1e-6, atol=1e-6
    )
    without_images(encoder)
    fused = encoder.outputs(images, texts, texts, at)
    torch.testing.assert_close(fused.fused, theirs.hidden_states[3][:, 0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fused.logits, theirs.logits[at], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_word_masked_by_the_padding_id_is_attended_to_as_in_bert(tmp_path: Path) -> None:
    """As the CTP authors call BERT: masked ids, with the attention mask of the unmasked text."""
    from transformers import BertForMaskedLM

    place = bert_directory(tmp_path / "bert")
    encoder = build(model_file(tmp_path, text_pretrained="bert"))
    without_images(encoder)
    bert = BertForMaskedLM.from_pretrained(place).eval()
    images, texts = pairs(encoder)
    pad = encoder.special.pad
    masked = texts.clone()
    masked[:2, 2] = pad
    at = masked != texts
    logits = encoder.outputs(images, texts, masked, at).logits
    right = bert(masked, attention_mask=(texts != pad).long()).logits[at]
    wrong = bert(masked, attention_mask=(masked != pad).long()).logits[at]
    torch.testing.assert_close(logits, right, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits, wrong, rtol=1e-5, atol=1e-4)


def test_a_bert_brings_its_tokenizer_and_vocabulary(tmp_path: Path) -> None:
    place = bert_directory(tmp_path / "bert")
    encoder = build(model_file(tmp_path), f"text={place}", seed=4)
    assert encoder.tokenize(["a cats"]).tolist() == [[2, 5, 6, 7, 3, 0, 0, 0]]
    assert (encoder.special.mask, encoder.special.words) == (4, len(WORDS))
    assert encoder.config["text_cfg"]["vocab_size"] == MORE_WORDS
    drawn = build(
        model_file(tmp_path, text_cfg=encoder.config["text_cfg"] | {"tokenizer": str(place)}),
        seed=4,
    )
    own, new = encoder.weights(), drawn.weights()
    for name in (
        "text_encoder.fusion_layers.0.multihead_attn.in_proj_weight",
        "text_encoder.fusion_layers.0.norm2.weight",
        "image_projection.weight",
    ):
        assert torch.equal(own[name], new[name])
    encoders.save(encoder, tmp_path / "bert")
    (tmp_path / "bert").rename(tmp_path / "moved")
    loaded = encoders.load(tmp_path / "moved")
    assert loaded.tokenize(TEXTS).tolist() == encoder.tokenize(TEXTS).tolist()


def test_a_bert_without_a_head_for_words_leaves_it_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = bert_directory(tmp_path / "bert", "BertModel")
    before = torch.random.get_rng_state()
    encoder = build(model_file(tmp_path), f"text={place}", seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert "has no head for masked words" in capsys.readouterr().err
    again = build(model_file(tmp_path), f"text={place}", seed=4)
    for name, weight in encoder.weights().items():
        assert torch.equal(weight, again.weights()[name]), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 2}, "has num_hidden_layers 2, but the model has 3"),
        ({"num_attention_heads": 4}, "has num_attention_heads 4, but the model has 2"),
        ({"hidden_act": "relu"}, "has hidden_act relu, but the model has gelu"),
        ({"layer_norm_eps": 1e-5}, "has layer_norm_eps 1e-05, but the model has 1e-12"),
        ({"max_position_embeddings": 12}, r"positions.weight' has shape \(12, 8\)"),
    ],
)
def test_a_bert_of_another_shape_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    place = bert_directory(tmp_path / "bert", **changes)
    with pytest.raises(Incompatible, match=message):
        build(model_file(tmp_path), f"text={place}")


@torch.no_grad()
def test_a_timm_transformer_gives_its_own_tokens(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from timm.models.vision_transformer import VisionTransformer

    shape = {"embed_dim": 8, "depth": 2, "num_heads": 2, "patch_size": 8}
    theirs = VisionTransformer(img_size=16, num_classes=3, **shape)
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    save_file(theirs.state_dict(), tmp_path / "vit.safetensors")
    torch.save({"model": theirs.state_dict()}, tmp_path / "deit.pth")
    tokenizer = {**MODEL["text_cfg"], "tokenizer": str(PACKAGED / "tiny-tokenizer")}
    for pretrained in ("vit.safetensors", "deit.pth"):
        model = model_file(tmp_path, image_pretrained=pretrained, text_cfg=tokenizer)
        encoder = build(model)
        images, texts = pairs(encoder)
        tokens = encoder.outputs(images, texts, texts, None).image_tokens
        torch.testing.assert_close(tokens, theirs.eval().forward_features(images))
    larger = build(model, image_size=32)
    resized = VisionTransformer(img_size=32, num_classes=3, **shape)
    from timm.models.vision_transformer import checkpoint_filter_fn

    resized.load_state_dict(checkpoint_filter_fn(theirs.state_dict(), resized))
    images, texts = pairs(larger)
    tokens = larger.outputs(images, texts, texts, None).image_tokens
    torch.testing.assert_close(tokens, resized.eval().forward_features(images))


def test_an_image_encoder_of_another_shape_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from timm.models.vision_transformer import VisionTransformer

    other = VisionTransformer(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2)
    save_file(other.state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(Incompatible, match=r"vit.safetensors: 'blocks.0.attn.proj.bias' has shape"):
        build("albef-micro", f"image={tmp_path / 'vit.safetensors'}")


def test_a_whole_model_in_a_file_gives_all_weights(tmp_path: Path) -> None:
    first = build("albef-micro", seed=7)
    encoders.save(first, tmp_path)
    started = build("albef-micro", str(tmp_path / "model.safetensors"), seed=8)
    for name, weight in first.weights().items():
        assert torch.equal(weight, started.weights()[name])
    larger = build("albef-micro", str(tmp_path / "model.safetensors"), image_size=32)
    assert larger.weights()["image_encoder.pos_embed"].shape == (1, 17, 8)


@pytest.mark.parametrize("heads", ["linear", "cosine"])
def test_weights_of_the_ctp_authors_can_be_started_from(heads: str, tmp_path: Path) -> None:
    first = build("albef-micro", seed=7, heads=heads, temperature="fixed:0.05")
    own = first.module.state_dict()
    theirs = split_tensors(own, ctp_names(own)) | {"temp": torch.tensor(0.05)}
    torch.save({"model": theirs}, tmp_path / "task_00.pth")
    started = build("albef-micro", str(tmp_path / "task_00.pth"), heads=heads)
    imported = encoders.with_weights("albef-micro", theirs, "task_00.pth")
    for found in (started.weights(), imported.weights()):
        assert found.keys() == own.keys()
        for name, weight in own.items():
            torch.testing.assert_close(found[name].detach(), weight)


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    encoder = build("albef-micro")
    own = encoder.module.state_dict()
    theirs = split_tensors(own, ctp_names(own))
    del theirs["vision_proj.weight"], theirs["vision_proj.bias"]
    theirs["itm_head.weight"] = torch.zeros(2)
    with pytest.raises(Incompatible) as caught:
        encoders.with_weights("albef-micro", theirs, "task_00.pth")
    for name in ("vision_proj.weight", "vision_proj.bias", "itm_head.weight"):
        assert name in str(caught.value)
