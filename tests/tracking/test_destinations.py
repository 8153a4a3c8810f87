"""--log: what it takes, and that W&B never asks for a key."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.tracking.destinations import destinations


@pytest.mark.parametrize(
    "word", ["board", "mlflow:x", "tensorboard:", "wandb: ", "wandb:a/b/c", "wandb:/b"]
)
def test_another_form_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="tensorboard:DIR nor wandb:PROJECT"):
        destinations([word])


def test_each_is_used_once() -> None:
    words = ["tensorboard:a", "tensorboard:b", "tensorboard:a"]
    assert destinations(words) == ("tensorboard:a", "tensorboard:b")


def fake_wandb(mode: str, key: str | None, token: str | None = None) -> SimpleNamespace:
    settings = SimpleNamespace(mode=mode, identity_token_file=token)
    return SimpleNamespace(
        api=SimpleNamespace(api_key=key), setup=lambda: SimpleNamespace(settings=settings)
    )


@pytest.mark.parametrize(
    ("mode", "key", "token"),
    [("online", "k", None), ("online", None, "file"), ("offline", None, None)],
)
def test_wandb_needs_a_key_unless_it_is_offline(
    monkeypatch: pytest.MonkeyPatch, mode: str, key: str | None, token: str | None
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb(mode, key, token))
    assert destinations(["wandb:team/project"]) == ("wandb:team/project",)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb("online", None))
    with pytest.raises(UsageError, match="WANDB_API_KEY"):
        destinations(["wandb:project"])
