"""Silences the hub's clients, so that a failed download gives one error and nothing else."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_TALKERS = ("huggingface_hub", "transformers", "timm")


@contextmanager
def quietly() -> Iterator[None]:
    """Hide log lines and progress bars of the hub's clients; their exceptions are not caught."""
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
