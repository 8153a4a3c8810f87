"""Multi-modal retrieval: fused image-text pairs retrieve others of their class.

Each task is fused once for all its galleries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from vlcpctl.evaluation.embedding import fuse
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.rows import Row
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.count import hits
from vlcpctl.evaluation.search.galleries import ClassSearch, gather_classes
from vlcpctl.metrics.average_precision import (
    DEFAULT_VARIANT,
    RankedHits,
    count_touched,
    mean_average_precisions,
)
from vlcpctl.metrics.recall import CUTOFFS

TOP = max(CUTOFFS)
Found = tuple[ClassSearch, np.ndarray]  # hits (2, M, Q, TOP), see `hits`


@final
@dataclass(frozen=True)
class MultiModal:
    """Mean average precision in galleries of the tasks whose samples are given, each fused once.

    The first of `splits` is that of the queries, the last that of the gallery; they may be one.
    """

    splits: Sequence[Sequence[Samples]]
    duplicates: str
    variant: str

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """The measured fields of a row."""
        found = self.find(session, row)
        assert found is not None, "only a shard stores what it finds"
        return measured(*found, len(row.tasks), self.variant)

    def find(self, session: Session, row: Row) -> Found | None:
        """What a row is measured from; None for a shard, which stores its share of it.

        The hits in the galleries of the first tasks are from one search for all such galleries.
        """
        is_own = row.fields["gallery"] == "own"
        most = row if is_own else session.largest

        def search() -> Found | None:
            parts = [
                [(split[task].classified, fuse(session, split[task])) for task in most.tasks]
                for split in self.splits
            ]
            # One object for both sides: a query is not its own answer.
            both = gather_classes(parts[0], parts[-1], self.duplicates)
            count, shape = len(both.class_Q), (2, len(both.ends_M), -1, TOP)

            def find(some: range) -> tuple[np.ndarray]:
                found = hits(both, session.evaluator.device, TOP, some)
                return (found.reshape(-1, *found.shape[2:]),)

            with session.timed("search", gallery=row.fields["gallery"], tasks=row.fields["tasks"]):
                found = session.shared(most.search("hits"), count, find)
            return None if found is None else (both, found[0].reshape(shape))

        return search() if is_own else session.once("merged", search)

    def embed(self, session: Session, tasks: Iterable[int]) -> None:
        """Fuse the samples of tasks, by their numbers."""
        for number in tasks:
            for split in self.splits:
                fuse(session, split[number])


def measured(
    search: ClassSearch, found: np.ndarray, parts: int = 1, variant: str = DEFAULT_VARIANT
) -> dict[str, Any]:
    """Mean average precisions in percent in the gallery of the first parts.

    `n_ties` queries would score differently if they won their ties; `n_alone` have no right answer
    in the gallery and score 0.
    """
    right_Q, itself_Q = search.right_counts(parts)
    worst, best = (
        RankedHits(one[parts - 1, : len(right_Q)], right_Q, itself_Q >= 0) for one in found
    )
    return {
        "metrics": mean_average_precisions(worst, variant),
        "n_queries": len(right_Q),
        "n_gallery": int(search.ends_M[parts - 1]),
        "n_ties": count_touched(worst, best, variant),
        "n_alone": int(np.count_nonzero(right_Q == 0)),
    }
