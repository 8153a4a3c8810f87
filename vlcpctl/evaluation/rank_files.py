"""Files of ranks: for every query, the rank of its best right answer, and its best wrong answer.

Parquet, a row per query, in the order of the evaluation's rows. The columns:

run, seed, step, checkpoint, data, gallery, task, split    as in the row that the query counts in
direction       i2t or t2i; i2c, from an image to classes, in zero-shot classification
query           the key of the sample
query_caption   the index of the caption in the sample; null if the query is an image
label           the class of the image, in zero-shot classification
rank            of the best right answer, from 1; a right answer loses its ties
wrong           the key of the best wrong answer, or its class; null if no answer is wrong, or if
                `vlcpctl forget` removed that pair
wrong_caption   the index of the caption, if the wrong answer is a text
wrong_rank      the rank of the best wrong answer, from 1; right answers may be above it

Recall at K is the share of queries of a direction whose `rank` is at most K. Identical content is
one query and one answer, unless `--duplicates separate`; it has the key of its first sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise, product
from operator import or_
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.evaluation.rows import Row
from vlcpctl.evaluation.search.vectors import Ids
from vlcpctl.files import rows as read_rows
from vlcpctl.files.digests import ALGORITHM, RESTORE, changed_prefix, prefix_digest
from vlcpctl.files.finished import already_written
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.files.outputs import new_file
from vlcpctl.files.parquet_files import read_about, read_columns, table_writer, write_about

SCHEMA = "vlcpctl.ranks/1"
METADATA = b"vlcpctl.ranks"
REMOVED = "removed"  # the number of queries that `vlcpctl forget` has removed

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
_WAY = ("checkpoint", "data", "split", "direction")  # of an own gallery of a checkpoint
_QUERY = ("query", "query_caption")
_WRONG = ("wrong", "wrong_caption")


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
        with (
            new_file(self.out, holds_ranks) as temporary,
            temporary.open("wb") as sink,
            table_writer(sink, _COLUMNS) as writer,
        ):
            self._writer = writer
            yield
            self._flush()
            _seal(writer, sink, temporary, {"schema": SCHEMA, "identity": self.identity})

    def add(
        self,
        row: Row,
        direction: str,
        sides: tuple[Named, Named],
        ranks: tuple[Ids, ...],
        labels: pa.Array | None = None,
    ) -> None:
        """Add the ranks (Q,) of queries, their best wrong answers and the ranks of those.

        `sides` are the queries (Q,) and the gallery (G,); -1 stands for no wrong answer.
        """
        (queries, gallery), (rank_Q, wrong_Q, wrong_rank_Q) = sides, ranks
        of_row = {name: row.fields[name] for name in _OF_ROW}
        of_row["data"] = row.fields.get("data_content", of_row["data"])
        for start in range(0, len(rank_Q), _GROUP_ROWS):
            rows = np.arange(start, min(start + _GROUP_ROWS, len(rank_Q)))
            no_rank = wrong_Q[rows] < 0
            found = {
                **{name: [value] * len(rows) for name, value in of_row.items()},
                "direction": [direction] * len(rows),
                **dict(zip(_QUERY, queries.at(rows), strict=True)),
                "label": pa.nulls(len(rows), _TEXT) if labels is None else labels.take(rows),
                "rank": rank_Q[rows],
                **dict(zip(_WRONG, gallery.at(wrong_Q[rows]), strict=True)),
                "wrong_rank": pa.array(wrong_rank_Q[rows], _WHOLE, mask=no_rank),
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
    out: Path | None, rows: Sequence[Row], rows_out: Path | None, *, force: bool
) -> RankFile | None:
    """The file of the ranks of these rows; None if none is wanted, or it is already finished.

    Raises UsageError or OutputExists if it may not be written, because it is the file of the rows,
    contains anything else, or was damaged.
    """
    if out is None:
        return None
    if rows_out is not None and out.resolve() == rows_out.resolve():
        raise UsageError(f"--save-ranks and --out are both {out}; give two files")
    known = [row.fields for row in rows]
    identity: dict[str, Any] = {
        name: _different(fields[name] for fields in known) for name in _IN_IDENTITY
    }
    if "gallery_checkpoint" in known[0]:
        identity["gallery_checkpoint"] = known[0]["gallery_checkpoint"]
    # The lists name what differs; the whole rows decide.
    identity["rows"] = content_id(known)
    about = _about(out) or {}
    if not already_written(
        out, identity, holds_ranks, lambda _: about.get("identity"), force=force
    ):
        return RankFile(out, identity)
    changed = changed_prefix(out, about.get("digest", {}))
    if changed is not None:
        raise OutputExists(f"{changed}; --force replaces it")
    return None


@dataclass(frozen=True)
class QueryRanks:
    """Queries (Q,) of one direction, sorted by key and caption, and the ranks of right answers.

    `captions` are -1, and `labels` None, where they do not apply. `wrong` is the best wrong answer
    of each query, null if there is none, if it was read.
    """

    keys: pa.StringArray
    captions: Ids
    labels: pa.StringArray | None
    rank: Ids
    wrong: Named | None = None

    def has_queries_of(self, other: QueryRanks) -> bool:
        """Whether both are of the same queries."""
        is_same = np.array_equal(self.captions, other.captions)
        return is_same and self.keys.equals(other.keys)

    def shared_with(self, other: QueryRanks) -> QueryRanks:
        """The queries that the other ranks have, too."""
        key_N = pa.concat_arrays([self.keys, other.keys]).dictionary_encode().indices.to_numpy()
        caption_N = np.concatenate([self.captions, other.captions])
        code_N = key_N.astype(np.int64) * (caption_N.max(initial=0) + 2) + caption_N
        rows = np.flatnonzero(np.isin(code_N[: len(self.rank)], code_N[len(self.rank) :]))
        return QueryRanks(
            self.keys.take(rows),
            self.captions[rows],
            None if self.labels is None else self.labels.take(rows),
            self.rank[rows],
            None if self.wrong is None else Named(*self.wrong.at(rows)),
        )


@dataclass(frozen=True)
class GalleryRanks:
    """The ranks of a checkpoint on the own gallery of one data set, by direction, in a file."""

    file: SavedRanks
    checkpoint: str
    data: str
    split: str
    ways: Mapping[str, QueryRanks]

    def may_be_of(self, row: read_rows.Row) -> bool:
        """Whether they are of an evaluation like that of a row, of a gallery that has the same."""
        identity = self.file.identity
        options = identity.get("options", [])
        searched = read_rows.searched(
            identity.get("gallery_checkpoint") or self.checkpoint,
            options[0] if isinstance(options, list) and len(options) == 1 else {},
        )
        protocols = product(identity.get("evaluator", ()), identity.get("protocol", ()))
        return (row.evaluator, row.protocol) in protocols and searched == row.searched

    def shared_with(self, other: GalleryRanks) -> GalleryRanks:
        """These ranks, only of the queries that the other ranks have, too."""
        ways = {
            way: found.shared_with(other.ways[way])
            for way, found in self.ways.items()
            if way in other.ways
        }
        return replace(self, ways=ways)


@dataclass(frozen=True)
class SavedRanks:
    """A file of ranks that --save-ranks wrote, found intact; `digest` is that of its data.

    `identity` has the values of the fields of its rows. `is_reduced` is whether `vlcpctl forget`
    has removed queries.
    """

    path: Path
    digest: str
    identity: Mapping[str, Any]
    is_reduced: bool = False

    @classmethod
    def open(cls, path: Path) -> SavedRanks:
        """The file. Raises BadInput if it is not a file of ranks or has changed."""
        about = _about(path)
        if about is None:
            open_regular(path).close()  # or names what cannot be read
            raise BadInput(f"{path} is not a file of ranks, which --save-ranks writes")
        changed = changed_prefix(path, about.get("digest", {}))
        if changed is not None:
            raise BadInput(f"{changed}; write it again with --save-ranks and --force")
        is_reduced = not {REMOVED, "was"}.isdisjoint(about)  # version 0.3: the digests before
        return cls(path, about["digest"][ALGORITHM], about.get("identity", {}), is_reduced)

    @cached_property
    def checkpoints(self) -> frozenset[str]:
        """The checkpoints that the file has ranks of. Raises BadInput as `read` does."""
        table = read_columns(self.path, ["checkpoint"], read_dictionary=["checkpoint"])
        return frozenset(table["checkpoint"].unique().to_pylist())

    def read(
        self, places: Collection[tuple[str, str]], *, has_answers: bool = False
    ) -> list[GalleryRanks]:
        """The ranks on the own galleries of some places.

        A place is a checkpoint and the id of the data. Only their row groups are read. With
        `has_answers`, the best wrong answers are read, too. Raises BadInput if the file cannot be
        read, or does not have the columns of a file of ranks.
        """
        known = self.checkpoints  # also raises for a file that cannot be read
        by_checkpoint: dict[str, list[str]] = {}
        for checkpoint, data in sorted(one for one in places if one[0] in known):
            by_checkpoint.setdefault(checkpoint, []).append(data)
        terms = [
            (pc.field("checkpoint") == one) & pc.field("data").isin(pa.array(data, _TEXT))
            for one, data in by_checkpoint.items()
        ]
        if not terms:
            return []
        while len(terms) > 1:  # a balanced tree: Arrow's parser recurses
            terms = [reduce(or_, terms[at : at + 2]) for at in range(0, len(terms), 2)]
        columns = [*_WAY, *_QUERY, "label", "rank", *(_WRONG if has_answers else ())]
        table = read_columns(self.path, columns, filters=(pc.field("gallery") == "own") & terms[0])
        order = [(name, "ascending") for name in (*_WAY, *_QUERY)]
        table = table.take(pc.sort_indices(table, sort_keys=order)).combine_chunks()
        found: dict[tuple[str, str, str], dict[str, QueryRanks]] = {}
        starts = np.flatnonzero(_is_new(table, _WAY)).tolist()
        for start, end in pairwise([*starts, len(table)]):
            checkpoint, data, split, way = (str(table[name][start]) for name in _WAY)
            ranks = self._ranks(table.slice(start, end - start))
            found.setdefault((checkpoint, data, split), {})[way] = ranks
        return [GalleryRanks(self, *gallery, ways) for gallery, ways in found.items()]

    def _ranks(self, table: pa.Table) -> QueryRanks:
        rank = table["rank"]
        if rank.null_count or table["query"].null_count or pc.min(rank).as_py() < 1:
            raise BadInput(f"{self.path} has a query without a rank")
        # Data given twice, from two directories, has each query twice.
        table = table.filter(pa.array(_is_new(table, _QUERY))).combine_chunks()
        column = {name: table[name].combine_chunks() for name in table.column_names}
        return QueryRanks(
            column["query"],
            pc.fill_null(column["query_caption"], -1).to_numpy().astype(np.int64),
            None if column["label"].null_count else column["label"],
            column["rank"].to_numpy(),
            Named(*(column[name] for name in _WRONG)) if "wrong" in column else None,
        )


def _is_new(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """(rows,) bool: whether a row differs from the row before in any of these columns."""
    is_new = np.ones(len(table), dtype=np.bool_)
    if len(table) > 1:
        is_new[1:] = False
        for name in names:
            codes = table[name].combine_chunks().dictionary_encode(null_encoding="encode").indices
            is_new[1:] |= np.diff(codes.to_numpy()) != 0
    return is_new


def named_in(path: Path) -> set[str]:
    """All keys and classes that are queries or wrong answers.

    Raises BadInput if the file cannot be read.
    """
    columns = read_columns(path, ["query", "wrong"]).columns
    return {name for column in columns for name in column.unique().to_pylist()}


def write_without(path: Path, out: Path, keys: Collection[str]) -> None:
    """Write ranks again without the queries of some pairs, and without their names as answers.

    The ranks of other queries stay what they are; the metadata counts those `removed`. Raises
    BadInput if the file cannot be read or was changed since it was written.
    """
    about = _about(path) or {}
    changed = changed_prefix(path, about.get("digest", {}))
    if changed is not None:
        raise BadInput(f"{changed}{RESTORE}")
    table, gone = read_columns(path), pa.array(sorted(keys), _TEXT)
    is_query, is_wrong = (pc.is_in(table[name], value_set=gone) for name in ("query", "wrong"))
    for name in _WRONG:
        place = table.schema.get_field_index(name)
        empty = pa.scalar(None, table.schema.field(name).type)
        table = table.set_column(place, name, pc.if_else(is_wrong, empty, table[name]))
    table = table.filter(pc.invert(is_query)).replace_schema_metadata(None)
    with out.open("wb") as sink, table_writer(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=_GROUP_ROWS)
        removed = about.get(REMOVED, 0) + (pc.sum(is_query).as_py() or 0)
        _seal(writer, sink, out, {**about, REMOVED: removed})


def holds_ranks(path: Path) -> bool:
    """Whether a file is one of ranks, which `--force` may replace."""
    return _about(path) is not None


def _different(values: Iterator[Any]) -> list[Any] | dict[str, Any]:
    """The different values in order; of many, their number and an id, to keep errors short."""
    found = list({canonical_json(value): value for value in values}.values())
    return found if len(found) <= _VALUES_SHOWN else {"of": len(found), "id": content_id(found)}


def _seal(writer: pq.ParquetWriter, sink: BinaryIO, path: Path, about: Mapping[str, Any]) -> None:
    """Record facts in the footer of a file that is being written, and the digest of the rest."""
    sink.flush()
    size = sink.tell()
    digest = {"bytes": size, ALGORITHM: prefix_digest(path, size)}
    write_about(writer, METADATA, {**about, "digest": digest})


def _about(path: Path) -> dict[str, Any] | None:
    """What the file's footer records about it; None if it is not a file of ranks."""
    try:
        found = parse_json(read_about(path, METADATA)[0] or b"null")
    except (ValueError, BadInput):
        return None
    is_ours = isinstance(found, dict) and str(found.get("schema")).startswith("vlcpctl.ranks/")
    return found if is_ours else None
