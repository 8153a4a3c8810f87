"""The plan of a deletion: what contains the pairs, what to rewrite or delete, what depends on it.

Making it changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.core.shown_paths import Shown
from vlcpctl.deletion.kinds import Hit, Search
from vlcpctl.deletion.lineage import Dependent, affected, dependents, ids_of, outdated_parts
from vlcpctl.deletion.pairs import Pairs, find
from vlcpctl.deletion.places import TEXTS, TRIMMED, Places, is_left_over, places_under
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.deletion.selectors import Selectors
from vlcpctl.deletion.tars import Tars, inode_of

_DATA = ("task", "targets", TEXTS)
_WITHOUT_DATA = frozenset(MANIFESTS.values())  # with labels at most, and content ids


@dataclass
class Plan:
    """What a deletion will do."""

    selectors: Selectors
    tops: Sequence[Path]
    places: Places
    pairs: Pairs
    hits: list[Hit]
    parts: list[Path]  # unfinished work to delete
    checkpoints: list[Dependent]  # that depend on the pairs
    unknown: list[Dependent]  # made from data that is not found here

    def units(self) -> list[Hit]:
        """One hit of each output to rewrite or delete, outputs inside of others first."""
        found = {hit.stored.unit: hit for hit in self.hits if hit.stored.kept is None}
        return [found[path] for path in sorted(found, key=lambda one: (-len(one.parts), one))]

    def deleted(self) -> list[Path]:
        """What is deleted as a whole: outputs that --force replaced, and unfinished work."""
        kept = {hit.stored.kept for hit in self.hits if hit.stored.kept is not None}
        return [*sorted(kept), *self.parts]


def make_plan(selectors: Selectors, tops: Sequence[Path], receipt: Receipt, shown: Shown) -> Plan:
    """Find the pairs that the conditions select, and those that the receipt has already.

    `shown` gives the text of a path. Raises BadInput if an artifact is damaged or its data is
    reachable from outside of `tops`, and OutputExists if unfinished work needs it.
    """
    places, tars = places_under(tops), Tars()
    pairs = find(places, selectors, tars, receipt.keys)
    made = dependents(places.stored)
    hits = Search(pairs.drop(), tars, {one.path: one for one in made}).hits(places)
    for key in selectors.keys & {key for hit in hits for key in hit.keys}:  # in targets alone, too
        pairs.match(f"--key {key}", key)
    _refuse_other_links(places, hits, shown)
    ids = {one: ids_of(one) for one in places.stored if one.kind in {*_DATA, TRIMMED}}
    known = {content for found in ids.values() for content in found}
    touched = {one for hit in hits if hit.kind != TRIMMED for one in ids.get(hit.stored, ())}
    trained = {one for hit in hits if hit.trains for one in ids.get(hit.stored, ())}
    chosen = affected(made, trained)
    listed = {one["path"] for one in receipt.checkpoints}  # before an interruption
    return Plan(
        selectors,
        tops,
        places,
        pairs,
        hits,
        outdated_parts(places.unfinished, touched, known, shown),
        [one for one in chosen if one.about],
        [
            one
            for one in made
            if (one.about or one.path in places.of("export"))
            and one not in chosen
            and str(one.path) not in listed
            and not one.data <= known
        ],
    )


def _refuse_other_links(places: Places, hits: Sequence[Hit], shown: Shown) -> None:
    """Refuse files whose data would stay under other names after they are rewritten."""
    names = [(hit.path / name) for hit in hits for name in hit.files if name not in _WITHOUT_DATA]
    for path in names:
        if path.is_symlink():
            raise BadInput(
                f"{shown(path)} is a symbolic link to {shown(os.path.realpath(path))}, whose bytes "
                "would stay; put the file itself in its place"
            )
    planned = {path for path in names if path.stat().st_nlink > 1}
    for path in sorted(planned):
        links = places.links[inode_of(path)]
        if path.stat().st_nlink > len(links):
            raise BadInput(
                f"{shown(path)} has {path.stat().st_nlink} hard links, {len(links)} of them under "
                "the given paths: other hard links exist outside the given paths; give their "
                "directories too"
            )
        strange = [one for one in links if one not in planned and not is_left_over(one)]
        if strange:
            raise BadInput(
                f"{shown(strange[0])} is a hard link to {shown(path)} and not part of an artifact; "
                "remove it"
            )
