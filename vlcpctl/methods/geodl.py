"""GeoDL: distillation along the geodesic path (Simon et al., 2021), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Geodl(Method):
    """Distil features by their similarity along the geodesic from the old to the new subspace.

    Images and texts have a path each. Image-text pairs do not have class labels: there is no
    classifier, and the strength does not grow with the ratio of old to new classes.

    The authors' code has subspaces of two dimensions fewer than its batch: 126 of 2048 channels.
    That share of the channels is the default here. Their rule itself fills the space where the
    batch is larger than the width: see `losses.geodesic` for what is left of the method then.
    """

    name: ClassVar[str] = "geodl"
    title: ClassVar[str] = "GeoDL: distil features along the geodesic between old and new subspaces"
    preset: ClassVar[str] = "incclip"
    papers: ClassVar[tuple[Paper, ...]] = (
        Paper(
            title="On Learning the Geodesic Path for Incremental Learning",
            authors="Christian Simon, Piotr Koniusz and Mehrtash Harandi",
            venue="CVPR",
            year=2021,
            url="https://arxiv.org/abs/2104.08572",
        ),
    )
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(
        10.0, doc="Weight of the distillation term.", origin="GeoDL authors' code, its base value"
    )
    dimensions: float = hyper(
        126 / 2048,
        doc="Dimension k of the subspaces: a share of the D channels if below 1, else a whole "
        "number; 0: two fewer than the pairs of a batch. At most min(pairs, D) - 2.",
        origin="GeoDL authors' code: 126 of 2048 channels",
    )

    def __post_init__(self) -> None:
        """Raise UsageError for a dimension of 1 or more that is not a whole number."""
        if self.dimensions > 1 and self.dimensions % 1:
            raise UsageError(
                f"--set geodl.dimensions={self.dimensions:g}: the value must be a whole number, "
                "or a share of the channels below 1"
            )

    def needs(self, *, first: bool) -> Needs:
        """The previous model, after the first task and unless `strength` is 0."""
        return Needs(previous=not first and self.strength != 0)

    def loss(self, run: Run, batch: Batch, out: Features) -> tuple[Terms, dict[str, Any]]:
        """One minus the cosine under the flow kernel, averaged over both modalities."""
        if run.first or not self.strength:
            return {}, {}
        old = run.previous(batch)
        image, text = self._path_angle(out.image, old.image), self._path_angle(out.text, old.text)
        return {"path": self.strength * (image + text) / 2}, {}

    def _dimension(self, pairs: int, width: int) -> int:
        most = max(1, min(pairs, width) - 2)
        if not self.dimensions:
            return most
        wanted = self.dimensions * (width if self.dimensions < 1 else 1)
        return min(max(1, round(wanted)), most)

    def _path_angle(self, new_BD: Tensor, old_BD: Tensor) -> Tensor:
        turned_B: Tensor = losses.geodesic.path_angle(
            new_BD, old_BD, self._dimension(*new_BD.shape)
        )
        return turned_B.mean()
