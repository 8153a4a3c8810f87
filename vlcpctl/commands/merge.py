"""`vlcpctl merge`: merge the weights of checkpoints by a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.checkpoints.merge_rules import TABLE, MergeRule
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
from vlcpctl.training.methods import parse_hyper


class Merge(Planned, Stored):
    """Merge the weights of checkpoints of the same model by a rule, without training.

    Rules, with the parameters of --set:
      average      the mean, or the weighted mean with --weights
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

        kind = rule_named(self.rule, self.rule_file)
        require_inputs(kind, self.models, self.base)
        settings = settings_of(
            kind,
            [parse_weights(one, len(self.models)) for one in self.weights],
            self.set,
        )
        start = CheckpointManifest.read(self.base).content if self.base else None
        for path in self.models:
            if CheckpointManifest.read(path).content == start:
                raise UsageError(f"{path} has not changed since --base {self.base}; leave it out")
        if self.batch_norm_from:
            read_task(self.batch_norm_from)
        if self.dry_run:
            of = f"{', '.join(map(str, self.models))}{f', from {self.base}' if self.base else ''}"
            of += f"; batch norms from {self.batch_norm_from}" if self.batch_norm_from else ""
            for one in settings:
                say(f"merge: {self.rule}{one.in_words} of {of}")
                emit(one.place(self.out))
            return
        from vlcpctl.checkpoints import merging

        outputs = tuple(
            merging.MergeOutput(
                one.rule, one.label(self.run or one.rule.method), one.place(self.out)
            )
            for one in settings
        )
        request = merging.MergeRequest(
            models=tuple(self.models),
            base=self.base,
            batch_norm_from=self.batch_norm_from,
            outputs=outputs,
            force=self.force,
        )
        for place in merging.merge(request):
            emit(json.dumps(merging.result(place), ensure_ascii=False) if self.json else place)


class Setting(NamedTuple):
    """A rule with its parameters, and those that are swept, as texts."""

    rule: MergeRule
    swept: dict[str, str]

    @property
    def in_words(self) -> str:
        """Its parameters in brackets; nothing if it has none."""
        values = {name: _text(value) for name, value in asdict(self.rule).items()}
        parts = ", ".join(f"{name}={text}" for name, text in values.items() if text)
        return parts and f" ({parts})"

    def label(self, run: str) -> str:
        """The name of its run: of a sweep, with the values that are swept."""
        return " ".join([run, *(f"{name}={text}" for name, text in self.swept.items())])

    def place(self, out: Path) -> Path:
        """Its output: `out` itself, or a directory in it that is named by what is swept."""
        return out / "_".join(f"{name}-{text}" for name, text in self.swept.items())


def rule_named(name: str, file: Path | None) -> type[MergeRule]:
    """The rule of a name, built in or of a file. Raises UsageError for an unknown one."""
    if file is not None:
        return load_rule(file, name)
    if name not in TABLE:
        raise UsageError(f"{unknown_name('rule', name, TABLE)}; --rule-file FILE.py adds your own")
    return TABLE[name]


def require_inputs(
    rule: type[MergeRule],
    models: Sequence[Path],
    base: Path | None,
) -> None:
    """Raise UsageError for too few checkpoints, and a --base that is idle or lacks."""
    if len(models) < rule.least:
        raise UsageError(
            f"--rule {rule.name} merges at least {rule.least} checkpoints; give another one"
        )
    based = tuple(one.name for one in (*TABLE.values(), rule) if one.needs_base)
    refuse_idle([GoesWith("base", "rule", based)], {"rule": rule.name, "base": base})
    if rule.needs_base and base is None:
        raise UsageError(
            f"--rule {rule.name} merges changes since a common start; give it as --base START"
        )


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


def settings_of(
    rule: type[MergeRule], weights: Sequence[tuple[float, ...]], assignments: Sequence[str]
) -> list[Setting]:
    """The rule with every combination of the values given; raises UsageError for an unfit one."""
    values: dict[str, Sequence[Any]] = {"weights": weights} if weights else {}
    for assignment in assignments:
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
    return [
        Setting(
            rule(**dict(zip(values, chosen, strict=True))),
            {n: _text(one) for n, one in zip(values, chosen, strict=True) if len(values[n]) > 1},
        )
        for chosen in product(*values.values())
    ]


def _text(value: object) -> str:
    """A value as the command line has it."""
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return share_text(value) if isinstance(value, float) else str(value)
