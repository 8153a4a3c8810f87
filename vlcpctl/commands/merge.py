"""`vlcpctl merge`: merge the weights of checkpoints by a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from vlcpctl.checkpoints.merge_rules import TABLE, MergeRule
from vlcpctl.checkpoints.rule_file import load_rule
from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.core.words import counted, parse_number
from vlcpctl.files.rows import share_text
from vlcpctl.training.config.composition import parse_hyper

Models = Annotated[
    list[Path],
    typer.Argument(metavar="CHECKPOINT", help="Checkpoints of the same model, the latest last."),
]
Rule = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="RULE",
        help=f"How to merge: {', '.join(TABLE)}.",
        rich_help_panel=options.METHOD,
    ),
]
RuleFile = Annotated[
    Path | None,
    typer.Option(
        "--rule-file",
        metavar="FILE.py",
        help="Python file that defines the --rule, one of your own. Its code is run (default: "
        "built-in rules).",
        rich_help_panel=options.METHOD,
    ),
]
Base = Annotated[
    Path | None,
    typer.Option(
        "--base",
        metavar="START",
        help="Checkpoint that all were trained from, whose changes ties and model-stock merge "
        "(default: none).",
        rich_help_panel=options.INPUT,
    ),
]
BatchNormFrom = Annotated[
    Path | None,
    typer.Option(
        "--batch-norm-from",
        metavar="TASK",
        help="Task whose training images, at most 2048, the running means and variances of batch "
        "norms are computed from; models with different ones are refused without it (default: "
        "none).",
        rich_help_panel=options.INPUT,
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        metavar="W,W[,W...]",
        help="Weight of each checkpoint in the average, as parts of their sum; repeat for a sweep "
        "(default: all alike).",
        rich_help_panel=options.METHOD,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE[,VALUE...]",
        help="Parameter of the rule, or several values of it for a sweep; repeat for more "
        "(default: as listed above).",
        rich_help_panel=options.METHOD,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run",
        parser=options.run_name,
        metavar="NAME",
        help="Name of the run in the rows (default: merge-RULE).",
        rich_help_panel=options.OUTPUT,
    ),
]


def run(
    models: Models,
    out: options.Out,
    rule: Rule = "average",
    rule_file: RuleFile = None,
    base: Base = None,
    batch_norm_from: BatchNormFrom = None,
    weights: Weights = None,
    set_: Set = None,
    run_name: RunName = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
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
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.checkpoints.manifest import CheckpointManifest
    from vlcpctl.data.tasks.facts import read_task

    kind = rule_named(rule, rule_file)
    require_inputs(kind, models, base, weights)
    settings = settings_of(
        kind, [parse_weights(one, len(models)) for one in weights or ()], set_ or ()
    )
    start = CheckpointManifest.read(base).content if base else None
    for path in models:
        if CheckpointManifest.read(path).content == start:
            raise UsageError(f"{path} has not changed since --base {base}; leave it out")
    if batch_norm_from:
        read_task(batch_norm_from)
    if dry_run:
        of = f"{', '.join(map(str, models))}{f', from {base}' if base else ''}"
        of += f"; batch norms from {batch_norm_from}" if batch_norm_from else ""
        for one in settings:
            say(f"merge: {rule}{one.in_words} of {of}")
            emit(one.place(out))
        return
    from vlcpctl.checkpoints import merging

    outputs = tuple(
        merging.MergeOutput(one.rule, one.label(run_name or one.rule.method), one.place(out))
        for one in settings
    )
    request = merging.MergeRequest(
        models=tuple(models),
        base=base,
        batch_norm_from=batch_norm_from,
        outputs=outputs,
        force=force,
    )
    for place in merging.merge(request):
        emit(json.dumps(merging.result(place), ensure_ascii=False) if as_json else place)


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
    weights: Sequence[str] | None,
) -> None:
    """Raise UsageError for too few checkpoints, and a --base or --weights that is idle or lacks."""
    if len(models) < rule.least:
        raise UsageError(
            f"--rule {rule.name} merges at least {rule.least} checkpoints; give another one"
        )
    based = tuple(one.name for one in (*TABLE.values(), rule) if one.needs_base)
    rows = (GoesWith("base", "rule", based), GoesWith("weights", "rule", ("average",)))
    refuse_idle(rows, {"rule": rule.name, "base": base, "weights": weights or None})
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
    for name, several in values.items():
        if len(set(several)) < len(several):
            raise UsageError(f"{name} has a value twice: {'; '.join(map(_text, several))}")
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
