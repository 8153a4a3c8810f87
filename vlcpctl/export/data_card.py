"""The card of a data set, a README.md, and what every card has: a header and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from vlcpctl.core.words import as_markdown, counted
from vlcpctl.export.pairs import Selection

LICENSES = "https://huggingface.co/docs/hub/repositories-licenses"
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


def data_card(selection: Selection, files: Mapping[str, str], info: Mapping[str, Any]) -> str:
    """The text of the card; `files` are the patterns of each split's files, by its name.

    `info` are the features and splits, which `datasets` checks.
    """
    images = selection.total("images")
    header: dict[str, Any] = {
        "license": "unknown",
        "task_categories": ["zero-shot-image-classification", "image-to-text", "text-to-image"],
        "size_categories": [next((name for most, name in _SIZES if images < most), "n>1M")],
        "tags": ["image-text"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": name, "path": path} for name, path in files.items()],
            }
        ],
        "dataset_info": info,
    }
    tasks = [(task.name, task.content, _counts(selection, task.counts)) for task in selection.tasks]
    captions = selection.total("captions")
    return f"""{front_matter(header)}

# Image-text pairs

{counted(images, "image")} with {counted(captions, "caption")}, exported by vlcpctl.

To fill in: the name of the data set, where the images and captions are from, and the licence
(`license` in the header above; the names are listed at {LICENSES}).

## Tasks

{table(("task", "data id", "images"), tasks)}

## Columns

- `image`: the image file, unchanged; `width` and `height` in pixels, `sha256` of the file
- `captions`: all captions of the image
- `label`: the class of the image, if it has one
- `task`: the name of the task that the pair is in
- `key`: the id of the pair, from the image and its captions; `source_key`: its id in the source
"""


def _counts(selection: Selection, counts: Mapping[str, int]) -> str:
    shown = (f"{counts[name]} {name}" for name in selection.splits if counts.get(name))
    return ", ".join(shown)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    r"""A table with a head and rows of as many cells.

    >>> print(table(("task", "pairs"), [("a|b", 3)]))
    | task | pairs |
    |---|---|
    | a\|b | 3 |
    """
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(as_markdown(str(cell)) for cell in cells)} |"


def front_matter(fields: Mapping[str, Any]) -> str:
    """The header of a card, which the Hugging Face hub reads.

    >>> print(front_matter({"license": "unknown", "tags": ["clip", "no"]}))
    ---
    license: unknown
    tags:
    - clip
    - 'no'
    ---
    """
    return f"---\n{yaml.safe_dump(dict(fields), sort_keys=False, width=1000)}---"
