"""GeoDL's flow kernel against the integral over the geodesic, written with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_run import FakeRun, fake_batch, features
from torch import Tensor

from vlcpctl.core.errors import UsageError
from vlcpctl.losses.geodesic import Flow, flow, path_angle, subspace
from vlcpctl.methods.geodl import Geodl
from vlcpctl.training.methods import compose


def basis(dimension: int, k: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(dimension, k, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


def near(start: Tensor, distance: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(start + distance * drawn).Q


def integrated(old: Tensor, new: Tensor, points: int = 30) -> Tensor:
    """Gauss-Legendre over Phi(t) Phi(t)^T, Phi by the exponential map of the Grassmannian."""
    identity = torch.eye(len(old), dtype=torch.float64)
    slope = (identity - old @ old.T) @ new @ torch.linalg.inv(old.T @ new)
    left, tangents, right = torch.linalg.svd(slope, full_matrices=False)
    angles = torch.atan(tangents)
    total = torch.zeros_like(identity)
    for place, weight in zip(*np.polynomial.legendre.leggauss(points), strict=True):
        t = (place + 1) / 2
        phi = (old @ right.T) * torch.cos(t * angles) + left * torch.sin(t * angles)
        total += weight / 2 * phi @ phi.T
    return total


def dense(kernel: Flow) -> Tensor:
    size = len(kernel.start_Dk)
    identity = torch.eye(size, dtype=torch.float64)
    return torch.stack([kernel.products(identity, row.expand(size, size)) for row in identity])


@pytest.mark.parametrize(("dimension", "k"), [(30, 5), (12, 1), (8, 6), (10, 9)])
@pytest.mark.parametrize("distance", [1.0, 1e-2, 1e-5, 1e-9, 0.0])
def test_kernel_is_the_integral_over_the_path(dimension: int, k: int, distance: float) -> None:
    old = basis(dimension, k, seed=k)
    new = near(old, distance, seed=dimension)
    assert (dense(flow(old, new)) - integrated(old, new)).abs().max() < 1e-8


@given(st.integers(0, 10_000), st.integers(1, 7))
@settings(max_examples=30, deadline=None)
def test_kernel_is_symmetric_with_eigenvalues_between_0_and_1(seed: int, k: int) -> None:
    matrix = dense(flow(basis(8, k, seed), basis(8, k, seed + 1)))
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-12)
    values = torch.linalg.eigvalsh(matrix)
    assert values.min() > -1e-12
    assert values.max() < 1 + 1e-12
    assert values.sum().item() == pytest.approx(k)


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, 7, 16, generator=generator, dtype=torch.float64)
    return image, text


def test_loss_is_one_minus_the_cosine_under_the_integral() -> None:
    raw = [side.requires_grad_() for side in drawn(1)]
    out, old = features(*raw), features(*drawn(0))
    terms, _ = Geodl(strength=3.0, dimensions=5).loss(FakeRun(old=old), fake_batch(7), out)
    naive = torch.zeros((), dtype=torch.float64)
    for new_side, old_side in ((out.image, old.image), (out.text, old.text)):
        bases = []
        for side in (old_side, new_side):
            centred = (side - side.mean(0)).detach()
            _, vectors = torch.linalg.eigh(centred.T @ centred)
            bases.append(vectors[:, -5:])
        matrix = integrated(bases[0], bases[1])
        for new_row, old_row in zip(new_side, old_side, strict=True):
            lengths = (new_row @ matrix @ new_row).sqrt() * (old_row @ matrix @ old_row).sqrt()
            naive = naive + 3 * (1 - old_row @ matrix @ new_row / lengths) / 14
    torch.testing.assert_close(terms["path"], naive, rtol=1e-8, atol=1e-10)
    ours = torch.autograd.grad(terms["path"], raw, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(naive, raw), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-6])
def test_gradients_are_finite_where_old_and_new_coincide(
    dtype: torch.dtype, distance: float
) -> None:
    old = torch.nn.functional.normalize(drawn(2)[0].to(dtype), dim=1)
    new = (old + distance * drawn(3)[0].to(dtype)).requires_grad_()
    found = path_angle(new, old, 5)
    found.sum().backward()
    assert found.abs().max() < 1e-5
    assert new.grad is not None
    assert new.grad.isfinite().all()
    assert new.grad.abs().max() < 1e-4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_small_and_collapsed_batches_are_finite(count: int) -> None:
    same = torch.ones(count, 4).requires_grad_()
    old = features(torch.ones(count, 4), torch.ones(count, 4))
    terms, _ = Geodl().loss(FakeRun(old=old), fake_batch(count), features(same, same))
    terms["path"].backward()
    assert terms["path"].isfinite()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_a_subspace_is_the_main_directions_around_the_mean() -> None:
    flat = torch.tensor([[3.0, 1, 0], [-3, 1, 0], [0, 1, 0.1], [0, 1, -0.1]])
    assert subspace(flat, 1).abs().flatten().tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def likeness(pairs: int, width: int, dimension: int) -> tuple[float, float]:
    """Path loss to cosine distance, and their correlation, over perturbations of unit rows."""
    generator = torch.Generator().manual_seed(0)
    unit = torch.nn.functional.normalize
    old = unit(torch.randn(pairs, width, generator=generator), dim=1)
    moved = 0.3 * torch.randn(pairs, width, generator=generator) / width**0.5
    new = unit(old + moved, dim=1)
    path, cosine = path_angle(new, old, dimension), 1 - (new * old).sum(1)
    both = torch.corrcoef(torch.stack([path, cosine]))
    return (path.mean() / cosine.mean()).item(), both[0, 1].item()


# The figures in the docstring of vlcpctl/losses/geodesic.py.
LIKENESS = {
    (512, 256, 254): (0.992, 0.996),
    (512, 256, 16): (0.418, 0.201),
    (128, 2048, 126): (0.070, 0.242),
}


@pytest.mark.parametrize(("pairs", "width", "k"), LIKENESS)
def test_the_dimension_decides_how_far_the_loss_is_from_a_cosine(
    pairs: int, width: int, k: int
) -> None:
    assert likeness(pairs, width, k) == pytest.approx(LIKENESS[pairs, width, k], abs=2e-3)


@pytest.mark.parametrize(
    ("given", "pairs", "width", "k"),
    [
        (126 / 2048, 512, 256, 16),
        (126 / 2048, 128, 2048, 126),
        (126 / 2048, 4096, 1024, 63),
        (126 / 2048, 16, 1024, 14),  # at most two fewer than the pairs
        (126 / 2048, 64, 4, 1),
        (0.5, 512, 256, 128),
        (5, 512, 256, 5),
        (900, 512, 256, 254),
        (0, 512, 256, 254),
        (0, 128, 2048, 126),
    ],
)
def test_the_dimension_follows_from_the_batch_and_the_width(
    given: float, pairs: int, width: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def fake(new_BD: Tensor, old_BD: Tensor, dimension: int) -> Tensor:
        used.append(dimension)
        return new_BD.sum(1)

    monkeypatch.setattr("vlcpctl.losses.geodesic.path_angle", fake)
    method = Geodl(dimensions=given)
    side = features(torch.ones(pairs, width), torch.ones(pairs, width))
    method.loss(FakeRun(old=side), fake_batch(pairs), side)
    assert used == [k, k]


def test_a_dimension_is_a_share_or_a_whole_number() -> None:
    with pytest.raises(UsageError, match=r"dimensions=5.5: the value must be a whole number, or"):
        compose("geodl", ["geodl.dimensions=5.5"])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_not_finite_give_a_loss_that_is_not(bad: float) -> None:
    """Training then reports the step that diverged; torch.linalg.svd would raise instead."""
    image, text = drawn(1)
    image[2, 3] = bad
    terms, _ = Geodl().loss(FakeRun(old=features(*drawn(0))), fake_batch(7), features(image, text))
    assert not terms["path"].isfinite()
