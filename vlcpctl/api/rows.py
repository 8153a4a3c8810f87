"""Evaluation rows as a table of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from vlcpctl.files.rows import Row, distinct, read_rows, row_of

if TYPE_CHECKING:
    import pandas as pd

Given = str | PathLike[str] | Mapping[str, Any]
_NOT_SHOWN = {"schema", "metrics", "alpha", "place", "model_part", "data_part"}


def load_rows(rows: Given | Iterable[Given]) -> pd.DataFrame:
    """A table of rows: those in files, or rows as `eval_retrieval` returns them; each once.

    The columns are the fields of rows (docs/reference/rows.md), then the metrics, such as
    `i2t_r1`; columns without any value are left out. Raises BadInput for what is not a row, and for
    rows that contradict each other, and ImportError without pandas.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("load_rows makes a pandas DataFrame: pip install pandas") from error
    given = [rows] if isinstance(rows, str | PathLike | Mapping) else list(rows)
    files = [fspath(one) for one in given if not isinstance(one, Mapping)]
    own = [one for one in given if isinstance(one, Mapping)]
    found = distinct([*read_rows(files), *(row_of(r, f"row {n}") for n, r in enumerate(own))])
    names = [name for name in Row.__struct_fields__ if name not in _NOT_SHOWN]
    table = pd.DataFrame([{**{n: getattr(r, n) for n in names}, **r.metrics} for r in found])
    return table.dropna(axis="columns", how="all")
