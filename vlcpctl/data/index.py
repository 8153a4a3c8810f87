"""The Parquet index of a split: where each image lies in its tar, and everything known about the pair."""

from __future__ import annotations

import pyarrow as pa

# One row per image. `offset` and `size` are the bytes of the image inside its shard; the index owns
# the captions, and the .txt members of the tars repeat them for readers that do not know the index.
FIELDS = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("source_key", pa.string()),
    pa.field("shard", pa.string(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("size", pa.int32(), nullable=False),
    pa.field("captions", pa.list_(pa.string()), nullable=False),
    pa.field("label", pa.string()),
    pa.field("task", pa.string(), nullable=False),
    pa.field("width", pa.int32(), nullable=False),
    pa.field("height", pa.int32(), nullable=False),
    pa.field("sha256", pa.string(), nullable=False),
]
SCHEMA = pa.schema(FIELDS)

# A buffer's index says besides which task an item came from and in which order items are given up.
BUFFER_SCHEMA = pa.schema(
    [*FIELDS, pa.field("origin_task", pa.string()), pa.field("rank", pa.int64()), pa.field("order", pa.float64())]
)

SPLITS = ("train", "val", "test", "query", "gallery")
