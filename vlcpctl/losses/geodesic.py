"""Distillation along a geodesic: from the subspace of old features to that of new ones.

The flow kernel is Q = int_0^1 Phi(t) Phi(t)^T dt, where Phi(t) is a basis of the subspace at point
t of the shortest path. It weights each direction by the share of the path whose subspace contains
it. Q (D x D) is never formed: `Flow` stores the k principal directions and angles instead.

The dimension k decides what the loss keeps of the features. At k = D - 2 the projection is nearly
the identity and the loss nearly a cosine distance. Measured by tests/methods/test_geodl.py: old
rows are drawn from a normal distribution and scaled to unit length, new ones are old ones after a
normal perturbation of length 0.3, at unit length again; the ratio is that of the mean path loss to
the mean cosine distance, the correlation that of the two over the rows.

    pairs x channels   k                                           ratio   correlation
    512 x 256          254, the former default min(B, D) - 2       0.99    1.00
    512 x 256          16, the share 126 / 2048                    0.42    0.20
    128 x 2048         126, as the GeoDL authors ran it            0.07    0.24
    4096 x 1024        63, the share in preset incclip             0.51    0.20

Shapes: B samples, D channels, k dimensions of a subspace.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import svd


@dataclass(frozen=True)
class Flow:
    """The flow kernel between two subspaces, as principal directions and angles."""

    start_Dk: Tensor  # directions of the old subspace
    across_Dk: Tensor  # the orthogonal direction that each turns towards; 0 if it does not turn
    angle_k: Tensor  # radians, from 0 to pi / 2

    def products(self, left_BD: Tensor, right_BD: Tensor) -> Tensor:
        """x^T Q y for each row x of the left and y of the right, (B,)."""
        turned = self.angle_k / torch.pi  # torch.sinc(x) is sin(pi x) / (pi x), and 1 at 0
        along_k = (1 + torch.sinc(2 * turned)) / 2
        mixed_k = -torch.sin(self.angle_k) * torch.sinc(turned) / 2
        across_k = (1 - torch.sinc(2 * turned)) / 2
        left_a, left_c = left_BD @ self.start_Dk, left_BD @ self.across_Dk
        right_a, right_c = right_BD @ self.start_Dk, right_BD @ self.across_Dk
        return (
            along_k * left_a * right_a
            + mixed_k * (left_a * right_c + left_c * right_a)
            + across_k * left_c * right_c
        ).sum(1)


@torch.no_grad()
def subspace(features_BD: Tensor, dimensions: int) -> Tensor:
    """An orthonormal basis (D, k) of the principal directions of centred features.

    Values that are not finite count as 0: torch.linalg.svd would raise an error for them. The loss
    of such features is not finite whatever the basis.
    """
    centred_BD = (features_BD - features_BD.mean(0)).nan_to_num_(0.0, 0.0, 0.0)
    directions_DD: Tensor = svd(centred_BD, full_matrices=False).Vh
    return directions_DD[:dimensions].T


@torch.no_grad()
def flow(old_Dk: Tensor, new_Dk: Tensor) -> Flow:
    """The flow kernel between the subspaces of two orthonormal bases, without gradient.

    Both bases are (D, k). With U cos(angle) V^T the SVD of old^T new, the principal directions are
    old U and new V; the part of new V orthogonal to old U has length sin(angle).
    """
    turn_kk, cosine_k, back_kk = svd(old_Dk.T @ new_Dk)
    start_Dk = old_Dk @ turn_kk
    rest_Dk = start_Dk * cosine_k - new_Dk @ back_kk.T
    sine_k = rest_Dk.norm(dim=0)
    # A difference below rounding has an arbitrary direction; its share in Q would be 0.
    turns_k = sine_k > torch.finfo(sine_k.dtype).eps
    across_Dk = torch.where(turns_k, rest_Dk / sine_k.clamp_min(torch.finfo(sine_k.dtype).tiny), 0)
    return Flow(start_Dk, across_Dk, torch.atan2(sine_k, cosine_k.clamp_min(0)))


def path_angle(new_BD: Tensor, old_BD: Tensor, dimensions: int) -> Tensor:
    """One minus the cosine of old and new features under the flow kernel, (B,) (GeoDL).

    Features are (B, D). The gradient flows through the features, not through the kernel, as in the
    authors' code. It is finite where old and new coincide.

    >>> path_angle(torch.eye(4), torch.eye(4), 2).abs().max().item() < 1e-6
    True
    """
    kernel = flow(subspace(old_BD, dimensions), subspace(new_BD, dimensions))
    smallest = torch.finfo(new_BD.dtype).eps
    lengths = [kernel.products(side, side).clamp_min(smallest).sqrt() for side in (new_BD, old_BD)]
    return 1 - kernel.products(old_BD, new_BD) / (lengths[0] * lengths[1])
