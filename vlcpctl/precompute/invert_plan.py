"""The plan of invert-texts: a request checked against its inputs. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.batch import InversionSettings
from vlcpctl.core.errors import BadInput
from vlcpctl.data.buffer.update import open_buffer
from vlcpctl.data.precomputed.pseudo_texts import holds_pseudo_texts, open_pseudo_texts
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.finished import already_written
from vlcpctl.files.manifest import content_of

# The size of a mini-batch where it is that of the whole buffer: what was rewritten was larger.


@dataclass(frozen=True, kw_only=True)
class InversionRequest:
    """The inputs of invert-texts, the number of texts, and how they are generated."""

    checkpoint: Path
    buffer: Path
    out: Path
    count: int
    settings: InversionSettings
    seed: int = 0


@dataclass(frozen=True)
class InvertPlan:
    """A checked request, its opened buffer, and `settings` with the real size of mini-batches."""

    request: InversionRequest
    buffer: Split
    settings: InversionSettings
    identity: dict[str, Any]

    @property
    def parts(self) -> int:
        """The number of parts, one for each mini-batch; the last may need fewer texts."""
        return -(-self.request.count // self.settings.texts)

    def texts_of(self, part: int) -> int:
        """The number of texts in a part."""
        return min(self.settings.texts, self.request.count - part * self.settings.texts)

    def __str__(self) -> str:
        """The plan in one line."""
        settings = self.settings
        return (
            f"{self.request.count} texts from a buffer of {len(self.buffer)}: "
            f"{settings.iterations} iterations each, "
            f"{settings.texts} at a time against {settings.pairs} images"
        )


def make_plan(request: InversionRequest) -> InvertPlan:
    """Open the inputs of a request; a mini-batch is at most the whole buffer.

    Raises BadInput if the buffer is empty or an input is not what its option needs.
    """
    buffer = open_buffer(request.buffer)
    split = buffer.split("train")
    if not len(split):
        raise BadInput(f"{request.buffer} is empty: no pairs to generate pseudo texts from")
    pairs = min(request.settings.pairs, len(split))
    settings = replace(request.settings, pairs=pairs, texts=pairs)
    identity = {
        "checkpoint": content_of(request.checkpoint, "checkpoint"),
        "buffer": buffer.content,
        "count": request.count,
        "inversion": asdict(settings),
        "seed": request.seed,
    }
    return InvertPlan(request, split, settings, identity)


def already_inverted(plan: InvertPlan, *, force: bool) -> bool:
    """Whether the finished file of this very command already exists.

    Raises OutputExists if something else is there; `force` is for replacing it.
    """
    return already_written(
        plan.request.out,
        plan.identity,
        holds_pseudo_texts,
        lambda out: open_pseudo_texts(out).identity,
        force=force,
    )
