"""SnD against a loop over samples and the authors' numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.core.batch import Features
from vlcpctl.methods.snd import Snd

BATCH = replace(fake_batch(3), reference=fake_batch(6))
# Of single functions of the authors' code; see the names in the file.
NUMBERS = Path(__file__).parent / "data" / "reference_losses.npz"


def _teacher(seed: int) -> Features:
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn(2, 6, 8, generator=generator, dtype=torch.float64)
    return features(image, text)


def _terms(method: Snd, new: Features, start: Features, before: Features) -> torch.Tensor:
    run = FakeRun(old=start, slow=before)
    return sum(method.loss(run, BATCH, replace(new, reference=new))[0].values(), torch.zeros(()))


def _sample_by_sample(new: Features, start: Features, before: Features) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for f, f_0, f_1 in zip(new.image, start.image, before.image, strict=True):
        trust = 1 / (1 + torch.exp(-6 * (((f_0 - f_1) ** 2).sum().sqrt() - 0.2)))
        total = total + 9 * trust * ((f - f_1) ** 2).sum() / len(new.image)
        total = total + 0.5 * (1 - trust) * ((f - f_0) ** 2).sum() / len(new.image)
    return total


def test_terms_are_the_sample_by_sample_ones() -> None:
    new, start, before = map(_teacher, (0, 1, 2))
    torch.testing.assert_close(
        _terms(Snd(), new, start, before).double(), _sample_by_sample(new, start, before)
    )


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_selection_of_one_teacher_is_its_distance(weight: float) -> None:
    new, start, before = map(_teacher, (0, 1, 2))
    method = Snd(slope=1e4, threshold=0.0 if weight else 10.0)
    teacher, strength = (before, 9) if weight else (start, 0.5)
    plain = strength * (new.image - teacher.image).square().sum(1).mean()
    torch.testing.assert_close(_terms(method, new, start, before).double(), plain)


def test_teachers_that_agree_weigh_all_samples_alike() -> None:
    new, start, _ = map(_teacher, (0, 1, 2))
    by_sample, by_batch = (
        _terms(Snd(select=select), new, start, start) for select in ("sample", "batch")
    )
    torch.testing.assert_close(by_sample, by_batch)


def test_batch_is_the_authors() -> None:
    with np.load(NUMBERS) as found:
        case = {name[6:]: torch.from_numpy(found[name]) for name in found.files if "snd/0/" in name}
    student = case["in/student"].requires_grad_()
    plain = Features(
        image=student, text=student, raw_image=student, raw_text=student, scale=torch.ones(())
    )
    start, before = (replace(plain, image=case[f"in/{name}"]) for name in ("start", "previous"))
    ours = _terms(Snd(select="batch"), plain, start, before)
    torch.testing.assert_close(ours.double(), case["out/loss"], rtol=1e-9, atol=1e-12)
    (grad,) = torch.autograd.grad(ours, student)
    torch.testing.assert_close(grad, case["out/grad"], rtol=1e-9, atol=1e-12)
