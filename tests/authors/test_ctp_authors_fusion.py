"""The fusion model against the CTP authors' own, on their weights and batch, in double precision.

Queries, keys and values are one matrix here and three there; gradients are compared apart.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import ctp_reference
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.losses.contrastive import image_text
from vlcpctl.losses.masked import word_loss
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.key_mapping import ctp_names, from_ctp, join_tensors

pytestmark = pytest.mark.golden

NOT_TRAINED = {"temp", "distill_temp"}


@pytest.fixture(scope="module")
def encoder() -> FusionEncoder:
    return ctp_reference.encoder("F")


def close(found: Tensor, name: str, rtol: float = 1e-9) -> None:
    expected = ctp_reference.tensor(name)
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=rtol, atol=1e-12)


def pairs() -> tuple[Tensor, Tensor]:
    return ctp_reference.tensor("in/image").double(), ctp_reference.tensor("in/input_ids")


def masked(mode: str) -> tuple[Tensor, Tensor]:
    found = (ctp_reference.tensor(f"masked/{mode}/{what}") for what in ("input_ids", "labels"))
    masked_ids, labels = found
    return masked_ids, labels


def test_tokens_and_projections_are_theirs(encoder: FusionEncoder) -> None:
    images, texts = pairs()
    out = encoder.outputs(images, texts, texts, None)
    close(out.image_tokens, "f64/finetune/image_embeds")
    close(out.text_tokens, "f64/finetune/text_last_hidden_state")
    close(out.image, "f64/get_raw_VL_feature_image")
    close(out.text, "f64/get_raw_VL_feature_text")
    close(normalize(out.image, dim=-1), "f64/finetune/raw_image_feat")
    close(normalize(out.text, dim=-1), "f64/finetune/raw_text_feat")


def test_the_fused_state_is_theirs(encoder: FusionEncoder) -> None:
    fused = encoder.fused(*pairs())
    close(fused, "f64/get_raw_VL_feature_fusion")
    close(normalize(fused, dim=-1), "f64/get_VL_feature")


def test_predictions_of_every_word_are_theirs(encoder: FusionEncoder) -> None:
    images, texts = pairs()
    masked_ids, _ = masked("finetune")
    everywhere = torch.ones_like(masked_ids, dtype=torch.bool)
    logits = encoder.outputs(images, texts, masked_ids, everywhere).logits
    close(logits.view(*masked_ids.shape, -1), "f64/finetune/mlm_logits")


def test_losses_and_every_gradient_are_theirs() -> None:
    encoder = ctp_reference.encoder("F")
    images, texts = pairs()
    masked_ids, labels = masked("finetune")
    out = encoder.outputs(images, texts, masked_ids, labels >= 0)
    image, text = normalize(out.image, dim=-1), normalize(out.text, dim=-1)
    i2t, t2i = image_text(image, text, encoder.weights()["logit_scale"].exp())
    contrastive = (i2t + t2i) / 2
    mlm = word_loss(out.logits, labels[labels >= 0]) / (labels >= 0).sum()
    close(contrastive, "f64/finetune/out_loss_ita", 1e-9)
    close(mlm, "f64/finetune/out_loss_mlm", 1e-9)
    (contrastive + mlm).backward()
    found = ctp_reference.gradient_norms(
        {name: weight.grad for name, weight in encoder.weights().items()}
    )
    expected = ctp_reference.expected_norms("finetune")
    assert found.keys() == expected.keys()
    for name, norm in expected.items():
        assert found[name] == pytest.approx(norm, rel=1e-6, abs=1e-12), name


def test_names_go_there_and_back(encoder: FusionEncoder) -> None:
    own = encoder.module.state_dict()
    names = ctp_names(own)
    assert names.keys() == own.keys()
    back = join_tensors(ctp_reference.split_tensors(own, names), names)
    assert all(torch.equal(back[name], tensor) for name, tensor in own.items())


def test_what_is_missing_or_too_much_is_named_as_they_name_it(encoder: FusionEncoder) -> None:
    own = encoder.module.state_dict()
    theirs = ctp_reference.split_tensors(own, ctp_names(own))
    del theirs["text_mlm_encoder.bert.encoder.layer.2.attention.self.key.bias"]
    theirs["itm_head.weight"] = theirs["text_encoder.embeddings.LayerNorm.bias"] = torch.zeros(1)
    theirs["text_mlm_encoder.cls.predictions.decoder.weight"] = torch.zeros(1)
    found = from_ctp({f"module.{name}": tensor for name, tensor in theirs.items()}, own)
    assert found.missing == ["text_mlm_encoder.bert.encoder.layer.2.attention.self.key.bias"]
    assert found.unexpected == ["itm_head.weight"]
    assert "text_encoder.fusion_layers.0.self_attn.in_proj_bias" not in found.tensors
    assert "text_encoder.fusion_layers.0.self_attn.in_proj_weight" in found.tensors
