"""Labelled images as CLIP_benchmark keeps them on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.pair_files import write_tar


def write_class_folder(
    folder: Path,
    images: Sequence[tuple[bytes, str, int]],
    classes: Sequence[str],
    templates: Sequence[str] | None = None,
    *,
    per_tar: int = 10_000,
    split: str = "test",
) -> Path:
    """Images as (bytes, extension, label), numbered as clip_benchmark_export_wds numbers them."""
    starts = range(0, len(images), per_tar)
    for number, start in enumerate(starts):
        members = {}
        for place, (image, kind, label) in enumerate(images[start : start + per_tar], start):
            members[f"s{place:07d}.{kind}"] = image
            members[f"s{place:07d}.cls"] = str(label).encode()
        write_tar(folder / split / f"{number}.tar", members)
    write_lines(folder / split / "nshards.txt", [str(len(starts))])
    write_lines(folder / "classnames.txt", classes)
    if templates is not None:
        write_lines(folder / "zeroshot_classification_templates.txt", templates)
    return folder


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """A text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
