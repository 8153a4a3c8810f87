"""The tiny model, batch and numbers of the CTP authors' own program, under our names.

`data/ctp_model_F*.npz` (and M, R): every parameter of the trained, momentum and previous model, by
their names, in files of at most 500 kB. `data/ctp_model_outputs.npz`: the batch, masked ids and
what their program made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.models.fusion.configuration import FusionConfig, ImageConfig, TextConfig
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.key_mapping import Names, ctp_names, from_ctp
from vlcpctl.models.fusion.model import FusionModel

DATA = Path(__file__).parent / "data"

SPECIAL = SpecialTokens(pad=0, cls=2, sep=3, mask=4, words=100)
CONFIG = FusionConfig(
    embed_dim=16,
    image_cfg=ImageConfig(image_size=32, patch_size=8, width=64, layers=2, heads=4),
    text_cfg=TextConfig(
        context_length=10,
        positions=16,
        width=64,
        layers=4,
        fusion_layers=2,
        heads=4,
        feed_forward=128,
        vocab_size=SPECIAL.words,
        dropout=0.0,
        tokenizer="none",
    ),
)


class NoTokenizer:
    """Stands where a tokenizer does; texts of the reference are ids already."""

    size = SPECIAL.words
    special = SPECIAL

    def __call__(self, texts: list[str]) -> Tensor:
        raise AssertionError("texts of the reference are ids already")

    def save(self, directory: Path) -> None:
        """Nothing to save."""


def encoder(which: str = "F", dtype: torch.dtype = torch.float64) -> FusionEncoder:
    """The trained (F), momentum (M) or previous (R) model."""
    module = FusionModel(CONFIG, words=SPECIAL.words, pad=SPECIAL.pad).to(dtype)
    module.logit_scale.requires_grad_(False)
    module.load_state_dict(weights(which))
    return FusionEncoder(module, CONFIG.stored(), CONFIG.transform, NoTokenizer())


def weights(which: str) -> dict[str, Tensor]:
    """The parameters of one of the three models under our names, in double precision."""
    theirs: dict[str, Tensor] = {}
    for path in sorted(DATA.glob(f"ctp_model_{which}?.npz")):
        with np.load(path) as arrays:
            theirs |= {name: torch.from_numpy(arrays[name]).double() for name in arrays.files}
    found = from_ctp(theirs, _own_names())
    assert not found.missing
    assert not found.unexpected
    return found.tensors


@cache
def outputs() -> Mapping[str, np.ndarray]:
    """Everything else, by the names of the reference."""
    with np.load(DATA / "ctp_model_outputs.npz") as arrays:
        return dict(arrays)


def tensor(name: str) -> Tensor:
    """One array of the outputs."""
    return torch.from_numpy(outputs()[name])


def gradient_norms(gradients: Mapping[str, Tensor | None]) -> dict[str, float]:
    """Norms of gradients by our names, by theirs: queries, keys and values apart."""
    names = ctp_names(_own_names())
    given = {name: grad for name, grad in gradients.items() if grad is not None}
    return {name: grad.norm().item() for name, grad in split_tensors(given, names).items()}


def expected_norms(mode: str) -> dict[str, float]:
    """The norms of the gradient of a mode's total loss."""
    names, norms = outputs()[f"f64/{mode}/grad_param_names"], outputs()[f"f64/{mode}/grad_norms"]
    return dict(zip(names.tolist(), norms.tolist(), strict=True))


@cache
def _own_names() -> tuple[str, ...]:
    return tuple(FusionModel(CONFIG, words=SPECIAL.words, pad=SPECIAL.pad).state_dict())


def split_tensors(ours: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Our tensors under their names: the inverse of `join_tensors`."""
    found: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        theirs = names[name]
        parts = tensor.chunk(len(theirs)) if len(theirs) > 1 else (tensor,)
        found.update(zip(theirs, parts, strict=True))
    return found
