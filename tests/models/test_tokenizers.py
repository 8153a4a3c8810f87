"""Token ids equal those of open_clip, whatever files the tokenizer comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from vlcpctl.core.errors import Incompatible
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.models.imports import open_clip
from vlcpctl.models.tokenizers import tokenizer_of

TEXTS = ["grinning face", "Tom &amp; Jerry,  a\tcat", "", "long " * 40, "naïve 中文 emoji 🙂 x-ray"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "long", "中", "tom", "x"]


def config(length: int = 12, **text: object) -> dict[str, object]:
    return {"vision_cfg": {}, "text_cfg": {"context_length": length, **text}}


def bert_files(directory: Path, **described: object) -> Path:
    """A BERT tokenizer as transformers writes it."""
    from transformers import BertTokenizerFast

    directory.mkdir()
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizerFast(str(directory / "vocab.txt")).save_pretrained(directory)
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **described}))
    return directory


def test_byte_pairs_are_those_of_open_clip() -> None:
    theirs = open_clip().get_tokenizer("ViT-B-32", context_length=12)(TEXTS)
    assert torch.equal(tokenizer_of(config())(TEXTS), theirs)


@pytest.mark.parametrize("options", [{}, {"clean": "canonicalize"}, {"strip_sep_token": True}])
def test_packaged_pieces_are_those_of_open_clip(options: dict[str, object]) -> None:
    open_clip()
    from open_clip.tokenizer import HFTokenizer

    place = PACKAGED / "tiny-tokenizer"
    ours = tokenizer_of(config(hf_tokenizer_name=str(place), tokenizer_kwargs=options))
    assert torch.equal(ours(TEXTS), HFTokenizer(str(place), context_length=12, **options)(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("described", [{}, {"padding_side": "left", "truncation_side": "left"}])
def test_berts_pieces_are_those_of_open_clip(described: dict[str, object], tmp_path: Path) -> None:
    open_clip()
    from open_clip.tokenizer import HFTokenizer

    place = bert_files(tmp_path / "bert", **described)
    ours = tokenizer_of(config(hf_tokenizer_name=str(place)))
    assert torch.equal(ours(TEXTS), HFTokenizer(str(place), context_length=12)(TEXTS))


@pytest.mark.slow
def test_a_tokenizer_without_tokenizer_json_is_converted(tmp_path: Path) -> None:
    place = bert_files(tmp_path / "bert")
    fast = tokenizer_of(config(hf_tokenizer_name=str(place)))
    (place / "tokenizer.json").unlink()
    assert torch.equal(tokenizer_of(config(hf_tokenizer_name=str(place)))(TEXTS), fast(TEXTS))


def test_saved_files_give_the_same_ids(tmp_path: Path) -> None:
    ours = tokenizer_of(config(hf_tokenizer_name=str(PACKAGED / "tiny-tokenizer")))
    ours.save(tmp_path)
    again = tokenizer_of(config(hf_tokenizer_name="gone"), tmp_path)
    assert torch.equal(ours(TEXTS), again(TEXTS))


def test_an_option_that_would_change_nothing_is_refused() -> None:
    name = str(PACKAGED / "tiny-tokenizer")
    with pytest.raises(Incompatible, match="'language'"):
        tokenizer_of(config(hf_tokenizer_name=name, tokenizer_kwargs={"language": "en"}))
    with pytest.raises(Incompatible, match="tokenizer_mode"):
        tokenizer_of(config(hf_tokenizer_name=name, tokenizer_mode="clips"))
