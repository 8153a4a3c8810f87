"""Runs the command lines of a week for real once, and copies what they made from then on."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from vlcpctl.jobs.script import CommandLine
from vlcpctl.production import week

_REAL = week.run_lines


class Replay:
    """A runner in place of `run_lines`; `root` is what differs from run to run in paths."""

    def __init__(self, cache: Path, root: Path) -> None:
        self.cache, self.root = cache, root

    def __call__(self, lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        for line in lines:
            code = self._run(line)
            if code:
                return line, code
        return None

    def _run(self, line: CommandLine) -> int:
        words = [word.replace(str(self.root), "ROOT") for word in line.words]
        kept = self.cache / hashlib.sha256("\n".join(words).encode()).hexdigest()
        given = pairwise(line.words)
        outs = [Path(value) for name, value in given if name in {"-o", "--save-ranks"}]
        if not kept.exists():
            failed = _REAL([line])
            making = kept.with_suffix(".making")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(parents=True)
            (making / "code").write_text(str(failed[1] if failed else 0))
            for number, out in enumerate(outs):
                (shutil.copytree if out.is_dir() else shutil.copyfile)(out, making / str(number))
            making.rename(kept)
        for number, out in enumerate(outs):
            if not out.exists():
                temporary = out.with_name(f".{out.name}.tmp-{os.getpid()}")
                out.parent.mkdir(parents=True, exist_ok=True)
                one = kept / str(number)
                (shutil.copytree if one.is_dir() else shutil.copyfile)(one, temporary)
                temporary.rename(out)
        return int((kept / "code").read_text())
