"""Tensor names of BERT checkpoints and of the CTP authors, and their names in this model.

One of our tensors is one of theirs under another name, or several concatenated along the first
dimension: torch stores the matrices of queries, keys and values as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Names = dict[str, tuple[str, ...]]  # our name: their names

_QUERY_KEY_VALUE = ("query", "key", "value")

_BERT = {
    "text_encoder.embeddings.words": "bert.embeddings.word_embeddings",
    "text_encoder.embeddings.positions": "bert.embeddings.position_embeddings",
    "text_encoder.embeddings.token_types": "bert.embeddings.token_type_embeddings",
    "text_encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "word_head.dense": "cls.predictions.transform.dense",
    "word_head.norm": "cls.predictions.transform.LayerNorm",
    "word_head": "cls.predictions",  # its bias
}
_LAYER = {
    "self_attn.in_proj": "attention.self",
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "multihead_attn.in_proj": "crossattention.self",
    "multihead_attn.out_proj": "crossattention.output.dense",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
}
_LATER_NORMS = {
    ("text_layers", "norm2"): "output.LayerNorm",
    ("fusion_layers", "norm2"): "crossattention.output.LayerNorm",
    ("fusion_layers", "norm3"): "output.LayerNorm",
}
_CTP = {
    "image_encoder": "visual_encoder",
    "image_projection": "vision_proj",
    "text_projection": "text_proj",
}
# Also in their checkpoints, and ignored: a copy of the text encoder, tied matrices, training state.
_CTP_BESIDES = re.compile(
    r"text_encoder\..*|text_mlm_encoder\.cls\.predictions\.decoder\..*|.*\.position_ids"
    r"|(image|text)_queue|queue_ptr|distill_temp|idx_queue"
)


def bert_names(own: Iterable[str]) -> Names:
    """The names in a BERT for masked words of those of our tensors that it can have."""
    own = list(own)
    found: Names = {}
    text_layers = _count(own, "text_layers")
    for name in own:
        part, _, kind = name.rpartition(".")
        layer = re.fullmatch(r"text_encoder\.(text_layers|fusion_layers)\.(\d+)\.(.+)", part)
        if part in _BERT:
            found[name] = (f"{_BERT[part]}.{kind}",)
        elif layer:
            which, number, inner = layer.groups()
            index = int(number) + (text_layers if which == "fusion_layers" else 0)
            found[name] = _in_layer(f"bert.encoder.layer.{index}", which, inner, kind)
    return found


def ctp_names(own: Iterable[str]) -> Names:
    """The CTP authors' names of our tensors; their `temp` is not a logarithm, see `from_ctp`."""
    own = list(own)
    found: Names = {"logit_scale": ("temp",)}
    for name in own:
        first, _, rest = name.partition(".")
        if first in _CTP:
            found[name] = (f"{_CTP[first]}.{rest}",)
    text = bert_names(own).items()
    return found | {ours: tuple(f"text_mlm_encoder.{name}" for name in all_) for ours, all_ in text}


def join_tensors(theirs: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Those of our tensors, under our names, whose parts are all among theirs."""
    return {
        ours: torch.cat([theirs[name] for name in parts]) if len(parts) > 1 else theirs[parts[0]]
        for ours, parts in names.items()
        if all(name in theirs for name in parts)
    }


@dataclass(frozen=True)
class CtpTensors:
    """A checkpoint of the CTP authors under our names, with its missing and unexpected tensors."""

    tensors: dict[str, Tensor]
    missing: list[str]  # their names
    unexpected: list[str]


def from_ctp(theirs: Mapping[str, Tensor], own: Iterable[str]) -> CtpTensors:
    """Their tensors under our names `own`, without copies and training state.

    Their temperature becomes our `logit_scale`, log(1 / temperature).
    """
    names = ctp_names(own)
    theirs = {name.removeprefix("module."): tensor for name, tensor in theirs.items()}
    wanted = {name for parts in names.values() for name in parts}
    tensors = join_tensors(theirs, names)
    if "temp" in theirs:
        tensors["logit_scale"] = -theirs["temp"].reshape(()).log()
    unexpected = [
        name for name in theirs if name not in wanted and not _CTP_BESIDES.fullmatch(name)
    ]
    return CtpTensors(tensors, sorted(wanted - theirs.keys()), sorted(unexpected))


def is_ctp(names: Iterable[str]) -> bool:
    """Whether these are tensor names of the CTP authors."""
    first = {name.removeprefix("module.").partition(".")[0] for name in names}
    return {"visual_encoder", "text_mlm_encoder"} <= first


def has_cosine_heads(names: Iterable[str]) -> bool:
    """Whether these tensor names of the CTP authors include LUCIR's cosine projections."""
    return any(name.endswith("vision_proj.sigma") for name in names)


def _in_layer(layer: str, which: str, inner: str, kind: str) -> tuple[str, ...]:
    """Their names of one tensor of a layer; torch writes `in_proj_weight`, not `in_proj.weight`."""
    if kind.startswith("in_proj_"):
        attention, kind = _LAYER[f"{inner}.in_proj"], kind.removeprefix("in_proj_")
        return tuple(f"{layer}.{attention}.{part}.{kind}" for part in _QUERY_KEY_VALUE)
    theirs = _LATER_NORMS.get((which, inner)) or _LAYER[inner]
    return (f"{layer}.{theirs}.{kind}",)


def _count(own: Iterable[str], which: str) -> int:
    """The number of layers of a kind, text_layers or fusion_layers."""
    found = (re.match(rf"text_encoder\.{which}\.(\d+)\.", name) for name in own)
    return len({match[1] for match in found if match})
