"""Zero-shot classification: its prompts, its rows, and the accuracies of checkpoints.

The nearest class is predicted. Shapes: C classes, K candidates, N images, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.data.classification.data_sets import DataSet, TaskData, open_data_sets
from vlcpctl.data.classification.prompts import read_templates
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.data.tasks.samples import Tolerance
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.membership import RunCheckpoint, TaskPlace
from vlcpctl.evaluation.rank_files import Named, plan_ranks
from vlcpctl.evaluation.rows import Row, data_fields, own_rows, place_of, row_fields
from vlcpctl.evaluation.search.galleries import Distinct
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.files.ids import content_id
from vlcpctl.metrics.accuracy import CUTOFFS, accuracies, mean_accuracies, tally
from vlcpctl.metrics.recall import count_touched

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

_MEASURED = ("metrics", "n_images", "n_ties", "n_skipped")


@dataclass(frozen=True)
class ZeroshotData:
    """A data set with the prompts of its classes; `digest` is a hash of both."""

    data: DataSet
    prompts: list[list[str]]
    digest: str

    @cached_property
    def candidates(self) -> Distinct:
        """The K candidates: classes with the same prompts are one."""
        return Distinct.of(tuple(sorted(own)) for own in self.prompts)

    @property
    def united(self) -> int:
        """How many classes share their candidate with an earlier class."""
        return len(self.prompts) - len(self.candidates.names)


@final
@dataclass(kw_only=True)
class Zeroshot(Evaluator):
    """Accuracies on data sets, and their averages.

    `words` are names or paths of data sets; `data` is the directory of those given by name.
    """

    words: tuple[str, ...]
    data: Path | None = None
    templates: Path | None = None
    classes: str = "all"
    split: str = "test"
    tolerance: Tolerance  # of images that cannot be read

    def plan(self) -> list[Session]:
        """See `Evaluator`."""
        places = [place_of(one.data, self.split) for one in self._data_sets]
        sessions = [
            Session(self, path, one.manifest, self._rows(one, places))
            for path, one in self.read_checkpoints().items()
        ]
        # An average has no queries of its own.
        rows = [row for session in sessions for row in session.rows if len(row.tasks) == 1]
        self.ranks = plan_ranks(self.save_ranks, rows, self.out, force=self.force)
        return sessions

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """See `Evaluator`; raises TooManySkipped if too many images cannot be read."""
        # Once for the data set's own row and for the average.
        found = [
            session.once(number, partial(self._classify, session, number)) for number in row.tasks
        ]
        if len(found) == 1:
            return found[0]
        counts = {name: sum(one[name] for one in found) for name in _MEASURED[1:]}
        return {"metrics": mean_accuracies([one["metrics"] for one in found]), **counts}

    def embedded(self) -> dict[str, Any]:
        """See `Evaluator`."""
        return {
            "checkpoints": [CheckpointManifest.read(path).content for path in self.checkpoints],
            "data": [one.data.content(self.split) for one in self._data_sets],
            "prompts": [one.digest for one in self._data_sets],
            "split": self.split,
            "limit": self.limit,
        }

    def embed(self, session: Session) -> None:
        """See `Evaluator`; an average has no images of its own."""
        for given, opened in zip(self._data_sets, self._sets, strict=True):
            self._class_vectors(session, given)
            opened.embedded(session, self.tolerance)

    @cached_property
    def _data_sets(self) -> list[ZeroshotData]:
        """The data sets with their prompts."""
        templates = read_templates(self.templates) if self.templates else None
        found = []
        for data in open_data_sets(self.words, self.data, self.classes):
            data.check(self.split)
            prompts = data.prompts(templates)
            digest = content_id([list(data.classes), prompts])
            found.append(ZeroshotData(data, prompts, digest))
            if len(found[-1].candidates.names) == 1 < len(prompts):
                raise BadInput(
                    f"{data.name}: all {len(prompts)} classes have the same prompts, so there is "
                    "nothing to choose from; write prompts that differ"
                )
        return found

    @cached_property
    def _sets(self) -> list[LabelledSet]:
        """The split of each data set, read once for all checkpoints."""
        from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

        return [LabelledSet(one.data, self.split, self.limit) for one in self._data_sets]

    def _rows(self, checkpoint: RunCheckpoint, places: Sequence[TaskPlace]) -> list[Row]:
        """A row for each data set, and one with the mean over those outside streams."""
        common = {"evaluator": "zeroshot", "split": self.split, "limit": self.limit}

        def protocol(which: str, prompts: str, united: int) -> dict[str, Any]:
            options = {"classes": which, "prompts": prompts, **self.arithmetic_options()}
            if united:  # a hit in any of the united classes is a hit
                options["united"] = united
            return {"protocol": f"{which}-classes", "options": options, "prompts": prompts}

        each = []
        for one in self._data_sets:
            which = self.classes if isinstance(one.data, TaskData) else "all"
            about = protocol(which, one.digest, one.united)
            each.append({"n_classes": len(one.prompts), **about})
        found = own_rows(checkpoint, places, common, _MEASURED, each)
        # A model without a run yet, evaluated alone, may start any stream: tasks do not count.
        has_run = bool(checkpoint.chain.tasks) or checkpoint.chain.step is not None
        outside = [
            number
            for number, (place, row) in enumerate(zip(places, found, strict=True))
            if row.fields["task_step"] is None and (has_run or place.stream is None)
        ]
        if len(outside) < 2:
            return found
        # The mean over the stream is in forgetting-report.
        members = [self._data_sets[number] for number in outside]
        digest = content_id([one.digest for one in members])
        average = {
            **common,
            "gallery": "own",
            "task_step": None,
            "stream": None,
            "task": f"average of {len(members)}",
            "tasks": [one.data.name for one in members],
            **data_fields([places[number] for number in outside]),
            **protocol("all", digest, sum(one.united for one in members)),
        }
        return [*found, Row(tuple(outside), row_fields(checkpoint, average), _MEASURED)]

    def _classify(self, session: Session, number: int) -> dict[str, Any]:
        """The accuracies on one data set; the ranks are saved, if there is a file for them."""
        from vlcpctl.evaluation.search.count import exact_ranks, ranks
        from vlcpctl.evaluation.search.galleries import Search

        given, opened = self._data_sets[number], self._sets[number]
        class_KD = self._class_vectors(session, given)
        images = opened.embedded(session, self.tolerance)
        candidate_N = given.candidates.of_N[images.label_N]
        right = np.stack([np.arange(len(candidate_N)), candidate_N], axis=1)
        search, device = Search.of(images.feature_ND, class_KD, right), session.evaluator.device
        if self.ranks is None:
            worst, best = ranks(search, device, max(CUTOFFS))
        else:
            worst, best, *wrong = exact_ranks(search, device)
            # Of the first class of each candidate.
            names = pa.array(distinct_labels(given.data.classes), pa.string())
            answers = Named(names.take(pa.array(given.candidates.first_D)))
            sides = Named(pa.array(images.keys, pa.string())), answers
            exact = 1 + worst[0], *(one[0] for one in wrong)
            own = next(row for row in session.rows if row.tasks == (number,))
            self.ranks.add(own, "i2c", sides, exact, names.take(pa.array(images.label_N)))
        worst_N, best_N = 1 + worst[0].astype(np.int64), 1 + best[0].astype(np.int64)
        found = tally(worst_N, images.label_N, len(given.prompts))
        return {
            "metrics": accuracies(found, len(class_KD)),
            "n_images": len(images.label_N),
            "n_ties": count_touched(worst_N, best_N),
            "n_skipped": images.skipped,
        }

    def _class_vectors(self, session: Session, given: ZeroshotData) -> Vectors:
        """(K, D) the candidates, by the model or from the cache; tasks often share their prompts.

        For a shard, its share of the prompts is stored, and none are returned.
        """
        from vlcpctl.evaluation.classification.labelled_sets import class_embeddings
        from vlcpctl.evaluation.embedding import embedded, key_in_cache, texts_of

        prompts = [given.prompts[place] for place in given.candidates.first_D.tolist()]
        cache = self.cache
        about = {"what": "prompts", "prompts": content_id(prompts)}

        def embed_them() -> Vectors:
            key = key_in_cache(session, {**about, "what": "classes"})
            found = None if cache is None or self.embeds_share else cache.get(key)
            if found is not None:
                return found[0]
            every = [text for own in prompts for text in own]
            what = f"{session.checkpoint} on {given.data.name}"
            things = texts_of(session, every, about, what, "prompts")
            text_PD = embedded(session, things).vectors
            if self.embeds_share:
                return text_PD[:]
            class_KD = class_embeddings(prompts, text_PD)
            if cache is not None:
                cache.put(key, class_KD, (), {})
            return class_KD

        return session.once(given.digest, embed_them)
