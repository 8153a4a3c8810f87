"""The two towers of a dual encoder as ONNX files, checked against torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vlcpctl.core.errors import Incompatible
from vlcpctl.models.encoders import load_for_inference

MOST_DIFFERENCE = 1e-4  # of embeddings of unit length
_SIDES = ("image", "text")
_CHECKED = (1, 2, 5)  # sizes of batches


class _Tower(nn.Module):
    """One side of an open_clip model: embeddings (B, D) of unit length."""

    def __init__(self, clip: Any, side: str) -> None:
        super().__init__()
        self.clip, self.side = clip, side

    def forward(self, batch: Tensor) -> Tensor:
        encode = self.clip.encode_image if self.side == "image" else self.clip.encode_text
        found: Tensor = encode(batch, normalize=True)
        return found


def write_towers(checkpoint: Path, directory: Path) -> float:
    """Write `image.onnx` and `text.onnx`; returns the largest difference from torch's embeddings.

    `image.onnx` takes normalised pixels `image` (B, 3, H, W) and gives `image_features` (B, D),
    `text.onnx` token ids `text` (B, L) int64 and gives `text_features` (B, D); both have unit
    length. B may be any number. Raises Incompatible if an operator cannot be exported, or if
    onnxruntime's embeddings differ by more than MOST_DIFFERENCE.
    """
    encoder = load_for_inference(checkpoint, "cpu")
    size, length = encoder.transform.image_size, encoder.tokenize([""]).shape[1]
    words = int(encoder.config["text_cfg"].get("vocab_size", 2))
    worst = 0.0
    for side in _SIDES:
        tower = _Tower(encoder.module, side).eval()
        batches = [_batch(side, count, size, (length, words)) for count in (2, *_CHECKED)]
        path = directory / f"{side}.onnx"
        _write(tower, batches[0], side, path)
        worst = max(worst, *(_difference(tower, one, side, path) for one in batches[1:]))
    if not worst <= MOST_DIFFERENCE:
        raise Incompatible(
            f"onnxruntime's embeddings differ from torch's by {worst:.1e}, more than "
            f"{MOST_DIFFERENCE:g}; the model is not exported"
        )
    return worst


def _batch(side: str, count: int, size: int, text: tuple[int, int]) -> Tensor:
    """Random pixels (B, 3, H, W), or token ids (B, L)."""
    generator = torch.Generator().manual_seed(count)
    if side == "image":
        return torch.randn(count, 3, size, size, generator=generator)
    length, words = text
    return torch.randint(1, words, (count, length), generator=generator)


def _write(tower: nn.Module, example: Tensor, side: str, path: Path) -> None:
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                tower,
                (example,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=[side],
                output_names=[f"{side}_features"],
                verbose=False,
            )
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        first = str(error).strip().partition("\n")[0]
        raise Incompatible(f"torch cannot export the {side} tower: {first}") from error
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # stack traces, which name files of this machine
    program.save(str(path))


def _difference(tower: nn.Module, batch: Tensor, side: str, path: Path) -> float:
    """The largest difference between onnxruntime's and torch's embeddings of a batch."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {side: batch.numpy()})
    with torch.no_grad():
        wanted = tower(batch).numpy()
    return float(np.abs(found - wanted).max())
