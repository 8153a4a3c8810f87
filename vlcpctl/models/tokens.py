"""Token ids of texts: open_clip's byte-pair encoding, or a tokenizer.json beside the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from vlcpctl.core.errors import Incompatible

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


class Tokenizer(Protocol):
    """Texts to (n, L) token ids; and the files that a checkpoint must hold for it."""

    def __call__(self, texts: list[str]) -> Tensor:
        """The ids, cut or padded to the model's length."""
        ...

    def save(self, directory: Path) -> None:
        """Put what a reader needs beside the weights."""
        ...


class BytePairs:
    """CLIP's own tokenizer, which ships with open_clip."""

    def __init__(self, length: int) -> None:
        from open_clip.tokenizer import SimpleTokenizer

        self._tokenizer = SimpleTokenizer(context_length=length)

    def __call__(self, texts: list[str]) -> Tensor:
        ids: Tensor = self._tokenizer(texts)
        return ids

    def save(self, directory: Path) -> None:
        """Nothing: every open_clip has it."""


class LocalFile:
    """A tokenizer.json, read without transformers; equal to open_clip's HFTokenizer over the same files."""

    def __init__(self, directory: Path, length: int) -> None:
        from tokenizers import Tokenizer as Fast

        path = directory / "tokenizer.json"
        if not path.is_file():
            raise Incompatible(f"{directory} has no tokenizer.json")
        self._directory = directory
        self._tokenizer = Fast.from_file(str(path))
        self._tokenizer.enable_truncation(length)
        pad = self._tokenizer.token_to_id("[PAD]")
        self._tokenizer.enable_padding(length=length, pad_id=pad or 0, pad_token="[PAD]")

    def __call__(self, texts: list[str]) -> Tensor:
        cleaned = [" ".join(text.split()) for text in texts]
        return torch.tensor([encoding.ids for encoding in self._tokenizer.encode_batch(cleaned)])

    def save(self, directory: Path) -> None:
        """The files as they are."""
        for name in FILES:
            if (self._directory / name).is_file():
                shutil.copyfile(self._directory / name, directory / name)


class FromHub:
    """A tokenizer that transformers knows by name."""

    def __init__(self, name: str, length: int) -> None:
        from open_clip.tokenizer import HFTokenizer

        try:
            self._tokenizer = HFTokenizer(name, context_length=length)
        except (OSError, ValueError) as error:
            raise Incompatible(
                f"the tokenizer {name!r} cannot be had: {str(error).splitlines()[0]}; "
                "give a directory with its files as text_cfg.hf_tokenizer_name"
            ) from error

    def __call__(self, texts: list[str]) -> Tensor:
        ids: Tensor = self._tokenizer(texts)
        return ids

    def save(self, directory: Path) -> None:
        """The tokenizer's own files."""
        self._tokenizer.save_pretrained(str(directory))


def tokenizer_of(config: dict[str, Any], directory: Path | None = None) -> Tokenizer:
    """The tokenizer of a model configuration; a checkpoint's own files come first."""
    text = config["text_cfg"]
    length = int(text.get("context_length", 77))
    name = text.get("hf_tokenizer_name")
    if not name:
        return BytePairs(length)
    if directory is not None and (directory / "tokenizer.json").is_file():
        return LocalFile(directory, length)
    if (Path(name) / "tokenizer.json").is_file():
        return LocalFile(Path(name), length)
    return FromHub(name, length)
