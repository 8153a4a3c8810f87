"""The layout that `datasets` reads as an imagefolder: image files, and a metadata.jsonl per split.

SPLIT/metadata.jsonl has a line for each image: `file_name`, relative to the file, `text`, the
first caption, and `captions`, all of them. The images are in a folder for each task.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import Any, TextIO

from vlcpctl.data.tasks.export_manifest import CARD
from vlcpctl.export.data_card import data_card
from vlcpctl.export.hugging_face import SPLIT_NAMES
from vlcpctl.export.layout import Layout, Target, renamed
from vlcpctl.export.pairs import ExportedPair

METADATA = "metadata.jsonl"
_TEXTS = ("label", "key", "source_key", "task", "sha256")
_OWN = ("file_name", "text", "captions", "image", *_TEXTS, "width", "height")


class ImageFolder(Layout):
    """Writes the image files, and a line about each."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._kept = renamed(target.selection.kept_columns, _OWN)
        self._open = ExitStack()
        self._metadata: dict[str, TextIO] = {}

    def add(self, pair: ExportedPair) -> None:
        """See `Layout`."""
        split = SPLIT_NAMES.get(pair.split, pair.split)
        directory = self.target.directory / split
        name = f"{pair.folder}/{pair.key}.{pair.kind}"
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pair.image)
        if split not in self._metadata:
            opened = (directory / METADATA).open("w", encoding="utf-8")
            self._metadata[split] = self._open.enter_context(opened)
        line = json.dumps({"file_name": name, **self._described(pair)}, ensure_ascii=False)
        self._metadata[split].write(f"{line}\n")

    def close(self) -> None:
        """See `Layout`."""
        self._open.close()
        files = {split: f"{split}/**" for split in self._metadata}
        card = data_card(self.target.selection, files)
        (self.target.directory / CARD).write_text(card, encoding="utf-8")

    def abandon(self) -> None:
        """See `Layout`."""
        with suppress(OSError):
            self._open.close()

    def _described(self, pair: ExportedPair) -> dict[str, Any]:
        kept = {name: pair.kept.get(column, []) for column, name in self._kept.items()}
        return {
            "text": pair.captions[0],
            "captions": pair.captions,
            **{name: getattr(pair, name) for name in (*_TEXTS, "width", "height")},
            **kept,
        }
