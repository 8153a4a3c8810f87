"""What pairs hold, of raw data as of tasks: columns, captions, images, repeats; a contact sheet."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import counted, printable, shortened
from vlcpctl.data.images.transforms import small_jpeg
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, columns_of, pairs
from vlcpctl.data.tasks.samples import Pair, UnusablePair, identify

FIRST = 10_000  # pairs that are looked at if their number is not given
SHOWN = 48  # pairs of a contact sheet
LISTED = 5  # pairs in the terminal
_EDGE = 192  # pixels: the longest edge of a picture on the sheet

Facts = dict[str, Any]


def look(path: Path, most: int, columns: Columns | None = None) -> tuple[Facts, list[Pair]]:
    """What the first `most` pairs at `path` hold, and up to SHOWN of them, evenly spaced.

    `path` is anything that `split` reads; without `columns` the usual names are tried. Raises
    BadInput if it is damaged, lacks a column or has no pairs.
    """
    (source,) = find_inputs([str(path)])
    columns = columns or Columns()
    used = dict.fromkeys(tuple(columns_of(file, columns).items()) for file in source.files)
    unusable: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    images: Counter[str] = Counter()  # by the first digits of their sha256
    captions: Counter[str] = Counter()  # of how many images each is
    numbers, words, widths, heights = [], [], [], []
    sheet = _Spread()
    every = (pair for file in source.files for batch in pairs(file, columns) for pair in batch)
    looked_at = 0
    for pair in islice(every, most):
        looked_at += 1
        try:
            known = identify(pair)
        except UnusablePair as error:
            unusable[error.reason] += 1
            continue
        sheet.add(known)
        kinds[known.kind] += 1
        images[known.sha256[:32]] += 1
        captions.update(set(known.captions))
        numbers.append(len(known.captions))
        words += [len(one.split()) for one in known.captions]
        widths.append(known.width)
        heights.append(known.height)
    caption, times = captions.most_common(1)[0] if captions else ("", 0)
    return {
        "path": str(path),
        "kind": "pairs",
        "files": len(source.files),
        "columns": [dict(one) for one in used if one],
        "looked_at": looked_at,
        "is_all": next(every, None) is None,
        "unusable": dict(unusable),
        "kinds": dict(kinds),
        "widths": _range(widths),
        "heights": _range(heights),
        "captions_per_image": _range(numbers),
        "words_per_caption": _range(words),
        "repeated_images": sum(number - 1 for number in images.values()),
        "shared_captions": sum(number for number in captions.values() if number > 1),
        "most_frequent_caption": {"caption": caption, "images": times} if times > 1 else None,
    }, sheet.pairs()


class _Spread:
    """Keeps pairs at even distances, though nobody knows how many there will be."""

    def __init__(self) -> None:
        self._kept: list[Pair] = []
        self._step, self._seen = 1, 0

    def add(self, pair: Pair) -> None:
        if self._seen % self._step == 0:
            self._kept.append(pair)
        self._seen += 1
        if len(self._kept) == 2 * SHOWN:
            self._kept, self._step = self._kept[::2], 2 * self._step

    def pairs(self) -> list[Pair]:
        """At most SHOWN of those that were added, in their order."""
        number = min(SHOWN, len(self._kept))
        return [self._kept[place * len(self._kept) // number] for place in range(number)]


def _range(values: Sequence[int]) -> dict[str, float] | None:
    if not values:
        return None
    return {"least": min(values), "median": median(values), "most": max(values)}


def lines(facts: Facts, shown: Sequence[Pair]) -> Iterator[str]:
    """The facts as lines for people, with some of the pairs."""
    yield f"pairs {facts['path']}"
    for columns in facts["columns"]:
        roles = [f"{role} from {name!r}" for role, name in columns.items()]
        yield f"  columns    {printable(', '.join(roles))}"
    which = "all" if facts["is_all"] else "the first"
    yield f"  looked at  {which} {facts['looked_at']:,} pairs"
    for reason, number in facts["unusable"].items():
        yield f"  unusable   {number:,}: {reason}"
    if facts["widths"] is None:
        return
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in facts["kinds"].items())
    yield f"  images     {kinds}; {facts['repeated_images']:,} repeat an earlier one"
    yield f"  pixels     {_said(facts['widths'], 'wide')}, {_said(facts['heights'], 'high')}"
    yield f"  captions   {_said(facts['captions_per_image'], 'per image')}"
    yield f"  words      {_said(facts['words_per_caption'], 'per caption')}"
    often = facts["most_frequent_caption"]
    if often is not None:
        caption = printable(shortened(often["caption"]))
        yield f"  repeats    {facts['shared_captions']:,} captions are also of another image;"
        yield f"             most often {caption!r}, of {often['images']:,} images"
    for pair in shown[:: max(1, len(shown) // LISTED)][:LISTED]:
        size = f"{pair.width}x{pair.height}"
        yield f"  {size:<9}  {printable(shortened(' | '.join(pair.captions)))}"


def _said(found: dict[str, float], of: str) -> str:
    """The range in words.

    >>> _said({"least": 1, "median": 2, "most": 5}, "per image")
    '1 to 5 per image (median 2)'
    """
    least, middle, most = (found[name] for name in ("least", "median", "most"))
    if least == most:
        return f"{least:,} {of}"
    return f"{least:,} to {most:,} {of} (median {middle:,.0f})"


_STYLE = """
:root { color-scheme: light dark; font: 15px/1.4 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 76rem; padding: 0 1rem; }
pre { white-space: pre-wrap; }
ol { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr));
     list-style: none; padding: 0; }
li { border: 1px solid #8886; border-radius: 4px; overflow: hidden; }
li div { background: #8882; display: grid; height: 12rem; place-items: center; }
img { height: 100%; object-fit: contain; width: 100%; }
p { margin: .5rem; overflow-wrap: anywhere; }
small { color: GrayText; display: block; margin: .5rem; overflow-wrap: anywhere; }
"""
_GENERATOR = '<meta name="generator" content="vlcpctl inspect">'


def is_sheet(path: Path) -> bool:
    """Whether a file is a contact sheet."""
    with path.open("rb") as file:
        return _GENERATOR.encode() in file.read(1024)


def contact_sheet(facts: Facts, shown: Sequence[Pair]) -> str:
    """A page with the pictures, their captions and what `lines` says."""
    title = f"{counted(len(shown), 'pair')} of {printable(facts['path'])}"
    said = "\n".join(list(lines(facts, ()))[1:])
    return "".join(
        (
            f'<!doctype html><html lang="en"><meta charset="utf-8">{_GENERATOR}',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f"<h1>{escape(title)}</h1><pre>{escape(said)}</pre><ol>",
            *map(_figure, shown),
            "</ol></html>\n",
        )
    )


def _figure(pair: Pair) -> str:
    captions = "".join(f"<p>{escape(printable(one))}</p>" for one in pair.captions)
    about = [f"{pair.width}x{pair.height} {pair.kind}", pair.label, pair.source_key or pair.place]
    small = ", ".join(printable(str(one)) for one in about if one is not None)
    picture = _picture(pair)
    return f"<li><div>{picture}</div>{captions}<small>{escape(small)}</small></li>"


def _picture(pair: Pair) -> str:
    try:
        data = small_jpeg(bytes(pair.data), _EDGE)
    except BadInput as error:
        return escape(str(error))
    encoded = base64.b64encode(data).decode("ascii")
    return f'<img src="data:image/jpeg;base64,{encoded}" alt="" loading="lazy">'
