"""Experience replay: train on the task and a buffer of earlier pairs (Chaudhry et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method, Needs, Paper


@dataclass(frozen=True, kw_only=True)
class Er(Method):
    """Train with the contrastive loss on new and replayed pairs; the buffer decides which."""

    name: ClassVar[str] = "er"
    title: ClassVar[str] = "Experience replay from a buffer"
    preset: ClassVar[str] = "ctp"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="On Tiny Episodic Memories in Continual Learning",
            authors="Arslan Chaudhry, Marcus Rohrbach, Mohamed Elhoseiny, Thalaiyasingam Ajanthan, "
            "Puneet K. Dokania, Philip H. S. Torr and Marc'Aurelio Ranzato",
            venue="arXiv",
            year=2019,
            url="https://arxiv.org/abs/1902.10486",
        ),
    )

    def needs(self, *, first: bool) -> Needs:
        """After the first task: a buffer."""
        return Needs(buffer=not first)
