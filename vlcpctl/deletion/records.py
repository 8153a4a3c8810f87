"""What a receipt records of a plan, and of the artifacts after it was carried out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from vlcpctl.core.amounts import counted
from vlcpctl.core.digests import FileDigest, digests_of
from vlcpctl.core.shown_paths import Shown
from vlcpctl.data.splitting.stop_lists import is_stop_list, stop_list_path
from vlcpctl.deletion.kinds import Hit
from vlcpctl.deletion.lineage import ids_of
from vlcpctl.deletion.places import Stored
from vlcpctl.deletion.plan import Plan
from vlcpctl.deletion.receipt import FINISHED, FOREIGN, Entry, Files, Receipt, now
from vlcpctl.deletion.selectors import Selectors

_TEXTS = frozenset({".csv", ".html", ".json", ".jsonl", ".log", ".md", ".ndjson", ".tsv", ".txt"})
_MOST_TEXT_BYTES = 1 << 26
_HEX = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_KEYS_SHOWN = 3


def record(plan: Plan, receipt: Receipt, *, digests: bool = False) -> None:
    """Add the findings of a plan to a receipt; what it has from before an interruption stays.

    `digests` of the files before the deletion are added if they are wanted.
    """
    found, selectors = plan.pairs, plan.selectors
    receipt.keys = sorted({*receipt.keys, *(key for hit in plan.hits for key in hit.keys)})
    count_matches(plan, receipt)
    states = sorted(set(plan.places.states))
    receipt.stop_lists = [str(stop_list_path(state, receipt.request)) for state in states]
    receipt.images = sorted({*receipt.images, *found.images})
    receipt.not_found = sorted(selectors.keys.difference(receipt.keys))
    receipt.evicted = max(receipt.evicted, len(found.evicted))
    foreign: Counter[str] = sum((hit.foreign for hit in plan.hits), Counter())
    receipt.foreign |= dict(sorted(foreign.items()))
    receipt.caches = sorted(map(str, plan.places.caches))
    receipt.without_column = len(found.unlabelled)
    # Once the pairs are gone, their images are not known any more.
    receipt.same_image = max(receipt.same_image, len(found.same_image))
    receipt.not_searched = {"files": len(plan.places.others), "links": len(plan.places.skipped)}
    known = {one.path for one in receipt.artifacts}
    entries = _entries(plan, digests=digests)
    receipt.artifacts += [one for one in entries if one.path not in known]
    for listed, checkpoints in (
        (receipt.checkpoints, plan.checkpoints),
        (receipt.unknown, plan.unknown),
    ):
        every = {one["path"]: one for one in listed}
        for one in checkpoints:
            path = str(one.path)
            every[path] = {"path": path, "content": one.content, **(one.about or {})}
        listed[:] = [every[path] for path in sorted(every)]


def count_matches(plan: Plan, receipt: Receipt) -> None:
    """Add to a receipt how many pairs each condition selects, or did before an interruption."""
    counts = plan.pairs.counts(plan.selectors)
    for entry, count in zip(receipt.selectors, counts, strict=True):
        entry["pairs"] = max(entry.get("pairs", 0), count)


def _entries(plan: Plan, *, digests: bool) -> Iterator[Entry]:
    listed = {hit.path for hit in plan.hits}
    streams = [hit.stored.unit for hit in plan.units() if hit.stored.unit not in listed]
    for hit in (
        *plan.hits,
        *(Hit(Stored(one, "stream", one), "stream", files=["stream.json"]) for one in streams),
    ):
        files = _digests(hit.path, hit.files) if digests else dict.fromkeys(hit.files)
        action: Literal["deleted", "rewritten"] = "deleted" if hit.is_deleted else "rewritten"
        before = Files(_content(hit.stored), files)
        yield Entry(str(hit.path), hit.kind, action, hit.removed, before, again=hit.again or None)
    for path in plan.parts:
        yield Entry(str(path), "unfinished work", "deleted", {}, Files())


def complete(plan: Plan, receipt: Receipt) -> None:
    """Add to a receipt what the artifacts are now, and the texts that still name the pairs.

    `plan` is that of a second search, after the removal.
    """
    stored = {str(one.path): one for one in plan.places.stored}
    for entry in receipt.artifacts:
        one = stored.get(entry.path)
        if entry.action == "deleted" or one is None:
            continue
        names = [name for name in entry.before.files if (one.path / name).is_file()]
        entry.after = Files(_content(one), _digests(one.path, names))
    receipt.second_search = {
        "time": now(),
        "artifacts": len(plan.places.stored),
        "pairs": len({key for hit in plan.hits for key in hit.keys}),
    }
    wanted = {*receipt.keys, *receipt.images}
    receipt.mentions = sorted(map(str, _mentions(plan, wanted)))
    receipt.state, receipt.finished = FOREIGN if receipt.foreign else FINISHED, now()


def _content(stored: Stored) -> str | None:
    return next(reversed(ids_of(stored)), None)


def _digests(path: Path, names: Iterable[str]) -> dict[str, FileDigest | None]:
    """Size and digest of files; the name of a file that is not in a directory is empty."""
    if path.is_file():
        return {"": digests_of(path.parent, [path.name])[path.name]}
    return {**digests_of(path, names)}


def _mentions(plan: Plan, wanted: set[str]) -> Iterator[Path]:
    """Text files under the paths that name a key or an image, except receipts and stop lists."""
    names = {one.encode() for one in wanted}
    for top in plan.tops:
        for directory, _, files in os.walk(top):
            for path in (Path(directory) / name for name in files):
                if path.suffix not in _TEXTS or path.is_symlink() or not path.is_file():
                    continue
                if path.stat().st_size > _MOST_TEXT_BYTES:
                    continue
                if names & set(_HEX.findall(path.read_bytes())) and not is_stop_list(path):
                    yield path


def matches(receipt: Receipt, selectors: Selectors) -> Iterator[str]:
    """What each condition but those on keys selects, as a receipt counts it, in lines of text."""
    for words, entry in zip(selectors.words(), receipt.selectors, strict=True):
        if entry["by"] != "key":
            yield f"{words}: {counted(entry['pairs'], 'pair')}"


def lines(receipt: Receipt, selectors: Selectors, shown: Shown) -> Iterator[str]:
    """The content of a receipt, or of the plan of a dry run, as lines of text."""
    keys = receipt.keys
    more = ", ..." if len(keys) > _KEYS_SHOWN else ""
    yield f"{counted(len(keys), 'pair')}: {', '.join(keys[:_KEYS_SHOWN])}{more}"
    yield from (f"  {one}" for one in matches(receipt, selectors))
    for entry in receipt.artifacts:
        counts = ", ".join(f"{count} {name}" for name, count in entry.removed.items())
        what = {"deleted": "delete", "rewritten": "rewrite"}[entry.action]
        said = f": {counts}" if counts else ""
        again = f"; '{entry.again}' makes it again" if entry.again else ""
        yield f"  {what} {entry.kind} {shown(entry.path)}{said}{again}"
    for path in receipt.caches:
        yield f"  empty the cache {shown(path)}"
    for one in receipt.checkpoints:
        yield f"  depends on them: checkpoint {shown(one['path'])} (content {one['content']})"
    for one in receipt.unknown:
        kind = "checkpoint" if "run" in one else "export"
        yield (
            f"  not known: {kind} {shown(one['path'])} was made of data that is not under the "
            "given paths"
        )


def warnings(receipt: Receipt, plan: Plan, shown: Shown) -> Iterator[str]:
    """Warnings about what the deletion does not cover, or covers unexpectedly."""
    if receipt.same_image:
        yield (
            f"the same image is also in {counted(receipt.same_image, 'other pair')}, which stay; "
            "--sha256 selects all pairs of an image"
        )
    yield from _elsewhere(receipt, shown)
    if receipt.evicted:
        yield (
            f"{counted(receipt.evicted, 'sample')} that buffers evicted and no index lists "
            "cannot be compared with --where; removed, too"
        )
    if receipt.without_column:
        yield (
            f"{counted(receipt.without_column, 'pair')} without a value in a column of --where: "
            "whether they belong to the request is not known; they stay"
        )
    if exports := [one for one in receipt.unknown if "run" not in one]:
        yield (
            f"not searched: {counted(len(exports), 'export')} of data that is not under the given "
            f"paths, such as {shown(exports[0]['path'])}; give the paths of its tasks, or delete it"
        )
    yield from _missing(receipt)
    strange, links = plan.places.others, plan.places.skipped
    if strange:
        files = counted(len(strange), "file")
        yield f"not searched: {files} that vlcpctl did not write, such as {shown(strange[0])}"
    if links:
        yield f"not searched: {counted(len(links), 'symbolic link')}, such as {shown(links[0])}"
    if receipt.mentions:
        files = counted(len(receipt.mentions), "file")
        yield f"a key is still named in {files}, such as {shown(receipt.mentions[0])}"


def _elsewhere(receipt: Receipt, shown: Shown) -> Iterator[str]:
    if receipt.foreign:
        pairs = counted(sum(receipt.foreign.values()), "pair")
        yield (
            f"{pairs} of tasks that were made in place: not removed from "
            f"{counted(len(receipt.foreign), 'tar')} of others, such as "
            f"{shown(min(receipt.foreign))}; write those again without them"
        )
    if receipt.caches:
        yield (
            f"not searched: the object stores that {shown(receipt.caches[0])} is a cache of; write "
            "what has the pairs there again without them"
        )


def _missing(receipt: Receipt) -> Iterator[str]:
    if receipt.not_found:
        yield f"{counted(len(receipt.not_found), 'key')} of the request found nowhere"
    others = [entry for entry in receipt.selectors if not (entry["pairs"] or "key" in entry)]
    if others:
        yield f"no pair matches {counted(len(others), 'other condition')} of the request"
