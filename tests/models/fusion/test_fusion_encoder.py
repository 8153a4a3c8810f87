"""Fusion encoders: saved and loaded whole, refused when unfit, undisturbed by other weights."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from support.training import model_file
from torch import Tensor

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.core.errors import Incompatible
from vlcpctl.models import encoders
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.fusion.configuration import read_fusion
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.model import FusionModel, Outputs

TEXTS = ["a red heart", "grinning cat face with smiling eyes, animal", "x", ""]


def encoder_of(name: str | Path = "albef-micro", **how: object) -> FusionEncoder:
    encoder = encoders.build(name, NewModelOptions(**how))  # type: ignore[arg-type]
    assert encoder.family == "fusion"
    return encoder


@pytest.fixture
def encoder() -> FusionEncoder:
    return encoder_of(seed=3)


def inputs(encoder: FusionEncoder, count: int = 4) -> tuple[Tensor, Tensor]:
    size = encoder.transform.image_size
    images = torch.randint(
        256, (count, size, size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return encoder.inputs(images, encoder.tokenize(TEXTS[:count]))


def outputs_of(encoder: FusionEncoder, weights: dict[str, Tensor] | None = None) -> Outputs:
    images, texts = inputs(encoder)
    masked = texts.clone()
    masked[:, 1] = encoder.special.mask
    return encoder.outputs(images, texts, masked, masked != texts, weights)


def same(one: Outputs, other: Outputs) -> bool:
    names = [field.name for field in fields(Outputs)]
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


# Reading and writing


def test_a_checkpoint_names_no_path_of_this_machine(tmp_path: Path) -> None:
    path = model_file(tmp_path, "albef-micro", text_pretrained=str(tmp_path))
    encoders.save(encoder_of(path, pretrained="none"), tmp_path)
    assert "/" not in (tmp_path / "config.json").read_text()


# Building


def test_the_papers_model_has_its_architecture() -> None:
    found = read_fusion(PACKAGED / "albef-base.json")
    assert found is not None
    with torch.device("meta"):
        module = FusionModel(found, words=21128, pad=0)
    counts: dict[str, int] = {}
    for name, weight in module.named_parameters():
        part = name.split(".")[0]
        counts[part] = counts.get(part, 0) + weight.numel()
    # ViT-B/16; BERT base over 21,128 words and six cross-attentions; 256 channels.
    assert counts["image_encoder"] == 85_798_656
    attention = 4 * (768 * 768 + 768) + 2 * 768
    layer = attention + 2 * 768 * 3072 + 3072 + 768 + 2 * 768
    embeddings = (21128 + 512 + 2 + 2) * 768
    assert counts["text_encoder"] == embeddings + 12 * layer + 6 * attention
    assert counts["image_projection"] == counts["text_projection"] == 768 * 256 + 256
    assert counts["word_head"] == 768 * 768 + 3 * 768 + 21128


def test_positions_are_interpolated_for_another_image_size(
    encoder: FusionEncoder, tmp_path: Path
) -> None:
    from timm.layers.pos_embed import resample_abs_pos_embed

    encoders.save(encoder, tmp_path)
    larger = encoder_of(tmp_path, image_size=32)
    assert larger.transform.image_size == 32
    name = "image_encoder.pos_embed"
    expected = resample_abs_pos_embed(encoder.weights()[name].detach(), new_size=[4, 4])
    assert torch.equal(larger.weights()[name], expected)
    again = tmp_path / "again"
    again.mkdir()
    encoders.save(larger, again)
    assert same(outputs_of(encoders.load(again)), outputs_of(larger))


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match="2501 tokens, but the model's vocabulary only 2500"):
        encoder_of(model_file(tmp_path, "albef-micro", text_cfg__vocab_size=2500))


def test_the_packaged_tokenizer_gets_a_mask_after_its_last_id(encoder: FusionEncoder) -> None:
    assert encoder.special == SpecialTokens(pad=0, cls=2, sep=2499, mask=2500, words=2501)
    words = encoder.weights()["text_encoder.embeddings.words.weight"]
    assert words.shape[0] == 2501


# Running


def test_results_are_the_same_bits_with_gradient_and_without(encoder: FusionEncoder) -> None:
    everything = {name: weight.detach() for name, weight in encoder.weights().items()}
    training = outputs_of(encoder)
    frozen = outputs_of(encoder, everything)
    assert training.fused.requires_grad
    with torch.no_grad():
        assert same(training, outputs_of(encoder))
        encoder.module.eval()
        assert same(training, outputs_of(encoder))
        assert same(training, outputs_of(encoder, everything))
    assert same(training, outputs_of(encoder))
    assert same(training, frozen)
    with torch.inference_mode():
        assert same(training, outputs_of(encoder))


def test_parts_run_alone_are_the_same_bits(encoder: FusionEncoder) -> None:
    images, texts = inputs(encoder)
    out = encoder.outputs(images, texts, texts, None)
    image, text = encoder.features(images, texts)
    assert torch.equal(image, out.image)
    assert torch.equal(text, out.text)
    assert torch.equal(encoder.features(images, None)[0], image)
    assert torch.equal(encoder.features(None, texts)[1], text)
    assert torch.equal(encoder.fused(images, texts), out.fused)
    twice = encoder.outputs(images, texts, texts.clone(), None)
    assert torch.equal(twice.fused, out.fused)


def test_the_last_token_reaches_the_first_position(encoder: FusionEncoder) -> None:
    """There is no causal mask, neither in the text's own layers nor in the fused ones."""
    images, _ = inputs(encoder, 1)
    texts = encoder.tokenize(["grinning cat face with smiling eyes, animal, nature, red heart"])
    assert (texts != encoder.special.pad).all()
    changed = texts.clone()
    changed[0, -1] = 100
    before, after = (encoder.outputs(images, ids, ids, None) for ids in (texts, changed))
    for name in ("text", "fused"):
        assert not torch.allclose(getattr(before, name), getattr(after, name), atol=1e-6)
    layer = encoder.model.text_encoder.fusion_layers[0]
    hidden = torch.randn(5, 1, 8, generator=torch.Generator().manual_seed(0))
    other = hidden.clone()
    other[-1] += 1
    image = torch.zeros(2, 1, 8)
    assert not torch.allclose(layer(hidden, image)[0], layer(other, image)[0], atol=1e-6)


def test_padding_is_not_read(encoder: FusionEncoder) -> None:
    images, texts = inputs(encoder)
    longer = torch.nn.functional.pad(texts, (0, 4), value=encoder.special.pad)
    short, long = (encoder.outputs(images, ids, ids, None) for ids in (texts, longer))
    torch.testing.assert_close(short.text, long.text)
    torch.testing.assert_close(short.fused, long.fused)


def test_a_word_masked_by_the_padding_id_is_still_attended_to(encoder: FusionEncoder) -> None:
    """BERT's masking swaps a word for any id; padding is where the unmasked text has none."""
    images, texts = inputs(encoder)
    text = encoder.model.text_encoder
    masked, pad = texts.clone(), encoder.special.pad
    masked[:3, 1] = pad
    out = encoder.outputs(images, texts, masked, masked != texts)
    wrong = text.fuse(text(masked, masked == pad), masked == pad, out.image_tokens)
    for row in range(len(texts)):
        # Without its padding a text needs no mask at all.
        length = int((texts[row] != pad).sum())
        ids, image = masked[row : row + 1, :length], out.image_tokens[row : row + 1].transpose(0, 1)
        hidden = text.embeddings(ids)
        for layer in text.text_layers:
            hidden = layer(hidden)
        for layer in text.fusion_layers:
            hidden = layer(hidden, image)
        torch.testing.assert_close(out.fused[row], hidden[0, 0])
        if row < 3:
            words = text.embeddings.words.weight
            guess = encoder.model.word_head(hidden[1], words)[0]
            torch.testing.assert_close(out.logits[row], guess)
            assert not torch.allclose(out.fused[row], wrong[row, 0], atol=1e-4)
    assert len(out.logits) == 3


def test_the_embedding_of_padding_is_zero_and_learns_from_its_places_nothing() -> None:
    encoder = encoder_of()
    images, texts = inputs(encoder)
    encoder.outputs(images, texts, texts, None).text_tokens.square().sum().backward()
    words = encoder.weights()["text_encoder.embeddings.words.weight"]
    assert words.grad is not None
    assert words.grad[encoder.special.cls].any()
    assert not words.grad[encoder.special.pad].any()
    assert not words[encoder.special.pad].any()


def test_only_fused_tokens_see_the_image(encoder: FusionEncoder) -> None:
    images, texts = inputs(encoder)
    one = encoder.outputs(images, texts, texts, None)
    other = encoder.outputs(images.flip(0), texts, texts, None)
    assert torch.equal(one.text_tokens, other.text_tokens)
    assert not torch.allclose(one.fused, other.fused)


def test_words_are_predicted_only_where_wanted(encoder: FusionEncoder) -> None:
    images, texts = inputs(encoder)
    at = torch.zeros_like(texts, dtype=torch.bool)
    assert encoder.outputs(images, texts, texts, at).logits.shape == (0, 2501)
    assert encoder.outputs(images, texts, texts, None).logits.shape == (0, 2501)
    at[0, 1] = at[2, 0] = True
    everywhere = encoder.outputs(images, texts, texts, torch.ones_like(at)).logits
    some = encoder.outputs(images, texts, texts, at).logits
    torch.testing.assert_close(some, everywhere.view(*at.shape, -1)[at])


def test_dropout_acts_in_training_alone(tmp_path: Path) -> None:
    encoder = encoder_of(model_file(tmp_path, "albef-micro", text_cfg__dropout=0.5))
    own = dict(encoder.weights())
    encoder.module.eval()
    still = outputs_of(encoder)
    encoder.module.train()
    assert same(still, outputs_of(encoder, own))
    torch.manual_seed(0)
    one, other = outputs_of(encoder), outputs_of(encoder)
    torch.manual_seed(0)
    assert same(one, outputs_of(encoder))
    assert torch.equal(one.image, other.image)  # the image encoder drops nothing
    for name in ("text", "fused", "logits"):
        assert not torch.equal(getattr(one, name), getattr(other, name))


def test_dropout_stands_where_bert_has_it(tmp_path: Path) -> None:
    """After the embeddings, each attention and each feed-forward, and on attention itself."""
    module = encoder_of(model_file(tmp_path, "albef-micro", text_cfg__dropout=0.5)).model
    text = module.text_encoder
    for layer in (text.text_layers[0], text.fusion_layers[0]):
        assert layer.dropout.p == 0
        assert layer.self_attn.dropout == layer.dropout1.p == layer.dropout2.p == 0.5
    assert text.fusion_layers[0].multihead_attn.dropout == 0.5
    assert text.fusion_layers[0].dropout3.p == text.embeddings.dropout.p == 0.5


def test_cosine_heads_are_scaled_cosines_with_rows() -> None:
    encoder = encoder_of(heads="cosine")
    with torch.no_grad():
        encoder.weights()["image_projection.sigma"].fill_(1.7)
    images, texts = inputs(encoder)
    out = encoder.outputs(images, texts, texts, None)
    rows = encoder.weights()["image_projection.weight"]
    for token, found in zip(out.image_tokens[:, 0], out.image, strict=True):
        cosines = [torch.cosine_similarity(token, row, dim=0) for row in rows]
        torch.testing.assert_close(found, 1.7 * torch.stack(cosines))
