"""A model in words: what is counted without torch is what torch builds."""

from __future__ import annotations

import re
from copy import deepcopy

import pytest

from vlcpctl.models.configuration import configuration_here
from vlcpctl.models.imports import open_clip
from vlcpctl.models.in_words import model_in_words


@pytest.mark.parametrize("name", ["tiny", "micro", "ViT-S-32-alt"])
def test_the_weights_of_a_dual_encoder_are_counted(name: str) -> None:
    configuration = configuration_here(name)
    assert configuration is not None
    model = open_clip().CLIP(**deepcopy(configuration.model))
    wanted = sum(one.numel() for one in model.parameters()) / 1e6
    found = re.search(r"about ([0-9.]+) M weights", model_in_words(name) or "")
    assert found is not None
    assert float(found[1]) == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("albef-base", "fusion model, about 201 M weights, 224 px, text 30"),
        ("albef-tiny", "fusion model, 32 px, text 20"),  # its tokenizer has the number of words
        ("RN50", "dual encoder, 224 px, text 77"),
        ("xlm-roberta-base-ViT-B-32", "dual encoder, 224 px, text 77"),
        ("hf-hub:someone/model", None),
    ],
)
def test_weights_that_a_configuration_does_not_count_are_left_out(
    name: str, words: str | None
) -> None:
    assert model_in_words(name) == words


def test_other_sizes_take_the_place_of_the_models() -> None:
    assert model_in_words("RN50", text_length=12, image_size=96) == "dual encoder, 96 px, text 12"
