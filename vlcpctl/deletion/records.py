"""What a receipt records of a plan, and of the artifacts after it was carried out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vlcpctl.core.digests import digests_of
from vlcpctl.core.shown_paths import Shown
from vlcpctl.data.splitting.stop_lists import is_stop_list, stop_list_path
from vlcpctl.deletion.hits import Hit, ids_of, trains
from vlcpctl.deletion.lineage import Dependent
from vlcpctl.deletion.places import Stored
from vlcpctl.deletion.plan import Plan
from vlcpctl.deletion.receipt import Receipt, now
from vlcpctl.deletion.selectors import Selectors

_TEXTS = frozenset({".csv", ".html", ".json", ".jsonl", ".log", ".md", ".ndjson", ".tsv", ".txt"})
_MOST_TEXT_BYTES = 1 << 26
_HEX = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_KEYS_SHOWN = 3


def record(plan: Plan, selectors: Selectors, receipt: Receipt, *, digests: bool = False) -> None:
    """Add the findings of a plan to a receipt; what it has from before an interruption stays.

    `digests` of the files before the deletion are added if they are wanted.
    """
    fields, found = receipt.fields, plan.matches
    fields["keys"] = sorted({*fields["keys"], *(key for hit in plan.hits for key in hit.keys)})
    count_matches(plan, selectors, receipt)
    states = sorted(set(plan.places.states))
    fields["stop_lists"] = [str(stop_list_path(state, fields["request"])) for state in states]
    fields["images"] = sorted({*fields["images"], *found.images})
    fields["not_found"] = sorted(set(selectors.keys) - set(fields["keys"]))
    fields["evicted"] = max(fields.get("evicted", 0), len(found.evicted))
    fields["without_column"] = len(found.unlabelled)
    # Once the pairs are gone, their images are not known any more.
    fields["same_image"] = max(fields.get("same_image", 0), len(found.same_image))
    fields["not_searched"] = {
        "files": len(plan.places.others),
        "links": len(plan.places.skipped),
    }
    known = {one["path"] for one in fields["artifacts"]}
    for entry in _entries(plan, digests=digests):
        if entry["path"] not in known:
            fields["artifacts"].append(entry)
    for name, checkpoints in (("checkpoints", plan.checkpoints), ("unknown", plan.unknown)):
        listed = {one["path"]: one for one in fields.get(name, ())}
        listed |= {str(one.path): _checkpoint(one) for one in checkpoints}
        fields[name] = [listed[path] for path in sorted(listed)]


def count_matches(plan: Plan, selectors: Selectors, receipt: Receipt) -> None:
    """Add to a receipt how many pairs each condition selects, or did before an interruption."""
    entries = receipt.fields["selectors"]
    for entry, count in zip(entries, plan.matches.counts(selectors), strict=True):
        entry["pairs"] = max(entry.get("pairs", 0), count)


def trained_before(fields: Mapping[str, Any]) -> frozenset[Path]:
    """The artifacts of a receipt from which pairs were removed that models may be trained on."""
    return frozenset(
        Path(entry["path"])
        for entry in fields["artifacts"]
        if trains(entry["kind"], entry["removed"])
    )


def complete(plan: Plan, receipt: Receipt) -> None:
    """Add to a receipt what the artifacts are now, and the texts that still name the pairs.

    `plan` is that of a second search, after the removal.
    """
    for entry in receipt.fields["artifacts"]:
        path = Path(entry["path"])
        if entry["action"] == "deleted" or not os.path.lexists(path):
            continue
        kind = next((one.kind for one in plan.places.stored if one.path == path), entry["kind"])
        names = entry["before"]["files"]
        entry["after"] = {
            "content": _content(Stored(path, kind, path)),
            "files": _digests(path, [name for name in names if (path / name).is_file()]),
        }
    wanted = {*receipt.fields["keys"], *receipt.fields["images"]}
    receipt.fields["second_search"] = {
        "time": now(),
        "artifacts": len(plan.places.stored),
        "pairs": len({key for hit in plan.hits for key in hit.keys}),
    }
    receipt.fields["mentions"] = sorted(map(str, _mentions(plan, wanted)))


def matches(fields: Mapping[str, Any], selectors: Selectors) -> Iterator[str]:
    """What each condition but those on keys selects, as a receipt counts it, in lines of text."""
    for words, entry in zip(selectors.words(), fields["selectors"], strict=True):
        if entry["by"] != "key":
            yield f"{words}: {_count(entry['pairs'], 'pair')}"


def lines(fields: Mapping[str, Any], selectors: Selectors, shown: Shown) -> Iterator[str]:
    """The content of a receipt, or of the plan of a dry run, as lines of text."""
    keys = fields["keys"]
    more = ", ..." if len(keys) > _KEYS_SHOWN else ""
    noun = "pair" if len(keys) == 1 else "pairs"
    yield f"{len(keys)} {noun}: {', '.join(keys[:_KEYS_SHOWN])}{more}"
    yield from (f"  {one}" for one in matches(fields, selectors))
    for entry in fields["artifacts"]:
        counts = ", ".join(f"{count} {name}" for name, count in entry["removed"].items())
        what = {"deleted": "delete", "rewritten": "rewrite"}[entry["action"]]
        yield f"  {what} {entry['kind']} {shown(entry['path'])}{f': {counts}' if counts else ''}"
    for entry in fields["checkpoints"]:
        yield f"  depends on them: checkpoint {shown(entry['path'])} (content {entry['content']})"
    for entry in fields["unknown"]:
        yield (
            f"  not known: checkpoint {shown(entry['path'])} was trained on data that is not "
            "under the given paths"
        )


def warnings(fields: Mapping[str, Any], plan: Plan, shown: Shown) -> Iterator[str]:
    """Warnings about what the deletion does not cover, or covers unexpectedly."""
    if fields["same_image"]:
        yield (
            f"the same image is also in {_count(fields['same_image'], 'other pair')}, which stay; "
            "--sha256 selects all pairs of an image"
        )
    if fields["evicted"]:
        yield (
            f"{_count(fields['evicted'], 'sample')} that buffers evicted and no index lists "
            "cannot be compared with --where; removed, too"
        )
    if fields["without_column"]:
        yield (
            f"{_count(fields['without_column'], 'pair')} without a value in a column of --where: "
            "whether they belong to the request is not known; they stay"
        )
    yield from _missing(fields)
    for noun, found in (
        ("file that vlcpctl did not write", plan.places.others),
        ("symbolic link", plan.places.skipped),
    ):
        if found:
            yield f"not searched: {_count(len(found), noun)}, such as {shown(found[0])}"
    if fields.get("mentions"):
        some = fields["mentions"][0]
        files = _count(len(fields["mentions"]), "file")
        yield f"a key is still named in {files}, such as {shown(some)}"


def _missing(fields: Mapping[str, Any]) -> Iterator[str]:
    if fields["not_found"]:
        yield f"{_count(len(fields['not_found']), 'key')} of the request found nowhere"
    others = [entry for entry in fields["selectors"] if not (entry["pairs"] or "key" in entry)]
    if others:
        yield f"no pair matches {_count(len(others), 'other condition')} of the request"


def _count(count: int, noun: str) -> str:
    first, _, rest = noun.partition(" ")
    many = f"{first}s {rest}".rstrip() if rest.startswith("that") else f"{noun}s"
    return f"1 {noun}" if count == 1 else f"{count} {many}"


def _entries(plan: Plan, *, digests: bool) -> Iterator[dict[str, Any]]:
    for hit in plan.hits:
        yield _entry(hit, digests=digests)
    listed = {hit.path for hit in plan.hits}
    for hit in plan.units():
        if hit.stored.unit not in listed:
            stream = Hit(Stored(hit.stored.unit, "stream", hit.stored.unit), {}, ["stream.json"])
            yield _entry(stream, digests=digests)
    for path in plan.parts:
        before: dict[str, Any] = {"content": None, "files": {}}
        yield {
            "path": str(path),
            "kind": "unfinished work",
            "action": "deleted",
            "removed": {},
            "before": before,
            "after": None,
        }


def _entry(hit: Hit, *, digests: bool) -> dict[str, Any]:
    files = _digests(hit.path, hit.files) if digests else dict.fromkeys(hit.files)
    return {
        "path": str(hit.path),
        "kind": hit.kind,
        "action": "deleted" if hit.is_deleted else "rewritten",
        "removed": hit.removed,
        "before": {"content": _content(hit.stored), "files": files},
        "after": None,
    }


def _content(stored: Stored) -> str | None:
    ids = ids_of(stored)
    return ids[-1] if ids else None


def _digests(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Size and digest of files; the name of a file that is not in a directory is empty."""
    if path.is_file():
        return {"": digests_of(path.parent, [path.name])[path.name]}
    return digests_of(path, names)


def _checkpoint(one: Dependent) -> dict[str, Any]:
    return {"path": str(one.path), "content": one.content, **one.about}


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
