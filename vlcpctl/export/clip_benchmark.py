"""The layout that CLIP_benchmark reads as `wds/NAME`: SPLIT/nshards.txt, SPLIT/0.tar, ...

Its loader takes the type of the data set from dataset_type.txt. For retrieval it reads the image
and the .txt member of each sample, whose lines are the captions; for classification the image and
the .cls member, classnames.txt and zeroshot_classification_templates.txt.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.classification.labelled_images import CLASS_NAMES, KIND, SHARD_COUNT, TEMPLATES
from vlcpctl.data.tasks.class_names import name_of
from vlcpctl.export.pairs import ExportedPair

RETRIEVAL, CLASSIFICATION = "retrieval", "classification"
TYPES = (RETRIEVAL, CLASSIFICATION)
_MOST_SAMPLES = 10_000  # of a tar, as in CLIP_benchmark's own export
_BLOCK = 512
_END = 2 * _BLOCK


def write_clip_benchmark(
    root: Path,
    pairs: Iterable[ExportedPair],
    labels: Sequence[str],
    *,
    shard_bytes: int,
    kind: str,
    templates: Sequence[str],
) -> None:
    """Write pairs, split by split, as tars of samples s0000000, s0000001, ..., and the other files.

    `labels` are those of all pairs, in the order of their classes. For classification every image
    needs one: raises BadInput for one without.
    """
    class_of = {label: str(number).encode() for number, label in enumerate(labels)}
    for split, some in groupby(pairs, key=attrgetter("split")):
        samples = (_members(pair, kind, class_of) for pair in some)
        count = write_tars(root / split, samples, shard_bytes)
        (root / split / SHARD_COUNT).write_text(f"{count}\n")
    (root / KIND).write_text(f"{kind}\n")
    if labels:
        _write_lines(root / CLASS_NAMES, [_one_line(name_of(label)) for label in labels])
        _write_lines(root / TEMPLATES, templates)


def _members(pair: ExportedPair, kind: str, class_of: Mapping[str, bytes]) -> dict[str, bytes]:
    """The members of a sample by file extension."""
    members = {pair.kind: pair.image, "txt": "\n".join(map(_one_line, pair.captions)).encode()}
    if pair.label is not None:
        members["cls"] = class_of[pair.label]
    elif kind == CLASSIFICATION:
        raise BadInput(
            f"task {pair.task!r}: the image of key {pair.key} has no label; "
            "--dataset-type retrieval does not need any"
        )
    return members


def write_tars(directory: Path, samples: Iterable[Mapping[str, bytes]], most_bytes: int) -> int:
    """Write samples, members by file extension, to tars of at most so many bytes; how many tars.

    Equal samples give equal bytes. A tar with a single sample may be larger.
    """
    directory.mkdir()
    count = in_tar = held = 0
    with ExitStack() as opened:
        for number, members in enumerate(samples):
            size = sum(_BLOCK + -(-len(one) // _BLOCK) * _BLOCK for one in members.values())
            is_full = held + size + _END > most_bytes or in_tar >= _MOST_SAMPLES
            if not number or (in_tar and is_full):
                opened.close()
                path = directory / f"{count}.tar"
                tar = opened.enter_context(tarfile.TarFile(path, "w", format=tarfile.USTAR_FORMAT))
                count, in_tar, held = count + 1, 0, 0
            in_tar, held = in_tar + 1, held + size
            for extension, data in members.items():
                about = tarfile.TarInfo(f"s{number:07d}.{extension}")  # of 1970, for equal bytes
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
                tar.getmembers().clear()  # the list, unused, takes a kilobyte a member
    return count


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _one_line(text: str) -> str:
    r"""A caption with a space for each line break, of any kind that `str.splitlines` knows.

    Tokenizers make a space of white space anyway, and CLIP_benchmark splits lines in this way.

    >>> _one_line("a\r\nb\u2028c")
    'a b c'
    """
    return " ".join(text.splitlines())
