"""The clients of model hubs: silenced, and kept from the network unless an option names a hub."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

from vlcpctl.core.errors import first_line

_OFFLINE = "HF_HUB_OFFLINE"  # the variable and the constant of huggingface_hub
_is_offline: ContextVar[bool] = ContextVar("is_offline", default=False)
_TALKERS = ("huggingface_hub", "transformers", "timm")


@contextmanager
def without_logs() -> Iterator[None]:
    """Hide the log lines of the hub's clients, such as those on every attempt to connect."""
    loggers = [logging.getLogger(name) for name in _TALKERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def quietly() -> Iterator[None]:
    """Hide log lines and progress bars of the hub's clients; their exceptions are not caught."""
    bars: Any = importlib.import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    try:
        bars.disable_progress_bar()
        with without_logs():
            yield
    finally:
        if shown:
            bars.enable_progress_bar()


@contextmanager
def offline() -> Iterator[None]:
    """Keep the hub's clients from the network: within the block they find only what is cached.

    Used for configurations in files, which others may have written: what they name is not fetched
    from a hub unless an option of the command names one.
    """
    token, variable = _is_offline.set(True), os.environ.get(_OFFLINE)
    constants: Any = sys.modules.get("huggingface_hub.constants")
    before = getattr(constants, _OFFLINE, None)
    os.environ[_OFFLINE] = "1"  # for a client that is imported within the block
    if constants is not None:
        setattr(constants, _OFFLINE, True)
    opener = vars(urllib.request)["_opener"]
    urllib.request.install_opener(_NoNetwork())  # torch.hub and timm download with urllib
    try:
        yield
    finally:
        _is_offline.reset(token)
        urllib.request.install_opener(opener)
        del os.environ[_OFFLINE]
        if variable is not None:
            os.environ[_OFFLINE] = variable
        constants = sys.modules.get("huggingface_hub.constants")
        if constants is not None:
            setattr(constants, _OFFLINE, bool(variable) if before is None else before)


def why_unavailable(error: BaseException) -> str:
    """The reason why something that a configuration names could not be loaded, in one line."""
    if _is_offline.get():
        return "it is not in a local directory, and a hub is used only if an option names it"
    return first_line(error)


class _NoNetwork(urllib.request.OpenerDirector):
    """An opener for urllib that opens nothing."""

    def open(self, *_: object, **__: object) -> NoReturn:
        raise urllib.error.URLError("a hub is used only if an option names it")
