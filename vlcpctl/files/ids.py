"""Ids of samples and artifacts by their content, and draws that depend on it alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import islice

import orjson

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_KEY_BYTES = 16  # 32 hex digits: collisions are negligible below 10**15 samples
_AT_ONCE = 100  # texts of a list


def sample_key(image_sha256: str, captions: Iterable[str]) -> str:
    """The 32 hex digits that identify an image with its captions, whatever their source.

    >>> sample_key("00" * 32, ["a cat"]) == sample_key("00" * 32, ["a cat"])
    True
    """
    digest = hashlib.blake2b(image_sha256.encode(), digest_size=_KEY_BYTES)
    for caption in captions:
        text = caption.encode()
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()


def unit_hash(*parts: object) -> float:
    """A number in [0, 1) that depends only on the parts, uniformly distributed over them.

    >>> 0 <= unit_hash("holdout", "abc") < 1
    True
    """
    return integer_hash(*parts) / 2**64


def integer_hash(*parts: object) -> int:
    """An integer in [0, 2**64) that depends only on the parts."""
    digest = hashlib.blake2b(_joined(parts), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def content_id(value: object) -> str:
    """The id (32 hex digits) of a JSON value, independent of the order of its keys.

    >>> content_id({"a": 1, "b": 2}) == content_id({"b": 2, "a": 1})
    True
    """
    return hashlib.blake2b(canonical_json(value).encode(), digest_size=_KEY_BYTES).hexdigest()


def texts_id(texts: Iterable[str]) -> str:
    """The `content_id` of a list of texts, without them or their JSON in memory: both may be large.

    >>> texts_id(["a", "b"]) == content_id(["a", "b"])
    True
    """
    digest = hashlib.blake2b(b"[", digest_size=_KEY_BYTES)
    rest, comma = iter(texts), b""
    while some := list(islice(rest, _AT_ONCE)):
        digest.update(comma)
        digest.update(memoryview(orjson.dumps(some))[1:-1])  # texts as canonical_json has them
        comma = b","
    digest.update(b"]")
    return digest.hexdigest()


def canonical_json(value: object) -> str:
    """JSON text that is the same for equal values: sorted keys, no spaces."""
    return _CANONICAL.encode(value)


def _joined(parts: tuple[object, ...]) -> bytes:
    # Each part has its length before it, so that ("ab", "c") and ("a", "bc") differ.
    texts = [str(part).encode() for part in parts]
    return b"".join(b"%d:" % len(text) + text for text in texts)
