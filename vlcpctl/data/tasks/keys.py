"""The keys of samples in 16 bytes each: 32 hex digits as text take six times as much in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

KEY_BYTES = 16
# NumPy sorts and compares such values as bytes; that it takes zeros at their end for padding
# changes nothing, as all are equally long.
SORTABLE = f"S{KEY_BYTES}"
Sorted = NDArray[np.bytes_]
_ROWS_AT_ONCE = 1 << 14
_LATEST = 1 << 18  # keys in a Python set; 25 MB
_PARTS = 16  # by the first four bits of a key, so that merging needs little more memory
_STARTS = [bytes([part << 4]) for part in range(_PARTS)]


class Keys(Sequence[str]):
    """N keys, each a str of 32 hex digits when it is read; `raw` is (N, 16) uint8.

    >>> keys = Keys.of(["00" * 16, "ff" * 16])
    >>> keys[1] == "ff" * 16, len(keys), keys.raw.shape
    (True, 2, (2, 16))
    """

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = raw
        # Slices of this are quicker than rows of the array.
        self._bytes = np.ascontiguousarray(raw).data.cast("B") if len(raw) else b""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Keys:
        """The keys of these texts. Raises ValueError if one is not 32 lower-case hex digits."""
        return cls.of_array(pa.array(list(texts), pa.string()))

    @classmethod
    def of_array(cls, texts: pa.StringArray) -> Keys:
        """The keys of an Arrow array of texts. Raises ValueError as `of` does."""
        raw = unhex(texts, KEY_BYTES)
        if raw is None:
            raise ValueError("a key is not 32 hexadecimal digits")
        return cls(np.frombuffer(raw, np.uint8).reshape(-1, KEY_BYTES))

    @classmethod
    def joined(cls, parts: Sequence[Keys]) -> Keys:
        """The keys of all parts, concatenated."""
        empty = np.empty((0, KEY_BYTES), np.uint8)
        return cls(np.concatenate([empty, *(part.raw for part in parts)]))

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Keys: ...
    def __getitem__(self, row: int | slice) -> str | Keys:
        if isinstance(row, slice):
            return Keys(self.raw[row])
        start = KEY_BYTES * row
        found = self._bytes[start : start + KEY_BYTES].hex() if start >= 0 else ""
        return found or self.raw[row].tobytes().hex()  # of a negative row, or an IndexError

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            text = self.raw[start : start + _ROWS_AT_ONCE].tobytes().hex()
            yield from (text[at : at + 32] for at in range(0, len(text), 32))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Keys):
            return np.array_equal(self.raw, other.raw)
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self.raw.tobytes())

    def __repr__(self) -> str:
        return f"Keys({len(self)})"

    def take(self, rows: np.ndarray) -> Keys:
        """The keys at `rows`, (n,) int, or where `rows`, (N,) bool, is true."""
        return Keys(self.raw[rows])

    def array(self) -> pa.FixedSizeBinaryArray:
        """The keys as an Arrow array of 16 bytes each, which shares their memory."""
        flat = np.ascontiguousarray(self.raw).reshape(-1)
        kind = pa.binary(KEY_BYTES)
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(self), [None, pa.py_buffer(flat)])

    def texts(self) -> pa.StringArray:
        """The keys as an Arrow array of text."""
        return pa.array(iter(self), pa.string())

    def sortable(self) -> Sorted:
        """(N,) the keys as NumPy sorts them, in the order of their texts."""
        return np.ascontiguousarray(self.raw).view(SORTABLE).reshape(-1)

    def order(self) -> np.ndarray:
        """(N,) int64: the order in which the keys are sorted, equal ones as they are."""
        return np.argsort(self.sortable(), kind="stable")

    def among(self, others: Keys) -> np.ndarray:
        """(N,) bool: which of the keys are among the others.

        >>> Keys.of(["00" * 16, "ff" * 16]).among(Keys.of(["ff" * 16])).tolist()
        [False, True]
        """
        mine, known = self.array(), others.array()
        if len(others) > len(self):
            # The hash table is over the smaller side: it takes some 50 bytes per key.
            known = known.filter(pc.is_in(known, value_set=mine))
        found: np.ndarray = pc.is_in(mine, value_set=known).to_numpy(zero_copy_only=False)
        return found

    def places_in(self, others: Keys) -> np.ndarray:
        """(N,) int32: where each key is among the others, for the first time; -1 if it is not.

        >>> Keys.of(["00" * 16, "ff" * 16]).places_in(Keys.of(["ff" * 16])).tolist()
        [-1, 0]
        """
        found = pc.index_in(self.array(), value_set=others.array())
        places: np.ndarray = found.fill_null(-1).to_numpy()
        return places

    def firsts(self) -> np.ndarray:
        """(N,) bool: whether a key is there for the first time."""
        is_first = np.zeros(len(self), dtype=bool)
        is_first[np.unique(self.sortable(), return_index=True)[1]] = True
        return is_first


def rows_in(sorted_N: Sorted, keys_B: Sorted) -> NDArray[np.int64]:
    """(B,) int64: the first row of sorted keys that has each key; -1 if none has it."""
    if not len(sorted_N):
        return np.full(len(keys_B), -1, dtype=np.int64)
    at_B = np.minimum(np.searchsorted(sorted_N, keys_B), len(sorted_N) - 1)
    return np.where(sorted_N[at_B] == keys_B, at_B, -1)


class SeenKeys:
    """A growing set of keys of 16 bytes: the latest in a set, the others in sorted runs.

    Two runs of about the same size become one, so that there are few. Nearly every new key has a
    bit that no key in a run has set, and need not be looked for there.
    """

    def __init__(self, latest: int = _LATEST) -> None:
        self._most, self._latest = latest, set[bytes]()
        self._runs: list[list[Sorted]] = [[] for _ in range(_PARTS)]  # the largest first
        self._count, self._bits = 0, np.zeros(0, np.uint8)

    def add_new(self, keys: list[bytes]) -> set[bytes]:
        """Add keys; returns those that were not in the set before."""
        fresh = set(keys) - self._latest
        if fresh and self._count:
            fresh -= self._in_runs(fresh)
        self._latest |= fresh
        if len(self._latest) > self._most:
            self._add_run()
        return fresh

    def _in_runs(self, keys: set[bytes]) -> set[bytes]:
        some = np.frombuffer(b"".join(keys), SORTABLE)
        place, bit = self._bits_of(some)
        some = np.sort(some[(self._bits[place] & bit) > 0])
        found = set[bytes]()
        for runs, part in zip(self._runs, _parts(some), strict=True):
            for run in runs if len(part) else ():
                found.update(map(bytes, part[rows_in(run, part) >= 0].view(f"V{KEY_BYTES}")))
        return found

    def _add_run(self) -> None:
        latest = np.sort(np.frombuffer(b"".join(self._latest), SORTABLE))
        self._count, self._latest = self._count + len(latest), set()
        for runs, new in zip(self._runs, _parts(latest), strict=True):
            runs.append(new.copy())
            while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
                runs[-2:] = [np.concatenate(runs[-2:])]
                runs[-1].sort(kind="stable")  # which merges what is sorted in linear time
        if len(self._bits) < self._count:  # 8 to 16 bits for each key
            self._bits = np.zeros(1 << self._count.bit_length(), np.uint8)
            for run in chain.from_iterable(self._runs):
                self._set_bits(run)
        else:
            self._set_bits(latest)

    def _set_bits(self, keys_N: Sorted) -> None:
        for at in range(0, len(keys_N), _ROWS_AT_ONCE):
            np.bitwise_or.at(self._bits, *self._bits_of(keys_N[at : at + _ROWS_AT_ONCE]))

    def _bits_of(self, keys_N: Sorted) -> tuple[np.ndarray, np.ndarray]:
        """(N,) the byte with each key's bit, and the bit in it."""
        first_N = np.ascontiguousarray(keys_N).view(np.uint64)[::2]
        place_N = (first_N >> np.uint64(3)) & np.uint64(len(self._bits) - 1)
        return place_N, np.left_shift(1, first_N & np.uint64(7)).astype(np.uint8)


def _parts(ordered: Sorted) -> list[Sorted]:
    """Sorted keys by their first bits."""
    return np.split(ordered, np.searchsorted(ordered, np.array(_STARTS, SORTABLE))[1:])


def unhex(texts: pa.StringArray, width: int) -> bytes | None:
    """The bytes of N texts of hex digits, `width` bytes each; None if one is anything else."""
    ends, data = text_buffers(texts)
    if (np.diff(ends) != 2 * width).any():
        return None
    try:
        digits = str(data, "ascii")
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if raw.hex() == digits else None  # fromhex also takes capitals and spaces


def text_buffers(texts: pa.StringArray | pa.LargeStringArray) -> tuple[np.ndarray, memoryview]:
    """(N + 1,) int: where the texts of an array start and end, and the bytes from the first on."""
    _, offsets, data = texts.buffers()
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    if offsets is None or not len(offsets):
        return np.zeros(1, dtype=kind), memoryview(b"")
    ends = np.frombuffer(offsets, kind)[texts.offset : texts.offset + len(texts) + 1]
    whole = memoryview(b"" if data is None else data)
    return ends - ends[0], whole[ends[0] : ends[-1]]
