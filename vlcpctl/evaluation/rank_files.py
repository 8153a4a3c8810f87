"""Files of ranks: for every query, the rank of its best right answer, and its best wrong answer.

Parquet, a row per query, in the order of the evaluation's rows. The columns:

run, seed, step, checkpoint, data, gallery, task, split    as in the row that the query counts in
direction       i2t or t2i; i2c, from an image to classes, in zero-shot classification
query           the key of the sample
query_caption   the index of the caption in the sample; null if the query is an image
label           the class of the image, in zero-shot classification
rank            of the best right answer, from 1; a right answer loses its ties
wrong           the key of the best wrong answer, or its class; null if no answer is wrong
wrong_caption   the index of the caption, if the wrong answer is a text
wrong_rank      the rank of the best wrong answer, from 1; right answers may be above it

Recall at K is the share of queries of a direction whose `rank` is at most K. Identical content is
one query and one answer, unless `--duplicates separate`; it has the key of its first sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.atomic import already_written, new_file
from vlcpctl.core.digests import ALGORITHM, changed_prefix, prefix_digest
from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.core.safe_json import parse_json
from vlcpctl.evaluation.planned_rows import PlannedRow, as_first_written
from vlcpctl.evaluation.search.index import Ids
from vlcpctl.evaluation.search.ranks import ExactRanks

SCHEMA = "vlcpctl.ranks/1"
METADATA = b"vlcpctl.ranks"

_OF_ROW = ("run", "seed", "step", "checkpoint", "data", "gallery", "task", "split")
_IN_IDENTITY = (*_OF_ROW, "evaluator", "protocol", "limit", "options")
_WHOLE, _INDEX, _TEXT = pa.int64(), pa.int32(), pa.string()
_COLUMNS = pa.schema(
    [
        *((name, _WHOLE if name in {"seed", "step"} else _TEXT) for name in _OF_ROW),
        *(("direction", _TEXT), ("query", _TEXT), ("query_caption", _INDEX), ("label", _TEXT)),
        *(("rank", _WHOLE), ("wrong", _TEXT), ("wrong_caption", _INDEX)),
        ("wrong_rank", _WHOLE),
    ]
)
_VALUES_SHOWN = 3
_GROUP_ROWS = 1 << 16  # of a row group, which is all that is held in memory


@dataclass(frozen=True)
class Named:
    """Queries or answers by name: sample keys or classes, and the index of captions, if texts."""

    names: pa.Array
    captions: pa.Array | None = None

    def at(self, rows: Ids) -> tuple[pa.Array, pa.Array]:
        """The names and caption indices at these rows; null where a row is -1."""
        places = pa.array(rows, mask=rows < 0)
        if self.captions is None:
            return self.names.take(places), pa.nulls(len(rows), _INDEX)
        return self.names.take(places), self.captions.take(places)


@final
class RankFile:
    """A file of ranks that an evaluation writes, query by query, while it is open."""

    def __init__(self, out: Path, identity: dict[str, Any]) -> None:
        self.out, self.identity = out, identity
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the file, which appears at its path when the block ends without an error."""
        about: dict[str, Any] = {"schema": SCHEMA, "identity": self.identity}
        with (
            new_file(self.out, holds_ranks) as temporary,
            temporary.open("wb") as sink,
            pq.ParquetWriter(
                sink, _COLUMNS, compression="zstd", write_page_checksum=True
            ) as writer,
        ):
            self._writer = writer
            yield
            self._flush()
            sink.flush()
            size = sink.tell()  # all but the footer
            digest = {"bytes": size, ALGORITHM: prefix_digest(temporary, size)}
            about = {**about, "digest": digest}
            writer.add_key_value_metadata({METADATA: json.dumps(about, ensure_ascii=False)})

    def add(
        self,
        row: PlannedRow,
        direction: str,
        sides: tuple[Named, Named],
        ranks: ExactRanks,
        labels: pa.Array | None = None,
    ) -> None:
        """Add the ranks (Q,) of queries; `sides` are the queries (Q,) and the gallery (G,)."""
        queries, gallery = sides
        for start in range(0, len(ranks.rank), _GROUP_ROWS):
            rows = np.arange(start, min(start + _GROUP_ROWS, len(ranks.rank)))
            query, query_caption = queries.at(rows)
            wrong, wrong_caption = gallery.at(ranks.wrong[rows])
            no_rank = ranks.wrong[rows] < 0
            found = {
                **{name: [row.fields[name]] * len(rows) for name in _OF_ROW},
                "direction": [direction] * len(rows),
                "query": query,
                "query_caption": query_caption,
                "label": pa.nulls(len(rows), _TEXT) if labels is None else labels.take(rows),
                "rank": ranks.rank[rows],
                "wrong": wrong,
                "wrong_caption": wrong_caption,
                "wrong_rank": pa.array(ranks.wrong_rank[rows], _WHOLE, mask=no_rank),
            }
            self._waiting.append(pa.RecordBatch.from_pydict(found, _COLUMNS))
            if sum(map(len, self._waiting)) >= _GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        assert self._writer is not None, "the file is open"
        table = pa.Table.from_batches(self._waiting, _COLUMNS)
        if len(table):
            self._writer.write_table(table, row_group_size=len(table))
        self._waiting = []


def plan_ranks(
    out: Path | None, rows: Sequence[PlannedRow], rows_out: Path | None, *, force: bool
) -> RankFile | None:
    """The file of the ranks of these rows; None if none is wanted, or it is already finished.

    Raises UsageError or OutputExists if it may not be written, because it is the file of the rows,
    contains anything else, or was damaged.
    """
    if out is None:
        return None
    if rows_out is not None and out.resolve() == rows_out.resolve():
        raise UsageError(f"--save-ranks and --out are both {out}; give two files")
    # The ranks of data that was rewritten since are finished, as the rows are.
    known = [as_first_written(row.fields) for row in rows]
    identity: dict[str, Any] = {
        name: _different(fields[name] for fields in known) for name in _IN_IDENTITY
    }
    # The lists name what differs; the whole rows decide.
    identity["rows"] = content_id(known)
    if not already_written(out, identity, holds_ranks, _identity_of, force=force):
        return RankFile(out, identity)
    _verify(out)
    return None


def holds_ranks(path: Path) -> bool:
    """Whether a file is one of ranks, which `--force` may replace."""
    return _metadata(path) is not None


def _verify(path: Path) -> None:
    """Raise OutputExists if a finished file is not what was written."""
    changed = changed_prefix(path, (_metadata(path) or {}).get("digest", {}))
    if changed is not None:
        raise OutputExists(f"{changed}; --force replaces it")


def _different(values: Iterator[Any]) -> list[Any] | dict[str, Any]:
    """The different values in order; of many, their number and an id, to keep errors short."""
    found = list({canonical_json(value): value for value in values}.values())
    return found if len(found) <= _VALUES_SHOWN else {"of": len(found), "id": content_id(found)}


def _identity_of(path: Path) -> dict[str, Any] | None:
    found = (_metadata(path) or {}).get("identity")
    return found if isinstance(found, dict) else None


def _metadata(path: Path) -> dict[str, Any] | None:
    """What the file's footer records about it; None if it is not a file of ranks."""
    try:
        found = parse_json((pq.read_metadata(path).metadata or {}).get(METADATA, b"null"))
    except (OSError, ValueError, pa.ArrowException):
        return None
    is_ours = isinstance(found, dict) and str(found.get("schema")).startswith("vlcpctl.ranks/")
    return found if is_ours else None
