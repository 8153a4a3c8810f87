"""Loads the fusion model in this directory: a vision transformer, a BERT that attends to the image.

    from modeling_fusion import load
    model = load(".")                                   # the directory of this file, in eval mode
    pixels = model.pixels([Image.open("cat.jpg")])      # (b, 3, H, W)
    ids = model.tokenize(["a photo of a cat"])          # (b, L)
    image, text = model.embed_images(pixels), model.embed_texts(ids)  # (b, D) each
    score = normalize(image, dim=-1) @ normalize(text, dim=-1).T      # cosine similarities
    fused = model.fuse(pixels, ids)                     # (b, C): the [CLS] state of each pair
    logits = model.words(pixels, ids)                   # (b, L, V): a prediction at each token

It needs torch, timm, safetensors, tokenizers and Pillow, and ftfy where `clean` in config.json is
whitespace, lower or canonicalize. It does not need the program that trained the model.

Shapes: b images or texts, N tokens of an image, L tokens of a text, C channels of a token, D
channels of the shared space, V words in the vocabulary.
"""

from __future__ import annotations

import html
import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, normalize

EPSILON = 1e-12  # of the layer norms of BERT
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
MOST_WORDS = 30  # of a caption, with `clean` ctp

Layer = TypeVar("Layer", nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def load(directory: str | Path) -> FusionModel:
    """The model in a directory with config.json, model.safetensors and a tokenizer; in eval mode.

    Raises OSError if a file is missing, ValueError or RuntimeError if the tokenizer or the weights
    do not fit.
    """
    place = Path(directory)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    model = FusionModel(config, _Tokenizer(place, config["text_cfg"]))
    model.load_state_dict(load_file(place / "model.safetensors"))
    return model.eval()


class FusionModel(nn.Module):
    """An image encoder, a text encoder that fuses both, two projections and a word head (ALBEF)."""

    def __init__(self, config: Mapping[str, Any], tokenizer: _Tokenizer) -> None:
        super().__init__()
        image, text = config["image_cfg"], config["text_cfg"]
        width, dim = text["width"], config["embed_dim"]
        self.config, self.tokenizer = dict(config), tokenizer
        self.image_encoder = VisionTransformer(
            img_size=image["image_size"],
            patch_size=image["patch_size"],
            embed_dim=image["width"],
            depth=image["layers"],
            num_heads=image["heads"],
            mlp_ratio=image.get("mlp_ratio", 4.0),
            num_classes=0,
        )
        self.text_encoder = _TextEncoder(text, tokenizer.pad)
        self.word_head = _WordHead(width, text["vocab_size"])
        projection = _CosineLinear if config.get("heads") == "cosine" else nn.Linear
        self.image_projection = projection(width, dim)
        self.text_projection = projection(width, dim)
        self.logit_scale = nn.Parameter(torch.zeros(()))  # the log of 1 / temperature

    def pixels(self, images: Sequence[Image.Image]) -> Tensor:
        """Pixels (b, 3, H, W) of images as the model takes them: resized and normalised."""
        prepared = self.config["preprocess_cfg"]
        size = self.config["image_cfg"]["image_size"]
        views = [np.asarray(_resized(_rgb(image), size, prepared)) for image in images]
        rows = torch.from_numpy(np.stack(views)).float().div(255)
        mean, std = (torch.tensor(prepared[name]) for name in ("mean", "std"))
        return ((rows - mean) / std).permute(0, 3, 1, 2)

    def tokenize(self, texts: Sequence[str]) -> Tensor:
        """Token ids (b, L) of texts, cut or padded to the text length of the model."""
        return torch.tensor([self.tokenizer(text) for text in texts])

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Projections (b, D) of pixels (b, 3, H, W); normalise them for cosine similarities."""
        found: Tensor = self.image_projection(self._image_tokens(pixels)[:, 0])
        return found

    def embed_texts(self, ids: Tensor) -> Tensor:
        """Projections (b, D) of token ids (b, L); normalise them for cosine similarities."""
        found: Tensor = self.text_projection(self.text_encoder(ids)[:, 0])
        return found

    def fuse(self, pixels: Tensor, ids: Tensor) -> Tensor:
        """The [CLS] states (b, C) of texts (b, L), each fused with its image (b, 3, H, W)."""
        return self._fused(pixels, ids)[:, 0]

    def words(self, pixels: Tensor, ids: Tensor) -> Tensor:
        """Logits (b, L, V) of the word at each token of texts (b, L) fused with images."""
        found: Tensor = self.word_head(
            self._fused(pixels, ids), self.text_encoder.embeddings.words.weight
        )
        return found

    def _image_tokens(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.image_encoder.forward_features(pixels)
        return found

    def _fused(self, pixels: Tensor, ids: Tensor) -> Tensor:
        return self.text_encoder.fuse(self.text_encoder(ids), ids, self._image_tokens(pixels))


class _TextEncoder(nn.Module):
    """Layers that encode the text alone, then layers that also attend to image tokens."""

    def __init__(self, config: Mapping[str, Any], pad: int) -> None:
        super().__init__()
        self.pad = pad
        alone = config["layers"] - config["fusion_layers"]
        self.embeddings = _Embeddings(config, pad)
        self.text_layers = nn.ModuleList(
            _layer(nn.TransformerEncoderLayer, config) for _ in range(alone)
        )
        self.fusion_layers = nn.ModuleList(
            _layer(nn.TransformerDecoderLayer, config) for _ in range(config["fusion_layers"])
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Token states (b, L, C) of texts (b, L) alone."""
        hidden: Tensor = self.embeddings(ids).transpose(0, 1)  # the layers take (L, b, C)
        for layer in self.text_layers:
            hidden = layer(hidden, src_key_padding_mask=ids == self.pad)
        return hidden.transpose(0, 1)

    def fuse(self, text_tokens: Tensor, ids: Tensor, image_tokens: Tensor) -> Tensor:
        """Token states (b, L, C) of texts fused with images (b, N, C)."""
        hidden, image = text_tokens.transpose(0, 1), image_tokens.transpose(0, 1)
        for layer in self.fusion_layers:
            hidden = layer(hidden, image, tgt_key_padding_mask=ids == self.pad)
        return hidden.transpose(0, 1)


class _Embeddings(nn.Module):
    """BERT's embeddings: word, position and the first token type, summed and normalised."""

    def __init__(self, config: Mapping[str, Any], pad: int) -> None:
        super().__init__()
        width = config["width"]
        self.words = nn.Embedding(config["vocab_size"], width, padding_idx=pad)
        self.positions = nn.Embedding(config.get("positions", 512), width)
        self.token_types = nn.Embedding(config.get("token_types", 2), width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, ids: Tensor) -> Tensor:
        """Embeddings (b, L, C) of token ids (b, L)."""
        placed = self.positions.weight[: ids.shape[1]] + self.token_types.weight[0]
        found: Tensor = self.norm(self.words(ids) + placed)
        return found


class _CosineLinear(nn.Module):
    """Cosine similarities to the rows of a matrix, times a learned scale."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, width))
        self.sigma = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Scaled cosine similarities (b, D) of features (b, C)."""
        return self.sigma * linear(normalize(features, dim=-1), normalize(self.weight, dim=-1))


class _WordHead(nn.Module):
    """BERT's head for masked words; its output matrix is that of the word embeddings."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens: Tensor, embeddings: Tensor) -> Tensor:
        """Logits (b, L, V) of token states (b, L, C), given the word embeddings (V, C)."""
        return linear(self.norm(gelu(self.dense(tokens))), embeddings, self.bias)


def _layer(kind: type[Layer], config: Mapping[str, Any]) -> Layer:
    return kind(
        config["width"],
        config["heads"],
        config["feed_forward"],
        dropout=0.0,
        activation=gelu,
        layer_norm_eps=EPSILON,
    )


class _Tokenizer:
    """The tokenizer of tokenizer.json, or of BERT's vocab.txt."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        described = _json_of(directory / "tokenizer_config.json")
        self._clean = CLEAN[config.get("clean", "none")]
        whole = directory / "tokenizer.json"
        self._tokenizer = (
            Tokenizer.from_file(str(whole))
            if whole.is_file()
            else _of_vocabulary((directory / "vocab.txt").read_text(encoding="utf-8"), described)
        )
        padding = _content(described.get("pad_token")) or "[PAD]"
        found = self._tokenizer.token_to_id(padding)
        if found is None:
            raise ValueError(f"{directory}: the tokenizer has no padding token {padding!r}")
        self.pad: int = found
        length = config["context_length"]
        sides = {name: described.get(f"{name}_side", "right") for name in ("truncation", "padding")}
        self._tokenizer.enable_truncation(length, direction=sides["truncation"])
        self._tokenizer.enable_padding(
            length=length, pad_id=self.pad, pad_token=padding, direction=sides["padding"]
        )

    def __call__(self, text: str) -> list[int]:
        """The L token ids of a text."""
        ids: list[int] = self._tokenizer.encode(self._clean(text)).ids
        return ids


def _of_vocabulary(text: str, described: Mapping[str, Any]) -> Tokenizer:
    """BERT's tokenizer with the words of a vocab.txt, one on each line."""
    words = {word: number for number, word in enumerate(text.removesuffix("\n").split("\n"))}
    tokenizer = Tokenizer(WordPiece(words, unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=described.get("tokenize_chinese_chars", True),
        strip_accents=described.get("strip_accents"),
        lowercase=described.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in SPECIAL if word in words])
    tokenizer.post_processor = BertProcessing(("[SEP]", words["[SEP]"]), ("[CLS]", words["[CLS]"]))
    return tokenizer


def _json_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
    return found


def _content(token: Any) -> str | None:
    """A special token, written plainly or with its properties."""
    found: str | None = token["content"] if isinstance(token, dict) else token
    return found


def _ctp(text: str) -> str:
    """A caption as the CTP authors clean it: lower case, less punctuation, the first words."""
    plain = re.sub(r"[.!\"()*#:;~\s]+", " ", text.lower()).strip()
    return " ".join(plain.split(" ")[:MOST_WORDS])


def _basic(text: str) -> str:
    import ftfy

    return html.unescape(html.unescape(ftfy.fix_text(text))).strip()


def _whitespace(text: str) -> str:
    return " ".join(_basic(text).split())


def _lower(text: str) -> str:
    return _whitespace(text).lower()


def _canonicalize(text: str) -> str:
    plain = _basic(text).replace("_", " ").translate(str.maketrans("", "", string.punctuation))
    return " ".join(plain.lower().split())


CLEAN: Mapping[str, Callable[[str], str]] = {
    "none": str,
    "ctp": _ctp,
    "whitespace": _whitespace,
    "lower": _lower,
    "canonicalize": _canonicalize,
}


def _rgb(image: Image.Image) -> Image.Image:
    """An RGB image: transparency becomes white, 16-bit channels are reduced to their upper 8."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        solid = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _resized(image: Image.Image, side: int, prepared: Mapping[str, Any]) -> Image.Image:
    """The image in the size of the model; `prepared` has its resize_mode and interpolation."""
    if image.size == (side, side):
        return image
    mode, resample = prepared["resize_mode"], FILTERS[prepared["interpolation"]]
    if mode == "squash":
        return image.resize((side, side), resample)
    if mode == "longest":
        factor = side / max(image.size)
        width, height = (max(1, round(one * factor)) for one in image.size)
        solid = Image.new("RGB", (side, side), (prepared["fill_color"],) * 3)
        solid.paste(
            image.resize((width, height), resample), ((side - width) // 2, (side - height) // 2)
        )
        return solid
    width, height = image.size
    target = (
        (side, int(side * height / width))
        if width <= height
        else (int(side * width / height), side)
    )
    left, top = (round((one - side) / 2.0) for one in target)
    corners = left, top, left + side, top + side
    if max(target) > 16 * side:  # whole, an image of 1 x 12,000 pixels would take gigabytes
        wide, high = width / target[0], height / target[1]
        box = (left * wide, top * high, (left + side) * wide, (top + side) * high)
        return image.resize((side, side), resample, box=box)
    return image.resize(target, resample).crop(corners)
