"""A path that is not an artifact: the message says what it is, and what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import BadInput
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.check import check
from vlcpctl.inspection.lineage import describe
from vlcpctl.testing.tiny_stream import make_stream


def test_inspect_and_check_say_what_to_give_instead(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "all" / "stream", 2, 3)
    (tmp_path / "empty").mkdir()
    wanted = {
        tmp_path / "nope": "does not exist",
        stream / "00-part-0" / "train.parquet": "--pairs",
        tmp_path / "all": f"give one of: {stream}",
        tmp_path / "empty": "no manifest",
        Output(tmp_path / "a.b").open_partial(): f"again to finish {tmp_path / 'a.b'}",
    }
    for path, word in wanted.items():
        (problem,) = check(path, deep=True)
        assert problem.startswith(f"{path}: ")
        assert word in problem
        with pytest.raises(BadInput) as error:
            describe(path)
        assert str(error.value) == problem
