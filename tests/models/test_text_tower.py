"""A text tower on token embeddings: what comes out for real texts is what their ids give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vlcpctl.models import dual_encoder
from vlcpctl.models.dual_encoder import DualEncoder

TEXTS = ["grinning face", "a", "", "red blue green " * 9]

VISION = {"image_size": 16, "layers": 1, "width": 8, "head_width": 4, "patch_size": 8}
TEXT = {"context_length": 12, "vocab_size": 2500, "width": 8, "heads": 2, "layers": 2}

OPEN_CLIP: dict[str, dict[str, Any]] = {
    "clip": {},
    "own tower": {"custom_text": True},
    "end by id": {"text_cfg": {"pool_type": "eos", "eos_id": 2499}},
    "class token": {"custom_text": True, "text_cfg": {"embed_cls": True, "pad_id": 0}},
    "own tower, end by id": {"custom_text": True, "text_cfg": {"pool_type": "eos", "eos_id": 2499}},
    "last token": {"text_cfg": {"pool_type": "last"}},
}

TRANSFORMERS = [
    ("bert", "cls_pooler"),
    ("bert", "mean_pooler"),
    ("roberta", "mean_pooler"),
    ("roberta", "cls_last_hidden_state_pooler"),
]


def open_clip_encoder(directory: Path, changes: dict[str, Any]) -> DualEncoder:
    text = {**TEXT, **changes.get("text_cfg", {}), "hf_tokenizer_name": str(tokenizer())}
    config = {"embed_dim": 6, "vision_cfg": VISION, **changes, "text_cfg": text}
    path = directory / "model.json"
    path.write_text(json.dumps(config))
    return dual_encoder.build(path)


def tokenizer() -> Path:
    return Path(dual_encoder.__file__).parent / "configs" / "tiny-tokenizer"


def transformers_encoder(directory: Path, kind: str, pooler: str) -> DualEncoder:
    import transformers

    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes = {"intermediate_size": 16, "vocab_size": 2500, "max_position_embeddings": 24}
    config = {"bert": transformers.BertConfig, "roberta": transformers.RobertaConfig}[kind]
    config(**shape, **sizes, pad_token_id=0).save_pretrained(directory / "tower")
    named = {"hf_model_name": "tower", "hf_tokenizer_name": str(tokenizer())}
    more = {"hf_model_pretrained": False, "hf_pooler_type": pooler, "hf_proj_type": "linear"}
    model = {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": {**named, **more}}
    model["text_cfg"]["context_length"] = 10
    (directory / "model.json").write_text(json.dumps(model))
    return dual_encoder.build(directory / "model.json")


def ids_of(encoder: DualEncoder) -> Tensor:
    return encoder.tokenize(TEXTS)


def assert_equal_paths(encoder: DualEncoder) -> None:
    """With its own weights and with others, values and the gradients of the weights."""
    encoder.module.eval()
    tower, ids = encoder.text_tower, ids_of(encoder)
    ends = tower.ends(ids)
    other = {name: weight * 1.5 for name, weight in encoder.weights().items()}
    for weights in (None, other):
        embeddings = tower.lookup(ids, weights)
        assert embeddings.shape == (*ids.shape, tower.width)
        ours = encoder.embedded_texts(embeddings, ends, weights)
        assert torch.equal(ours, encoder.features(None, ids, weights)[1])
    encoder.features(None, ids)[1].square().sum().backward()
    theirs = {n: w.grad for n, w in encoder.weights().items() if w.grad is not None}
    encoder.module.zero_grad()
    encoder.embedded_texts(tower.lookup(ids), ends).square().sum().backward()
    assert len(theirs) > 5
    for name, grad in theirs.items():
        assert torch.equal(grad, encoder.weights()[name].grad), name


@pytest.mark.parametrize("changes", OPEN_CLIP.values(), ids=OPEN_CLIP)
def test_a_tower_of_open_clip_gives_the_same_for_ids_and_their_embeddings(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    assert_equal_paths(open_clip_encoder(tmp_path, changes))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pooler"), TRANSFORMERS)
def test_a_tower_of_transformers_gives_the_same_for_ids_and_their_embeddings(
    tmp_path: Path, kind: str, pooler: str
) -> None:
    assert_equal_paths(transformers_encoder(tmp_path, kind, pooler))


@pytest.mark.parametrize("name", ["clip", "own tower, end by id"])
def test_a_text_is_read_where_it_ends(tmp_path: Path, name: str) -> None:
    encoder = open_clip_encoder(tmp_path, OPEN_CLIP[name])
    ids = ids_of(encoder)[:1]
    embeddings = encoder.text_tower.lookup(ids).detach().requires_grad_()
    encoder.embedded_texts(embeddings, torch.tensor([1])).sum().backward()
    reached = embeddings.grad.abs().sum(-1)[0] > 0
    assert reached.tolist() == [True, True] + [False] * 10


@pytest.mark.slow
def test_what_lies_behind_the_end_is_masked_where_padding_is(tmp_path: Path) -> None:
    encoder = transformers_encoder(tmp_path, "bert", "mean_pooler")
    encoder.module.eval()
    embeddings = encoder.text_tower.lookup(ids_of(encoder)[:1])
    changed = embeddings.clone()
    changed[0, 4:] += 1
    ends = torch.tensor([3])
    one, other = (encoder.embedded_texts(texts, ends) for texts in (embeddings, changed))
    torch.testing.assert_close(one, other)


def test_gradients_reach_the_embeddings_and_spare_the_table(tmp_path: Path) -> None:
    encoder = open_clip_encoder(tmp_path, {})
    ids = ids_of(encoder)
    embeddings = encoder.text_tower.lookup(ids).detach().requires_grad_()
    encoder.embedded_texts(embeddings, encoder.text_tower.ends(ids)).sum().backward()
    assert embeddings.grad.abs().sum() > 0
    table = encoder.weights()["token_embedding.weight"].grad
    assert table is None or not table.any()


def test_the_text_half_of_a_fusion_model_gives_the_same_for_ids_and_their_embeddings() -> None:
    from vlcpctl.models import encoders

    assert_equal_paths(encoders.build("albef-micro"))
