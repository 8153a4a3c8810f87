"""Make the tokenizer that ships with the package, from the words of Emoji-9.

    python recipes/make_tiny_tokenizer.py vlcpctl/models/configs/tiny-tokenizer

Padding is token 0 and the end of the text the highest, as in CLIP: models pool at the highest id.
Pieces that occur equally often are learned in no fixed order, so two runs differ in a few of them.
"""

from __future__ import annotations

import json
import string
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from vlcpctl.data.emoji9.glyphs import read_glyphs

SIZE = 2500
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
MORE = "a picture of an emoji of a small drawing of this is an icon of with the words"


def captions() -> Iterator[str]:
    """Every text of the data set, and the words of its templates."""
    yield MORE
    for glyph in read_glyphs():
        yield from (glyph.name, *glyph.keywords, glyph.group, glyph.subgroup.replace("-", " "))


def pieces(count: int) -> list[str]:
    """`count` word pieces, including every ASCII character, at the start of a word and inside."""
    signs = sorted({char for char in string.printable if char.isprintable()} - {" "})
    signs = [char for char in signs if char == char.lower()]
    inside = [f"##{char}" for char in signs]
    learner = _tokenizer({UNKNOWN: 0})
    trainer = WordPieceTrainer(
        vocab_size=count, initial_alphabet=signs, special_tokens=[UNKNOWN], show_progress=False
    )
    learner.train_from_iterator(captions(), trainer)
    learned = learner.get_vocab()
    common = [word for word in sorted(learned, key=learned.__getitem__) if word != UNKNOWN]
    return list(dict.fromkeys([*signs, *inside, *common]))[:count]


def numbered(words: list[str]) -> dict[str, int]:
    """Ids of the words: padding first, the end of the text last."""
    return {word: number for number, word in enumerate([PAD, UNKNOWN, START, *words, END])}


def main(out: Path) -> None:
    """Write tokenizer.json, and the files that transformers needs beside it."""
    vocabulary = numbered(pieces(SIZE - 4))
    tokenizer = _tokenizer(vocabulary)
    ends = [(START, vocabulary[START]), (END, vocabulary[END])]
    tokenizer.post_processor = TemplateProcessing(single=f"{START} $A {END}", special_tokens=ends)
    tokenizer.add_special_tokens([PAD, UNKNOWN, START, END])
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "cls_token": START,
        "sep_token": END,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(described, indent=1) + "\n")
    print(f"{out}: {tokenizer.get_vocab_size()} tokens")


def _tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
