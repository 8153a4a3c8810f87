"""Tokenizers: open_clip's byte-pair encoding, or word pieces read from the model's directory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import torch
from torch import Tensor

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.core.errors import Incompatible, unreadable
from vlcpctl.files.inputs import parse_json
from vlcpctl.models.checkpoint_files import TOKENIZER_FILES
from vlcpctl.models.hub import quietly, why_unavailable
from vlcpctl.models.imports import open_clip

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast

VOCABULARIES = ("tokenizer.json", "vocab.txt")

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # in characters; BERT's tokenizer makes a longer one [UNK]

MOST_WORDS = 30  # of a caption, in the CTP authors' data


class Tokenizer(Protocol):
    """Turns texts into token ids, and saves the files that a checkpoint needs for that."""

    @property
    def size(self) -> int:
        """The number of token ids."""

    def __call__(self, texts: list[str]) -> Tensor:
        """(n, L) int64 token ids of n texts, cut or padded to the model's text length L."""

    def save(self, directory: Path) -> None:
        """Write the tokenizer's files into the directory of a checkpoint."""


@final
class BytePairs:
    """CLIP's own tokenizer, which ships with open_clip."""

    def __init__(self, length: int, options: dict[str, Any]) -> None:
        library = open_clip().tokenizer
        if options:
            self._tokenizer = library.SimpleTokenizer(context_length=length, **options)
        else:  # open_clip has made one, which took 0.2 s
            self._tokenizer = copy(vars(library)["_tokenizer"])
            self._tokenizer.context_length = length

    @property
    def size(self) -> int:
        return int(self._tokenizer.vocab_size)

    def __call__(self, texts: list[str]) -> Tensor:
        """See `Tokenizer`."""
        ids: Tensor = self._tokenizer(texts)
        return ids

    def save(self, directory: Path) -> None:
        """Writes nothing: open_clip ships with this tokenizer."""


@final
class WordPieces:
    """The tokenizer of a tokenizer.json or of BERT's vocab.txt, read without transformers.

    The ids equal those of open_clip's HFTokenizer, or those of transformers for a vocab.txt. Raises
    Incompatible if the directory's files cannot be read or lack a padding token.
    """

    def __init__(self, directory: Path, length: int, options: dict[str, Any]) -> None:
        self._files = {
            n: (directory / n).read_bytes() for n in TOKENIZER_FILES if (directory / n).is_file()
        }
        self._clean = cleaner(options.get("clean", "whitespace"))
        self._directory = directory
        try:
            described = parse_json(self._files.get("tokenizer_config.json", b"{}"))
            self._tokenizer = _fast(self._files, described)
            self._prepare(described, length, strips=bool(options.get("strip_sep_token")))
        except Incompatible:
            raise
        except Exception as error:  # the tokenizers library raises plain Exception
            raise Incompatible(unreadable(f"the tokenizer in {directory}", error)) from error

    def _prepare(self, described: dict[str, Any], length: int, *, strips: bool) -> None:
        """Set what tokenizer_config.json says, which may be anything, and the length of texts."""
        self._names = {
            kind: _content(described.get(f"{kind}_token")) or f"[{kind.upper()}]"
            for kind in ("pad", "cls", "sep", "mask")
        }
        padding = self._names["pad"]
        padding_id = self._tokenizer.token_to_id(padding)
        if padding_id is None:
            raise Incompatible(f"{self._directory}: the tokenizer has no padding token {padding!r}")
        separator = self._tokenizer.token_to_id(_content(described.get("sep_token")) or "")
        self._blanked = separator if strips else None
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
        """The ids of the special tokens; [MASK] follows the last id if the tokenizer lacks it.

        Raises Incompatible if the tokenizer has no [CLS] or [SEP].
        """
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
        """See `Tokenizer`."""
        # Not encode_batch: it starts threads, and forking workers from a threaded process may hang.
        ids = torch.tensor([self._tokenizer.encode(self._clean(text)).ids for text in texts])
        return ids if self._blanked is None else ids.masked_fill(ids == self._blanked, 0)

    def save(self, directory: Path) -> None:
        """Write the files as they were read."""
        for name, data in self._files.items():
            (directory / name).write_bytes(data)


def tokenizer_of(config: dict[str, Any], directory: Path | None = None) -> Tokenizer:
    """The tokenizer of a model configuration, preferably from the files of its checkpoint.

    Raises Incompatible if it cannot be read or has options that are not supported.
    """
    text = config["text_cfg"]
    length, name = int(text.get("context_length", 77)), text.get("hf_tokenizer_name")
    options = text.get("tokenizer_kwargs") or {}
    if not name:
        return BytePairs(length, options)
    unknown = sorted(options.keys() - {"clean", "strip_sep_token"})
    if text.get("tokenizer_mode") or unknown:
        what = unknown[0] if unknown else "tokenizer_mode"
        raise Incompatible(f"text_cfg sets {what!r}, which is not supported with {name!r}")
    files = " or ".join(VOCABULARIES)
    advice = (
        f"give a directory with its {files} as text_cfg.hf_tokenizer_name"
        if directory is None
        else f"{directory} has no {files} of its own: copy the model's into it"
    )
    return word_pieces(name, directory, length, options, advice)


def word_pieces(
    name: str, directory: Path | None, length: int, options: dict[str, Any], advice: str
) -> WordPieces:
    """The tokenizer in a checkpoint's directory, in the directory `name`, or `name` on the hub.

    Raises Incompatible if none can be read; `advice` is what to do if the hub is out of reach.
    """
    for place in (directory, Path(name)):
        if place is not None and any((place / file).is_file() for file in VOCABULARIES):
            return WordPieces(place, length, options)
    if Path(name).is_dir() or Path(name).is_absolute():
        has = "it has no" if Path(name).is_dir() else "there is no directory with"
        why = f"{name} is not a tokenizer: {has} {' or '.join(VOCABULARIES)}"
        raise Incompatible(f"{why}; {advice}")
    return _from_hub(name, length, options, advice)


def _from_hub(name: str, length: int, options: dict[str, Any], advice: str) -> WordPieces:
    """A tokenizer from the hub, converted by transformers into a tokenizer.json."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as place:
        try:
            with quietly():
                AutoTokenizer.from_pretrained(name).save_pretrained(place)
        except (OSError, ValueError) as error:
            what = f"cannot load the tokenizer {name!r}: {why_unavailable(error)}"
            raise Incompatible(f"{what}; {advice}") from error
        if not (Path(place) / "tokenizer.json").is_file():
            raise Incompatible(f"the tokenizer {name!r} cannot be converted to a tokenizer.json")
        return WordPieces(Path(place), length, options)


def _fast(files: dict[str, bytes], described: dict[str, Any]) -> Fast:
    """The tokenizer of a tokenizer.json, or else of a vocab.txt."""
    from tokenizers import Tokenizer as FromJson

    if "tokenizer.json" in files:
        return FromJson.from_str(files["tokenizer.json"].decode())
    return of_vocabulary(files["vocab.txt"].decode(), described)


def _content(token: str | dict[str, Any] | None) -> str | None:
    """A special token as tokenizer_config.json writes it: plain, or with its properties."""
    return token["content"] if isinstance(token, dict) else token


def of_vocabulary(text: str, described: dict[str, Any]) -> Fast:
    """The tokenizer for the text of a vocab.txt, one word piece per line.

    `described` is its tokenizer_config.json. Each Chinese character is a separate word unless
    `tokenize_chinese_chars` is false. Raises KeyError if [SEP] or [CLS] is missing.
    """
    from tokenizers import Tokenizer as Building
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    words = {word: number for number, word in enumerate(text.removesuffix("\n").split("\n"))}
    tokenizer = Building(WordPiece(words, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=described.get("tokenize_chinese_chars", True),
        strip_accents=described.get("strip_accents"),
        lowercase=described.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in SPECIAL if word in words])
    ends = [(word, words[word]) for word in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = BertProcessing(*ends)
    return tokenizer


def cleaner(name: str) -> Callable[[str], str]:
    """The cleaning function of a name: `none`, `ctp` (as the CTP authors do), or open_clip's."""
    if name == "none":
        return str
    if name == "ctp":
        return ctp_caption
    found: Callable[[str], str] = open_clip().tokenizer.get_clean_fn(name)
    return found


def ctp_caption(caption: str) -> str:
    """Clean a caption as the CTP authors do: lower case, some punctuation removed, 30 words kept.

    >>> ctp_caption('A "red" CAT; on: the mat.')
    'a red cat on the mat'
    """
    plain = re.sub(r"[.!\"()*#:;~\s]+", " ", caption.lower()).strip()
    return " ".join(plain.split(" ")[:MOST_WORDS])
