"""The model of a checkpoint, as users of open_clip know models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.core.errors import Incompatible

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor, nn

    Transform = Callable[[Image.Image], Tensor]
    Tokenizer = Callable[[str | Iterable[str]], Tensor]


def load_model(checkpoint: str | PathLike[str]) -> tuple[nn.Module, Transform, Tokenizer]:
    """The model of open_clip in a checkpoint, in eval mode on the CPU, its transform and tokenizer.

    The transform makes a tensor (3, H, W) of an image of Pillow; the tokenizer makes ids (n, L) of
    n texts. Raises BadInput if it is not a checkpoint, and Incompatible if it was changed since it
    was written, or has a fusion model, which open_clip does not know.
    """
    from vlcpctl.models.imports import import_all

    library = import_all()  # first: what the program puts off, the user's process may need
    from vlcpctl.models import encoders
    from vlcpctl.models.configuration import preprocess_of

    encoder = encoders.load(Path(checkpoint))
    if encoder.family == "fusion":
        raise Incompatible(f"{checkpoint} has a fusion model, which open_clip does not know")
    settings = library.transform.PreprocessCfg(**preprocess_of(encoder.transform))
    transform = library.transform.image_transform_v2(settings, is_train=False)
    tokenize = encoder.tokenizer

    def tokenizer(texts: str | Iterable[str]) -> Tensor:
        return tokenize([texts] if isinstance(texts, str) else list(texts))

    return encoder.module.eval(), transform, tokenizer
