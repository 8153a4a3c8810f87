"""Which lines of a batch file must end before a line starts, for engines that start them."""

from __future__ import annotations

from collections.abc import Sequence

from vlcpctl.jobs.script import CommandLine


def dependencies(lines: Sequence[CommandLine]) -> list[tuple[CommandLine, tuple[CommandLine, ...]]]:
    r"""Each line that is not `wait`, with the earlier ones that it waits for, in their order.

    As `batch --jobs` starts them: those that it follows, and all that precede a `wait`.

    >>> from vlcpctl.jobs.script import parse
    >>> lines = parse("split a -o s\ncheck s\nwait\ncheck b")
    >>> [[one.number for one in waits] for _, waits in dependencies(lines)]
    [[], [1], [1, 2]]
    """
    found: list[tuple[CommandLine, tuple[CommandLine, ...]]] = []
    before_wait: list[CommandLine] = []
    since: list[CommandLine] = []
    for line in lines:
        if line.is_barrier:
            before_wait += since
            since = []
            continue
        needed = [one for one in since if line.follows(one)]
        found.append((line, (*before_wait, *needed)))
        since.append(line)
    return found
