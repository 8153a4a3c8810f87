"""Keys in 16 bytes each: as a sequence of text, and compared with others."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.data.tasks.keys import Keys, SeenKeys, rows_in, text_buffers, unhex

draw = random.Random(0)
TEXTS = [f"{draw.getrandbits(128):032x}" for _ in range(50)]


def test_keys_are_a_sequence_of_text() -> None:
    keys = Keys.of(TEXTS)
    assert list(keys) == TEXTS
    assert [keys[row] for row in range(-50, 50)] == TEXTS + TEXTS
    assert (keys[3], list(keys[2:5]), len(keys)) == (TEXTS[3], TEXTS[2:5], 50)
    assert [keys[row] for row in np.arange(3)] == TEXTS[:3]
    assert keys == TEXTS
    assert keys == Keys.of(TEXTS)
    assert hash(keys) == hash(Keys.of(TEXTS))
    assert keys != TEXTS[1:]
    assert keys != 3
    assert TEXTS[7] in keys
    assert "x" not in keys
    assert keys.take(np.array([4, 1])) == [TEXTS[4], TEXTS[1]]
    assert keys.texts().to_pylist() == TEXTS
    assert Keys.joined([keys[:3], keys[:0], keys[3:]]) == keys
    assert list(Keys.joined([])) == []
    for row in (50, -51):
        with pytest.raises(IndexError):
            keys[row]


def test_more_keys_than_are_read_at_once_are_read_in_order() -> None:
    texts = [f"{number:032x}" for number in range(40_000)]
    assert list(Keys.of(texts)) == texts


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, " " * 32, "\u00e9" * 16]
)
def test_other_texts_are_not_keys(text: str) -> None:
    with pytest.raises(ValueError, match="not 32 hexadecimal digits"):
        Keys.of([TEXTS[0], text])


def test_keys_are_compared_as_sets_of_text_are() -> None:
    few, many = Keys.of(TEXTS[10:20] + TEXTS[10:12]), Keys.of(TEXTS[15:])
    for one, other in ((few, many), (many, few), (few, few[:0]), (few[:0], few)):
        known = set(other)
        assert one.among(other).tolist() == [key in known for key in one]
        places = {key: place for place, key in reversed(list(enumerate(other)))}
        assert one.places_in(other).tolist() == [places.get(key, -1) for key in one]


def test_first_occurrences_and_the_sorted_order() -> None:
    alike = [TEXTS[0][:16] + text[16:] for text in TEXTS[:4]]  # their first 8 bytes are equal
    for texts in (TEXTS, [*TEXTS[:5], TEXTS[2]], alike, [*alike, alike[1]], []):
        keys = Keys.of(texts)
        firsts = [key not in texts[:row] for row, key in enumerate(texts)]
        assert keys.firsts().tolist() == firsts
        assert list(keys.take(keys.order())) == sorted(texts)


def test_parts_of_arrays_have_their_own_texts() -> None:
    texts = pa.array(["", "ab", "cdef", None, "01"])
    ends, data = text_buffers(texts.slice(1, 3))
    assert (ends.tolist(), bytes(data)) == ([0, 2, 6, 6], b"abcdef")
    assert unhex(pa.array(["00", "ff01", "ab"]).slice(2), 1) == b"\xab"
    assert unhex(pa.array([], pa.string()), 1) == b""


# -- keys that a pass has seen


@given(
    batches=st.lists(st.lists(st.integers(0, 40), max_size=9), max_size=12),
    latest=st.integers(0, 12),
)
def test_a_key_is_new_exactly_once(batches: list[list[int]], latest: int) -> None:
    ever: set[int] = set()
    seen = SeenKeys(latest)
    for batch in batches:
        fresh = seen.add_new([key_of(number) for number in batch])
        assert fresh == {key_of(number) for number in set(batch) - ever}
        ever.update(batch)


def key_of(number: int) -> bytes:
    """A key whose first eight bytes others have, too."""
    return bytes([number // 4 * 16]) + bytes(11) + bytes([number % 4, 0, 0, 0])


def test_there_are_few_runs() -> None:
    seen = SeenKeys(latest=99)
    for start in range(0, 10_000, 10):
        seen.add_new([digest(number) for number in range(start, start + 10)])
    assert max(map(len, seen._runs)) <= 8
    assert not seen.add_new([digest(number) for number in range(0, 10_000, 7)])


def test_the_first_row_of_a_key_is_found() -> None:
    raw = np.frombuffer(b"".join(map(key_of, [3, 1, 2, 1])), np.uint8).reshape(-1, 16)
    keys, order = Keys(raw), Keys(raw).order()
    ordered = keys.sortable()[order]
    assert order[rows_in(ordered, Keys(raw[[1, 3, 0]]).sortable())].tolist() == [1, 1, 0]
    assert rows_in(ordered, Keys(raw[:1] + 1).sortable()).tolist() == [-1]
    assert rows_in(ordered[:0], keys.sortable()).tolist() == [-1] * 4


def digest(number: int) -> bytes:
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).digest()
