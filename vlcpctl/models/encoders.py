"""Builds, loads and saves encoders of either family, by the model's configuration."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from msgspec.structs import replace
from torch import Tensor

from vlcpctl.core.devices import set_arithmetic, torch_device
from vlcpctl.core.errors import UsageError
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.models import dual_encoder
from vlcpctl.models.checkpoint_files import is_checkpoint, verify_model
from vlcpctl.models.configuration import fusion_configuration, is_path
from vlcpctl.models.dual_encoder import DualEncoder
from vlcpctl.models.execution import place
from vlcpctl.models.hub import offline

if TYPE_CHECKING:
    from vlcpctl.models.fusion.fusion_encoder import FusionEncoder

# Their attribute `family`, "dual" or "fusion", lets type checkers narrow the union.
Encoder: TypeAlias = "DualEncoder | FusionEncoder"


@dataclass(frozen=True, kw_only=True)
class NewModelOptions:
    """Options of a new model; None means the value of its configuration."""

    pretrained: str | None = None
    temperature: str | None = None
    seed: int = 0
    text_length: int | None = None
    image_size: int | None = None
    heads: str | None = None  # the projections of a fusion model: linear or cosine
    is_sigmoid: bool | None = None  # whether a dual encoder has a bias, for a sigmoid loss
    batch_size: int = 2  # the pairs of a batch, for which such a bias is made


def build(model: str | Path, options: NewModelOptions = NewModelOptions()) -> Encoder:
    """A new model by name, or from a JSON config file or a checkpoint directory.

    Its weights are those of the checkpoint or of `pretrained`, else random from the seed. Raises
    UsageError, BadInput or Incompatible if the model or its weights cannot be found or do not fit.
    """
    if is_checkpoint(Path(model)):
        verify_model(Path(model))
    # What is given as a path may name anything: a hub is used only if an option names one.
    names_weights = options.pretrained not in (None, "none")
    may_use_hub = not is_path(str(model)) or (
        names_weights and not Path(str(options.pretrained)).exists()
    )
    with nullcontext() if may_use_hub else offline():
        found = fusion_configuration(str(model))
        if found is not None:
            from vlcpctl.models.fusion import build as building
            from vlcpctl.models.fusion.configuration import with_changes

            shaped = with_changes(found, options.text_length, options.image_size, options.heads)
            return building.build(shaped, options.pretrained, options.temperature, options.seed)
        return dual_encoder.build(
            model,
            options.pretrained,
            temperature=options.temperature,
            seed=options.seed,
            text_length=options.text_length,
            image_size=options.image_size,
            is_sigmoid=options.is_sigmoid,
            batch_size=options.batch_size,
        )


def with_weights(
    model: str, tensors: dict[str, Tensor], what: str, tokenizer: str | None = None
) -> Encoder:
    """A model by name, JSON file or directory, with the weights of another program.

    `what` is the source of the weights, for messages. `tokenizer` is a directory with the tokenizer
    files of a fusion model. Raises Incompatible with all tensors that are missing, unexpected or of
    another shape, UsageError for a tokenizer that would have no effect.
    """
    with offline() if is_path(model) else nullcontext():
        found = fusion_configuration(model)
        if found is not None:
            from vlcpctl.models.fusion import build as building

            text = replace(found.text_cfg, tokenizer=tokenizer or found.text_cfg.tokenizer)
            return building.with_weights(replace(found, text_cfg=text), tensors, what)
        if tokenizer is not None:
            raise UsageError(
                f"--tokenizer has no effect on {model}: its configuration names a tokenizer"
            )
        return dual_encoder.with_weights(model, tensors, what)


def load(directory: Path) -> Encoder:
    """The model in a checkpoint directory.

    Raises BadInput if its manifest or configuration cannot be read, Incompatible if its weights do
    not fit, or if a file was changed since the checkpoint was written.
    """
    if (directory / MANIFESTS["checkpoint"]).is_file():
        verify_model(directory)
    with offline():
        if fusion_configuration(str(directory)) is None:
            return dual_encoder.load(directory)
        from vlcpctl.models.fusion import build as building

        return building.load(directory)


def load_for_inference(
    directory: Path, device: str, precision: str = "fp32", *, tf32: bool = False
) -> Encoder:
    """The model in a checkpoint directory, in eval mode, on the device given with `--device`.

    Embeddings are computed in this precision: fp32, or bf16. Raises as `load` does, and UsageError
    if the device is not available.
    """
    encoder = load(directory)
    set_arithmetic(tf32=tf32)
    place(encoder.module, torch_device(device))
    encoder.module.eval()
    encoder.autocast = torch.bfloat16 if precision == "bf16" else None
    return encoder


@dataclass(frozen=True)
class SavedEncoder:
    """The model in a checkpoint directory, as the processes of a pool load it."""

    directory: Path
    precision: str = "fp32"
    tf32: bool = False

    def load(self, device: str) -> Encoder:
        """The model in eval mode; raises as `load_for_inference` does."""
        return load_for_inference(self.directory, device, self.precision, tf32=self.tf32)


def save(encoder: Encoder, directory: Path) -> None:
    """Write config, weights and tokenizer files into a directory."""
    if encoder.family == "dual":
        dual_encoder.save(encoder, directory)
    else:
        from vlcpctl.models.fusion import build as building

        building.save(encoder, directory)
