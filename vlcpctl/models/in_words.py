"""A model in a few words, from its configuration alone. Imports no torch."""

from __future__ import annotations

from typing import Any

from vlcpctl.models.bounds import dual_weights
from vlcpctl.models.configuration import configuration_here, fusion_configuration, is_path
from vlcpctl.models.fusion.configuration import fusion_weights

_MILLION = 1e6
_BERT_WORDS = {"bert-base-uncased": 30_522, "bert-base-chinese": 21_128}
_USUAL_LENGTH, _USUAL_SIZE = 77, 224  # open_clip's, for a configuration without them


def model_in_words(
    model: str, text_length: int | None = None, image_size: int | None = None
) -> str | None:
    """The family, weights, image size (pixels) and text length (tokens) of a model.

    `model` is a name or a path, as --model takes it. None where this is not known without a hub.
    Raises BadInput for a path that is not a model.

    >>> model_in_words("ViT-B-32")
    'dual encoder, about 151 M weights, 224 px, text 77'
    """
    fusion, dual = fusion_configuration(model), configuration_here(model)
    if fusion is not None:
        family = "fusion model"
        sizes = (fusion.image_cfg.image_size, fusion.text_cfg.context_length)
    elif dual is not None:
        family, parts = "dual encoder", dual.model
        sizes = (
            parts["vision_cfg"].get("image_size", _USUAL_SIZE),
            parts["text_cfg"].get("context_length", _USUAL_LENGTH),
        )
    else:
        return None
    count = weights_of(model)
    weights = "" if count is None else f", about {in_millions(count)} weights"
    return f"{family}{weights}, {image_size or sizes[0]} px, text {text_length or sizes[1]}"


def activation_note(model: str) -> str | None:
    """Which activation weights from a file get: nothing in them says what they were trained with.

    None where the configuration does not decide it, as for a fusion model. Raises as
    `model_in_words` does.

    >>> activation_note("ViT-B-32-quickgelu")
    'the weights get the activation of ViT-B-32-quickgelu, QuickGELU'
    """
    found = configuration_here(model)
    if found is None:
        return None
    name = "QuickGELU" if found.model.get("quick_gelu") else "GELU"
    said = f"the weights get the activation of {model}, {name}"
    quick = f"{model}-quickgelu"
    if is_path(model):
        quick = f'"quick_gelu": true in {model}'
    elif configuration_here(quick) is None:
        return said
    of_others = f"; those trained with QuickGELU, as OpenAI's, need {quick}"
    return said if name == "QuickGELU" else said + of_others


def weights_of(model: str) -> float | None:
    """About how many weights a model has, given as a name or a path.

    None where its configuration does not say: it has a tower of timm or transformers, a ResNet or
    CoCa's decoder, or as many words as its tokenizer has. Raises BadInput for a path that is not a
    model.
    """
    fusion = fusion_configuration(model)
    if fusion is not None:
        text = fusion.text_cfg
        words = 0 if text.vocab_size is not None else _BERT_WORDS.get(fusion.text_pretrained or "")
        return None if words is None else fusion_weights(fusion) + words * text.width
    dual = configuration_here(model)
    if dual is None or not _says_its_weights(dual.model):
        return None
    return dual_weights(dual.model)


def in_millions(weights: float) -> str:
    """A number of weights in millions.

    >>> in_millions(151_034_368), in_millions(721_152)
    ('151 M', '0.72 M')
    """
    millions = weights / _MILLION
    return f"{millions:.{0 if millions >= 10 else 2 if millions >= 0.1 else 3}f} M"


def _says_its_weights(model: dict[str, Any]) -> bool:
    if "multimodal_cfg" in model:  # CoCa's decoder
        return False
    vision, text = model["vision_cfg"], model["text_cfg"]
    is_transformer = isinstance(vision.get("layers"), int) and "width" in text
    return is_transformer and not vision.get("timm_model_name") and not text.get("hf_model_name")
