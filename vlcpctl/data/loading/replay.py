"""How much of each batch a buffer is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Replay:
    """How a buffer is used: `share` of each batch is replayed; None: shuffled with the tasks.

    With `is_least` it is shuffled with them, too, where that replays at least this share.
    """

    share: float | None
    is_least: bool = False

    def share_of(self, pairs: int, replayable: int) -> float | None:
        """The share of each batch for so many pairs of tasks and of the buffer; None: shuffled.

        >>> Replay(0.25, is_least=True).share_of(900, 100)
        0.25
        >>> Replay(0.25, is_least=True).share_of(300, 100) is None
        True
        """
        is_shuffled = (
            self.share is not None
            and self.is_least
            and replayable >= self.share * (pairs + replayable)
        )
        return None if is_shuffled else self.share


UNION = Replay(None)


def replayed_pairs(batch_size: int, share: float | None, buffer: int) -> int:
    """How many pairs of a batch are replayed; 0 if the buffer has no share of its own.

    `buffer` is the number of pairs that can be replayed. A buffer smaller than its share is
    replayed whole: filling up would repeat keys in a batch. New pairs take the places that are
    left.

    >>> replayed_pairs(8, 0.5, 100), replayed_pairs(8, 0.5, 3), replayed_pairs(8, None, 100)
    (4, 3, 0)
    """
    return min(round((share or 0) * batch_size), buffer)
