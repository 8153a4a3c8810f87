"""Named random streams: a draw depends on its purpose alone, never on earlier draws.

So adding a draw, resuming a run or changing the number of workers leaves all other draws unchanged.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(*names: object) -> np.random.Generator:
    """A random generator for one purpose, such as `generator(seed, "view", key, visit)`.

    >>> float(generator(0, "a").random()) == float(generator(0, "a").random())
    True
    """
    # Joined with a separator, so that the purposes ("a", "bc") and ("ab", "c") stay apart. The hash
    # is the 128-bit key itself: each purpose has a stream of its own, none overlap.
    text = "\x1f".join(str(name) for name in names).encode()
    key = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(*names: object) -> int:
    """A 63-bit seed for one purpose, for torch's generators, which take only an integer."""
    text = "\x1f".join(str(name) for name in names).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
