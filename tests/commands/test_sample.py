"""`vlcpctl sample`: what it prints, what it refuses, what it does not import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import sample as run

from vlcpctl.core.errors import OutputExists, UsageError


def sample(out: Path, **options: object) -> None:
    run("emoji9", out, views=1, size=16, limit=3, quiet=True, **options)


def test_prints_the_path_alone_and_again_when_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pairs.parquet"
    sample(out)
    written = out.stat().st_mtime_ns
    sample(out)
    assert capsys.readouterr().out == f"{out}\n{out}\n"
    assert out.stat().st_mtime_ns == written


def test_other_settings_are_refused_by_name_and_forced_aside(tmp_path: Path) -> None:
    out = tmp_path / "pairs.parquet"
    sample(out)
    with pytest.raises(OutputExists, match="seed was 0 and is now 1"):
        sample(out, seed=1)
    sample(out, seed=1, force=True)
    assert (tmp_path / ".pairs.parquet.vlcpctl/replaced/pairs.parquet").is_file()


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "pairs.parquet"
    out.write_text("mine")
    with pytest.raises(OutputExists, match="choose another --out"):
        sample(out)
    assert out.read_text() == "mine"


def test_unknown_data_set_names_the_known_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'emoji9'"):
        run("emoji", tmp_path / "pairs.parquet")


def test_sampling_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vlcpctl.commands.sample import Sample; "
        f"Sample('emoji9', out={str(tmp_path / 'p')!r}, views=1, size=16, limit=1).execute(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
