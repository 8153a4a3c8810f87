"""What a report is made of: the options of forgetting-report, and the files that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Task
    from vlcpctl.evaluation.rank_files import SavedRanks
    from vlcpctl.report.cards.runs import Cards

EXAMPLES = 12
GALLERIES = {"own": ("own",), "merged": ("merged",), "both": ("own", "merged")}


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """The options of a report, as `forgetting-report` takes them."""

    metric: str | None = None
    gallery: str = "both"
    runs: Sequence[str] = ()
    fail_if: Sequence[str] = ()
    allow_missing: bool = False
    without: Sequence[str] = ()  # globs of tasks that do not count in summary metrics
    allow_mixed: Sequence[str] = ()
    baseline: str | None = None
    guards: Sequence[str] = ()
    undefined: str = "error"
    false_alarms: float | None = None  # by chance, of the losses of a report; None: PER_REPORT
    unresolved: str = "accept"
    tables: Sequence[str] = ()
    paper_data: bool = False
    examples: int | None = None  # of what was forgotten, in a list; None: EXAMPLES
    group_by: Sequence[str] = ()
    best: str | None = None
    recent: int | None = None  # steps and tasks that tables show, the last ones; None: all


@dataclass(frozen=True)
class Files:
    """What a report reads beside rows: ranks, tasks with pictures of examples, checkpoints."""

    ranks: Sequence[SavedRanks] = ()
    images: Sequence[Task] = ()
    cards: Cards | None = None


NO_FILES = Files()
