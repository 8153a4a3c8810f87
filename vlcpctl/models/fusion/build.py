"""Builds fusion encoders, loads them from a checkpoint directory, and saves them into one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.core.seeds import torch_seed
from vlcpctl.files.tensors import read_tensors, require_same_names, write_tensors
from vlcpctl.models.fusion.configuration import (
    CONFIG_FILE,
    ELSEWHERE,
    FusionConfig,
    read_fusion,
)
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.initial_weights import (
    parse_initial_weights,
    set_all,
    set_initial_weights,
    vocabulary_size,
)
from vlcpctl.models.fusion.key_mapping import has_cosine_heads, is_ctp
from vlcpctl.models.fusion.model import FusionModel
from vlcpctl.models.pretrained import set_temperature
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.models.tokenizers import WordPieces, word_pieces
from vlcpctl.models.towers import WithoutDraws

WEIGHTS_FILE = "model.safetensors"


def build(
    found: FusionConfig, pretrained: str | None, temperature: str | None, seed: int
) -> FusionEncoder:
    """A new model with the weights of its checkpoint, of `pretrained` or of its configuration.

    Weights without a source are random from the seed. Raises UsageError or Incompatible if the
    weights cannot be loaded or do not fit.
    """
    if found.directory is None:
        first = parse_initial_weights(pretrained, found)
        encoder = _new(found, seed, first.text)
        set_initial_weights(encoder.model, first, found)
    elif pretrained:
        raise UsageError(
            f"--pretrained {pretrained} has no effect: {found.directory} has its own weights"
        )
    else:
        encoder = _new(found, seed)
        file = found.directory / WEIGHTS_FILE
        set_all(encoder.model, read_tensors(file), str(file), resizes=True)
    if temperature:
        set_temperature(encoder.model.logit_scale, parse_temperature(temperature))
    return encoder


def with_weights(found: FusionConfig, tensors: Mapping[str, Tensor], what: str) -> FusionEncoder:
    """A model with the weights of another program; `what` is their source.

    Raises Incompatible with all tensors that do not fit.
    """
    if is_ctp(tensors):
        found = replace(found, heads="cosine" if has_cosine_heads(tensors) else "linear")
    encoder = _new(found, seed=0)
    set_all(encoder.model, tensors, what, resizes=False)
    return encoder


def load(directory: Path) -> FusionEncoder:
    """The model in a checkpoint directory. Raises Incompatible if it is not one or does not fit."""
    found = read_fusion(directory / CONFIG_FILE)
    if found is None:
        raise Incompatible(
            f"{directory} is not a fusion model: its {CONFIG_FILE} does not describe one"
        )
    with WithoutDraws():
        encoder = _new(replace(found, directory=directory), seed=0)
    file = directory / WEIGHTS_FILE
    tensors = read_tensors(file)
    require_same_names(tensors, encoder.module.state_dict(keep_vars=True), str(file))
    encoder.module.load_state_dict(tensors)
    return encoder


def save(encoder: FusionEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files into a directory."""
    learns = encoder.weights()["logit_scale"].requires_grad
    config = {**encoder.config, "learns_temperature": learns}
    tokenizer = Path(config["text_cfg"]["tokenizer"])
    if tokenizer.is_absolute():
        config["text_cfg"] = {**config["text_cfg"], "tokenizer": tokenizer.name}
    text = json.dumps(config, indent=1, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    encoder.tokenizer.save(directory)
    write_tensors(directory / WEIGHTS_FILE, encoder.module.state_dict())


def _new(found: FusionConfig, seed: int, text: str | None = None) -> FusionEncoder:
    """A model with random weights from the seed; torch's global generator does not change.

    `text` is the BERT whose weights will be loaded. Its tokenizer and vocabulary are used, unless
    the configuration sets others.
    """
    name = found.text_cfg.tokenizer or text or found.text_pretrained
    if not name:
        raise Incompatible("text_cfg sets no tokenizer, and text_pretrained is not set either")
    tokenizer = _tokenizer(found, name)
    words = tokenizer.special.words
    size = found.text_cfg.vocab_size or (vocabulary_size(text) if text else words)
    if words > size:
        raise Incompatible(
            f"the tokenizer has {words} tokens, but the model's vocabulary only {size}"
        )
    found = replace(found, text_cfg=replace(found.text_cfg, vocab_size=size, tokenizer=name))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "init"))
        module = FusionModel(found, words=size, pad=tokenizer.special.pad)
    module.logit_scale.requires_grad_(found.learns_temperature)
    return FusionEncoder(module, found.stored(), found.transform, tokenizer)


def _tokenizer(found: FusionConfig, name: str) -> WordPieces:
    options = {"clean": found.text_cfg.clean}
    pieces = word_pieces(name, found.directory, found.text_cfg.context_length, options, ELSEWHERE)
    if pieces([""])[0, 0] != pieces.special.cls:
        raise Incompatible(f"the tokenizer {name!r} does not put [CLS] first in a text")
    return pieces
