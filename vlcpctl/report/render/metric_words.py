"""What the keys of metrics stand for, in words for a reader who has not seen them before."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_WAYS = {
    "i2t": "image to text: each image is a query among all texts",
    "t2i": "text to image: each text is a query among all images",
}
_KEYS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"rm",
            lambda _: "R@mean, the mean of R@1, R@5 and R@10 in both directions",
        ),
        (
            r"(?:i2t|t2i)_r\d+|(?:i2t|t2i)_rmean",
            lambda _: (
                "R@K, the percent of queries with a right answer among the first K; "
                "R@mean is the mean over K"
            ),
        ),
        (r"acc(\d+)", lambda found: f"percent of images whose class is {_among(found[1])}"),
        (r"top(\d+)", lambda found: f"percent of images whose class is {_among(found[1])}"),
        (r"map_(\d+)", lambda found: f"mean average precision of the first {found[1]} results"),
        (r"pair_recall", lambda _: "percent of true pairs with a probability of 0.5 or more"),
        (r"pair_precision", lambda _: "percent of pairs with 0.5 or more that are true"),
        (
            r"pair_calibration",
            lambda _: "100 if as many pairs are true as their probabilities promise",
        ),
        (r"mean_per_class_recall", lambda _: "accuracy in percent, averaged over the classes"),
    )
)


def spelled_out(keys: Sequence[str]) -> list[tuple[str, str]]:
    """(key or keys, meaning) of every key that has a meaning here, in the order of the keys.

    >>> spelled_out(["acc1", "other"])
    [('acc1', 'percent of images whose class is predicted first')]
    """
    found: dict[str, list[str]] = {}
    for key in keys:
        for pattern, words in _KEYS:
            match = pattern.fullmatch(key)
            if match:
                found.setdefault(words(match), []).append(key)
                break
    lines = [(", ".join(names), meaning) for meaning, names in found.items()]
    ways = [way for way in _WAYS if any(key.startswith(f"{way}_") for key in keys)]
    return [*lines, *((way, _WAYS[way]) for way in ways)]


def _among(count: str) -> str:
    return "predicted first" if count == "1" else f"among the first {count} predictions"
