"""Fusion encoders built, loaded from a checkpoint directory, and saved into one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.seeds import torch_seed
from vlcpctl.core.tensors import read_tensors, require_same_names, write_tensors
from vlcpctl.models.fusion.configuration import CONFIG_FILE, FusionConfig, read_fusion
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder
from vlcpctl.models.fusion.model import FusionModel
from vlcpctl.models.pretrained import set_temperature
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.models.tokens import WordPieces, word_pieces

WEIGHTS_FILE = "model.safetensors"


def build(found: FusionConfig, temperature: str | None, seed: int) -> FusionEncoder:
    """A model to start from: a checkpoint's, or with weights drawn from the seed."""
    encoder = _new(found, seed)
    if found.directory is not None:
        _fill(encoder.module, found.directory / WEIGHTS_FILE)
    if temperature:
        set_temperature(encoder.weights()["logit_scale"], parse_temperature(temperature))
    return encoder


def _new(found: FusionConfig, seed: int) -> FusionEncoder:
    """A model with weights drawn from the seed; the global generator stays as it was."""
    tokenizer = _tokenizer(found)
    words = tokenizer.special.words
    size = found.text_cfg.vocab_size
    if size is not None and words > size:
        raise Incompatible(f"the tokenizer has {words} tokens, the model's vocabulary {size}")
    found = replace(found, text_cfg=replace(found.text_cfg, vocab_size=size or words))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "init"))
        module = FusionModel(found, words=size or words, pad=tokenizer.special.pad)
    module.logit_scale.requires_grad_(found.learns_temperature)
    return FusionEncoder(module, found.stored(), found.view, tokenizer)


def load(directory: Path) -> FusionEncoder:
    """The model of a checkpoint directory; every tensor's name and shape is checked."""
    found = read_fusion(directory / CONFIG_FILE)
    if found is None:
        raise Incompatible(f"{directory} holds no fusion model: it has no {CONFIG_FILE} of one")
    return build(replace(found, directory=directory), temperature=None, seed=0)


def save(encoder: FusionEncoder, directory: Path) -> None:
    """Write config, weights and tokenizer files."""
    learns = encoder.weights()["logit_scale"].requires_grad
    config = {**encoder.config, "learns_temperature": learns}
    tokenizer = Path(config["text_cfg"]["tokenizer"] or "").name
    config["text_cfg"] = {**config["text_cfg"], "tokenizer": tokenizer}
    text = json.dumps(config, indent=1, ensure_ascii=False)
    (directory / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
    encoder.tokenizer.save(directory)
    write_tensors(directory / WEIGHTS_FILE, encoder.module.state_dict())


def _fill(module: nn.Module, file: Path) -> None:
    tensors = read_tensors(file)
    require_same_names(tensors, module.state_dict(keep_vars=True), str(file))
    module.load_state_dict(tensors)


def _tokenizer(found: FusionConfig) -> WordPieces:
    text = found.text_cfg
    name = text.tokenizer or found.text_pretrained
    if not name:
        raise Incompatible("text_cfg names no tokenizer, and there is no text_pretrained")
    advice = "give a directory with its tokenizer.json or vocab.txt as text_cfg.tokenizer"
    options = {"clean": text.clean}
    return word_pieces(name, found.directory, text.context_length, options, advice)
