"""Weights & Biases: a W&B run for the training of each task, and one for the rows of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlcpctl.core import console
from vlcpctl.tracking.destinations import TrackedRun

STREAM_STEP = "stream_step"  # the x axis of evaluation rows
_FINISH_S = 60.0  # for uploads at the end, unless W&B's own settings have a limit


class WandbTracker:
    """Logs to a W&B run, with an id of its own that a resumed training finds again.

    The runs are grouped by the name of ours. Nothing of the terminal is captured.
    """

    def __init__(self, place: str, run: TrackedRun) -> None:
        import wandb

        defaults = wandb.setup().settings
        self._of_rows = not run.is_training
        entity, _, project = place.rpartition("/")
        self._run = wandb.init(
            project=project,
            entity=entity or None,
            id=run.id,
            name=run.label if self._of_rows else f"{run.label}/{run.part}",
            group=run.label,
            job_type="eval" if self._of_rows else "train-step",
            config=dict(run.config),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                console="off",
                silent=True,
                finish_timeout=defaults.finish_timeout or _FINISH_S,
            ),
        )
        # The steps before are there already: those that this process repeats have equal values.
        self._next = 0 if self._of_rows else int(self._run.step)
        if self._of_rows:
            self._run.define_metric(STREAM_STEP)
            self._run.define_metric("*", step_metric=STREAM_STEP)
        self._say_where()

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values at a step of the training, or a row at its step of the stream."""
        if self._of_rows:
            self._run.log({STREAM_STEP: step, **values})
        elif step >= self._next:
            self._run.log(dict(values), step=step)

    def close(self, code: int) -> None:
        """Wait until everything is uploaded or, offline, on disk."""
        self._run.finish(exit_code=code)

    def _say_where(self) -> None:
        settings: Any = self._run.settings
        if settings.mode in {"offline", "dryrun"}:
            console.say(f"W&B is offline: upload later with 'wandb sync {settings.sync_dir}'")
        elif self._run.url:
            console.say(f"logging to {self._run.url}")
