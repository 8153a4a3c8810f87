"""Logging to TensorBoard and Weights & Biases (--log), with a guard against their failures.

The libraries are imported when a tracker is opened, and none is at the start of a command.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, VlcpError, first_line
from vlcpctl.core.words import printable

EVALUATION = "eval"  # the part of a run that its evaluation rows are
STREAM_STEP = "stream_step"  # the x axis of evaluation rows in W&B
_FINISH_S = 60.0  # for uploads at the end, unless W&B's own settings have a limit
_FORM = re.compile(r"tensorboard:.*\S.*|wandb:([^/\s]+/)?[^/\s]+")


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker records about the run whose values it gets.

    The training of each task is tracked apart; all evaluation rows of a run go together.
    """

    run: str
    seed: int
    part: str  # the task that is trained on, or EVALUATION
    id: str  # equal for the processes that log to the same run, such as resumed ones
    config: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0  # the first step that this process logs; later ones are replaced

    @property
    def is_training(self) -> bool:
        """Whether its values are those of a training, not of evaluations."""
        return self.part != EVALUATION

    @property
    def label(self) -> str:
        """The name of the run, with a seed other than 0."""
        return f"{self.run}-seed{self.seed}" if self.seed else self.run


def destinations(words: Iterable[str]) -> tuple[str, ...]:
    """The values of --log, each once and found to be usable.

    Raises UsageError for a value of another form, a package that is not installed, and W&B online
    without an API key: it would otherwise ask for one.

    >>> destinations(["tensorboard:runs/board"])
    ('tensorboard:runs/board',)
    """
    found = tuple(dict.fromkeys(words))
    for word in found:
        kind = word.partition(":")[0]
        if not _FORM.fullmatch(word):
            raise UsageError(
                f"--log {printable(word)!r} is neither tensorboard:DIR nor wandb:PROJECT or "
                "wandb:ENTITY/PROJECT"
            )
        if importlib.util.find_spec(kind) is None:
            raise UsageError(
                f"--log {printable(word)} needs a package that is not installed: "
                f"pip install {kind}, or leave it out"
            )
        if kind == "wandb":
            _require_login()
    return found


def _require_login() -> None:
    os.environ.setdefault("WANDB_SILENT", "true")  # its notes are many; ours is one line
    import wandb

    settings = wandb.setup().settings
    is_online = settings.mode not in {"offline", "dryrun", "disabled"}
    if is_online and not (wandb.api.api_key or settings.identity_token_file):
        raise UsageError(
            "--log wandb needs an API key: run 'wandb login' or set WANDB_API_KEY, or set "
            "WANDB_MODE=offline and upload later with 'wandb sync'"
        )


class Trackers:
    """The trackers of a run; one that fails is left out from then on, with one warning.

    A library or a network that fails must not cost the training or the evaluation. As a context,
    they are closed at its end with the exit code that it means.
    """

    def __init__(self) -> None:
        self._open: dict[str, TensorBoardTracker | WandbTracker] = {}

    @classmethod
    def of(cls, destinations: Sequence[str], run: TrackedRun) -> Self:
        """A tracker for each value of --log that can be opened."""
        trackers = cls()
        for one in destinations:
            kind, _, place = one.partition(":")
            with trackers._guarded(one):
                opened = (WandbTracker if kind == "wandb" else TensorBoardTracker)(place, run)
                trackers._open[one] = opened
        return trackers

    def log(self, row: Mapping[str, Any], step: int) -> None:
        """Log the numbers of a row under their names; other values are left out."""
        values = {
            name: float(value)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for destination, tracker in list(self._open.items()):
            with self._guarded(destination):
                tracker.log(values, step)

    def close(self, code: int) -> None:
        """Close all trackers with the exit code of the command."""
        for destination, tracker in list(self._open.items()):
            with self._guarded(destination):
                tracker.close(code)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.close(error.exit_code if isinstance(error, VlcpError) else int(error is not None))

    @contextmanager
    def _guarded(self, destination: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._open.pop(destination, None)
            console.warn(f"no more is logged to {destination}: {first_line(error)}")


class TensorBoardTracker:
    """Writes scalars to event files in DIR/RUN/PART; needs the extra `tensorboard`.

    A resumed training makes TensorBoard drop the steps that it repeats.
    """

    def __init__(self, place: str, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        directory = Path(place, _file_name(run.label), _file_name(run.part))
        purge = run.first if run.is_training and directory.is_dir() else None
        self._writer = SummaryWriter(str(directory), purge_step=purge)
        if run.is_training and run.first == 0:
            text = "\n".join(f"    {name} = {value}" for name, value in run.config.items())
            self._writer.add_text("settings", text)  # indented: Markdown's form of code
        self._flushes = not run.is_training  # a signal may end an evaluation after any row

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write each value as a scalar."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        if self._flushes:
            self._writer.flush()

    def close(self, code: int) -> None:
        """Flush and close."""
        self._writer.close()


def _file_name(text: str) -> str:
    """The text as the name of a directory, the same for the same text.

    >>> _file_name("ctp m=0.8"), _file_name("a/b"), _file_name("..")
    ('ctp m=0.8', 'a_b', '_.')
    """
    return re.sub(r"^\.|[/\\:\0]", "_", text)


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
        settings: Any = self._run.settings
        if settings.mode in {"offline", "dryrun"}:
            console.say(f"W&B is offline: upload later with 'wandb sync {settings.sync_dir}'")
        elif self._run.url:
            console.say(f"logging to {self._run.url}")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values at a step of the training, or a row at its step of the stream."""
        if self._of_rows:
            self._run.log({STREAM_STEP: step, **values})
        elif step >= self._next:
            self._run.log(dict(values), step=step)

    def close(self, code: int) -> None:
        """Wait until everything is uploaded or, offline, on disk."""
        self._run.finish(exit_code=code)
