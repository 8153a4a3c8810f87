"""Read records from the JSON lists of ALBEF, Karpathy, COCO captions and P9D."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.printable import shortened
from vlcpctl.data.sources.json_stream import JsonReader, open_json
from vlcpctl.data.sources.limits import CAPTIONS_HELD
from vlcpctl.data.sources.records import Record

NumberedRecord = tuple[str | int, Record]

_PARTS_OF_COCO = frozenset(
    {"images", "annotations", "info", "licenses", "type", "dataset", "categories"}
)


def json_records(path: Path) -> Iterator[NumberedRecord]:
    """One record per listed image, with its number or its id.

    Raises BadInput if the file is not well-formed JSON or not one of the known kinds of list.
    """
    with open_json(path) as reader:
        start = reader.peek()
        if start == "[":
            yield from _listed(reader)
        elif start == "{":
            yield from _keyed(reader)
        else:
            raise BadInput(f"{path} is not a JSON list of pairs: it starts with {start!r}")
        reader.end()


def _listed(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The records of an ALBEF list, which is an array."""
    for number in reader.elements():
        yield number, _record(reader)


def _keyed(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The records of COCO and Karpathy lists, known by their first key, or of P9D lists."""
    is_coco = False
    for number, name in enumerate(reader.members()):
        if number == 0:
            is_coco = name in _PARTS_OF_COCO
        if is_coco and name == "images":
            yield from _images(reader)
        elif is_coco:
            reader.skip()
        elif reader.peek() != "{":
            raise reader.error(f"{shortened(name)!r} is neither a pair nor a task with pairs by id")
        else:
            yield from _products(reader, name)


def _products(reader: JsonReader, name: str) -> Iterator[NumberedRecord]:
    """One P9D product under its id, or the products of one industry under theirs."""
    record: Record = {}
    holds_records = False
    for number, inner in enumerate(reader.members()):
        if number == 0:
            holds_records = reader.peek() == "{"
        if holds_records:
            yield inner, _product(inner, {"industry_name": name, **_record(reader)})
        else:
            record[inner] = reader.value()
    if record:
        yield name, _product(name, record)


def _product(name: str, record: Record) -> Record:
    """A P9D record; its image is named after its id."""
    return {"item_id": name, "image": f"{name}.jpg", **record}


def _images(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The images of a Karpathy list with their sentences, or of COCO with their annotations."""
    captions: dict[str, list[object]] | None = None
    for number in reader.elements():
        image = _record(reader)
        if "sentences" in image:
            yield number, _karpathy(image)
            continue
        if captions is None:
            captions = _annotations(reader.path)
        of_image = captions.get(str(image.get("id")), [])
        yield number, {"image": image.get("file_name"), "captions": of_image, **image}


def _karpathy(image: Record) -> Record:
    sentences = image["sentences"] if isinstance(image["sentences"], list) else []
    raw = [one.get("raw") if isinstance(one, dict) else one for one in sentences]
    parts = [image.get("filepath"), image.get("filename")]
    path = "/".join(part for part in parts if isinstance(part, str))
    key = image.get("cocoid", image.get("imgid"))
    return {"image": path, "captions": raw, "image_id": key, **image}


def _annotations(path: Path) -> dict[str, list[object]]:
    """COCO's captions by image id; they come in no particular order, so all are kept in memory."""
    captions: dict[str, list[object]] = defaultdict(list)
    length = 0
    with open_json(path) as reader:
        for name in reader.members():
            if name != "annotations":
                reader.skip()
                continue
            for _ in reader.elements():
                annotation = _record(reader)
                caption = annotation.get("caption")
                if caption is not None:
                    captions[str(annotation.get("image_id"))].append(caption)
                    length += len(caption if isinstance(caption, str) else repr(caption))
                if length > CAPTIONS_HELD:
                    raise reader.error(
                        f"captions of more than {CAPTIONS_HELD} characters, which are all held in "
                        "memory; write a list with the captions beside each image"
                    )
    if not captions:
        raise BadInput(
            f"{path} lists images without captions (expected 'sentences' or 'annotations')"
        )
    return captions


def _record(reader: JsonReader) -> Record:
    if reader.peek() != "{":
        raise reader.error("expected a record in braces")
    found: Record = reader.value()
    return found
