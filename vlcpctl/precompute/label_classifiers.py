"""Classifiers that label pairs: timm's, or any of our models zero-shot from class names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from vlcpctl.core.devices import torch_device
from vlcpctl.core.errors import UsageError
from vlcpctl.data.classification import benchmarks
from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES, prompts_of, read_templates
from vlcpctl.data.images.transforms import eval_view
from vlcpctl.data.splitting.labels import Classifier, LabelsFrom
from vlcpctl.evaluation.classification.labelled_sets import class_vectors
from vlcpctl.models import encoders
from vlcpctl.models.embed import embed_images, require_finite
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.timm_classifier import TimmClassifier, load_timm, names_of

BATCH_SIZE = 64


def classifier_of(labels: LabelsFrom, device: str) -> Classifier:
    """The classifier with its model loaded; raises UsageError if class names are missing."""
    if labels.kind == "timm":
        return _timm(labels, torch_device(device))
    return ZeroshotClassifier(_encoder(labels, device), labels)


@final
class ZeroshotClassifier:
    """Predicts the class whose prompts are most similar to the image; of ties the first."""

    batch_size = BATCH_SIZE

    def __init__(self, encoder: Encoder, labels: LabelsFrom) -> None:
        assert labels.names is not None, "labels_from has checked it"
        self.names, self.encoder, self.what = labels.names, encoder, labels.name
        file = labels.templates
        templates = DEFAULT_TEMPLATES if file is None else read_templates(file).of("split")
        prompts = prompts_of(self.names, templates, file or "the default template")
        self._class_CD = class_vectors(encoder, prompts, BATCH_SIZE, self.what)

    def prepare(self, image: Image.Image) -> NDArray[np.generic]:
        """The image as (H, W, 3) bytes, transformed as in evaluation."""
        return eval_view(image, self.encoder.transform)

    def classify(self, batch: NDArray[np.generic]) -> NDArray[np.int64]:
        """(B,) predicted class indices for (B, H, W, 3) images."""
        image_BD = embed_images(self.encoder, [torch.from_numpy(batch)])
        require_finite(image_BD, f"{self.what}, images")
        classes: NDArray[np.int64] = np.argmax(image_BD @ self._class_CD.T, axis=1)
        return classes


def _encoder(source: LabelsFrom, device: str) -> Encoder:
    if source.kind == "checkpoint":
        return encoders.load_for_inference(Path(source.name), device)
    encoder = encoders.build(source.name, NewModelOptions(pretrained=source.weights))
    encoder.module.to(torch_device(device)).eval()
    return encoder


def _timm(source: LabelsFrom, device: torch.device) -> TimmClassifier:
    module = load_timm(source.name, source.weights)
    count = int(getattr(module, "num_classes"))  # noqa: B009 - nn.Module hides its type
    names: Sequence[str] | None = source.names or names_of(module)
    if names is None and count == benchmarks.IMAGENET_CLASSES:
        names = benchmarks.imagenet_class_names()
    if names is None or len(names) != count:
        found = "no names for them" if names is None else f"{len(names)} names"
        raise UsageError(
            f"--labels-from timm:{source.name}: the model has {count} classes, but there are "
            f"{found}; use --class-names with a file of one class name per line"
        )
    return TimmClassifier(module, names, device)
