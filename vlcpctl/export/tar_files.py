"""Numbered tars of samples, as webdataset reads them; equal samples give equal bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_BLOCK = 512
_END = 2 * _BLOCK


class TarFiles:
    """Appends samples to tars numbered from 0, each of at most so many bytes and samples.

    `name` is the format of their names, such as "{:05d}.tar". A tar with a single sample may be
    larger.
    """

    def __init__(self, directory: Path, name: str, most_bytes: int, most_samples: int) -> None:
        self.directory, self.name = directory, name
        self.most_bytes, self.most_samples = most_bytes, most_samples
        self.count = 0  # of tars
        self._samples = self._bytes = 0  # in the open one
        self._tar: tarfile.TarFile | None = None

    def write(self, name: str, members: Mapping[str, bytes]) -> None:
        """Append a sample: its members by file extension."""
        size = sum(_BLOCK + -(-len(one) // _BLOCK) * _BLOCK for one in members.values())
        is_full = self._bytes + size + _END > self.most_bytes or self._samples >= self.most_samples
        if self._tar is None or (self._samples and is_full):
            self._open()
        self._samples, self._bytes = self._samples + 1, self._bytes + size
        assert self._tar is not None
        for extension, data in members.items():
            about = tarfile.TarInfo(f"{name}.{extension}")  # of 1970, as equal bytes need
            about.size = len(data)
            self._tar.addfile(about, io.BytesIO(data))
            self._tar.getmembers().clear()  # the list, unused, takes a kilobyte a member

    def close(self) -> None:
        """Finish the last tar."""
        if self._tar is not None:
            self._tar.close()
            self._tar = None

    def abandon(self) -> None:
        """Close the last tar after an error, such as on a full disk. Raises nothing."""
        if self._tar is not None:
            with suppress(OSError):
                self._tar.close()

    def _open(self) -> None:
        self.close()
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / self.name.format(self.count)
        self._tar = tarfile.TarFile(path, "w", format=tarfile.USTAR_FORMAT)
        self.count, self._samples, self._bytes = self.count + 1, 0, 0
