"""Token ids of texts: open_clip's byte-pair encoding, or a tokenizer.json beside the model."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Protocol, final

import torch
from torch import Tensor

from vlcpctl.core.errors import Incompatible

# What open_clip and transformers look for; a checkpoint holds copies.
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


class Tokenizer(Protocol):
    """Texts to (n, L) token ids; and the files that a checkpoint must hold for it."""

    @property
    def size(self) -> int:
        """How many ids there are."""

    def __call__(self, texts: list[str]) -> Tensor:
        """The ids, cut or padded to the model's length."""

    def save(self, directory: Path) -> None:
        """Put what a reader needs beside the weights."""


@final
class BytePairs:
    """CLIP's own tokenizer, which ships with open_clip."""

    def __init__(self, length: int, options: dict[str, Any]) -> None:
        from open_clip.tokenizer import SimpleTokenizer

        self._tokenizer = SimpleTokenizer(context_length=length, **options)

    @property
    def size(self) -> int:
        return int(self._tokenizer.vocab_size)

    def __call__(self, texts: list[str]) -> Tensor:
        ids: Tensor = self._tokenizer(texts)
        return ids

    def save(self, directory: Path) -> None:
        """Nothing: every open_clip has it."""


@final
class WordPieces:
    """A tokenizer.json without transformers, equal to open_clip's HFTokenizer over its files."""

    def __init__(self, directory: Path, length: int, options: dict[str, Any]) -> None:
        from open_clip.tokenizer import get_clean_fn
        from tokenizers import Tokenizer as Fast

        self._files = {n: (directory / n).read_bytes() for n in FILES if (directory / n).is_file()}
        self._clean = get_clean_fn(options.get("clean", "whitespace"))
        try:
            self._tokenizer = Fast.from_str(self._files["tokenizer.json"].decode())
            described = json.loads(self._files.get("tokenizer_config.json", b"{}"))
        except Exception as error:  # tokenizers raises nothing narrower
            raise Incompatible(f"{directory}: the tokenizer cannot be read: {error}") from error
        padding = _content(described.get("pad_token")) or "[PAD]"
        padding_id = self._tokenizer.token_to_id(padding)
        if padding_id is None:
            raise Incompatible(f"{directory}: the tokenizer has no padding token {padding!r}")
        separator = self._tokenizer.token_to_id(_content(described.get("sep_token")) or "")
        self._blanked = separator if options.get("strip_sep_token") else None
        self._tokenizer.enable_truncation(
            length, direction=described.get("truncation_side", "right")
        )
        self._tokenizer.enable_padding(
            length=length,
            pad_id=padding_id,
            pad_token=padding,
            direction=described.get("padding_side", "right"),
        )

    @property
    def size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def __call__(self, texts: list[str]) -> Tensor:
        # One by one: encode_batch starts threads, which a process that forks workers must not have.
        ids = torch.tensor([self._tokenizer.encode(self._clean(text)).ids for text in texts])
        return ids if self._blanked is None else ids.masked_fill(ids == self._blanked, 0)

    def save(self, directory: Path) -> None:
        """The files as they are."""
        for name, data in self._files.items():
            (directory / name).write_bytes(data)


def tokenizer_of(config: dict[str, Any], directory: Path | None = None) -> Tokenizer:
    """The tokenizer of a model configuration; a checkpoint's own files come first."""
    text = config["text_cfg"]
    length, name = int(text.get("context_length", 77)), text.get("hf_tokenizer_name")
    options = text.get("tokenizer_kwargs") or {}
    if not name:
        return BytePairs(length, options)
    unknown = sorted(options.keys() - {"clean", "strip_sep_token"})
    if text.get("tokenizer_mode") or unknown:
        what = unknown[0] if unknown else "tokenizer_mode"
        raise Incompatible(f"text_cfg sets {what!r}, which is not supported with {name!r}")
    for place in (directory, Path(name)):
        if place is not None and (place / "tokenizer.json").is_file():
            return WordPieces(place, length, options)
    return _from_hub(name, length, options)


def _from_hub(name: str, length: int, options: dict[str, Any]) -> Tokenizer:
    """A tokenizer that transformers knows by name, through the tokenizer.json that it writes."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as place:
        try:
            AutoTokenizer.from_pretrained(name).save_pretrained(place)
        except (OSError, ValueError) as error:
            raise Incompatible(
                f"the tokenizer {name!r} cannot be had: {str(error).strip().splitlines()[0]}; "
                "give a directory with its tokenizer.json as text_cfg.hf_tokenizer_name"
            ) from error
        if not (Path(place) / "tokenizer.json").is_file():
            raise Incompatible(f"the tokenizer {name!r} cannot be written as a tokenizer.json")
        return WordPieces(Path(place), length, options)


def _content(token: str | dict[str, Any] | None) -> str | None:
    """A special token as tokenizer_config.json writes it: plain, or with its properties."""
    return token["content"] if isinstance(token, dict) else token
