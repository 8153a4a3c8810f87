"""Named random streams: a draw depends on what it is for, never on what was drawn before it."""

from __future__ import annotations

import hashlib

import numpy as np


def generator(*names: object) -> np.random.Generator:
    """A counter-based generator for one purpose, such as `generator(seed, "view", key, visit)`.

    >>> float(generator(0, "a").random()) == float(generator(0, "a").random())
    True
    """
    text = "\x1f".join(str(name) for name in names).encode()
    key = np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(*names: object) -> int:
    """A 63-bit seed for torch, which takes no counter-based generator of its own on the CPU."""
    text = "\x1f".join(str(name) for name in names).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
