"""Masked words and token features against numbers computed by the CTP authors' own code."""

from __future__ import annotations

import pytest
import torch
from support.ctp_numbers import GOLDEN, close, given
from support.fake_part import FakePart, tokens
from support.fake_run import FakeRun

from vlcpctl.core.batch import Terms, Tokens
from vlcpctl.core.method import Method
from vlcpctl.losses.direction import profile_cosine_distance
from vlcpctl.losses.masked import soft_word_loss, word_loss
from vlcpctl.methods.ctp import Ctp
from vlcpctl.methods.icarl import Icarl
from vlcpctl.methods.lucir import Lucir
from vlcpctl.methods.lwf import Lwf
from vlcpctl.models.fusion.model import CosineLinear

LABELS = given("labels")
MASKED = int((LABELS >= 0).sum())


def _tokens(model: str, logits: torch.Tensor | None = None) -> Tokens:
    sides = (given(f"{model}_img_tokens"), given(f"{model}_txt_tokens"))
    own = given(f"{model}_logits") if logits is None else logits
    return tokens(own, LABELS, *(side.requires_grad_() for side in sides))


def _terms(method: Method, out: Tokens) -> Terms:
    part = FakePart(len(LABELS), MASKED, old=_tokens("R"), slow=_tokens("M"))
    return method.token_loss(FakeRun(slots={"momentum": {}}), part, out)


def test_word_loss_is_the_authors() -> None:
    logits = given("F_logits").requires_grad_()
    out = _tokens("F", logits)
    loss = word_loss(out.logits, out.labels) / MASKED
    close(loss, "s0/finetune/loss_mlm")
    close(torch.autograd.grad(loss, logits)[0], "s0/finetune/grad_loss_mlm_wrt_logits")


@pytest.mark.parametrize(
    ("method", "mode"),
    [(Ctp(), "ctp"), (Lwf(), "lwf"), (Icarl(), "lwf"), (Lucir(variant="ctp"), "lucir")],
    ids=["ctp", "lwf", "icarl", "lucir"],
)
def test_a_teachers_words_are_the_authors(method: Method, mode: str) -> None:
    logits = given("F_logits").requires_grad_()
    words = _terms(method, _tokens("F", logits))["words"]
    close(words, f"s0/{mode}/loss_mlm_dis")
    (grad,) = torch.autograd.grad(words, logits)
    if mode == "ctp":
        close(grad, "s0/ctp/grad_loss_mlm_dis_wrt_logits")
    assert not grad[LABELS < 0].any()
    assert grad[LABELS >= 0].any()


def test_lucirs_profiles_over_tokens_are_the_authors() -> None:
    out, old = _tokens("F"), _tokens("R")
    close(profile_cosine_distance(out.image, old.image).mean(), "s0/lucir/loss_cos_i")
    close(profile_cosine_distance(out.text, old.text).mean(), "s0/lucir/loss_cos_t")
    term = _terms(Lucir(variant="ctp"), out)["direction"]
    close(term, "s0/lucir/loss_cos")
    for side, name in ((out.image, "img"), (out.text, "txt")):
        (grad,) = torch.autograd.grad(term, side, retain_graph=True)
        close(grad, f"s0/lucir/grad_loss_ita_dis_wrt_{name}_tokens")


def test_words_in_two_parts_add_up_to_those_in_one() -> None:
    whole = _terms(Ctp(), _tokens("F"))["words"]
    parts = []
    for half in (slice(0, 2), slice(2, 6)):
        out, slow = (tokens(given(f"{model}_logits")[half], LABELS[half]) for model in ("F", "M"))
        part = FakePart(len(LABELS), MASKED, slow=slow)
        parts.append(Ctp().token_loss(FakeRun(slots={"momentum": {}}), part, out)["words"])
    torch.testing.assert_close(sum(parts), whole)


def test_nothing_masked_is_0_and_no_nan() -> None:
    logits = given("F_logits").requires_grad_()
    out = tokens(logits, torch.full_like(LABELS, -100))
    loss = word_loss(out.logits, out.labels) + soft_word_loss(out.logits, out.logits.detach())
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_cosine_heads_are_the_authors() -> None:
    weight, sigma = (
        torch.tensor(GOLDEN[f"s0/cosine_linear/{name}"]) for name in ("weight", "sigma")
    )
    head = CosineLinear(8, 5).double()
    head.load_state_dict({"weight": weight, "sigma": sigma})
    close(head(given("F_img")), "s0/cosine_linear/out_for_F_img")
