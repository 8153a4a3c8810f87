"""Generate pseudo texts that are similar to images, but not too similar (IncCLIP, section 3.2).

The token embeddings of two captions are mixed, and gradient descent moves the mixture until its
similarities to all images are between two bounds. Random draws depend on (seed, number of the
mini-batch) alone, and each text is optimized independently: how many are generated at once changes
rounding at most.

Shapes: B images and captions of a mini-batch of the memory, K texts, L tokens, W channels of a
token's embedding, D of the shared space.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vlcpctl.core.batch import InversionSettings, PseudoTexts, Weights
from vlcpctl.core.devices import to_device
from vlcpctl.core.seeds import generator
from vlcpctl.losses.incclip import margins
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.text_tower import TextTower


@dataclass(frozen=True)
class ParentCaptions:
    """The two captions that each of K texts mixes, and the share of the first (beta)."""

    first: Tensor  # (K,) places in the mini-batch; a text may have one caption for both
    second: Tensor  # (K,)
    share: Tensor  # (K,) in [0, 1]

    def part(self, rows: slice) -> ParentCaptions:
        """The parents of a slice of the texts."""
        return ParentCaptions(self.first[rows], self.second[rows], self.share[rows])


@dataclass(frozen=True)
class InversionScores:
    """The loss of texts (eq. 1) and their similarities to the images; (K,) each."""

    loss: Tensor
    similarity: Tensor  # mean over the images
    within: Tensor  # share of the images whose similarity is between the bounds


@dataclass(frozen=True)
class InversionResult:
    """The generated texts, and their loss and similarities before and after optimization."""

    texts: PseudoTexts
    before: InversionScores
    after: InversionScores


def draw_parents(seed: int, number: int, texts: int, pairs: int) -> ParentCaptions:
    """Draw the parents of `texts` texts from mini-batch `number` of `pairs` captions."""
    draw = generator(seed, "invert", number)
    places = torch.from_numpy(draw.integers(0, pairs, (2, texts)))
    return ParentCaptions(places[0], places[1], torch.from_numpy(draw.random(texts)))


@dataclass(frozen=True)
class Inverter:
    """Generates texts with a frozen model: the encoder, with `weights` in place of its own."""

    encoder: Encoder
    settings: InversionSettings
    weights: Weights | None = None

    def invert(self, image_BD: Tensor, ids_BL: Tensor, parents: ParentCaptions) -> InversionResult:
        """Generate K texts for unit-length image features; all tensors on the model's device."""
        texts, free_KL1 = mixed(self.encoder.text_tower, ids_BL, parents, self.weights)
        before = self._scores(image_BD, texts)
        for _ in range(self.settings.iterations):
            texts = self._descend(image_BD, texts, free_KL1)
        return InversionResult(texts, before, self._scores(image_BD, texts))

    def _descend(self, image_BD: Tensor, texts: PseudoTexts, free_KL1: Tensor) -> PseudoTexts:
        """One step of gradient descent on eq. 1."""
        embeddings = texts.embeddings.requires_grad_()
        with torch.enable_grad():
            loss_K = self._losses(self._similarities(image_BD, texts))
            # The gradient of the sum with respect to one text is that of its own loss, so texts do
            # not depend on each other.
            (gradient,) = torch.autograd.grad(loss_K.sum(), embeddings)
        moved = embeddings.detach() - self.settings.rate * gradient * free_KL1
        return PseudoTexts(moved, texts.ends)

    @torch.no_grad()
    def _scores(self, image_BD: Tensor, texts: PseudoTexts) -> InversionScores:
        scores_BK = self._similarities(image_BD, texts)
        within = (scores_BK >= self.settings.low) & (scores_BK <= self.settings.high)
        share = within.to(scores_BK.dtype).mean(0)
        return InversionScores(self._losses(scores_BK), scores_BK.mean(0), share)

    def _similarities(self, image_BD: Tensor, texts: PseudoTexts) -> Tensor:
        raw_KD = self.encoder.embedded_texts(texts.embeddings, texts.ends, self.weights)
        return image_BD @ normalize(raw_KD.to(image_BD.dtype), dim=-1).T

    def _losses(self, scores_BK: Tensor) -> Tensor:
        return margins(scores_BK, self.settings.low, self.settings.high)


@torch.no_grad()
def mixed(
    tower: TextTower, ids_BL: Tensor, parents: ParentCaptions, weights: Weights | None = None
) -> tuple[PseudoTexts, Tensor]:
    """K mixtures of two captions, and a (K, L, 1) mask of the tokens that may be optimized.

    Start token, end token and padding are those of the longer parent and stay fixed.
    """
    # Drawn on the CPU; as they are, they would make it wait for a GPU.
    first, second, share = (
        to_device(drawn, ids_BL.device) for drawn in (parents.first, parents.second, parents.share)
    )
    one, other = ids_BL[first], ids_BL[second]
    ends = torch.stack([tower.ends(one), tower.ends(other)])
    places = torch.arange(ids_BL.shape[1], device=ids_BL.device)
    latest = ends.amax(0)[:, None]
    free_KL1 = ((places > 0) & (places < latest))[:, :, None]
    one_KLW, other_KLW = tower.lookup(one, weights), tower.lookup(other, weights)
    share = share.to(one_KLW)[:, None, None]
    longer = torch.where((ends[0] >= ends[1])[:, None, None], one_KLW, other_KLW)
    mixture = torch.where(free_KL1, share * one_KLW + (1 - share) * other_KLW, longer)
    return PseudoTexts(mixture, latest[:, 0]), free_KL1
