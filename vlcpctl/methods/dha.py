"""DHA: dynamic historical adaptation (Luo et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl import core
from vlcpctl.core.method import Method, Paper, Run, Slot, hyper


@dataclass(frozen=True, kw_only=True)
class Dha(Method):
    """Average the main model with a historical model before every step, and back every k steps."""

    name: ClassVar[str] = "dha"
    title: ClassVar[str] = (
        "Dynamic historical adaptation: average the weights with a slow historical model"
    )
    preset: ClassVar[str] = "dha"
    writes_weights: ClassVar[bool] = True
    # 15 epochs of 130,000 pairs in batches of 320, in each task after the first (DHA, sections 4.1
    # and 4.2), without those replayed: 15 * floor(130000 / 320).
    steps_per_task: ClassVar[int] = 6090
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="Learning with Adaptive Knowledge for Continual Image-Text Modeling",
            authors="Yutian Luo, Yizhao Gao and Zhiwu Lu",
            venue="ICMR",
            year=2023,
            url="https://doi.org/10.1145/3591106.3592297",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("adapt=false",)

    adapt: bool = hyper(
        True,
        doc="Average the historical model into the main model before every step.",
        origin="DHA eqs. 7-9, table 3",
    )
    dynamic: bool = hyper(
        True,
        doc="Average the main model into the historical model every k steps.",
        origin="DHA eq. 10, table 3",
    )
    main_share: float = hyper(
        0.995,
        doc="lambda 1: weight of the main model in its own average.",
        origin="DHA eq. 7, table 5",
        within="[0, 1]",
        depends="the number of steps: it applies at each, about 6,090 per task in the paper; "
        "train-step --scale-per-step paper rescales it",
    )
    history_share: float = hyper(
        0.985,
        doc="lambda 2: weight of the historical model in its own average.",
        origin="DHA eq. 10, table 5",
        within="[0, 1]",
        depends="the number of steps: it applies at every k-th, about 1,218 times per task in the "
        "paper; train-step --scale-per-step paper rescales it",
    )
    every: int = hyper(
        5,
        doc="k: steps between two updates of the historical model.",
        origin="DHA eq. 10, table 4",
        within="[1, inf)",
    )

    def per_step(self, *, first: bool) -> tuple[str, ...]:
        """Both shares, after the first task; k stays as it is, so both scale alike."""
        if first or not self.adapt:
            return ()
        return ("main_share", "history_share") if self.dynamic else ("main_share",)

    def slots(self, *, first: bool) -> tuple[Slot, ...]:
        """The historical model, a copy of the previous model at the start of each later task."""
        if first or not self.adapt:
            return ()
        return (
            Slot(
                name="history", lifetime="task", start=lambda run: core.params.copy_of(run.weights)
            ),
        )

    def before_forward(self, run: Run) -> None:
        """One iteration of Algorithm 1; both averages use the weights before the iteration."""
        if run.first or not self.adapt:
            return
        history, main = run.slot("history"), run.weights
        turns = self.dynamic and (run.step + 1) % self.every == 0
        earlier = core.params.copy_of(main) if turns else main
        core.params.blend_(main, self.main_share, (1 - self.main_share, history))
        if turns:
            core.params.blend_(history, self.history_share, (1 - self.history_share, earlier))
