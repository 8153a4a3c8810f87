"""GeoDL: distillation along the geodesic path (Simon et al., 2021), for image-text pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vlcpctl import losses
from vlcpctl.core.batch import Batch, Features, Terms
from vlcpctl.core.method import Method, Needs, Paper, Run, hyper

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Geodl(Method):
    """Distil features by their similarity along the geodesic from the old to the new subspace.

    Images and texts have a path each. Image-text pairs do not have class labels: there is no
    classifier, and the strength does not grow with the ratio of old to new classes.
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

    strength: float = hyper(
        10.0, doc="Weight of the distillation term.", origin="GeoDL authors' code, its base value"
    )
    dimensions: int = hyper(
        0,
        doc="Dimension of the subspaces; 0: two fewer than the pairs of a batch, at most D - 2.",
        origin="GeoDL authors' code",
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

    def _path_angle(self, new_BD: Tensor, old_BD: Tensor) -> Tensor:
        limit = max(1, min(new_BD.shape) - 2)
        wanted = min(self.dimensions or limit, limit)
        turned_B: Tensor = losses.geodesic.path_angle(new_BD, old_BD, wanted)
        return turned_B.mean()
