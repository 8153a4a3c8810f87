"""`vlcpctl interpolate`: average the weights of two checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.commands.shared import Planned, Shared, run_name
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import OnePath, Takes, argument, like, option
from vlcpctl.core.words import parse_number
from vlcpctl.files.rows import share_text


class Interpolate(Planned):
    """Average the weights of two checkpoints of the same model, as WiSE-FT does.

    The result is (1 - alpha) FIRST + alpha SECOND, a checkpoint that has seen the tasks of both and
    can be trained further. A single alpha is written to --out; several are written to
    --out/alpha-SHARE. The state of methods is copied from SECOND.

    Rows of eval-retrieval include alpha, and forgetting-report shows each alpha as a separate run.

    Examples:
      vlcpctl interpolate run/00 run/01 --alpha 0.5 -o averaged/01
      vlcpctl interpolate run/00 run/01 --alpha 0,0.25,0.5,0.75,1 -o sweep
    """

    first: OnePath = argument(
        "FIRST", "Checkpoint at alpha 0, usually the earlier one", kw_only=False
    )
    second: OnePath = argument(
        "SECOND", "Checkpoint at alpha 1, usually the later one", kw_only=False
    )
    alpha: Takes[str, float | str | Sequence[float]] = option(
        "Weight of SECOND in the average, from 0 to 1, or several: 0,0.5,1",
        "SHARE[,SHARE...]",
        default="0.5",
    )
    run: str = option("Name of the run in the rows", "NAME", default="interpolate", parse=run_name)
    threads: int = like(Shared, "threads", default=1)

    def execute(self) -> None:
        from vlcpctl.checkpoints.manifest import CheckpointManifest

        for path in (self.first, self.second):
            CheckpointManifest.read(path)
        outputs = outputs_of(parse_alphas(self.alpha), self.out)
        if self.dry_run:
            for share, place in outputs:
                say(f"interpolate: {1 - share:g} {self.first} + {share_text(share)} {self.second}")
                emit(place)
            return
        from vlcpctl.checkpoints import merging
        from vlcpctl.checkpoints.merge_rules import Interpolate

        rules = ((Interpolate(alpha=share), place) for share, place in outputs)
        request = merging.MergeRequest(
            models=(self.first, self.second),
            outputs=tuple(merging.MergeOutput(rule, self.run, place) for rule, place in rules),
            force=self.force,
        )
        for place in merging.merge(request):
            emit(json.dumps(merging.result(place), ensure_ascii=False) if self.json else place)


def parse_alphas(text: str) -> tuple[float, ...]:
    """The shares of the second checkpoint, each in [0, 1].

    Raises UsageError if one is not a number in [0, 1], or is given twice.

    >>> parse_alphas("0,0.5")
    (0.0, 0.5)
    """
    try:
        alphas = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        alphas = ()
    if not alphas or not all(0 <= alpha <= 1 for alpha in alphas):
        raise UsageError(
            f"--alpha {text!r} is not a number from 0 to 1, or several separated by commas"
        )
    if len(set(alphas)) < len(alphas):
        raise UsageError(f"--alpha {text!r} contains a share twice")
    return alphas


def outputs_of(alphas: Sequence[float], out: Path) -> tuple[tuple[float, Path], ...]:
    """Each alpha with its output: `out` itself for one, `out`/alpha-SHARE for several."""
    if len(alphas) == 1:
        return ((alphas[0], out),)
    return tuple((alpha, out / f"alpha-{share_text(alpha)}") for alpha in alphas)
