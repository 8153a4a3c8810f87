"""A whole step of the fusion model against the CTP authors' own, in double precision.

Their numbers are of a tiny model, one batch and one set of masks, with their weights, momentum and
previous models and queue. Losses, every gradient, the momentum model and the queue are compared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import ctp_reference
from support.ctp_reference import outputs, tensor
from torch import Tensor

from vlcpctl.core.batch import Batch
from vlcpctl.core.method import Method
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.seqf import Seqf
from vlcpctl.training.method_run import start_slots
from vlcpctl.training.optimizers import Optimizer, new_optimizer
from vlcpctl.training.phases import PhasePlan
from vlcpctl.training.run import TrainRun
from vlcpctl.training.settings import Settings
from vlcpctl.training.step import OptimizerStep, read_in_order

pytestmark = pytest.mark.golden

CTP = Ctp(queue=12, keep_queue=True)

# Mode: the method, whether it is the first task, and their names of our terms.
MODES: dict[str, tuple[Method, bool]] = {
    "finetune": (Seqf(), True),
    "CTP": (CTP, False),
    "CTP_init": (CTP, True),
}


def _run(mode: str, micro_batch: int | None = None) -> TrainRun:
    method, first = MODES[mode]
    encoder = ctp_reference.encoder("F")
    encoder.inputs = lambda images, texts: (images, texts)  # type: ignore[method-assign]
    run = TrainRun(
        encoder=encoder,
        methods=(method,),
        settings=Settings(batch_size=4, micro_batch=micro_batch),
        seed=0,
        device=torch.device("cpu"),
        previous=None if first else ctp_reference.weights("R"),
    )
    start_slots(run, {})
    run.position.plan = PhasePlan("train", steps=10)
    if method.slots(first=first):
        _fill(run)
    return run


@torch.no_grad()
def _fill(run: TrainRun) -> None:
    for name, value in ctp_reference.weights("M").items():
        run.slots["ctp"]["momentum"][name].copy_(value)
    queue = run.slots["ctp"]["queue"]
    for side in ("image", "text"):
        queue[side].copy_(tensor(f"state/F_buffer:{side}_queue").T)
    queue["position"].copy_(tensor("state/F_buffer:queue_ptr")[0])


def _batch(mode: str) -> Batch:
    return Batch(
        keys=list("abcd"),
        replayed=torch.zeros(4, dtype=torch.bool),
        images=tensor("in/image").double(),
        texts=tensor("in/input_ids"),
        masked=tensor(f"masked/{mode}/input_ids"),
        labels=tensor(f"masked/{mode}/labels"),
    )


def _step(run: TrainRun, mode: str) -> dict[str, float]:
    """One step whose learning rate is 0, so that gradients and weights can be compared."""
    (values,) = read_in_order([OptimizerStep(run, _still(run), run.methods)(_batch(mode))])
    return values


def _still(run: TrainRun) -> Optimizer:
    settings = replace(run.settings, optimizer="sgd", lr=1e-30, weight_decay=0.0)
    return new_optimizer(run.weights, settings)


def _theirs(mode: str, name: str) -> float:
    return float(outputs()[f"f64/{mode}/{name}"])


@pytest.mark.parametrize("micro_batch", [None, 1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_the_loss_and_every_gradient_are_theirs(mode: str, micro_batch: int | None) -> None:
    run = _run(mode, micro_batch)
    terms = _step(run, mode)
    assert terms["loss"] == pytest.approx(_theirs(mode, "total"), rel=1e-9)
    found = ctp_reference.gradient_norms({n: weight.grad for n, weight in run.weights.items()})
    expected = ctp_reference.expected_norms(mode)
    assert found.keys() == expected.keys()
    for name, norm in expected.items():
        assert found[name] == pytest.approx(norm, rel=1e-6, abs=1e-12), name


def test_each_term_is_theirs() -> None:
    terms = _step(_run("CTP"), "CTP")
    momentum = (_theirs("CTP", "loss_i2t_md") + _theirs("CTP", "loss_t2i_md")) / 2
    cross = (_theirs("CTP", "loss_ita_dis_i2t") + _theirs("CTP", "loss_ita_dis_t2i")) / 2
    same = (_theirs("CTP", "loss_cos_i") + _theirs("CTP", "loss_cos_t")) / 2
    assert terms["contrastive"] == pytest.approx(_theirs("CTP", "out_loss_ita"), rel=1e-9)
    assert terms["mlm"] == pytest.approx(_theirs("CTP", "out_loss_mlm"), rel=1e-9)
    assert terms["ctp/words"] == pytest.approx(_theirs("CTP", "out_loss_mlm_dis"), rel=1e-9)
    assert terms["ctp/momentum"] == pytest.approx(momentum, rel=1e-9)
    assert terms["ctp/cross_modal"] == pytest.approx(cross, rel=1e-9)
    assert terms["ctp/same_modal"] == pytest.approx(same, rel=1e-9)


@pytest.mark.parametrize("mode", ["CTP", "CTP_init"])
def test_the_queue_is_theirs_after_the_step(mode: str) -> None:
    run = _run(mode)
    _step(run, mode)
    queue = run.slots["ctp"]["queue"]
    _close(queue["image"].T, f"f64/{mode}/queue_img_after")
    _close(queue["text"].T, f"f64/{mode}/queue_txt_after")
    assert int(queue["position"]) == outputs()[f"f64/{mode}/queue_ptr_after"][0]


def test_the_momentum_model_makes_their_features() -> None:
    run = _run("CTP")
    _step(run, "CTP")
    out = run.frozen_features(_batch("CTP"), run.slots["ctp"]["momentum"])
    _close(out.image, "f64/CTP/image_feat_m", transposes=True)
    _close(out.text, "f64/CTP/text_feat_m", transposes=True)


def test_a_batch_without_a_masked_word_has_finite_terms_and_no_gradient_from_them() -> None:
    run = _run("CTP")
    batch = _batch("CTP")
    assert batch.labels is not None
    batch.labels.fill_(-100)
    (terms,) = read_in_order([OptimizerStep(run, _still(run), run.methods)(batch)])
    assert terms["mlm"] == terms["ctp/words"] == 0
    assert np.isfinite(terms["loss"])


def _close(found: Tensor, name: str, *, transposes: bool = False) -> None:
    expected = outputs()[name]
    ours = found.detach().numpy()
    if transposes and ours.shape != expected.shape:
        expected = expected.T
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12)
