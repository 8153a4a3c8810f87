"""Token ids of texts: open_clip's byte-pair encoding, or word pieces of files beside the model."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import torch
from torch import Tensor

from vlcpctl.core.errors import Incompatible
from vlcpctl.core.words import SpecialTokens
from vlcpctl.models.hub import first_line, quietly
from vlcpctl.models.imports import open_clip
from vlcpctl.models.vocabulary import cleaner, of_vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast

# What open_clip and transformers look for; a checkpoint holds copies.
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
VOCABULARIES = ("tokenizer.json", "vocab.txt")


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
        kind = open_clip().tokenizer.SimpleTokenizer
        self._tokenizer = kind(context_length=length, **options)

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
    """A tokenizer.json without transformers, equal to open_clip's HFTokenizer over its files.

    Or BERT's vocab.txt, equal to the tokenizer that transformers makes of it.
    """

    def __init__(self, directory: Path, length: int, options: dict[str, Any]) -> None:
        self._files = {n: (directory / n).read_bytes() for n in FILES if (directory / n).is_file()}
        self._clean = cleaner(options.get("clean", "whitespace"))
        self._directory = directory
        try:
            described = json.loads(self._files.get("tokenizer_config.json", b"{}"))
            self._tokenizer = _fast(self._files, described)
        except Exception as error:  # tokenizers raises nothing narrower
            raise Incompatible(f"{directory}: the tokenizer cannot be read: {error}") from error
        self._names = {
            kind: _content(described.get(f"{kind}_token")) or f"[{kind.upper()}]"
            for kind in ("pad", "cls", "sep", "mask")
        }
        padding = self._names["pad"]
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

    @property
    def special(self) -> SpecialTokens:
        """Ids that stand for no word; a tokenizer without [MASK] gets it after its last id."""
        ids = {kind: self._id(kind) for kind in ("pad", "cls", "sep")}
        mask = self._tokenizer.token_to_id(self._names["mask"])
        if mask is None:
            mask = self.size
        return SpecialTokens(**ids, mask=mask, words=max(self.size, mask + 1))

    def _id(self, kind: str) -> int:
        found = self._tokenizer.token_to_id(self._names[kind])
        if found is None:
            raise Incompatible(f"{self._directory} has no token {self._names[kind]!r}")
        return found

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
    advice = "give a directory with its tokenizer.json as text_cfg.hf_tokenizer_name"
    return word_pieces(name, directory, length, options, advice)


def word_pieces(
    name: str, directory: Path | None, length: int, options: dict[str, Any], advice: str
) -> WordPieces:
    """The tokenizer of a checkpoint's directory, of another directory, or of the hub."""
    for place in (directory, Path(name)):
        if place is not None and any((place / file).is_file() for file in VOCABULARIES):
            return WordPieces(place, length, options)
    if Path(name).is_dir() or Path(name).is_absolute():
        raise Incompatible(f"{name} holds no tokenizer: neither {' nor '.join(VOCABULARIES)}")
    return _from_hub(name, length, options, advice)


def _from_hub(name: str, length: int, options: dict[str, Any], advice: str) -> WordPieces:
    """A tokenizer that transformers knows by name, through the tokenizer.json that it writes."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as place:
        try:
            with quietly():
                AutoTokenizer.from_pretrained(name).save_pretrained(place)
        except (OSError, ValueError) as error:
            what = f"the tokenizer {name!r} cannot be had: {first_line(error)}"
            raise Incompatible(f"{what}; {advice}") from error
        if not (Path(place) / "tokenizer.json").is_file():
            raise Incompatible(f"the tokenizer {name!r} cannot be written as a tokenizer.json")
        return WordPieces(Path(place), length, options)


def _fast(files: dict[str, bytes], described: dict[str, Any]) -> Fast:
    """The tokenizer of a tokenizer.json, or of the words of a vocab.txt."""
    from tokenizers import Tokenizer as FromJson

    if "tokenizer.json" in files:
        return FromJson.from_str(files["tokenizer.json"].decode())
    return of_vocabulary(files["vocab.txt"].decode(), described)


def _content(token: str | dict[str, Any] | None) -> str | None:
    """A special token as tokenizer_config.json writes it: plain, or with its properties."""
    return token["content"] if isinstance(token, dict) else token
