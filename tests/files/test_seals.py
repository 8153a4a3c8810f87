"""The seal of a manifest is the digest of its canonical JSON, which is never whole in memory."""

from __future__ import annotations

from typing import Any

import pytest
import xxhash

from vlcpctl.files.seals import seal_of

CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "{}"),
    ({"b": {}, "a": [], "seal": "s", "schema": "x", "made_by": {}}, '{"a":[],"b":{}}'),
    ({"b": {"z": (1, 2), "y": {"x": None}}}, '{"b":{"y":{"x":null},"z":[1,2]}}'),
    ({"a": {10: 1, 2: {3: "t"}}}, '{"a":{"10":1,"2":{"3":"t"}}}'),
    ({"a": {'"\udcff': "\udc80"}}, '{"a":{"\\"\\\\xff":"\\\\x80"}}'),
]


@pytest.mark.parametrize(("manifest", "text"), CASES)
def test_a_seal_is_the_digest_of_the_fields_as_json(manifest: dict[str, Any], text: str) -> None:
    assert seal_of(manifest) == xxhash.xxh3_128_hexdigest(text.encode())
