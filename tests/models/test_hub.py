"""The network is used only when an option names a hub."""

from __future__ import annotations

import json
import os
import shutil
import socket
import urllib.request
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from support.training import model_file

from vlcpctl.checkpoints.importing import ImportRequest, import_checkpoint
from vlcpctl.core.errors import Incompatible
from vlcpctl.models import encoders
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.hub import offline


@pytest.fixture(autouse=True)
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What asks the network, which is not there; an empty cache of the hub."""
    asked: list[Any] = []

    def refuse(*given: Any, **_: Any) -> None:
        asked.append(given[:2])
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return asked


TIMM = {"timm_model_name": "hf-hub:someone/tower", "timm_model_pretrained": True, "image_size": 32}
BERT = {"text_cfg__tokenizer": ..., "text_pretrained": "someone/bert"}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("micro", {"text_cfg__hf_tokenizer_name": "tiny-tokenizer"}),
        ("micro", {"text_cfg__hf_tokenizer_name": "someone/words"}),
        ("micro", {"text_cfg__hf_model_name": "someone/tower"}),
        ("micro", {"vision_cfg": TIMM}),
        ("albef-micro", {"text_cfg__tokenizer": "someone/words"}),
        ("albef-micro", BERT),
    ],
)
def test_what_a_file_names_is_not_fetched(
    tmp_path: Path, network: list[Any], model: str, names: dict[str, Any]
) -> None:
    with pytest.raises(Incompatible, match="a hub is used only if an option names it") as caught:
        encoders.build(model_file(tmp_path, model, **names))
    assert network == []
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_lacks_its_tokenizer_asks_no_hub(
    tmp_path: Path, network: list[Any]
) -> None:
    (tmp_path / "model").mkdir()
    encoders.save(encoders.build("micro", NewModelOptions(seed=0)), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    for read in (
        lambda: encoders.load(tmp_path / "model"),
        lambda: encoders.build(tmp_path / "model"),
        lambda: import_checkpoint(ImportRequest(source=tmp_path / "model", out=tmp_path / "out")),
    ):
        with pytest.raises(Incompatible, match=r"'tiny-tokenizer': it is not in a local directory"):
            read()
    assert network == []
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_option_that_names_a_hub_uses_it(tmp_path: Path, network: list[Any]) -> None:
    config = json.loads((PACKAGED / "albef-micro.json").read_text())
    shutil.copytree(PACKAGED / "tiny-tokenizer", tmp_path / "tiny-tokenizer")
    (tmp_path / "model.json").write_text(json.dumps(config))
    encoders.build(tmp_path / "model.json")
    with pytest.raises(Incompatible, match="cannot load the BERT 'someone/bert'") as caught:
        encoders.build(tmp_path / "model.json", NewModelOptions(pretrained="text=someone/bert"))
    assert "only if an option names it" not in str(caught.value)
    assert network


def test_the_settings_of_the_clients_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    opener = vars(urllib.request)["_opener"]
    with offline():
        assert huggingface_hub.constants.HF_HUB_OFFLINE
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        with pytest.raises(OSError, match="a hub is used only if an option names it"):
            urllib.request.urlopen("https://example.org")
    assert not huggingface_hub.constants.HF_HUB_OFFLINE
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert vars(urllib.request)["_opener"] is opener
