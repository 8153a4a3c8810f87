"""Merge the weights of checkpoints of the same model into a new checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.batch_norms import recompute
from vlcpctl.checkpoints.checkpoint import (
    ParentCheckpoint,
    all_tensors,
    open_parent,
    write_checkpoint,
)
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.merge_rules import MergeOutput, MergeRule
from vlcpctl.checkpoints.model_facts import facts_of_encoder, model_facts
from vlcpctl.checkpoints.step_config import BATCH_NORM_FROM, config_id
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import Incompatible
from vlcpctl.data.tasks.task import Task, ids_by_content, open_task
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import leaves
from vlcpctl.files.outputs import Output
from vlcpctl.files.tensors import require_same_names
from vlcpctl.models.checkpoint_files import TOKENIZER_FILES
from vlcpctl.models.encoders import Encoder


@dataclass(frozen=True)
class MergeInputs:
    """The opened checkpoints of a request, and the task of its --batch-norm-from."""

    models: tuple[ParentCheckpoint, ...]
    base: ParentCheckpoint | None = None
    pairs: Task | None = None

    @property
    def all(self) -> tuple[ParentCheckpoint, ...]:
        """The base, if there is one, and the models."""
        return (*([self.base] if self.base else []), *self.models)


def merge(
    models: Sequence[Path],
    outputs: Sequence[MergeOutput],
    *,
    base: Path | None,
    batch_norm_from: Path | None,
    force: bool,
) -> Iterator[Path]:
    """Write the merged checkpoints that do not exist yet; yield the path of each once it is there.

    `base` is what all were trained from. From the task `batch_norm_from` the statistics of batch
    norms are taken anew. Raises Incompatible if the checkpoints are of different models, or have
    statistics of batch norms that differ, OutputExists if something else is at an output path, and
    UsageError as `recompute` does.
    """
    inputs = MergeInputs(
        tuple(map(open_parent, models)),
        open_parent(base) if base else None,
        open_task(batch_norm_from) if batch_norm_from else None,
    )
    with ExitStack() as locks:  # of all outputs, before any is examined
        for one in outputs:
            locks.enter_context(Output(one.path).locked())
        yield from _merge(inputs, outputs, force=force)


def _merge(inputs: MergeInputs, outputs: Sequence[MergeOutput], *, force: bool) -> Iterator[Path]:
    missing = [
        one
        for one in outputs
        if not already_made(
            one.path, "checkpoint", identity(inputs, one.rule, one.run), force=force
        )
    ]
    merged = _Merged(inputs) if missing else None
    last = inputs.models[-1]
    known = model_facts(last.path, last.manifest)  # what the model is called
    for one in outputs:
        if merged is not None and one in missing:
            encoder = merged.by(one.rule)
            facts = facts_of_encoder(
                encoder, known["name"], known["pretrained"], known.get("files")
            )
            manifest = replace(manifest_of(inputs, one.rule, one.run), model=facts)
            write_checkpoint(one.path, encoder, manifest, parent=last)
        yield one.path


def identity(inputs: MergeInputs, rule: MergeRule, run: str) -> dict[str, Any]:
    """The facts that decide a merged checkpoint, with contents in place of paths."""
    more = {"base": inputs.base.manifest.content} if inputs.base else {}
    more |= {BATCH_NORM_FROM: inputs.pairs.content} if inputs.pairs else {}
    return {
        "method": rule.method,
        "run": run,
        "checkpoints": [one.manifest.content for one in inputs.models],
        **more,
        **rule.facts(),
    }


class _Merged:
    """A model that is set to merges of the checkpoints' weights."""

    def __init__(self, inputs: MergeInputs) -> None:
        self.inputs = inputs
        self.tensors: list[Weights] = []  # parameters and buffers of each, of the base first
        first = inputs.all[0]
        facts: _Facts = {}
        for one in inputs.all:
            self.encoder = one.encoder()  # the last one is kept
            facts = facts or _facts(one, self.encoder)
            _refuse_other_model(first, facts, one, _facts(one, self.encoder))
            self.tensors.append(all_tensors(self.encoder))
            what = f"{one.path} is a different model than {first.path}: it"
            require_same_names(self.tensors[-1], self.tensors[0], what)

    def by(self, rule: MergeRule) -> Encoder:
        """The model with merged weights; integer counters are those of the last checkpoint.

        It is the same object every time, with other weights.
        """
        last, buffers = self.tensors[-1], self.encoder.buffers()
        names = [name for name, tensor in last.items() if tensor.is_floating_point()]
        if not self.inputs.pairs:
            self._refuse_other_statistics(rule, [name for name in names if name in buffers])
        names = [name for name in names if name not in buffers]
        models = [{name: tensors[name] for name in names} for tensors in self.tensors]
        base = models.pop(0) if self.inputs.base else {}
        weights = last | rule.merged(models, base)
        for name, tensor in {**self.encoder.weights(), **buffers}.items():
            tensor.data.copy_(weights[name])
        if self.inputs.pairs:
            recompute(self.encoder, self.inputs.pairs)
        return self.encoder

    def _refuse_other_statistics(self, rule: MergeRule, names: Sequence[str]) -> None:
        """Refuse statistics of batch norms: those of the merged weights are not known."""
        for one, tensors in zip(self.inputs.all, self.tensors, strict=True):
            other = next((n for n in names if not tensors[n].equal(self.tensors[0][n])), None)
            if other is not None:
                raise Incompatible(
                    f"{one.path} and {self.inputs.all[0].path} have different statistics of "
                    f"batch norms ({other}), which --rule {rule.name} cannot merge; "
                    "--batch-norm-from TASK computes those of the merged weights from its pairs"
                )


_Facts = dict[str, dict[str, Any]]


def _facts(checkpoint: ParentCheckpoint, encoder: Encoder) -> _Facts:
    """What must be equal in all checkpoints.

    Equal shapes are not enough: a different activation or image transform has the same shapes.
    """
    files = checkpoint.manifest.files
    return {
        "family": {"family": encoder.family},
        "config": dict(encoder.config),
        "transform": asdict(encoder.transform),
        "tokenizer": {name: files.get(name) for name in TOKENIZER_FILES},
        "temperature": {"learned": encoder.weights()["logit_scale"].requires_grad},
    }


def _refuse_other_model(
    first: ParentCheckpoint,
    facts: _Facts,
    other: ParentCheckpoint,
    found: _Facts,
) -> None:
    """Refuse checkpoints of different models."""
    for what in ("family", "config", "transform", "tokenizer"):
        if found[what] != facts[what]:
            raise Incompatible(
                f"{other.path} is a different model than {first.path}: its {what} differs "
                f"({_difference(found[what], facts[what])}); "
                "only checkpoints of the same model can be merged"
            )
    if found["temperature"] != facts["temperature"]:
        words = ["learned" if one["temperature"]["learned"] else "fixed" for one in (facts, found)]
        raise Incompatible(
            f"{first.path} has a {words[0]} temperature and {other.path} a {words[1]} one; "
            "only checkpoints with the same kind of --temperature can be merged"
        )


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The first of the values that differ, by dotted name."""
    here, there = dict(leaves(one)), dict(leaves(other))
    name = min(n for n in here.keys() | there.keys() if here.get(n) != there.get(n))
    return f"{name} is {here.get(name)!r}, not {there.get(name)!r}"


def manifest_of(inputs: MergeInputs, rule: MergeRule, run: str) -> CheckpointManifest:
    """The manifest of a merged checkpoint: the tasks of all, else as that of the last."""
    models = [one.manifest for one in inputs.models]
    everything = [one.manifest for one in inputs.all]
    last = models[-1]
    learned: dict[str, tuple[str, int | None]] = {}  # by the id of each task
    taken: set[int] = set()
    for made in everything:
        for task, name, given in zip(made.tasks, made.task_names, made.task_steps, strict=True):
            # Trained side by side, each in a stream of its own: two tasks may not have one step.
            step = max(taken) + 1 if task not in learned and given in taken else given
            taken |= {step} if step is not None else set()
            learned[task] = name, step
    return CheckpointManifest(
        identity=identity(inputs, rule, run),
        run=run,
        method=rule.method,
        seed=last.seed,
        buffer=last.buffer,
        stream=next((made.stream for made in reversed(models) if made.stream), None),
        stream_step=last.stream_step,
        step=max([*taken, *(one.step for one in models if one.step is not None)], default=None),
        task_steps=[step for _, step in learned.values()],
        tasks=list(learned),
        task_names=[name for name, _ in learned.values()],
        ids=ids_by_content([inputs.pairs] if inputs.pairs else []),
        parents=[made.content for made in models],
        configs=[config_id(made) for made in models],
        **_start(everything),
    )


def _start(merged: Sequence[CheckpointManifest]) -> dict[str, Any]:
    """The facts about the checkpoint that the run of a merged one started from."""
    for made in reversed(merged):
        if made.start is not None:
            return {"start": made.start, "start_config": made.start_config}
    imported = (made.content for made in merged[:-1] if made.origin is not None)
    return {"start": next(imported, None)}
