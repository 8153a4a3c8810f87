"""ZSCL against loops over rows, the authors' numbers, and the mean of saved snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.core.batch import Features
from vlcpctl.losses.distillation import softened
from vlcpctl.methods.zscl import Zscl

BATCH = replace(fake_batch(3), reference=fake_batch(5))
# Of single functions of the authors' code; see the names in the file.
NUMBERS = Path(__file__).parent / "data" / "reference_losses.npz"


def _sides(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    return image, text


def _with_reference(image: torch.Tensor, text: torch.Tensor) -> Features:
    return replace(features(*_sides(9)), reference=features(image, text, temperature=0.5))


def _row_by_row(then: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    """T^2 times the mean over rows of the KL, written out."""
    total = torch.zeros((), dtype=now.dtype)
    for row in range(len(now)):
        kept, new = torch.softmax(then[row] / 2, 0), torch.softmax(now[row] / 2, 0)
        total = total + 4 * (kept * (kept / new).log()).sum() / len(now)
    return total


@pytest.mark.parametrize("text", ["student", "transpose"])
def test_terms_are_the_row_by_row_ones(text: str) -> None:
    old, (image, texts) = features(*_sides(0)), _sides(1)
    out = _with_reference(image, texts)
    terms, _ = Zscl(text=text).loss(FakeRun(old=old), BATCH, out)
    new, s = out.reference, old.scale
    assert new is not None
    then = s * old.image @ old.text.T
    by_image = s * new.image @ old.text.T
    by_text = s * new.text @ old.image.T
    torch.testing.assert_close(terms["image"], _row_by_row(then, by_image))
    wanted = by_text if text == "student" else by_image.T
    torch.testing.assert_close(terms["text"], _row_by_row(then.T, wanted))


@pytest.mark.parametrize(("text", "reached"), [("student", True), ("transpose", False)])
def test_the_transpose_does_not_reach_the_text_tower(text: str, reached: bool) -> None:
    image, texts = (side.requires_grad_() for side in _sides(1))
    out = _with_reference(image, texts)
    terms, _ = Zscl(text=text).loss(FakeRun(old=features(*_sides(0))), BATCH, out)
    grads = torch.autograd.grad(sum(terms.values()), (image, texts), allow_unused=True)
    assert grads[0] is not None
    assert (grads[1] is not None) == reached


@pytest.mark.parametrize("text", ["student", "transpose"])
def test_which_text_belongs_to_an_image_does_not_matter(text: str) -> None:
    shuffled = torch.tensor([3, 0, 4, 1, 2])
    (old_image, old_text), (image, texts) = _sides(0), _sides(1)
    method = Zscl(text=text)
    paired, _ = method.loss(
        FakeRun(old=features(old_image, old_text)), BATCH, _with_reference(image, texts)
    )
    old = features(old_image, old_text[shuffled])
    apart, _ = method.loss(FakeRun(old=old), BATCH, _with_reference(image, texts[shuffled]))
    torch.testing.assert_close(apart, paired)


def test_nothing_is_lost_where_the_models_agree() -> None:
    image, texts = (side.requires_grad_() for side in _sides(0))
    terms, _ = Zscl().loss(FakeRun(old=features(*_sides(0))), BATCH, _with_reference(image, texts))
    total = sum(terms.values())
    assert abs(total.item()) < 1e-12
    assert max(one.abs().max() for one in torch.autograd.grad(total, (image, texts))) < 1e-12


def test_shares_of_processes_add_up() -> None:
    old, out = features(*_sides(0)), _with_reference(*_sides(1))
    whole, _ = Zscl().loss(FakeRun(old=old), BATCH, out)
    assert out.reference is not None
    parts = [
        Zscl().loss(
            FakeRun(old=old), BATCH, replace(out, reference=replace(out.reference, own=own))
        )[0]
        for own in (slice(0, 2), slice(2, 5))
    ]
    for name, value in whole.items():
        torch.testing.assert_close(parts[0][name] + parts[1][name], value)


def test_distillation_is_the_authors() -> None:
    with np.load(NUMBERS) as found:
        case = {
            name.rpartition("/0/")[2]: torch.from_numpy(found[name]).double()
            for name in found.files
            if name.startswith("zscl/distillation/0/")
        }
    student, heat = case["in/student"].requires_grad_(), float(case["in/T"])
    ours = softened(case["in/teacher"], student, temperature=heat)
    (grad,) = torch.autograd.grad(ours, student)
    torch.testing.assert_close(grad, case["out/grad"], rtol=1e-9, atol=1e-12)
    # Theirs is the cross-entropy: larger by the teacher's entropy.
    kept = torch.softmax(case["in/teacher"] / heat, 1)
    entropy = heat**2 * -(kept * kept.log()).sum(1).mean()
    torch.testing.assert_close(ours.detach() + entropy, case["out/loss"], rtol=1e-9, atol=1e-12)


def test_average_is_the_mean_of_start_and_snapshots() -> None:
    passed = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    method = Zscl(every=3)
    run = FakeRun(weights={"w": passed[0].clone()}).start(method)
    for run.step, weights in enumerate(passed[1:]):
        run.weights["w"].copy_(weights)
        method.after_step(run, BATCH, {}, stepped=True)
    expected = passed[[0, 1, 4, 7]].mean(0)  # the start, and after steps 0, 3 and 6
    torch.testing.assert_close(run.slot("average")["w"], expected, rtol=1e-12, atol=1e-12)
