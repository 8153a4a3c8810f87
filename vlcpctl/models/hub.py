"""What the hub's clients say while they look for a file stays unsaid: one error says it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TALKERS = ("huggingface_hub", "transformers", "timm")


@contextmanager
def quietly() -> Iterator[None]:
    """No retries, reports or progress bars of the hub's clients; their exceptions go through."""
    bars: Any = importlib.import_module("transformers.utils.logging")
    loggers = [logging.getLogger(name) for name in _TALKERS]
    levels = [logger.level for logger in loggers]
    shown = bars.is_progress_bar_enabled()
    try:
        bars.disable_progress_bar()
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if shown:
            bars.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """What an exception says first, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
