"""Retrieval in the galleries of tasks: its options, its rows, and which protocol measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.data.tasks.task import Task
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.rank_files import plan_ranks
from vlcpctl.evaluation.rows import Row, gallery_rows, place_of
from vlcpctl.evaluation.samples import Samples, require_split, write_part
from vlcpctl.evaluation.search.galleries import COUNTS, UNITE
from vlcpctl.files.digests import digests_of
from vlcpctl.files.finished import already_made
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import is_artifact, write_manifest
from vlcpctl.files.outputs import new_directory
from vlcpctl.metrics.average_precision import DEFAULT_VARIANT
from vlcpctl.models.configuration import (
    checkpoint_transform,
    fusion_configuration,
    shared_width,
)

if TYPE_CHECKING:  # they import torch
    from vlcpctl.evaluation.retrieval.protocols import CrossModal, MultiModal

CROSS_MODAL, MULTI_MODAL = "cross-modal", "multi-modal"
_TWO_SPLITS = ("query", "gallery")
_USUAL_SPLIT = "test"
BY_QUERY = "query"
_MEASURED = {
    CROSS_MODAL: ("metrics", "n_images", "n_texts", "n_ties"),
    MULTI_MODAL: ("metrics", "n_queries", "n_gallery", "n_ties", "n_alone"),
}


@final
@dataclass(kw_only=True)
class Retrieval(Evaluator):
    """Recall or average precision; None for `split` and `map_variant` means the default.

    The images and captions of the tasks `distractors` are wrong answers in every gallery.
    `gallery_checkpoint` embeds the galleries in place of each checkpoint, which embeds the queries
    and, with `distractors_by` "query", the distractors.
    """

    tasks: tuple[Task, ...]
    distractors: tuple[Task, ...] | None = None
    distractors_by: str | None = None
    gallery_checkpoint: Path | None = None
    gallery: str = "own"
    protocol: str = CROSS_MODAL
    map_variant: str | None = None
    split: str | None = None
    duplicates: str = UNITE
    sample: int | None = None  # of each split, the samples with so many lowest keys; None: all
    save_embeddings: Path | None = None

    def plan(self) -> list[Session]:
        """See `Evaluator`; raises Incompatible for a model that the protocol cannot evaluate."""
        self._check_options()
        for task in (*self.tasks, *(self.distractors or ())):
            for split in self.splits:
                require_split(task, split)
        checkpoints = self.read_checkpoints()
        self._check_models()
        places = self._places()
        sessions = [
            Session(self, path, one.manifest, self._rows(one, places))
            for path, one in checkpoints.items()
        ]
        rows = [row for session in sessions for row in session.rows]
        if not rows:
            raise UsageError(
                "there is nothing to evaluate: no checkpoint was trained on tasks that make a "
                "complete merged gallery; --gallery own does not need the other tasks"
            )
        for session in sessions if self.save_embeddings else ():
            assert self.save_embeddings is not None
            several, out = len(self.checkpoints) > 1, self.save_embeddings
            out = out / session.checkpoint.name if several else out
            if not already_made(out, "embeddings", self._identity(session), force=self.force):
                session.embeddings = out
        self.ranks = plan_ranks(self.save_ranks, rows, self.out, force=self.force)
        return sessions

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """See `Evaluator`."""
        return self._galleries.measure(session, row)

    @cached_property
    def _galleries(self) -> CrossModal | MultiModal:
        """What embeds and searches, by the protocol; galleries are kept for all checkpoints."""
        from vlcpctl.evaluation.retrieval.protocols import CrossModal, MultiModal

        if self.protocol == MULTI_MODAL:
            return MultiModal(self._sources, self.duplicates, self.map_variant or DEFAULT_VARIANT)
        # The order of distractors is that of their content, not as given.
        found = {one.content: one for one in self.distractors or ()}
        (split,) = self.splits
        more = [Samples(found[content], split, self.limit) for content in sorted(found)]
        are_new = self.distractors_by == BY_QUERY
        return CrossModal(self._sources[0], self.duplicates, self._index, more, are_new)

    def embedded(self) -> dict[str, Any]:
        """See `Evaluator`; which galleries are made of the embeddings does not matter."""
        return {
            **self._data(),
            "checkpoints": [CheckpointManifest.read(path).content for path in self.checkpoints],
            "gallery_checkpoint": self._index and self._index.manifest.content,
            "distractors": [task.content for task in self.distractors or ()],
            "distractors_by": self.distractors_by,
            "protocol": self.protocol,
        }

    def embed(self, session: Session) -> None:
        """See `Evaluator`; saved embeddings are of all tasks, also those without a row."""
        numbers = sorted({number for row in session.rows for number in row.tasks})
        if self.save_embeddings is not None:
            numbers = list(range(len(self.tasks)))
        self._galleries.embed(session, numbers)

    def search(self, session: Session) -> None:
        """See `Evaluator`."""
        for row in session.rows:
            self._galleries.find(session, row)
        session.drop()

    def finish(self, session: Session) -> None:
        """Save the embeddings of every task, if --save-embeddings is given."""
        from vlcpctl.evaluation.embedding import embed

        if self._index is not None:
            self._index.drop_model()  # all that it is for has been embedded
        if session.embeddings is None:
            return
        identity = self._identity(session)
        (sources,) = self._sources
        with new_directory(session.embeddings, is_artifact) as directory:
            for number, source in enumerate(sources):
                write_part(directory, number, len(sources), embed(session, source), source)
            body = {
                "tasks": [task.slug for task in self.tasks],
                "inputs": [identity["checkpoint"], *identity["tasks"]],
                "digests": digests_of(directory),
            }
            write_manifest(directory, "embeddings", identity, content_id(identity), body)

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The split to evaluate on, or the splits of queries and gallery.

        Without an option, multi-modal retrieval takes the latter if every task has them.
        """
        has_two = all(set(_TWO_SPLITS) <= set(task.counts) for task in self.tasks)
        if self.split is None and self.protocol == MULTI_MODAL and has_two:
            return _TWO_SPLITS
        return (self.split or _USUAL_SPLIT,)

    @cached_property
    def _sources(self) -> list[list[Samples]]:
        """By split to evaluate on, that of each task; they are read once for all checkpoints."""
        return [
            [Samples(task, split, self.limit, self.sample) for task in self.tasks]
            for split in self.splits
        ]

    @cached_property
    def _index(self) -> Session | None:
        """The session of the checkpoint of the galleries, if it was given."""
        path = self.gallery_checkpoint
        return None if path is None else Session(self, path, CheckpointManifest.read(path))

    def _check_options(self) -> None:
        if self.distractors_by is not None and not self.distractors:
            raise UsageError("--distractors-by has no effect without --distractors")
        names = [path.name for path in self.checkpoints]
        again = [name for name in names if names.count(name) > 1]
        if self.save_embeddings and again:
            raise UsageError(
                "--save-embeddings makes one directory per checkpoint name, but two are named "
                f"{again[0]}; evaluate them in separate commands"
            )

    def _check_models(self) -> None:
        """Raise Incompatible or BadInput for models or tasks that the protocol cannot evaluate."""
        for path in self.checkpoints:
            if self.gallery_checkpoint is not None:
                require_one_space(path, self.gallery_checkpoint)
            if self.protocol == MULTI_MODAL and fusion_configuration(str(path)) is None:
                raise Incompatible(
                    f"--protocol multi-modal needs a fusion model, such as albef-tiny: {path} is a "
                    "dual encoder; use --protocol cross-modal"
                )
        for task in self.tasks if self.protocol == MULTI_MODAL else ():
            if not task.manifest.labels:  # they decide which items are relevant
                raise BadInput(
                    f"{task.path} has no class labels, which multi-modal retrieval needs; "
                    "use 'vlcpctl split --label-column'"
                )

    def _places(self) -> list[TaskPlace]:
        """The places of the tasks; distractors without their deleted pairs are evaluated, too."""
        places = [place_of(task, *self.splits) for task in self.tasks]
        added = {one.id: one.changed(*self.splits) for one in self.distractors or ()}
        if not any(added.values()):
            return places
        more = sorted(content or own for own, content in added.items())
        return [
            replace(one, evaluated=content_id([one.evaluated or one.id, *more])) for one in places
        ]

    def _rows(self, checkpoint: RunCheckpoint, places: Sequence[TaskPlace]) -> list[Row]:
        # The options that decide the numbers; batch size and device do not.
        options: dict[str, Any] = {"duplicates": self.duplicates, **self.arithmetic_options()}
        if self.protocol == MULTI_MODAL:
            options["map_variant"] = self.map_variant or DEFAULT_VARIANT
        measured = _MEASURED[self.protocol]
        if self.distractors:
            options["distractors"] = sorted({one.id for one in self.distractors})
            measured += COUNTS
        if self.sample is not None:
            options["sample"] = self.sample
        if self.distractors_by == BY_QUERY:
            options["distractors_by"] = BY_QUERY
        common: dict[str, Any] = {"protocol": self.protocol, "split": "+".join(self.splits)}
        common |= {"limit": self.limit, "options": options}
        # Also as fields of their own, but only when not the default.
        if self.duplicates != UNITE:
            common["duplicates"] = self.duplicates
        if self.map_variant not in {None, DEFAULT_VARIANT}:
            common["map_variant"] = self.map_variant
        if self._index is not None:
            common["gallery_checkpoint"] = self._index.manifest.content
        return gallery_rows(checkpoint, places, self.gallery, common, measured)

    def _identity(self, session: Session) -> dict[str, Any]:
        """The identity of the saved embeddings of a checkpoint."""
        about = {"checkpoint": session.manifest.content, **self._data()}
        return {**about, **self.arithmetic_options()}

    def _data(self) -> dict[str, Any]:
        return {
            "tasks": [task.content for task in self.tasks],
            "split": "+".join(self.splits),
            "limit": self.limit,
            **({} if self.sample is None else {"sample": self.sample}),
        }


def require_one_space(checkpoint: Path, index: Path) -> None:
    """Raise Incompatible for models whose embeddings cannot be those of one index."""
    is_dual = all(fusion_configuration(str(path)) is None for path in (checkpoint, index))
    (width, image), (index_width, index_image) = (
        (shared_width(str(path)), checkpoint_transform(path)) for path in (checkpoint, index)
    )
    if not is_dual or width != index_width or image != index_image:
        raise Incompatible(
            f"--gallery-checkpoint: {checkpoint} and {index} cannot share an index: both must be "
            f"dual encoders with embeddings of one size (they have {width} and {index_width} "
            "numbers), of images that are prepared alike; give an earlier checkpoint of the model"
        )
