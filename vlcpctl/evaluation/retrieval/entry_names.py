"""The names of a gallery's images and texts, by which a file of ranks refers to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from vlcpctl.evaluation.rank_files import Named
from vlcpctl.evaluation.search.gallery import SOURCES
from vlcpctl.evaluation.splits import EvalSplit


def entry_names(parts: Sequence[EvalSplit], duplicates: str) -> tuple[Named, Named]:
    """The names of the images (I,) and of the texts (T,) of a gallery of these splits."""
    sources = SOURCES[duplicates]([part.layout for part in parts])
    keys = pa.concat_arrays([part.split.keys.texts() for part in parts])
    first_of_part = np.cumsum([0, *(len(part.split.keys) for part in parts)])

    def keys_of(part_and_sample: np.ndarray) -> pa.Array:
        return keys.take(pa.array(first_of_part[part_and_sample[:, 0]] + part_and_sample[:, 1]))

    captions = pa.array(sources.text_T3[:, 2], pa.int32())
    return Named(keys_of(sources.image_I2)), Named(keys_of(sources.text_T3), captions)
