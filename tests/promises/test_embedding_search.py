"""autofaiss and clip-retrieval search `eval-retrieval --save-embeddings` and find what we find.

Both run in an environment of their own. clip-retrieval is installed without its dependencies: the
models among them need 6 GB, and its index and its search do not use them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.environments import install, new_python, run
from support.program import MICRO, run_program

from vlcpctl.testing.tiny_stream import make_pair, make_stream

# autofaiss needs numpy 1, and asks for any pyarrow; recent ones need numpy 2.
AUTOFAISS = ("autofaiss==2.18.*", "pyarrow<16")
CLIP_RETRIEVAL = "clip-retrieval==2.45.*"
FOR_ITS_SEARCH = ("flask", "flask-restful", "flask-cors", "h5py", "prometheus-client", "pillow")

# Its package imports all of itself, models included, so that its modules are imported alone. The
# index is built and searched by the functions of `clip-retrieval index` and `clip-retrieval back`.
SEARCH = """
import json, sys, types
from importlib.util import find_spec
from pathlib import Path

package = types.ModuleType("clip_retrieval")
package.__path__ = list(find_spec("clip_retrieval").submodule_search_locations)
sys.modules["clip_retrieval"] = package
from clip_retrieval import clip_back
from clip_retrieval.clip_index import clip_index

import numpy as np

embeddings, index = sys.argv[1:]
clip_index(embeddings, index, nb_cores=1)
metadata, order = clip_back.load_metadata_provider(index, False, False, None, None, False)
resource = clip_back.ClipResource(
    device="cpu", model=None, preprocess=None, tokenizer=None, model_txt_mclip=None,
    safety_model=None, violence_detector=None, metadata_provider=metadata,
    image_index=clip_back.load_index(f"{index}/image.index", False),
    text_index=clip_back.load_index(f"{index}/text.index", False),
    ivf_old_to_new_mapping=order, columns_to_return=["image_path", "caption", "task"],
    metadata_is_ordered_by_ivf=False, aesthetic_embeddings=None,
)
service = clip_back.KnnService(clip_resources={"ours": resource})
found = []
for part in sorted(Path(embeddings, "img_emb").glob("*.npy")):
    for query in np.load(part).astype("float32"):
        distances, indices = service.knn_search(
            query[None], modality="text", num_result_ids=1000, clip_resource=resource,
            deduplicate=False, use_safety_model=False, use_violence_detector=False,
        )
        found.append(service.map_to_metadata(
            indices, distances, 1000, metadata, resource.columns_to_return
        ))
print(json.dumps(found, default=float))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has autofaiss, and the parts of clip-retrieval that need no model."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    found = new_python(place)
    install(found, *AUTOFAISS, *FOR_ITS_SEARCH)
    install(found, "--no-deps", CLIP_RETRIEVAL)
    yield found
    shutil.rmtree(place)


@pytest.fixture
def evaluated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """A directory with the embeddings and the ranks of two tasks with two captions per image."""
    stream = make_stream(
        tmp_path / "stream", 2, 4, test=30, pair=lambda n: make_pair(n, captions=2)
    )
    tasks = sorted(path for path in stream.iterdir() if path.is_dir())
    how = ("--method", "seqf", "--preset", "tiny", *MICRO, "--steps", 2, "--batch-size", 4, "-q")
    assert run_program(capfd, "train-step", tasks[0], "-o", tmp_path / "run", *how).code == 0
    saved = ("--save-embeddings", tmp_path / "emb", "--save-ranks", tmp_path / "ranks.parquet")
    how = ("--checkpoint", tmp_path / "run", "-o", tmp_path / "rows.ndjson", *saved, "-q")
    assert run_program(capfd, "eval-retrieval", *tasks, *how).code == 0
    return tmp_path


def metadata_of(embeddings: Path) -> Any:
    """The rows of all parts, numbered as autofaiss numbers the embeddings."""
    import pandas as pd

    paths = sorted((embeddings / "metadata").glob("*.parquet"))
    return pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)


def embeddings_of(embeddings: Path, what: str) -> np.ndarray:
    paths = sorted((embeddings / f"{what}_emb").glob("*.npy"))
    return np.concatenate([np.load(path) for path in paths]).astype(np.float32)


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("queries", "gallery"), [("img", "text"), ("text", "img")])
def test_autofaiss_finds_the_neighbours_that_we_find(
    queries: str, gallery: str, python: Path, evaluated: Path
) -> None:
    faiss, pd = pytest.importorskip("faiss"), pytest.importorskip("pandas")
    run(
        *(python.with_name("autofaiss"), "build_index", "--index_key", "Flat", "--nb_cores", 1),
        *("--embeddings", evaluated / "emb" / f"{gallery}_emb"),
        *("--index_path", evaluated / "knn.index", "--index_infos_path", evaluated / "knn.json"),
        OMP_NUM_THREADS="1",
    )
    rows = metadata_of(evaluated / "emb")
    queries_QD = embeddings_of(evaluated / "emb", queries)
    gallery_GD = embeddings_of(evaluated / "emb", gallery)
    scores, ids = faiss.read_index(str(evaluated / "knn.index")).search(queries_QD, len(rows))
    exact = queries_QD @ gallery_GD.T
    assert (np.sort(ids) == np.arange(len(rows))).all()
    np.testing.assert_allclose(scores, np.take_along_axis(exact, ids, 1), atol=1e-6)

    # The best wrong answer of each query is the one that eval-retrieval found, or as good as it up
    # to the rounding of the embeddings to half precision.
    ranks = pd.read_parquet(evaluated / "ranks.parquet")
    ranks = ranks[ranks["direction"] == {"img": "i2t", "text": "t2i"}[queries]]
    assert len(ranks) == {"img": 60, "text": 120}[queries]
    same = []
    for query in ranks.itertuples():
        caption = int(query.query_caption) if queries == "text" else 0
        row = np.flatnonzero(rows["image_path"] == query.query)[caption]
        near = rows.iloc[ids[row]]
        wrong = near[(near["task"] == query.task) & (near["image_path"] != query.query)]
        named = np.flatnonzero(rows["image_path"] == query.wrong)
        assert exact[row, wrong.index[0]] - exact[row, named].max() < 2e-3
        same.append(wrong["image_path"].iloc[0] == query.wrong)
    assert np.mean(same) > 0.9


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(1800)
def test_clip_retrieval_indexes_and_searches_our_embeddings(python: Path, evaluated: Path) -> None:
    done = run(python, "-c", SEARCH, evaluated / "emb", evaluated / "index", OMP_NUM_THREADS="1")
    found = json.loads(done.stdout.splitlines()[-1])
    rows = metadata_of(evaluated / "emb")
    exact = embeddings_of(evaluated / "emb", "img") @ embeddings_of(evaluated / "emb", "text").T
    assert len(found) == len(rows)
    for query, answers in enumerate(found):
        ids = [answer["id"] for answer in answers]
        assert [answer["caption"] for answer in answers] == rows["caption"][ids].tolist()
        assert [answer["image_path"] for answer in answers] == rows["image_path"][ids].tolist()
        similar = [answer["similarity"] for answer in answers]
        np.testing.assert_allclose(similar, exact[query, ids], atol=2e-3)
        assert similar[0] == pytest.approx(exact[query].max(), abs=2e-3)
