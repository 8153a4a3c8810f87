"""Files that stay open between reads, in a bounded number for each process.

A data set may have thousands of tars, but a process may usually open only 1024 files, or 256 on
macOS (`ulimit -n`).
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final, final

_LEAST: Final = 2
_MOST: Final = 1024
_SHARE: Final = 4  # this part of the files that a process may open

_owners = count()
_open: OrderedDict[tuple[int, int], int] = OrderedDict()  # by owner and file: the descriptor


@final
class OpenFiles:
    """The files at some paths: opened when they are first read, and closed with this object.

    Of all such objects in a process, the file opened first is closed when too many are open. A
    copy in another process opens its own. Only one thread may use such objects: another could close
    a file, and open another one by the same descriptor, before it is read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths, self._owner = paths, next(_owners)
        weakref.finalize(self, _close_all, self._owner)

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[Sequence[Path]]]:
        return OpenFiles, (self.paths,)

    def descriptor(self, number: int) -> int:
        """The descriptor of the file at `paths[number]`; valid until this is called again.

        Only for reads with a position of their own, such as os.pread. Raises OSError if the file
        cannot be opened.
        """
        found = _open.get((self._owner, number))
        return self._opened(number) if found is None else found

    def _opened(self, number: int) -> int:
        while len(_open) >= most_open():
            os.close(_open.popitem(last=False)[1])
        # A pipe that takes the place of a file must not block.
        found = os.open(self.paths[number], os.O_RDONLY | os.O_NONBLOCK)
        _open[self._owner, number] = found
        return found


def most_open() -> int:
    """How many files are kept open in this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(soft // _SHARE, _MOST))


def _close_all(owner: int) -> None:
    for key in list(_open):
        if key[0] == owner:
            os.close(_open.pop(key))


def _forget() -> None:
    """In a forked child: the descriptors are those of the parent, which may close them."""
    for descriptor in _open.values():
        os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_forget)
