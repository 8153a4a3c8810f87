"""The environment variables that --on-accept and --on-reject of `vlcpctl update` get."""

from __future__ import annotations

from typing import Final

HOOK: Final = "VLCPCTL_HOOK"  # accept or reject
STATE: Final = "VLCPCTL_STATE"
WEEK: Final = "VLCPCTL_WEEK"
CHECKPOINT: Final = "VLCPCTL_CHECKPOINT"
REPORT: Final = "VLCPCTL_REPORT"
VERDICT: Final = "VLCPCTL_VERDICT"
OF_HOOKS: Final = frozenset({HOOK, STATE, WEEK, CHECKPOINT, REPORT, VERDICT})
