"""Carry out a deletion: rewrite or delete what contains the pairs, until nothing does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from vlcpctl.core.amounts import counted
from vlcpctl.core.atomic import rewritten_directory, rewritten_file
from vlcpctl.core.console import say
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.shown_paths import Shown
from vlcpctl.core.staging import Staging, delete, link_or_copy, staging_at
from vlcpctl.core.store_cache import empty_cache
from vlcpctl.data.splitting.known_keys import FILES_0_3
from vlcpctl.data.splitting.stop_lists import add_to_stop_list, read_stop_list
from vlcpctl.deletion.kinds import KINDS, Hit, Target, all_files
from vlcpctl.deletion.places import places_under
from vlcpctl.deletion.plan import Plan, make_plan
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.deletion.records import complete, record
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, mirror

Observe = Callable[[str], None]  # called with the name of each point at which a kill is tested
_ROUNDS = 3  # another process may write more while pairs are removed


def tidy(tops: Sequence[Path]) -> None:
    """Delete what dead writers left under the paths, and complete their swaps.

    Raises OutputExists if another process is writing there: what it writes may contain the pairs.
    """
    for staging in places_under(tops).hidden:
        with staging.locked():
            pass


def remove(plan: Plan, receipt: Receipt, observe: Observe, shown: Shown) -> None:
    """Remove the pairs, and write the receipt before and after.

    Raises BadInput if a stop list is damaged, OutputExists if another process is writing one of the
    outputs, or if processes keep writing data with the pairs; OSError if the disk is full. The same
    call then removes the rest.
    """
    selectors = plan.selectors
    for _ in range(_ROUNDS):
        with ExitStack() as locks:
            for unit in plan.units():
                locks.enter_context(Staging(unit.stored.unit).locked())
            record(plan, receipt, digests=True)
            stop_lists = [Path(path) for path in receipt.stop_lists]
            for path in filter(Path.exists, stop_lists):
                read_stop_list(path)  # damaged, it is refused before anything is changed
            receipt.write()
            observe("pending")
            for path in stop_lists:
                observe("stop list")
                add_to_stop_list(path, receipt.request, selectors.described(), receipt.keys)
            _carry_out(plan, observe, shown)
        empty_caches(plan.places.caches, shown)
        observe("removed")
        tidy(plan.tops)
        plan = make_plan(selectors, plan.tops, receipt, shown)
        if not plan.hits and not plan.parts:
            artifacts = counted(len(plan.places.stored), "artifact")
            say(f"a second search of {artifacts} finds 0 pairs")
            break
    else:
        raise OutputExists(
            f"{shown(plan.hits[0].path)} contains the pairs again: another process writes them; "
            "run the same command again when it has ended"
        )
    record(plan, receipt)
    complete(plan, receipt)
    receipt.write()
    observe("finished")


def empty_caches(caches: Iterable[Path], shown: Shown) -> None:
    """Empty caches of object stores: their files may have the pairs, and are fetched again.

    Raises OutputExists if another process reads one.
    """
    for cache in sorted(caches):
        if not empty_cache(cache):
            raise OutputExists(
                f"{shown(cache)} is a cache that another process is reading, and may contain the "
                "pairs; run the same command again when it has ended"
            )
        say(f"emptied the cache {shown(cache)}")


def _carry_out(plan: Plan, observe: Observe, shown: Shown) -> None:
    tars, drop = Tars(), plan.pairs.drop()
    for path in plan.deleted():
        observe(f"deleting {path.name}")
        # It is in the hidden directory of an output, which goes, too, if it is empty.
        with next(filter(None, map(staging_at, path.parents))).locked():
            delete(path)
        say(f"deleted {shown(path)}")
    for hit in plan.units():
        unit = hit.stored.unit
        if hit.is_deleted:
            observe(f"deleting {unit.name}")
            left = _delete(hit)
            observe(f"deleted {unit.name}")
            said = f"; '{hit.again}' makes it again" if hit.again else ""
            stay = f"; left files that were added or changed: {', '.join(left)}" if left else ""
            say(f"deleted {shown(unit)}{said}{stay}")
        else:
            observe(f"rewriting {unit.name}")
            _rewrite(hit, tars, drop, observe)
            say(f"rewrote {shown(unit)}")


def _delete(hit: Hit) -> list[str]:
    """Delete an artifact but for files that somebody added; returns these."""
    path = hit.path
    added = [] if path.is_file() else sorted({*all_files(path)}.difference(hit.files))
    if added:
        with rewritten_directory(path) as target:
            for name in added:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path / name, target / name)
    else:
        Staging(path).delete_output()
    return added


def _rewrite(hit: Hit, tars: Tars, drop: Drop, observe: Observe) -> None:
    unit = hit.stored.unit
    write = KINDS["stream" if unit != hit.path else hit.stored.kind].write
    assert write is not None, "it would be deleted"
    if unit.is_dir():
        with rewritten_directory(unit) as target:
            mirror(unit, target)
            write(unit, Target(target, unit, drop, tars))
            observe(f"written {unit.name}")
        return
    earlier = [unit.with_name(name) for name in FILES_0_3 if unit.name in FILES_0_3]
    final = unit.with_suffix(".parquet") if earlier else unit
    with rewritten_file(final) as temporary:
        write(unit, Target(temporary, final, drop, tars))
        observe(f"written {unit.name}")
    for path in earlier:
        observe(f"deleting {path.name}")
        path.unlink()
