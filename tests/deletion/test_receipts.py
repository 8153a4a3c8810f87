"""Where the receipt of a deletion may be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import OutputExists
from vlcpctl.deletion.receipt import earlier_receipts


def test_a_receipt_does_not_take_the_place_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "receipt.json").write_text("{}")
    (tmp_path / "link").symlink_to("receipt.json")
    with pytest.raises(OutputExists, match="is a symbolic link"):
        earlier_receipts(tmp_path / "link", tmp_path)
