"""Loss terms as pure functions: tensors in, a scalar out.

A submodule loads when it is first used, so that methods can name their losses without importing
torch.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # mypy does not find submodules by itself, and reports one missing here
    from vlcpctl.losses import alignment as alignment
    from vlcpctl.losses import contrastive as contrastive
    from vlcpctl.losses import dark as dark
    from vlcpctl.losses import direction as direction
    from vlcpctl.losses import distillation as distillation
    from vlcpctl.losses import geodesic as geodesic
    from vlcpctl.losses import importance as importance
    from vlcpctl.losses import incclip as incclip
    from vlcpctl.losses import masked as masked
    from vlcpctl.losses import momentum as momentum
    from vlcpctl.losses import null_space as null_space
    from vlcpctl.losses import penalty as penalty
    from vlcpctl.losses import relations as relations
    from vlcpctl.losses import rows as rows
    from vlcpctl.losses import selection as selection
    from vlcpctl.losses import topology as topology
else:

    def __getattr__(name: str) -> Any:
        if find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
