"""`vlcpctl forget`: remove pairs from everything that stores them, and write a receipt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import Json, Quiet, Shared
from vlcpctl.core.options import (
    EXECUTION,
    INPUT,
    MaybePath,
    Paths,
    Texts,
    argument,
    like,
    option,
    several,
    switch,
)

if TYPE_CHECKING:
    from vlcpctl.core.words import Shown
    from vlcpctl.deletion.receipt import Receipt


class Forget(Quiet, Json):
    r"""Remove pairs from everything under PATH that stores them, and write a receipt.

    Tasks, streams, buffers, files of ranks, reports and weeks that --keep trimmed are written again
    without the pairs, also without those that a buffer has evicted and still has in its tars. What
    can be made again is deleted, and the line that makes it is printed: targets and saved
    embeddings, pseudo texts, caches, exported data sets but for your own files in them, what
    --force replaced, and unfinished work. Rewritten artifacts keep the content id that they were
    made with, as "id"; a line that has read them needs --force to run again.

    Each option that selects adds pairs. If one selects nothing, the exit code is 3 and nothing is
    changed, unless --missing-ok is given. If the same request has removed everything before, it is
    0.

    A state directory of 'vlcpctl update' gets a stop list, DIR/deleted: the pairs are left out when
    they come again, also after --rollback. For other data, 'vlcpctl split --not' takes the receipt.

    Checkpoints and exported models are not changed. The receipt lists those that were trained on
    the pairs, also by way of other checkpoints, and those of which this is not known. It is written
    before the first removal; if the command is interrupted, run it again.

    Nothing is changed if an unfinished train-step needs the pairs (exit code 4), or if files with
    the pairs have hard links elsewhere (exit code 3). Neither object stores nor files that vlcpctl
    did not write are searched. Of tasks that 'split --in-place' made, the pairs stay in the tars of
    the sources; the receipt lists these, and its state is "not removed from foreign tars".

    Examples:
      vlcpctl forget --where customer=4711 --dry-run production
      vlcpctl forget --where customer=4711 production
      vlcpctl forget --keys keys.txt --receipt receipt.json stream buffers targets
      vlcpctl forget --where customer=4711 --ticket "GDPR 2026-117" production
    """

    paths: Paths = argument(
        "PATH",
        "Directories to search, with everything below them, or single artifacts",
        kw_only=False,
    )
    key: Texts = several("Key of a pair; repeat for more", "HEX", INPUT, usual=True)
    source_key: Texts = several(
        "Key of a pair in the source; repeat for more", "TEXT", INPUT, usual=True
    )
    sha256: Texts = several(
        "Digest of an image file, which selects all pairs with this image; repeat for more",
        "HEX",
        INPUT,
    )
    where: Texts = several(
        "Value of a column of the index: label, task, or one that 'split --keep-columns' kept; "
        "repeat for more",
        "COLUMN=VALUE",
        INPUT,
        usual=True,
    )
    keys: Paths = several(
        "File with the key of a pair on each line; - is stdin", "FILE", INPUT, usual=True
    )
    missing_ok: bool = switch(
        "Accept conditions that select nothing, and remove what the others select",
        INPUT,
        otherwise="exit with code 3, before anything is changed",
    )
    receipt: MaybePath = option(
        "File to write the receipt to",
        "FILE",
        otherwise="the next number in the directory receipts of the first PATH, or beside it if it "
        "is an artifact",
        usual=True,
    )
    ticket: str | None = option(
        "What the receipt is about, such as the number of a request; it is written into it", "TEXT"
    )
    wait: float | None = like(Shared, "wait", default=None)
    dry_run: bool = switch("Print what would be removed, and change nothing", EXECUTION, usual=True)

    def execute(self) -> None:
        from json import dumps

        from vlcpctl.core.console import emit
        from vlcpctl.deletion.receipt import lines
        from vlcpctl.deletion.request import DeletionRequest, forget, look
        from vlcpctl.deletion.selectors import parse, require_unicode

        request = DeletionRequest(
            conditions=parse(self.key, self.source_key, self.sha256, self.where, self.keys),
            paths=self.paths,
            receipt=self.receipt,
            missing_ok=self.missing_ok,
            ticket=None if self.ticket is None else require_unicode("--ticket", self.ticket),
        )
        with _without_words():
            found = look(request) if self.dry_run else forget(request)
            if not self.dry_run:
                _record(found, request.shown)
        if self.json:
            emit(dumps(found.as_json()))
        elif self.dry_run:
            for line in lines(found, request.conditions, request.shown):
                emit(line)
        else:
            emit(request.shown(found.path))


def _record(receipt: Receipt, shown: Shown) -> None:
    """Add the finished deletion to the events of the states that were searched.

    Says how to train what has learned the pairs again.
    """
    from vlcpctl.core.console import say, warn
    from vlcpctl.core.errors import BadInput, OutputExists
    from vlcpctl.production.forgotten import record_deletion, said_of_learned

    try:
        record_deletion(receipt)
        for line in said_of_learned(receipt, shown):
            say(line)
    except (BadInput, OutputExists) as error:  # the pairs are gone all the same
        warn(f"the deletion is finished, but is not among the events: {error}")


@contextmanager
def _without_words() -> Iterator[None]:
    """Manifests record the command line; here it would name what is to be deleted."""
    words = sys.argv
    sys.argv = [words[0], "forget"]
    try:
        yield
    finally:
        sys.argv = words
