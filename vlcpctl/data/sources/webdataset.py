"""Read pairs from WebDataset tars, those of img2dataset, CLIP_benchmark and our own included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.data.images import MAX_BYTES
from vlcpctl.data.pairs import Pair
from vlcpctl.data.sources.columns import CAPTION, LABEL, Wanted
from vlcpctl.data.sources.tar_members import Member, members

IMAGES = ("webp", "png", "jpg", "jpeg")  # in the order in which CLIP_benchmark looks for them
_TEXTS = ("txt", "json", "cls")
_MAX_TEXT_BYTES = 4 * 2**20
_BATCH_BYTES = 8 * 2**20
_BATCH_PAIRS = 1000


@dataclass(frozen=True)
class TarFile:
    """One tar of pairs: members that share a name up to its first dot are one sample."""

    path: Path

    def rows(self) -> None:
        """A tar does not say how many samples it has."""

    def check_columns(self, wanted: Wanted) -> None:
        """A tar has no columns to check before it is read."""

    def pairs(self, wanted: Wanted, *, images: bool = True) -> Iterator[list[Pair]]:
        """The samples in order, a batch at a time; without images, only what decides the task."""
        batch: list[Pair] = []
        size = 0
        for key, group in groupby(members(self.path, _chooser(images=images)), key=sample_name):
            pair = self._pair(key, list(group), wanted)
            if pair is None:
                continue
            batch.append(pair)
            size += len(pair.image or b"")
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_PAIRS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _pair(self, key: str, group: list[Member], wanted: Wanted) -> Pair | None:
        parts: dict[str, Member] = {}
        for member in group:
            extension = extension_of(member.name)
            if extension in IMAGES + _TEXTS and parts.setdefault(extension, member) is not member:
                raise BadInput(f"{self.path} has two members named {member.name!r}")
        if not parts:
            return None  # a directory, or a file that is no part of a pair
        try:
            texts = _texts(parts)
            described = _parsed(texts.get("json"))
        except (ValueError, RecursionError) as error:
            why = f"its text or description cannot be read: {error}"
            return Pair(key, key, None, [], None, None, None, why)
        image, flaw = _image(parts)
        return Pair(
            key,
            _text(described.get("source_key")) or key,
            image,
            _captions(texts.get("txt"), described, wanted.caption),
            _label(texts.get("cls"), described, wanted.label),
            _value(described, wanted.value),
            None if wanted.split is None else _text(described.get(wanted.split)),
            flaw,
        )


def _chooser(*, images: bool) -> Any:
    def wants(name: str, size: int) -> bool:
        extension = extension_of(name)
        if extension in _TEXTS:
            return size <= _MAX_TEXT_BYTES
        return images and extension in IMAGES and size <= MAX_BYTES

    return wants


def sample_name(member: Member) -> str:
    """What the members of one sample share: the name up to the first dot behind its directory."""
    directory, slash, base = member.name.rpartition("/")
    return directory + slash + base.split(".", 1)[0]


def extension_of(name: str) -> str:
    """What says which part of its sample a member is, in small letters."""
    return name.rpartition("/")[2].partition(".")[2].lower()


def _image(parts: dict[str, Member]) -> tuple[bytes | None, str | None]:
    member = next((parts[kind] for kind in IMAGES if kind in parts), None)
    if member is None:
        return None, "no member with an image"
    if not member.is_regular:
        return None, f"{member.name} is a link or a device, not a file"
    if member.data is None:
        return None, f"{member.name} has {member.size} bytes, the limit is {MAX_BYTES}"
    return member.data, None


def _texts(parts: dict[str, Member]) -> dict[str, str]:
    found = {name: member.data for name, member in parts.items() if name in _TEXTS}
    return {name: data.decode() for name, data in found.items() if data}


def _parsed(text: str | None) -> dict[str, Any]:
    described = json.loads(text) if text else {}
    if text and "\\ud" in text.lower():
        json.dumps(
            described, ensure_ascii=False
        ).encode()  # half a surrogate pair cannot be written anywhere
    return described if isinstance(described, dict) else {}


def _captions(text: str | None, described: dict[str, Any], name: str | None) -> list[str]:
    if name is not None and name != "txt":
        return _listed(described.get(name))
    if isinstance(described.get("captions"), list) and name is None:
        return _listed(described["captions"])
    if text is not None:
        # One caption a line is CLIP_benchmark's custom. img2dataset writes one caption, line ends
        # and all, and repeats it in the .json.
        return [text] if isinstance(described.get("caption"), str) else text.split("\n")
    return next((_listed(described[usual]) for usual in CAPTION if usual in described), [])


def _listed(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _label(text: str | None, described: dict[str, Any], name: str | None) -> str | None:
    if name is not None:
        return text if name == "cls" and text is not None else _text(described.get(name))
    if text is not None:
        return text.strip()
    return next((_text(described[usual]) for usual in LABEL if usual in described), None)


def _value(described: dict[str, Any], name: str | None) -> str | int | float | None:
    value = None if name is None else described.get(name)
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
    )
    return value if is_number else _text(value)


def _text(value: object) -> str | None:
    return None if value is None or isinstance(value, list | dict) else str(value)
