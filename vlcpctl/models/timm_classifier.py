"""Image classifiers of timm, with weights from a file, a directory or timm."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible, UsageError, first_line, unknown_name

BATCH_SIZE = 64


@final
class TimmClassifier:
    """A timm model with its own image preparation (implements `pseudo_labels.Classifier`)."""

    batch_size = BATCH_SIZE

    def __init__(self, module: nn.Module, names: Sequence[str], device: torch.device) -> None:
        data: Any = importlib.import_module("timm.data")
        self.module, self.names, self.device = module.to(device).eval(), names, device
        config = data.resolve_model_data_config(module)
        self._transform = data.create_transform(**config, is_training=False)

    def prepare(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, H, W) float32 pixels, resized, cropped and normalised as in timm's evaluation."""
        pixels: NDArray[np.float32] = self._transform(image).numpy()
        return pixels

    @torch.inference_mode()
    def classify(self, batch: NDArray[np.generic]) -> NDArray[np.int64]:
        """(B,) int64, the predicted class of each image in a batch (B, 3, H, W)."""
        logits: Tensor = self.module(torch.from_numpy(batch).to(self.device))
        classes: NDArray[np.int64] = logits.argmax(dim=1).cpu().numpy()
        return classes


def load_timm(model: str, weights: str | None) -> nn.Module:
    """A timm model by name, with pretrained weights or those of a file; or a saved directory.

    Raises UsageError for an unknown name or a missing file, Incompatible if weights cannot be
    loaded.
    """
    timm: Any = importlib.import_module("timm")
    if Path(model).is_dir():
        return _create(timm, f"local-dir:{model}", pretrained=True)
    if model.partition(".")[0] not in timm.list_models():
        raise UsageError(unknown_name("timm model", model, timm.list_models()))
    if weights is None:
        return _create(timm, model, pretrained=True)
    return _with_weights(timm, model, Path(weights))


def names_of(module: nn.Module) -> Sequence[str] | None:
    """The class names in the model's configuration, or None if it has none."""
    listed: Any = getattr(module, "pretrained_cfg", {}).get("label_names")
    count: Any = getattr(module, "num_classes", None)
    return [str(name) for name in listed] if listed and len(listed) == count else None


def _create(timm: Any, name: str, **how: Any) -> nn.Module:
    try:
        module: nn.Module = timm.create_model(name, **how)
    except (OSError, RuntimeError, ValueError, UnpicklingError) as error:
        raise Incompatible(
            f"timm cannot build {name}: {first_line(error)}; "
            "use timm:MODEL,FILE for weights from a file"
        ) from error
    return module


def _with_weights(timm: Any, model: str, file: Path) -> nn.Module:
    """The model with the weights and number of classes of a file, whose code is not run."""
    if not file.is_file():
        raise UsageError(f"{file} is not a file of weights")
    try:
        n_outputs = timm.models.load_state_dict(str(file), weights_only=True)
        plain = _create(timm, model, pretrained=False)
        head = n_outputs.get(f"{_head(plain)}.weight")
        classes = None if head is None else head.shape[0]
        module = _create(timm, model, pretrained=False, num_classes=classes)
        timm.models.load_checkpoint(module, str(file), weights_only=True)
    except (RuntimeError, UnpicklingError, KeyError, OSError) as error:
        raise Incompatible(
            f"{file} does not contain the weights of {model}: {first_line(error)}"
        ) from error
    return module


def _head(module: nn.Module) -> str:
    """The name of the layer that computes the logits."""
    named: Any = getattr(module, "pretrained_cfg", {}).get("classifier")
    return named if isinstance(named, str) else named[0] if named else "head"
