"""Captions for files in which a line break ends a caption."""

from __future__ import annotations


def one_line(text: str) -> str:
    r"""A text with a space for each line break, of any kind that `str.splitlines` knows.

    Tokenizers make a space of white space anyway, and CLIP_benchmark splits lines in this way.

    >>> one_line("a\r\nb\u2028c")
    'a b c'
    """
    return " ".join(text.splitlines())
