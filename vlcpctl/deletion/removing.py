"""Carry out a deletion: rewrite or delete what contains the pairs, until nothing does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from vlcpctl.core.amounts import counted
from vlcpctl.core.atomic import rewritten_directory, rewritten_file
from vlcpctl.core.console import say
from vlcpctl.core.digests import digests_of
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.hashing import content_id
from vlcpctl.core.manifest import read_manifest
from vlcpctl.core.seals import renewed, rewrite_sealed_manifest
from vlcpctl.core.shown_paths import Shown
from vlcpctl.core.staging import Staging, delete, link_or_copy, staging_at
from vlcpctl.core.store_cache import empty_cache
from vlcpctl.data.precomputed import pseudo_texts, teacher_targets
from vlcpctl.data.splitting.known_keys import FILES_0_3, read_known
from vlcpctl.data.splitting.stop_lists import add_to_stop_list, read_stop_list
from vlcpctl.data.tasks.exported import KIND
from vlcpctl.data.tasks.task import open_task
from vlcpctl.deletion import reports
from vlcpctl.deletion.exports import delete_export
from vlcpctl.deletion.hits import Hit
from vlcpctl.deletion.places import CACHED, KNOWN, PSEUDO_TEXTS, RANKS, places_under
from vlcpctl.deletion.plan import Plan, make_plan
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.deletion.records import complete, record
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, TaskRewriter, rewrite_stream
from vlcpctl.evaluation import embedding_files, rank_files

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
        if plan.is_empty() and not plan.parts:
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
    tars, drop = Tars(), plan.matches.drop()
    for path in plan.deleted():
        observe(f"deleting {path.name}")
        # It is in the hidden directory of an output, which goes, too, if it is empty.
        with next(filter(None, map(staging_at, path.parents))).locked():
            delete(path)
        say(f"deleted {shown(path)}")
    for hit in plan.units():
        observe(f"rewriting {hit.stored.unit.name}")
        if hit.stored.kind == CACHED:  # computed again where they are needed
            hit.path.unlink(missing_ok=True)
            say(f"deleted {shown(hit.path)}")
        elif hit.stored.kind == KIND:  # exported again from the tasks, if it is wanted
            delete_export(hit.path, observe, shown)
        else:
            _rewrite(hit, tars, drop, observe)
            say(f"rewrote {shown(hit.stored.unit)}")


def _rewrite(hit: Hit, tars: Tars, drop: Drop, observe: Observe) -> None:
    unit, kind = hit.stored.unit, hit.stored.kind
    if kind == KNOWN:
        with rewritten_file(unit.with_suffix(".parquet")) as temporary:
            read_known(unit).without(drop.keys).write(temporary)
        for name in FILES_0_3 if unit.suffix == ".json" else ():
            unit.with_name(name).unlink()
    elif kind in {PSEUDO_TEXTS, RANKS}:
        with rewritten_file(unit) as temporary:
            if kind == RANKS:
                rank_files.write_without(unit, temporary, drop.keys)
            else:
                file = pseudo_texts.open_pseudo_texts(unit)
                drop_N = pseudo_texts.texts_of_parents(file, drop.keys)
                pseudo_texts.write_without(file, temporary, drop_N)
            observe(f"written {unit.name}")
    else:
        _rewrite_directory(hit, tars, drop, observe)


def _rewrite_directory(hit: Hit, tars: Tars, drop: Drop, observe: Observe) -> None:
    unit, kind = hit.stored.unit, hit.stored.kind
    with rewritten_directory(unit) as target:
        mirror(unit, target)
        if unit != hit.path or kind == "stream":
            rewrite_stream(unit, target, tars, drop)
        elif kind == "task":
            TaskRewriter(open_task(unit), target, unit, tars, drop).rewrite()
        elif kind == "report":
            reports.rewrite(unit, target, drop.keys)
        elif kind == "targets":
            _rewrite_targets(unit, target, drop)
        else:
            _rewrite_embeddings(unit, target, drop)
        observe(f"written {unit.name}")


def mirror(source: Path, target: Path) -> None:
    """Fill an empty directory with hard links to all files of another, or copies of them."""
    for path in sorted(source.iterdir()):
        place = target / path.name
        if path.is_dir() and not path.is_symlink():
            place.mkdir()
            shutil.copystat(path, place)
            mirror(path, place)
        else:
            link_or_copy(path, place)


def _rewrite_targets(path: Path, target: Path, drop: Drop) -> None:
    targets = teacher_targets.open_targets(path)
    for file in target.iterdir():
        if file.suffix in {".npy", ".parquet"} or file.name == "targets.json":
            file.unlink()
    teacher_targets.write_without(targets, target, drop.keys)


def _rewrite_embeddings(path: Path, target: Path, drop: Drop) -> None:
    for part, drop_N in embedding_files.rows_of(path, drop.keys).items():
        if drop_N.any():
            for name in embedding_files.part_files(part):
                (target / name).unlink()
            embedding_files.write_part_without(path, target, part, drop_N)
    manifest = read_manifest(path, "embeddings")
    (target / "embeddings.json").unlink()
    digests = digests_of(target)
    content = content_id({"identity": manifest["identity"], "digests": digests})
    rewrite_sealed_manifest(target, "embeddings", renewed(manifest, content, {"digests": digests}))
