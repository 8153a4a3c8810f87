"""Which weights a week is trained from, and which are deployed: --start-from and --deploy.

They are two of the axes of TIME (Dziadzio et al., 2025): what is trained, theta, and what is
deployed, m, are both kept, and m of a week is merged from that of the week before and the new
theta.
"""

from __future__ import annotations

from typing import Final

from vlcpctl.checkpoints.merge_rules import Average, Ema
from vlcpctl.core.errors import UsageError
from vlcpctl.training.methods import parse_hyper

LATEST: Final = "latest"  # as trained last
MERGED: Final = "merged"  # the mean since the start; of --start-from, what is deployed
BASE: Final = "base"  # the start
STARTS: Final = (LATEST, MERGED, BASE)
DEPLOYS: Final = (LATEST, Ema.name, MERGED)


def check_deployment(start_from: str, deploy: str) -> None:
    """Raise UsageError for values of --start-from and --deploy that do not exist, or do not fit."""
    if start_from not in STARTS:
        raise UsageError(f"--start-from takes {', '.join(STARTS)}, not {start_from!r}")
    kind, decay = _parts(deploy)
    if kind not in DEPLOYS or (decay is not None and kind != Ema.name):
        raise UsageError(
            f"--deploy takes {', '.join(DEPLOYS)} or {Ema.name}:DECAY, such as ema:0.9, not "
            f"{deploy!r}"
        )
    if decay is not None:
        parse_hyper(Ema, Ema.name, "decay", decay, f"--deploy {deploy}")
    if start_from == MERGED and deploy == LATEST:
        raise UsageError(
            "--start-from merged has no effect with --deploy latest, which merges nothing; add "
            "--deploy ema, or --start-from latest"
        )
    if start_from == BASE and deploy == LATEST:
        raise UsageError(
            "--start-from base with --deploy latest would deploy a model that has learned only the "
            "last week; add --deploy merged, or --start-from latest"
        )


def merge_words(deploy: str, weeks: int) -> list[str]:
    """The options of the `merge` that makes what is deployed of the last deployed and the trained.

    `weeks` are those before this one that the mean of `merged` has, without what it began with.
    """
    kind, decay = _parts(deploy)
    if kind == MERGED:
        return ["--rule", Average.name, "--weights", f"{weeks + 1},1"]
    return ["--rule", Ema.name, *(["--set", f"decay={decay}"] if decay is not None else [])]


def _parts(deploy: str) -> tuple[str, str | None]:
    """The kind, and the text after its colon; None without one."""
    kind, colon, decay = deploy.partition(":")
    return kind, decay if colon else None
