"""CTP and LwF against numbers computed by the CTP authors' own code, in double precision."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import torch
from support.ctp_numbers import GOLDEN, close, given, given_run
from support.fake_run import FakeRun, fake_batch, features

from vlcpctl.core.params import blend_
from vlcpctl.losses.contrastive import image_text
from vlcpctl.losses.momentum import enqueue_
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.lwf import Lwf
from vlcpctl.training.optimizers import learning_rate
from vlcpctl.training.settings import Settings

BATCH = fake_batch(6)


def _run(*, first: bool = False) -> tuple[FakeRun, torch.Tensor, torch.Tensor]:
    run = given_run(first=first)
    return run, given("F_img").requires_grad_(), given("F_txt").requires_grad_()


def _check_gradients(
    loss: torch.Tensor, image: torch.Tensor, text: torch.Tensor, part: str
) -> None:
    of_image, of_text = torch.autograd.grad(loss, (image, text), retain_graph=True)
    close(of_image, f"s0/{part}_wrt_img")
    close(of_text, f"s0/{part}_wrt_txt")


def test_contrastive_loss_is_the_authors() -> None:
    _, image, text = _run()
    out = features(image, text)
    i2t, t2i = image_text(out.image, out.text, out.scale)
    close(i2t, "s0/finetune/loss_i2t")
    close(t2i, "s0/finetune/loss_t2i")
    _check_gradients((i2t + t2i) / 2, image, text, "finetune/grad_loss_ita")


@pytest.mark.parametrize(
    ("term", "golden"),
    [("momentum", "cmc_ita"), ("cross_modal", "topo_cross"), ("same_modal", "topo_same")],
)
def test_each_term_of_ctp_and_its_gradient_are_the_authors(term: str, golden: str) -> None:
    run, image, text = _run()
    terms, _ = Ctp(queue=12).loss(run, BATCH, features(image, text))
    close(terms[term], f"s0/ctp/part_{golden}")
    _check_gradients(terms[term], image, text, f"ctp/grad_{golden}")


def test_terms_of_ctp_add_up_to_the_authors_third_loss() -> None:
    run, image, text = _run()
    terms, _ = Ctp(queue=12).loss(run, BATCH, features(image, text))
    close(terms["momentum"] + terms["cross_modal"] + terms["same_modal"], "s0/ctp/loss_ita_dis")


def test_first_task_of_ctp_has_the_momentum_term_alone() -> None:
    run, image, text = _run(first=True)
    terms, _ = Ctp(queue=12).loss(run, BATCH, features(image, text))
    assert set(terms) == {"momentum"}
    authors = (GOLDEN["s0/ctp_init/loss_i2t_md"] + GOLDEN["s0/ctp_init/loss_t2i_md"]) / 2
    np.testing.assert_allclose(terms["momentum"].item(), authors, rtol=1e-9)


def test_queue_after_a_step_is_the_authors() -> None:
    run, image, text = _run()
    method = Ctp(queue=12)
    _, aux = method.loss(run, BATCH, features(image, text))
    method.after_step(run, BATCH, aux, stepped=True)
    close(run.slots["queue"]["image"].T, "s0/ctp/queue_img_after")
    close(run.slots["queue"]["text"].T, "s0/ctp/queue_txt_after")
    assert int(run.slots["queue"]["position"]) == GOLDEN["s0/ctp/queue_ptr_after"][0]


def test_ring_is_the_authors_over_four_batches() -> None:
    queue, position = torch.zeros(12, 3, dtype=torch.float64), 0
    for number in range(4):
        position = enqueue_(queue, torch.tensor(GOLDEN[f"queue/in_img_{number}"]), position)
        if number >= 2:  # until then the authors' ring still holds its random start
            close(queue.T, f"queue/img_after_{number}")
        assert position == GOLDEN[f"queue/ptr_after_{number}"][0]


@pytest.mark.parametrize("count", [1, 5, 12, 13, 30])
def test_ring_takes_a_batch_of_any_size(count: int) -> None:
    queue = torch.full((12, 1), -1.0)
    rows = torch.arange(float(count))[:, None]
    position = enqueue_(queue, rows, 7)
    assert position == (7 + count) % 12
    newest = [queue[(position - back) % 12, 0].item() for back in range(1, min(count, 12) + 1)]
    assert newest == [float(count - back) for back in range(1, min(count, 12) + 1)]


@pytest.mark.parametrize("m", ["0.9", "0.995", "0.0", "0.5"])
@pytest.mark.parametrize("first", [False, True])
def test_momentum_update_is_the_authors(m: str, *, first: bool) -> None:
    weights = {name: {"w": torch.tensor(GOLDEN[f"momentum/{name}"])} for name in "FRM"}
    run = FakeRun(
        weights=weights["F"],
        anchor=weights["R"],
        slots={"momentum": weights["M"]},
        started_first=first,
    )
    Ctp(m=float(m), m_first=float(m)).before_forward(run)
    close(weights["M"]["w"], f"momentum/{'two' if first else 'three'}_way_m{m}")


def test_lwf_over_channels_is_the_authors() -> None:
    run, image, text = _run()
    terms, _ = Lwf(target="channels").loss(run, BATCH, features(image, text))
    authors = (GOLDEN["s0/lwf/loss_i_dis"] + GOLDEN["s0/lwf/loss_t_dis"]) / 2
    np.testing.assert_allclose(terms["distill"].item(), authors, rtol=1e-9)
    _check_gradients(terms["distill"], image, text, "lwf/grad_loss_ita_dis")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_cosine_schedule_is_the_authors(number: int) -> None:
    given = ast.literal_eval(str(GOLDEN[f"lr/args_{number}"]))
    settings = Settings(lr=given["init_lr"], min_lr=given["min_lr"], schedule="cosine")
    schedule = GOLDEN[f"lr/schedule_{number}"]
    ours = [learning_rate(settings, step, len(schedule), 0) for step in range(len(schedule))]
    np.testing.assert_allclose(ours, schedule, rtol=1e-12)


def test_blending_is_in_place() -> None:
    weights = {"w": torch.ones(2)}
    place = weights["w"].data_ptr()
    blend_(weights, 0.5, (0.5, {"w": torch.zeros(2)}))
    assert weights["w"].data_ptr() == place
