"""BERT's tokenizer built from a vocab.txt, and the cleaning of captions before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vlcpctl.models.imports import open_clip

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # in characters; BERT's tokenizer makes a longer one [UNK]

MOST_WORDS = 30  # of a caption, in the CTP authors' data


def of_vocabulary(text: str, described: dict[str, Any]) -> Tokenizer:
    """The tokenizer for the text of a vocab.txt, one word piece per line.

    `described` is its tokenizer_config.json. Each Chinese character is a separate word unless
    `tokenize_chinese_chars` is false. Raises KeyError if [SEP] or [CLS] is missing.
    """
    from tokenizers import Tokenizer as Fast
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    words = {word: number for number, word in enumerate(text.removesuffix("\n").split("\n"))}
    tokenizer = Fast(WordPiece(words, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))
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
