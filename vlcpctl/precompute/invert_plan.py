"""What invert-texts is to do, checked against its inputs. Torch-free."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vlcpctl.core.batch import InversionSettings
from vlcpctl.core.errors import BadInput
from vlcpctl.data.buffer.update import open_buffer
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.files.manifest import content_of


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """The inputs of invert-texts, the number of texts, and how they are `asked` to be generated.

    What follows raises BadInput if the buffer is empty or an input is not what its option needs.
    """

    checkpoint: Path
    buffer: Path
    out: Path
    count: int
    asked: InversionSettings
    seed: int = 0

    @cached_property
    def _buffer(self) -> Task:
        return open_buffer(self.buffer)

    @cached_property
    def split(self) -> Split:
        """The pairs of the buffer."""
        split = self._buffer.split("train")
        if not len(split):
            raise BadInput(f"{self.buffer} is empty: no pairs to generate pseudo texts from")
        return split

    @cached_property
    def settings(self) -> InversionSettings:
        """How texts are generated; a mini-batch is at most the whole buffer."""
        pairs = min(self.asked.pairs, len(self.split))
        return replace(self.asked, pairs=pairs, texts=pairs)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What decides the texts."""
        return {
            "checkpoint": content_of(self.checkpoint, "checkpoint"),
            "buffer": self._buffer.content,
            "count": self.count,
            "inversion": asdict(self.settings),
            "seed": self.seed,
        }

    @property
    def parts(self) -> int:
        """The number of parts, one for each mini-batch; the last may need fewer texts."""
        return -(-self.count // self.settings.texts)

    def texts_of(self, part: int) -> int:
        """The number of texts in a part."""
        return min(self.settings.texts, self.count - part * self.settings.texts)

    def __str__(self) -> str:
        """The plan in one line."""
        settings = self.settings
        return (
            f"{self.count} texts from a buffer of {len(self.split)}: "
            f"{settings.iterations} iterations each, "
            f"{settings.texts} at a time against {settings.pairs} images"
        )
