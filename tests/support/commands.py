"""Commands in the process of the tests: called with their arguments, then --out and a few more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vlcpctl.commands import command_class
from vlcpctl.commands.running import start
from vlcpctl.core.options import Command


def request_of(command: str, /, **values: Any) -> Command:
    """The request of a command with these options."""
    return command_class(command).made_of(values)


def _command(name: str, *places: str) -> Callable[..., None]:
    def run(*positional: Any, **values: Any) -> None:
        request = request_of(name, **dict(zip(places, positional, strict=False)), **values)
        start(request)
        request.execute()

    return run


batch = _command("batch", "file")
buffer = _command("buffer", "task", "out")
distill = _command("distill", "tasks", "out", "teacher")
eval_probe = _command("eval-probe", "data_sets", "checkpoint")
eval_retrieval = _command("eval-retrieval", "tasks", "checkpoint")
eval_zeroshot = _command("eval-zeroshot", "data_sets", "checkpoint")
export = _command("export", "sources", "out", "to")
forgetting_report = _command("forgetting-report", "rows", "out")
import_checkpoint = _command("import-checkpoint", "source", "out")
inspect = _command("inspect", "path")
invert_texts = _command("invert-texts", "out", "checkpoint", "buffer")
merge = _command("merge", "models", "out")
methods = _command("methods", "names")
sample = _command("sample", "name", "out")
spatial_report = _command("spatial-report", "tasks", "checkpoint")
split = _command("split", "sources", "out", "by")
train_step = _command("train-step", "tasks", "out", "method")
