"""A model in a few words, from its configuration alone. Imports no torch."""

from __future__ import annotations

from typing import Any

from vlcpctl.models.bounds import dual_weights
from vlcpctl.models.configuration import configuration_here, fusion_configuration
from vlcpctl.models.fusion.configuration import FusionConfig, fusion_weights

_MILLION = 1e6
_BERT_WORDS = {"bert-base-uncased": 30_522, "bert-base-chinese": 21_128}
_USUAL_LENGTH, _USUAL_SIZE = 77, 224  # open_clip's, for a configuration without them


def model_in_words(
    model: str, text_length: int | None = None, image_size: int | None = None
) -> str | None:
    """The family, weights, image size (pixels) and text length (tokens) of a model.

    `model` is a name or a path, as --model takes it. None where this is not known without a hub.
    Weights are counted only where the configuration says how many there are, which those of timm's,
    transformers' and open_clip's ResNet towers do not. Raises BadInput for a path that is not a
    model.

    >>> model_in_words("ViT-B-32")
    'dual encoder, about 151 M weights, 224 px, text 77'
    """
    fusion = fusion_configuration(model)
    if fusion is not None:
        sizes = (fusion.image_cfg.image_size, fusion.text_cfg.context_length)
        count = fusion_weights(fusion) + _words_of_bert(fusion)
        is_known = count > fusion_weights(fusion) or fusion.text_cfg.vocab_size is not None
        words = "fusion model" + (f", {_about(count)}" if is_known else "")
    else:
        dual = configuration_here(model)
        if dual is None:
            return None
        vision, text = dual.model["vision_cfg"], dual.model["text_cfg"]
        sizes = (
            vision.get("image_size", _USUAL_SIZE),
            text.get("context_length", _USUAL_LENGTH),
        )
        known = _says_its_weights(vision, text)
        words = "dual encoder" + (f", {_about(dual_weights(dual.model))}" if known else "")
    return f"{words}, {image_size or sizes[0]} px, text {text_length or sizes[1]}"


def _words_of_bert(fusion: FusionConfig) -> float:
    """The weights of BERT's words, where the configuration leaves their number to BERT."""
    words = _BERT_WORDS.get(fusion.text_pretrained or "", 0)
    return words * fusion.text_cfg.width if fusion.text_cfg.vocab_size is None else 0


def _says_its_weights(vision: dict[str, Any], text: dict[str, Any]) -> bool:
    is_transformer = isinstance(vision.get("layers"), int) and "width" in text
    return is_transformer and not vision.get("timm_model_name") and not text.get("hf_model_name")


def _about(weights: float) -> str:
    """The number of weights in millions, with three digits at most.

    >>> _about(151_034_368), _about(721_152)
    ('about 151 M weights', 'about 0.72 M weights')
    """
    millions = weights / _MILLION
    digits = 0 if millions >= 10 else 2 if millions >= 0.1 else 3
    return f"about {millions:.{digits}f} M weights"
