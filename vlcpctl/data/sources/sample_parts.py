"""Turn the members of one sample, from a tar or a directory, into a pair."""

from __future__ import annotations

import json
from typing import Any

from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.columns import CAPTION, LABEL, ColumnOptions
from vlcpctl.data.sources.limits import TEXT_BYTES
from vlcpctl.data.sources.records import captions_in, kept_of_record, number_or_text, text_of
from vlcpctl.data.sources.tar_reader import TarMember
from vlcpctl.data.tasks.samples import FAILED_DOWNLOAD, NO_TEXT, Pair

IMAGES = ("webp", "png", "jpg", "jpeg")  # in the order in which CLIP_benchmark tries them
# Images in these formats are reported as skipped; other files are ignored.
OTHER_IMAGES = ("gif", "bmp", "tif", "tiff", "heic", "heif", "avif", "jxl")
TEXTS = ("txt", "json", "cls")
# Fields of img2dataset: whether an image was downloaded, and why not.
STATUS, ERROR, SUCCESS = "status", "error_message", "success"


def is_wanted(extension: str, size: int, *, images: bool) -> bool:
    """Whether to read the bytes of a member; `size` is in bytes."""
    if extension in TEXTS:
        return size <= TEXT_BYTES
    return images and extension in IMAGES and size <= MAX_BYTES


def unusable(place: str, flaw: str) -> Pair:
    """A pair that is skipped as one without an image."""
    return Pair(place, place, None, [], None, None, None, flaw)


def pair_of_parts(key: str, parts: dict[str, TarMember], columns: ColumnOptions) -> Pair:
    """The pair made from the members of a sample, which are given by extension."""
    try:
        texts = _texts(parts)
        described = _parsed(texts.get("json"))
    except (ValueError, RecursionError) as error:
        return unusable(key, f"cannot read its .txt, .cls or .json: {error}")
    # The two fields together are img2dataset's: others have a status as well.
    failure = (
        failed_download(described.get(STATUS), described[ERROR]) if ERROR in described else None
    )
    if failure is not None:
        return unusable(key, failure)._replace(reason=FAILED_DOWNLOAD)
    captions, no_text = _captions(texts.get("txt"), described, columns.caption)
    if no_text:
        return Pair(key, key, None, [], None, None, None, no_text, reason=NO_TEXT)
    member, flaw = _image(parts)
    kept, unfit = kept_of_record(described, columns.keep)
    return Pair(
        key,
        text_of(described.get("source_key")) or key,
        None if unfit or member is None else member.data,
        captions,
        _label(texts.get("cls"), described, columns.label),
        None if columns.value is None else number_or_text(described.get(columns.value)),
        None if columns.split is None else text_of(described.get(columns.split)),
        flaw or unfit,
        kept,
        offset=None if member is None else member.offset,
    )


def failed_download(status: object, error: object) -> str | None:
    """Why img2dataset did not download the image of a sample, or None if it did.

    Its own writer leaves such a sample out of tars and folders; programs that turn its tables into
    tars may not.
    """
    if status in (None, SUCCESS):
        return None
    return shortened(f"{status}: {error}" if error else str(status))


def _image(parts: dict[str, TarMember]) -> tuple[TarMember | None, str | None]:
    member = next((parts[kind] for kind in IMAGES if kind in parts), None)
    if member is None:
        return None, "the sample has no image"
    if not member.is_regular:
        why = member.why or f"{shortened(member.name)} is a link or a device, not a file"
        return None, why
    if member.data is None:
        return None, f"{shortened(member.name)} has {member.size} bytes, the limit is {MAX_BYTES}"
    return member, None


def _texts(parts: dict[str, TarMember]) -> dict[str, str]:
    """The texts by extension. Raises ValueError for one that is not read or not UTF-8."""
    found: dict[str, str] = {}
    for name in parts.keys() & set(TEXTS):
        data = parts[name].data
        if data is None:
            why = f"it has {parts[name].size} bytes, the limit is {TEXT_BYTES}"
            raise ValueError(why if parts[name].is_regular else f"its .{name} is not a file")
        if data:
            found[name] = data.decode()
    return found


def _parsed(text: str | None) -> dict[str, Any]:
    described = json.loads(text) if text else {}
    if text and "\\ud" in text.lower():
        # Raises UnicodeEncodeError for a lone surrogate, which could not be written to the index.
        json.dumps(described, ensure_ascii=False).encode()
    return described if isinstance(described, dict) else {}


def _captions(
    text: str | None, described: dict[str, Any], name: str | None
) -> tuple[list[str], str | None]:
    """As `captions_in`."""
    if name is not None and name != "txt":
        return captions_in(described.get(name))
    if isinstance(described.get("captions"), list) and name is None:
        return captions_in(described["captions"])
    if text is not None:
        # CLIP_benchmark writes one caption per line. img2dataset writes a single caption, line
        # breaks included, and repeats it in the .json.
        is_one = isinstance(described.get("caption"), str)
        return ([text] if is_one else text.split("\n")), None
    usual = next((usual for usual in CAPTION if usual in described), None)
    return captions_in(None if usual is None else described[usual])


def _label(text: str | None, described: dict[str, Any], name: str | None) -> str | None:
    if name is not None:
        return text if name == "cls" and text is not None else text_of(described.get(name))
    if text is not None:
        return text.strip()
    return next((text_of(described[usual]) for usual in LABEL if usual in described), None)
