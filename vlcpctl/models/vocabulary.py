"""BERT's tokenizer of a vocab.txt, and what is done to a caption before."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vlcpctl.models.imports import open_clip

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # in characters; BERT reads a longer one as unknown

MOST_WORDS = 30  # of a caption, in the CTP authors' data


def of_vocabulary(text: str, described: dict[str, Any]) -> Tokenizer:
    """The tokenizer of one word piece a line, with what tokenizer_config.json says of it.

    Han characters are words of their own, unless `tokenize_chinese_chars` is false.
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
    """What is done to a text: `none`, `ctp` as its authors do, or what open_clip has a name for."""
    if name == "none":
        return str
    if name == "ctp":
        return ctp_caption
    found: Callable[[str], str] = open_clip().tokenizer.get_clean_fn(name)
    return found


def ctp_caption(caption: str) -> str:
    """Lower case, blanks for some punctuation, and no more than 30 words.

    >>> ctp_caption('A "red" CAT; on: the mat.')
    'a red cat on the mat'
    """
    plain = re.sub(r"[.!\"()*#:;~\s]+", " ", caption.lower()).strip()
    return " ".join(plain.split(" ")[:MOST_WORDS])
