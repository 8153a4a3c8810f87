"""Continual vision-language pretraining from the command line, and from Python.

Names of `vlcpctl.api` are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlcpctl.api.functions import batch as batch
    from vlcpctl.api.functions import buffer as buffer
    from vlcpctl.api.functions import check as check
    from vlcpctl.api.functions import distill as distill
    from vlcpctl.api.functions import doctor as doctor
    from vlcpctl.api.functions import eval_probe as eval_probe
    from vlcpctl.api.functions import eval_retrieval as eval_retrieval
    from vlcpctl.api.functions import eval_zeroshot as eval_zeroshot
    from vlcpctl.api.functions import export_as as export_as
    from vlcpctl.api.functions import forget as forget
    from vlcpctl.api.functions import forgetting_report as forgetting_report
    from vlcpctl.api.functions import import_checkpoint as import_checkpoint
    from vlcpctl.api.functions import inspect as inspect
    from vlcpctl.api.functions import invert_texts as invert_texts
    from vlcpctl.api.functions import list_methods as list_methods
    from vlcpctl.api.functions import merge as merge
    from vlcpctl.api.functions import sample as sample
    from vlcpctl.api.functions import spatial_report as spatial_report
    from vlcpctl.api.functions import split as split
    from vlcpctl.api.functions import train_step as train_step
    from vlcpctl.api.functions import update as update
    from vlcpctl.api.models import load_model as load_model
    from vlcpctl.api.results import Report as Report
    from vlcpctl.api.rows import load_rows as load_rows
    from vlcpctl.api.tasks import Pair as Pair
    from vlcpctl.api.tasks import Pairs as Pairs
    from vlcpctl.api.tasks import Task as Task
    from vlcpctl.core.errors import BadInput as BadInput
    from vlcpctl.core.errors import Diverged as Diverged
    from vlcpctl.core.errors import GateFailed as GateFailed
    from vlcpctl.core.errors import HookFailed as HookFailed
    from vlcpctl.core.errors import Incompatible as Incompatible
    from vlcpctl.core.errors import Interrupted as Interrupted
    from vlcpctl.core.errors import OutputExists as OutputExists
    from vlcpctl.core.errors import TooManySkipped as TooManySkipped
    from vlcpctl.core.errors import UsageError as UsageError
    from vlcpctl.core.errors import VlcpError as VlcpError

__version__ = "0.4.0.dev0"


def __getattr__(name: str) -> Any:
    # Not `from vlcpctl import api`, which would ask here for "api".
    from vlcpctl.api import HOMES, public

    if name not in HOMES:
        raise AttributeError(f"module 'vlcpctl' has no attribute {name!r}", name=name)
    globals()[name] = found = public(name)
    return found


def __dir__() -> list[str]:
    from vlcpctl.api import HOMES

    return ["__version__", *sorted(HOMES)]
