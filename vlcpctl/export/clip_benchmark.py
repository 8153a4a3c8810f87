"""The layout that CLIP_benchmark reads as `wds/NAME`: SPLIT/nshards.txt, SPLIT/0.tar, ...

Its loader takes the type of the data set from dataset_type.txt. For retrieval it reads the image
and the .txt member of each sample, whose lines are the captions; for classification the image and
the .cls member, classnames.txt and zeroshot_classification_templates.txt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.classification.class_folder import CLASS_NAMES, KIND, SHARD_COUNT, TEMPLATES
from vlcpctl.data.tasks.class_names import name_of
from vlcpctl.export.layout import Layout, Target, one_line
from vlcpctl.export.pairs import ExportedPair
from vlcpctl.export.tar_files import TarFiles

RETRIEVAL, CLASSIFICATION = "retrieval", "classification"
TYPES = (RETRIEVAL, CLASSIFICATION)
_MOST_SAMPLES = 10_000  # of a tar, as in CLIP_benchmark's own export


class ClipBenchmark(Layout):
    """Writes tars of samples s0000000, s0000001, ... for each split, with the files beside them."""

    def __init__(self, target: Target, kind: str, templates: Sequence[str]) -> None:
        self.target, self.kind, self.templates = target, kind, templates
        labels = target.selection.labels
        self._class_of = {label: number for number, label in enumerate(labels)}
        self._tars: dict[str, TarFiles] = {}
        self._counts: dict[str, int] = {}

    def add(self, pair: ExportedPair) -> None:
        """See `Layout`; for classification every image needs a label."""
        members = {pair.kind: pair.image, "txt": "\n".join(map(one_line, pair.captions)).encode()}
        if pair.label is not None:
            members["cls"] = str(self._class_of[pair.label]).encode()
        elif self.kind == CLASSIFICATION:
            raise BadInput(
                f"task {pair.task!r}: the image of key {pair.key} has no label; "
                "--dataset-type retrieval does not need any"
            )
        tars = self._tars_of(pair.split)
        number = self._counts[pair.split] = self._counts.get(pair.split, -1) + 1
        tars.write(f"s{number:07d}", members)

    def close(self) -> None:
        """See `Layout`."""
        root = self.target.directory
        for split, tars in self._tars.items():
            tars.close()
            (root / split / SHARD_COUNT).write_text(f"{tars.count}\n")
        (root / KIND).write_text(f"{self.kind}\n")
        if self._class_of:
            names = [one_line(name_of(label)) for label in self._class_of]
            _write_lines(root / CLASS_NAMES, names)
            _write_lines(root / TEMPLATES, self.templates)

    def abandon(self) -> None:
        """See `Layout`."""
        for tars in self._tars.values():
            tars.abandon()

    def _tars_of(self, split: str) -> TarFiles:
        if split not in self._tars:
            directory, most_bytes = self.target.directory / split, self.target.shard_bytes
            self._tars[split] = TarFiles(directory, "{}.tar", most_bytes, _MOST_SAMPLES)
        return self._tars[split]


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
