"""`vlcpctl merge`: merge the weights of checkpoints by a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.merge_rules import TABLE, MergeOutput, MergeRule
from vlcpctl.checkpoints.rule_file import load_rule
from vlcpctl.commands.shared import Planned, Shared, Stored, run_name
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.options import (
    INPUT,
    METHOD,
    GoesWith,
    MaybePath,
    Numbers,
    Paths,
    Texts,
    argument,
    like,
    option,
    refuse_idle,
    several,
)
from vlcpctl.core.words import counted, parse_number
from vlcpctl.files.rows import share_text
from vlcpctl.training.config.composition import parse_hyper


class Merge(Planned, Stored):
    """Merge the weights of checkpoints of the same model by a rule, without training.

    Rules, with the parameters of --set:
      average      the mean, or the weighted mean with --weights, as WiSE-FT
                   makes of two
      ema          the moving average in the order given; decay=0.5 is the
                   share that it keeps at each checkpoint
      ties         TIES: of the changes since --base the largest share
                   keep=0.2 of each, and the mean of those whose signs agree,
                   times scale=1
      model-stock  Model Stock: from --base towards the mean, tensor by
                   tensor, as far as the changes agree

    The result has seen the tasks of all, and can be evaluated, trained further and exported. The
    state of methods is copied from the last. Several values make a sweep: each merge is written to
    --out/NAME-VALUE, and counts as a run NAME=VALUE of its own in rows.

    Examples:
      vlcpctl merge run/1 run/2 run/3 -o merged --rule ties --base start
      vlcpctl merge run/1 run/2 run/3 -o mean
      vlcpctl merge start run/3 -o between --weights 3,1 --weights 1,1
      vlcpctl merge run/1 run/2 -o sweep --rule ema --set decay=0.3,0.5,0.7
    """

    models: Paths = argument(
        "CHECKPOINT", "Checkpoints of the same model, the latest last", kw_only=False
    )
    rule: str = option(
        "How to merge: average, ema, ties, model-stock",
        "RULE",
        METHOD,
        default="average",
        offers="rules",
        usual=True,
    )
    rule_file: MaybePath = option(
        "Python file that defines the --rule, one of your own. Its code is run",
        "FILE.py",
        METHOD,
        otherwise="built-in rules",
    )
    base: MaybePath = option(
        "Checkpoint that all were trained from, whose changes ties and model-stock merge",
        "START",
        INPUT,
        usual=True,
    )
    batch_norm_from: MaybePath = option(
        "Task whose training images, at most 2048, the running means and variances of batch "
        "norms are computed from; models with different ones are refused without it",
        "TASK",
        INPUT,
        stored=True,
    )
    weights: Numbers = several(
        "Weight of each checkpoint in the average, as parts of their sum; repeat for a sweep",
        "W,W[,W...]",
        METHOD,
        otherwise="all alike",
        goes_with=("rule", ("average",)),
        usual=True,
    )
    set: Texts = several(
        "Parameter of the rule, or several values of it for a sweep; repeat for more",
        "NAME=VALUE[,VALUE...]",
        METHOD,
        otherwise="as listed above",
        offers="assignments",
        usual=True,
    )
    run: str | None = option(
        "Name of the run in the rows", "NAME", otherwise="merge-RULE", parse=run_name, usual=True
    )
    threads: int = like(Shared, "threads", default=1)

    def execute(self) -> None:
        from vlcpctl.checkpoints.manifest import CheckpointManifest
        from vlcpctl.data.tasks.facts import read_task

        outputs = self._outputs(self._rule())
        start = CheckpointManifest.read(self.base).content if self.base else None
        for path in self.models:
            if CheckpointManifest.read(path).content == start:
                raise UsageError(f"{path} has not changed since --base {self.base}; leave it out")
        if self.batch_norm_from:
            read_task(self.batch_norm_from)
        if self.dry_run:
            of = f"{', '.join(map(str, self.models))}{f', from {self.base}' if self.base else ''}"
            of += f"; batch norms from {self.batch_norm_from}" if self.batch_norm_from else ""
            for rule, _, place in outputs:
                values = {name: _text(value) for name, value in asdict(rule).items()}
                parts = ", ".join(f"{name}={text}" for name, text in values.items() if text)
                say(f"merge: {rule.name}{f' ({parts})' if parts else ''} of {of}")
                emit(place)
            return
        from vlcpctl.checkpoints.merging import merge

        for place in merge(
            self.models,
            outputs,
            base=self.base,
            batch_norm_from=self.batch_norm_from,
            force=self.force,
        ):
            emit(json.dumps(_result(place), ensure_ascii=False) if self.json else place)

    def _rule(self) -> type[MergeRule]:
        """The rule, built in or of a file.

        Raises UsageError for an unknown one, too few checkpoints, and a --base that is idle or
        lacks.
        """
        name, more = self.rule, "--rule-file FILE.py adds your own"
        if self.rule_file is None and name not in TABLE:
            raise UsageError(f"{unknown_name('rule', name, TABLE)}; {more}")
        rule = TABLE[name] if self.rule_file is None else load_rule(self.rule_file, name)
        if len(self.models) < rule.least:
            raise UsageError(
                f"--rule {name} merges at least {rule.least} checkpoints; give another one"
            )
        based = tuple(one.name for one in (*TABLE.values(), rule) if one.needs_base)
        refuse_idle([GoesWith("base", "rule", based)], {"rule": name, "base": self.base})
        if rule.needs_base and self.base is None:
            raise UsageError(
                f"--rule {name} merges changes since a common start; give it as --base START"
            )
        return rule

    def _outputs(self, rule: type[MergeRule]) -> list[MergeOutput]:
        """The rule with every combination of the values given.

        Of a sweep, the values that are swept name the run and a directory in --out. Raises
        UsageError for an unfit value.
        """
        weights = [parse_weights(one, len(self.models)) for one in self.weights]
        values: dict[str, Sequence[Any]] = {"weights": weights} if weights else {}
        for assignment in self.set:
            name, equals, texts = assignment.partition("=")
            if not equals:
                raise UsageError(f"--set {assignment!r} is not of the form NAME=VALUE")
            if name in values:
                raise UsageError(f"--set {assignment}: {name} is given twice")
            values[name] = [
                parse_hyper(rule, rule.name, name, text, f"--set {name}={text}")
                for text in texts.split(",")
            ]
        for name, found in values.items():
            if len(set(found)) < len(found):
                raise UsageError(f"{name} has a value twice: {'; '.join(map(_text, found))}")
        outputs = []
        for chosen in product(*values.values()):
            made = rule(**dict(zip(values, chosen, strict=True)))
            swept = {n: _text(getattr(made, n)) for n, found in values.items() if len(found) > 1}
            run = " ".join([self.run or made.method, *(f"{n}={text}" for n, text in swept.items())])
            place = self.out / "_".join(f"{n}-{text}" for n, text in swept.items())
            outputs.append(MergeOutput(made, run, place))
        return outputs


def parse_weights(text: str, models: int) -> tuple[float, ...]:
    """The weight of each checkpoint.

    Raises UsageError if one is not a number from 0, all are 0, or there are not `models` of them.

    >>> parse_weights("1,3", 2)
    (1.0, 3.0)
    """
    try:
        weights = tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if not weights or min(weights) < 0 or not sum(weights):
        raise UsageError(f"--weights {text!r} are not numbers from 0, separated by commas")
    if len(weights) != models:
        raise UsageError(
            f"--weights {text!r} are {len(weights)}, and there are {counted(models, 'checkpoint')}"
        )
    return weights


def _text(value: object) -> str:
    """A value as the command line has it."""
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return share_text(value) if isinstance(value, float) else str(value)


def _result(path: Path) -> dict[str, Any]:
    """What --json prints for a merged checkpoint."""
    from vlcpctl.checkpoints.manifest import CheckpointManifest

    made = CheckpointManifest.read(path)
    return {
        "path": str(path),
        "content": made.content,
        "run": made.run,
        "method": made.method,
        "rule": made.identity["rule"],
        "step": made.step,
    }
