"""The one door to models: build, load or save an encoder of either family."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from vlcpctl.core.errors import UsageError
from vlcpctl.models import dual_encoder
from vlcpctl.models.configuration import fusion_configuration
from vlcpctl.models.dual_encoder import DualEncoder
from vlcpctl.models.fusion import building
from vlcpctl.models.fusion.configuration import with_changes
from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

# `family`, "dual" or "fusion", tells them apart, and type checkers narrow by it.
Encoder = DualEncoder | FusionEncoder


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a new model is built with beside its configuration; None leaves that as it is."""

    pretrained: str | None = None
    temperature: str | None = None
    seed: int = 0
    text_length: int | None = None
    image_size: int | None = None
    heads: str | None = None  # of a fusion model


def build(model: str | Path, start: Start = Start()) -> Encoder:
    """A model to start from, by name, a JSON config file or a checkpoint directory.

    Its weights are those of the checkpoint or of `pretrained`, or drawn from the seed.
    """
    found = fusion_configuration(str(model))
    if found is None:
        return dual_encoder.build(
            model,
            start.pretrained,
            temperature=start.temperature,
            seed=start.seed,
            text_length=start.text_length,
            image_size=start.image_size,
        )
    changed = with_changes(found, start.text_length, start.image_size, start.heads)
    return building.build(changed, start.pretrained, start.temperature, start.seed)


def with_weights(
    model: str, tensors: dict[str, Tensor], what: str, tokenizer: str | None = None
) -> Encoder:
    """A model by name, JSON file or directory, with the weights of another program; `what` is told.

    Every tensor that is missing, unexpected or misshapen is named. `tokenizer` is a directory that
    holds the word pieces of a fusion model.
    """
    found = fusion_configuration(model)
    if found is not None:
        text = replace(found.text_cfg, tokenizer=tokenizer or found.text_cfg.tokenizer)
        return building.with_weights(replace(found, text_cfg=text), tensors, what)
    if tokenizer is not None:
        raise UsageError(f"--tokenizer has no effect on {model}, whose configuration names its own")
    return dual_encoder.with_weights(model, tensors, what)


def load(directory: Path) -> Encoder:
    """The model of a checkpoint directory; every tensor's name and shape is checked."""
    if fusion_configuration(str(directory)) is None:
        return dual_encoder.load(directory)
    return building.load(directory)


def save(encoder: Encoder, directory: Path) -> None:
    """Write config, weights and tokenizer files into a directory."""
    if encoder.family == "dual":
        dual_encoder.save(encoder, directory)
    else:
        building.save(encoder, directory)
