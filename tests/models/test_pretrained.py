"""Weights of files: unwrapped, resized, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vlcpctl.core.errors import Incompatible
from vlcpctl.models import dual_encoder
from vlcpctl.models.imports import open_clip

NAME = "visual.proj"


@pytest.fixture
def trained() -> dict[str, torch.Tensor]:
    return dict(dual_encoder.build("micro", seed=7).module.state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".safetensors"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_file_gives_its_weights(
    trained: dict[str, torch.Tensor], suffix: str, prefix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"epoch_1{suffix}"
    named = {prefix + name: value for name, value in trained.items()}
    if suffix == ".safetensors":
        save_file(named, path)
    else:
        torch.save({"epoch": 1, "name": "run", "state_dict": named, "optimizer": {}}, path)
    started = dual_encoder.build("micro", str(path))
    assert torch.equal(started.weights()[NAME], trained[NAME])


def test_positions_are_interpolated_as_open_clip_does(
    trained: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    torch.save(trained, path)
    ours = dual_encoder.build("micro", str(path), text_length=5, image_size=24).weights()
    bare = dual_encoder.build("micro", text_length=5, image_size=24).module
    open_clip().load_checkpoint(bare, str(path))
    for name in ("positional_embedding", "visual.positional_embedding"):
        assert torch.equal(ours[name], bare.state_dict()[name])


def test_weights_of_another_model_are_refused(
    trained: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    torch.save(trained, path)
    with pytest.raises(Incompatible, match="has shape"):
        dual_encoder.build("tiny", str(path))
    trained.pop(NAME)
    torch.save(trained, path)
    with pytest.raises(Incompatible, match=r"lacks the tensor 'visual\.proj'"):
        dual_encoder.build("micro", str(path))


@pytest.mark.parametrize("content", [{"state_dict": 3}, [1, 2], {"a": "b"}])
def test_a_file_without_weights_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    with pytest.raises(Incompatible, match="does not contain weights by name"):
        dual_encoder.build("micro", str(path))


def test_a_tag_brings_its_activation_and_preparation(
    trained: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.pt"
    torch.save(trained, path)
    library = open_clip()
    tag = {"quick_gelu": True, "mean": (0.5, 0.5, 0.5), "interpolation": "bilinear", "url": "x"}
    monkeypatch.setattr(library, "list_pretrained_tags_by_model", lambda model: ["tag"])
    monkeypatch.setattr(library, "get_pretrained_cfg", lambda model, name: tag)
    monkeypatch.setattr(library, "download_pretrained", lambda tag: str(path))
    encoder = dual_encoder.build("micro", "tag")
    assert encoder.config["quick_gelu"] is True
    assert encoder.transform.mean == (0.5, 0.5, 0.5)
    assert encoder.transform.interpolation == "bilinear"
