"""A vocab.txt gives the ids that transformers gives; [CLS], [SEP] and [MASK] are known."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch

from vlcpctl.core.batch import SpecialTokens
from vlcpctl.core.errors import Incompatible
from vlcpctl.models.tokenizers import WordPieces, ctp_caption

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "Cat", "##s", "red", "naive"),
    *("\u732b", "\u597d", "##\u597d", ",", "\u3002", "10", "##0", "x", "-", "caf\u00e9", "\u2028"),
]
TEXTS = [
    "A Cats, red cat",
    "\u732b\u597d\u3002\u4f60 cat\u732b",
    "Na\u00efve caf\u00e9 x-100",
    "",
    "a\tcat\u00a0red  \u200bx \ufffd",
    "cat " * 40,
    "[MASK] red [SEP]",
    "a" * 200,
]


def vocabulary(directory: Path, words: list[str] = WORDS, **described: object) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if described:
        (directory / "tokenizer_config.json").write_text(json.dumps(described))
    return directory


def pieces(place: Path, length: int = 30, clean: str = "none") -> WordPieces:
    return WordPieces(place, length, {"clean": clean})


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"do_lower_case": False},  # bert-base-multilingual-cased, bert-base-chinese
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_ids_are_those_of_transformers(described: dict[str, object], tmp_path: Path) -> None:
    from transformers import BertTokenizer

    place = vocabulary(tmp_path / "bert", **described)
    theirs = BertTokenizer.from_pretrained(place)
    expected = theirs(TEXTS, padding="max_length", truncation=True, max_length=30).input_ids
    assert pieces(place)(TEXTS).tolist() == expected


def test_thirty_tokens_include_the_special_ones(tmp_path: Path) -> None:
    ids = pieces(vocabulary(tmp_path))(["cat " * 40, "cat"])
    assert ids.shape == (2, 30)
    assert ids[0].tolist() == [2, *[6] * 28, 3]
    assert ids[1].tolist() == [2, 6, 3, *[0] * 27]


def test_special_tokens_are_known(tmp_path: Path) -> None:
    found = pieces(vocabulary(tmp_path)).special
    assert found == SpecialTokens(pad=0, cls=2, sep=3, mask=4, words=len(WORDS))


def test_special_tokens_may_have_other_names(tmp_path: Path) -> None:
    names = {"cls_token": "red", "mask_token": {"content": "x", "lstrip": False}}
    found = pieces(vocabulary(tmp_path, **names)).special
    assert (found.cls, found.mask) == (WORDS.index("red"), WORDS.index("x"))


def test_a_mask_is_added_where_there_is_none(tmp_path: Path) -> None:
    words = [word for word in WORDS if word != "[MASK]"]
    found = pieces(vocabulary(tmp_path, words)).special
    assert (found.mask, found.words) == (len(words), len(words) + 1)


def test_a_vocabulary_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Incompatible, match=r"cannot read the tokenizer in .*: '\[SEP\]'"):
        pieces(vocabulary(tmp_path, [word for word in WORDS if word != "[SEP]"]))


def test_saved_files_give_the_same_ids(tmp_path: Path) -> None:
    first = pieces(vocabulary(tmp_path / "first", do_lower_case=False))
    second = tmp_path / "second"
    second.mkdir()
    first.save(second)
    assert torch.equal(first(TEXTS), pieces(second)(TEXTS))


def test_a_worker_can_be_sent_one(tmp_path: Path) -> None:
    first = pieces(vocabulary(tmp_path), clean="ctp")
    assert torch.equal(first(TEXTS), pickle.loads(pickle.dumps(first))(TEXTS))


def test_captions_are_cleaned_as_the_ctp_authors_do(tmp_path: Path) -> None:
    assert ctp_caption('A (red)  cat: "x"; #10*~!. ') == "a red cat x 10"
    assert ctp_caption("a, b-c/d?") == "a, b-c/d?"
    assert ctp_caption("w " * 40) == " ".join("w" * 30)
    place = vocabulary(tmp_path)
    assert torch.equal(pieces(place, clean="ctp")(["A. (CAT)"]), pieces(place)(["a cat"]))
