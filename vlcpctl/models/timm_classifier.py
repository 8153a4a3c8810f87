"""An image classifier of timm, with weights from a file, a directory or timm's own."""

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

from vlcpctl.core.errors import Incompatible, UsageError, unknown_name

BATCH_SIZE = 64
_SHOWN = 200  # characters of another library's message


@final
class TimmClassifier:
    """The model with its own preparation of images (a `pseudo_labels.Classifier`)."""

    batch_size = BATCH_SIZE

    def __init__(self, module: nn.Module, names: Sequence[str], device: torch.device) -> None:
        data: Any = importlib.import_module("timm.data")
        self.module, self.names, self.device = module.to(device).eval(), names, device
        config = data.resolve_model_data_config(module)
        self._transform = data.create_transform(**config, is_training=False)

    def prepare(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, H, W): resized, cropped and normalised as the model was evaluated."""
        pixels: NDArray[np.float32] = self._transform(image).numpy()
        return pixels

    @torch.inference_mode()
    def classify(self, batch: NDArray[np.generic]) -> NDArray[np.int64]:
        """The most confident class of each image."""
        logits: Tensor = self.module(torch.from_numpy(batch).to(self.device))
        classes: NDArray[np.int64] = logits.argmax(dim=1).cpu().numpy()
        return classes


def load_timm(model: str, weights: str | None) -> nn.Module:
    """The model of a name or of a directory that timm saved; its number of classes is its own."""
    timm: Any = importlib.import_module("timm")
    if Path(model).is_dir():
        return _created(timm, f"local-dir:{model}", pretrained=True)
    if model.partition(".")[0] not in timm.list_models():
        raise UsageError(unknown_name("model of timm", model, timm.list_models()))
    if weights is None:
        return _created(timm, model, pretrained=True)
    return _with_weights(timm, model, Path(weights))


def names_of(module: nn.Module) -> Sequence[str] | None:
    """What the model's own configuration calls its classes, if it does."""
    told: Any = getattr(module, "pretrained_cfg", {}).get("label_names")
    count: Any = getattr(module, "num_classes", None)
    return [str(name) for name in told] if told and len(told) == count else None


def _created(timm: Any, name: str, **how: Any) -> nn.Module:
    try:
        module: nn.Module = timm.create_model(name, **how)
    except (OSError, RuntimeError, ValueError, UnpicklingError) as error:
        raise Incompatible(
            f"timm cannot make {name}: {_in_one_line(error)}; with weights from a file, write "
            "timm:MODEL,FILE"
        ) from error
    return module


def _with_weights(timm: Any, model: str, file: Path) -> nn.Module:
    """The model with as many classes as its head has in the file, which runs no code."""
    if not file.is_file():
        raise UsageError(f"{file} is no file of weights")
    try:
        held = timm.models.load_state_dict(str(file), weights_only=True)
        plain = _created(timm, model, pretrained=False)
        head = held.get(f"{_head(plain)}.weight")
        classes = None if head is None else head.shape[0]
        module = _created(timm, model, pretrained=False, num_classes=classes)
        timm.models.load_checkpoint(module, str(file), weights_only=True)
    except (RuntimeError, UnpicklingError, KeyError, OSError) as error:
        raise Incompatible(
            f"{file} does not hold the weights of {model}: {_in_one_line(error)}"
        ) from error
    return module


def _head(module: nn.Module) -> str:
    """The name of the layer that gives the logits."""
    named: Any = getattr(module, "pretrained_cfg", {}).get("classifier")
    return named if isinstance(named, str) else named[0] if named else "head"


def _in_one_line(error: BaseException) -> str:
    """The start of a message: torch lists every tensor, a line for each kind of trouble."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
