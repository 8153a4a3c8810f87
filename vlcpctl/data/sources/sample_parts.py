"""From the members of one sample, in a tar or a directory, to a pair."""

from __future__ import annotations

import json
from typing import Any

from vlcpctl.data.images import MAX_BYTES
from vlcpctl.data.pairs import Pair
from vlcpctl.data.sources.columns import CAPTION, LABEL, Wanted
from vlcpctl.data.sources.records import listed, number_or_text, text_of
from vlcpctl.data.sources.tar_members import Member

IMAGES = ("webp", "png", "jpg", "jpeg")  # in the order in which CLIP_benchmark looks for them
TEXTS = ("txt", "json", "cls")
_MAX_TEXT_BYTES = 4 * 2**20


def is_wanted(extension: str, size: int, *, images: bool) -> bool:
    """Whether the bytes of a member are to be read."""
    if extension in TEXTS:
        return size <= _MAX_TEXT_BYTES
    return images and extension in IMAGES and size <= MAX_BYTES


def pair_of_parts(key: str, parts: dict[str, Member], wanted: Wanted) -> Pair:
    """The pair that members make, by their extensions."""
    try:
        texts = _texts(parts)
        described = _parsed(texts.get("json"))
    except (ValueError, RecursionError) as error:
        why = f"its text or description cannot be read: {error}"
        return Pair(key, key, None, [], None, None, None, why)
    image, flaw = _image(parts)
    return Pair(
        key,
        text_of(described.get("source_key")) or key,
        image,
        _captions(texts.get("txt"), described, wanted.caption),
        _label(texts.get("cls"), described, wanted.label),
        None if wanted.value is None else number_or_text(described.get(wanted.value)),
        None if wanted.split is None else text_of(described.get(wanted.split)),
        flaw,
    )


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
    found = {name: member.data for name, member in parts.items() if name in TEXTS}
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
        return listed(described.get(name))
    if isinstance(described.get("captions"), list) and name is None:
        return listed(described["captions"])
    if text is not None:
        # One caption a line is CLIP_benchmark's custom. img2dataset writes one caption, line ends
        # and all, and repeats it in the .json.
        return [text] if isinstance(described.get("caption"), str) else text.split("\n")
    return next((listed(described[usual]) for usual in CAPTION if usual in described), [])


def _label(text: str | None, described: dict[str, Any], name: str | None) -> str | None:
    if name is not None:
        return text if name == "cls" and text is not None else text_of(described.get(name))
    if text is not None:
        return text.strip()
    return next((text_of(described[usual]) for usual in LABEL if usual in described), None)
