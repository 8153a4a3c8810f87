"""Rows of runs that differ in settings, as a sweep over them makes."""

from __future__ import annotations

from typing import Any

from support.eval_rows import OWN, current, own_rows


def sweep(run: str, method: str = "ctp", seed: int = 0, **fields: Any) -> list[dict[str, Any]]:
    """The rows of a run of three tasks with these settings, its scores shifted by `more`.

    `hyper` has hyper-parameters of the method, `split` the split; all else are settings.
    """
    more, hyper = fields.pop("more", 0.0), fields.pop("hyper", {})
    row_fields = {
        name: fields.pop(name) for name in ("split", "preset", "buffer") if name in fields
    }
    values = {"method": method, "hyper": {method: hyper}, "settings": {"lr": 0.1} | fields}
    matrix = [[value + more for value in line] for line in OWN]
    rows = own_rows(matrix, run=run, method=method, seed=seed)
    config = {"id": f"{values}", "values": values}
    found = current(rows, config=config, **row_fields)
    return [one | {"checkpoint": f"{run}-{seed}-{one['step']}"} for one in found]
