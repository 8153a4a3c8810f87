"""Texts made by inversion: optimized independently, at free tokens only, into the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.batch import InversionSettings
from vlcpctl.models import encoders
from vlcpctl.models.inversion import InversionResult, Inverter, ParentCaptions, draw_parents

CAPTIONS = ["a red fox", "grinning face with big eyes", "", "flag of the world", "cat"]
HOW = InversionSettings(texts=6, pairs=5, low=0.1, high=0.3, iterations=4, rate=5.0)


@pytest.fixture(params=["micro", "albef-micro"])
def encoder(request: pytest.FixtureRequest) -> encoders.Encoder:
    built = encoders.build(request.param)
    built.module.double().eval()
    return built


def images(count: int = 5, width: int = 8) -> Tensor:
    drawn = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    return normalize(drawn.double() + 1, dim=-1)


def inverted(
    encoder: encoders.Encoder, how: InversionSettings = HOW, **changes: object
) -> InversionResult:
    parents = draw_parents(0, 0, how.texts, how.pairs)
    for name, value in changes.items():
        parents = replace(parents, **{name: value})
    width = encoder.width
    return Inverter(encoder, how).invert(images(width=width), encoder.tokenize(CAPTIONS), parents)


def naive_text(
    encoder: encoders.Encoder, parents: ParentCaptions, k: int, how: InversionSettings
) -> Tensor:
    """Section 3.2 for one text: mix two captions, then gradient descent on eq. 1."""
    tower, ids = encoder.text_tower, encoder.tokenize(CAPTIONS)
    one, other = int(parents.first[k]), int(parents.second[k])
    ends = [int(tower.ends(ids[place : place + 1])) for place in (one, other)]
    end = max(ends)
    share = float(parents.share[k])
    text = tower.lookup(ids[[one if ends[0] >= ends[1] else other]]).detach()
    for place in range(1, end):
        text[0, place] = share * tower.lookup(ids[[one]])[0, place].detach()
        text[0, place] += (1 - share) * tower.lookup(ids[[other]])[0, place].detach()
    for _ in range(how.iterations):
        text = text.detach().requires_grad_()
        feature = normalize(encoder.embedded_texts(text, torch.tensor([end]))[0], dim=0)
        loss = torch.zeros((), dtype=torch.float64)
        for image in images(width=encoder.width):
            score = (image * feature).sum()
            loss = loss + torch.relu(how.low - score) + torch.relu(score - how.high)
        (loss / how.pairs).backward()
        moved = text.detach().clone()
        for place in range(1, end):
            moved[0, place] -= how.rate * text.grad[0, place]
        text = moved
    return text[0]


def test_texts_are_those_of_a_loop_over_section_3_2(encoder: encoders.Encoder) -> None:
    parents = draw_parents(0, 0, HOW.texts, HOW.pairs)
    ours = inverted(encoder).texts.embeddings
    for k in range(HOW.texts):
        naive = naive_text(encoder, parents, k, HOW)
        torch.testing.assert_close(ours[k], naive, rtol=1e-9, atol=1e-12)


def test_how_many_are_made_at_once_changes_rounding_alone(encoder: encoders.Encoder) -> None:
    together = inverted(encoder)
    parents = draw_parents(0, 0, HOW.texts, HOW.pairs)
    inverter, ids = Inverter(encoder, HOW), encoder.tokenize(CAPTIONS)
    for k in range(HOW.texts):
        alone = inverter.invert(images(width=encoder.width), ids, parents.part(slice(k, k + 1)))
        torch.testing.assert_close(
            alone.texts.embeddings[0], together.texts.embeddings[k], rtol=1e-9, atol=1e-12
        )
        torch.testing.assert_close(alone.after.loss[0], together.after.loss[k])


def test_start_end_and_padding_stay_and_the_words_move(encoder: encoders.Encoder) -> None:
    start = inverted(encoder, replace(HOW, iterations=0)).texts
    done = inverted(encoder, replace(HOW, low=0.9, high=0.95)).texts
    assert torch.equal(start.ends, done.ends)
    moved = (start.embeddings != done.embeddings).any(-1)
    for k, end in enumerate(done.ends.tolist()):
        places = torch.arange(moved.shape[1])
        assert not moved[k][(places == 0) | (places >= end)].any()
        assert moved[k][1:end].all()


def test_similarities_move_into_the_band() -> None:
    encoder = encoders.build("micro")
    result = inverted(encoder, replace(HOW, texts=64, low=0.0, high=0.25, iterations=60, rate=0.5))
    assert result.after.loss.mean() < 0.3 * result.before.loss.mean()
    assert result.after.within.mean() > result.before.within.mean() + 0.3
    assert ((result.after.loss == 0) == (result.after.within == 1)).all()


def test_the_draws_hang_on_seed_and_number_alone() -> None:
    one, again = draw_parents(0, 7, 50, 9), draw_parents(0, 7, 50, 9)
    assert torch.equal(one.share, again.share)
    assert torch.equal(one.first, again.first)
    for other in (draw_parents(1, 7, 50, 9), draw_parents(0, 8, 50, 9)):
        assert not torch.equal(one.share, other.share)
        assert not torch.equal(one.first, other.first)
    assert 0 <= one.share.min() < 0.2
    assert 0.8 < one.share.max() <= 1
    assert set(torch.cat([one.first, one.second]).tolist()) == set(range(9))


def test_other_weights_make_other_texts_and_leave_the_model_alone() -> None:
    encoder = encoders.build("micro")
    encoder.module.train()
    frozen = {name: weight.detach() * 1.3 for name, weight in encoder.weights().items()}
    ids, parents = encoder.tokenize(CAPTIONS), draw_parents(0, 0, HOW.texts, HOW.pairs)
    side = images().float()
    one = Inverter(encoder, HOW).invert(side, ids, parents)
    other = Inverter(encoder, HOW, frozen).invert(side, ids, parents)
    assert not torch.allclose(one.texts.embeddings, other.texts.embeddings)
    assert all(weight.grad is None for weight in encoder.weights().values())
    assert encoder.module.training
