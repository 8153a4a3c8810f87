"""--log: what it takes, and that W&B never asks for a key."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.tracking.destinations import destinations


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("board", "'board' is neither tensorboard:DIR nor wandb:PROJECT"),
        ("mlflow:x", "is neither tensorboard:DIR nor wandb:PROJECT"),
        ("tensorboard:", "is neither tensorboard:DIR nor wandb:PROJECT"),
        ("wandb: ", "is neither tensorboard:DIR nor wandb:PROJECT"),
        ("wandb:a/b/c", "does not name a W&B project"),
        ("wandb:/b", "does not name a W&B project"),
        ("wandb:a:b", "does not name a W&B project"),
        ("wandb:" + 129 * "a", "has 129 characters, more than 128"),
    ],
)
def test_another_form_is_refused(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        destinations([word])


def test_each_is_used_once() -> None:
    words = ["tensorboard:a", "tensorboard:b", "tensorboard:a"]
    assert [str(one) for one in destinations(words)] == ["tensorboard:a", "tensorboard:b"]
    assert destinations(None) == ()


def fake_wandb(mode: str, key: str | None, token: str | None = None) -> SimpleNamespace:
    settings = SimpleNamespace(mode=mode, identity_token_file=token)
    return SimpleNamespace(
        api=SimpleNamespace(api_key=key), setup=lambda: SimpleNamespace(settings=settings)
    )


@pytest.mark.parametrize(
    ("mode", "key", "token", "works"),
    [
        ("online", None, None, False),
        ("online", "k", None, True),
        ("online", None, "file", True),
        ("offline", None, None, True),
        ("disabled", None, None, True),
    ],
)
def test_wandb_needs_a_key_unless_it_is_offline(
    monkeypatch: pytest.MonkeyPatch, mode: str, key: str | None, token: str | None, *, works: bool
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb(mode, key, token))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    if works:
        (found,) = destinations(["wandb:team/project"])
        assert (found.entity, found.project) == ("team", "project")
        return
    with pytest.raises(UsageError, match=r"needs an API key.*WANDB_MODE=offline"):
        destinations(["wandb:project"])
