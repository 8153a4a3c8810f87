"""The plan of a deletion: what contains the pairs, what to rewrite or delete, what depends on it.

Making it changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.core.shown_paths import Shown
from vlcpctl.deletion.hits import Hit, hit_of, ids_of, trains
from vlcpctl.deletion.lineage import Dependent, affected, dependents, outdated_parts
from vlcpctl.deletion.matches import Matches, add_same_images, find
from vlcpctl.deletion.places import KNOWN, PSEUDO_TEXTS, Places, is_left_over, places_under
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.deletion.selectors import Selectors
from vlcpctl.deletion.tars import Tars, inode_of

_DATA = ("task", "targets", PSEUDO_TEXTS)
_LEARNED = (*_DATA, KNOWN)
_WITHOUT_DATA = frozenset(MANIFESTS.values())  # with labels at most, and content ids


@dataclass
class Plan:
    """What a deletion will do."""

    selectors: Selectors
    tops: Sequence[Path]
    places: Places
    matches: Matches
    hits: list[Hit]
    parts: list[Path] = field(default_factory=list)  # unfinished work to delete
    checkpoints: list[Dependent] = field(default_factory=list)  # that depend on the pairs
    unknown: list[Dependent] = field(default_factory=list)  # checkpoints with data not found here

    def units(self) -> list[Hit]:
        """One hit of each output to rewrite, outputs inside of others first."""
        found = {hit.stored.unit: hit for hit in self.hits if hit.stored.kept is None}
        return [found[path] for path in sorted(found, key=lambda one: (-len(one.parts), one))]

    def deleted(self) -> list[Path]:
        """What is deleted as a whole: outputs that --force replaced, and unfinished work."""
        kept = {hit.stored.kept for hit in self.hits if hit.stored.kept is not None}
        return [*sorted(kept), *self.parts]

    def is_empty(self) -> bool:
        """Whether nothing is left to remove."""
        return not self.hits


def make_plan(selectors: Selectors, tops: Sequence[Path], receipt: Receipt, shown: Shown) -> Plan:
    """Find the pairs that the conditions select, and those that the receipt has already.

    An interrupted deletion may have removed them from some artifacts: checkpoints may depend on
    those, too. `shown` gives the text of a path. Raises BadInput if an artifact is damaged or its
    data is reachable from outside of `tops`, and OutputExists if unfinished work needs it.
    """
    done = {one.path for one in receipt.artifacts if trains(one.kind, one.removed)}
    places, tars = places_under(tops), Tars()
    matches = find(places, selectors, tars, frozenset(receipt.keys))
    drop = matches.drop()
    hits = [hit for one in places.stored if (hit := hit_of(one, drop, tars)) is not None]
    for key in selectors.keys & {key for hit in hits for key in hit.keys}:  # in targets alone, too
        matches.match(f"--key {key}", key)
    add_same_images(matches, places)
    plan = Plan(selectors, tops, places, matches, hits)
    _refuse_other_links(plan, shown)
    known = {one for stored in places.stored if stored.kind in _LEARNED for one in ids_of(stored)}
    touched = [hit.stored for hit in hits if hit.stored.kind in _DATA]
    data = {one for stored in touched for one in ids_of(stored)}
    plan.parts = outdated_parts(places.unfinished, data, known, shown)
    trained = [hit.stored for hit in hits if hit.trains]
    trained += [one for one in places.stored if str(one.path) in done and one.kind in _LEARNED]
    found = dependents(places.stored)
    chosen = affected(found, {one for stored in trained for one in ids_of(stored)})
    plan.checkpoints = [one for one in chosen if one.about]
    plan.unknown = [
        one for one in found if one.about and one not in chosen and not one.data <= known
    ]
    return plan


def _refuse_other_links(plan: Plan, shown: Shown) -> None:
    """Refuse files whose data would stay under other names after they are rewritten."""
    names = [
        (hit.path / name) for hit in plan.hits for name in hit.files if name not in _WITHOUT_DATA
    ]
    for path in names:
        if path.is_symlink():
            raise BadInput(
                f"{shown(path)} is a symbolic link to {shown(os.path.realpath(path))}, whose bytes "
                "would stay; put the file itself in its place"
            )
    planned = {path for path in names if path.stat().st_nlink > 1}
    for path in sorted(planned):
        links = plan.places.links[inode_of(path)]
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
