"""The width of the shared space is known without loading the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.models.configuration import PACKAGED, shared_width


@pytest.mark.parametrize(
    ("model", "width"),
    [
        ("albef-base", 256),
        (str(PACKAGED / "albef-base.json"), 256),
        ("RN50", 1024),
        ("ViT-B-32", 512),
        ("hf-hub:some/model", None),
        ("nonsense", None),
        ("../../model_configs/RN50", None),
    ],
)
def test_width_of_a_model(model: str, width: int | None) -> None:
    assert shared_width(model) == width


def test_width_of_every_packaged_model_is_that_of_its_file() -> None:
    for file in Path(PACKAGED).glob("*.json"):
        assert (shared_width(file.stem) or 0) > 0
