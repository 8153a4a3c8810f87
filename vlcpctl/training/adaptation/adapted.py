"""A request with the settings that depend on its inputs and its device. Torch-free on CPUs."""

from __future__ import annotations

from vlcpctl.training.adaptation.batch import with_batch
from vlcpctl.training.adaptation.model import with_model
from vlcpctl.training.adaptation.precision import with_precision
from vlcpctl.training.config.request import TrainRequest


def adapted(request: TrainRequest) -> TrainRequest:
    """The request as it is planned, run and recorded; an adapted one stays as it is.

    Raises UsageError if no model or no batch follows from it, and BadInput if an input is not what
    its option needs.
    """
    return with_batch(with_precision(with_model(request)))


def adapted_as_far_as_known(request: TrainRequest) -> TrainRequest:
    """The request to show, whose tasks and model need not exist yet.

    Raises BadInput if an input that does exist is not what its option needs.
    """
    if request.previous is not None:
        request = with_model(request)
    inputs = [*request.tasks, *([request.buffer] if request.buffer else [])]
    is_complete = all(path.exists() for path in inputs)
    return with_batch(with_precision(request)) if is_complete else with_precision(request)
