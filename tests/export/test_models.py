"""`vlcpctl export` of checkpoints: the same model, without state of training, and without us."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.program import check_refused, make_inputs, run_program

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import model_facts
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.export import modeling_fusion
from vlcpctl.export.model import ModelExport
from vlcpctl.export.model_card import Facts, model_card
from vlcpctl.models import encoders
from vlcpctl.testing.tiny_stream import make_image

TEXTS = ["a red thing", 'Two, "green": (things)!', "x " * 40]
IMAGES = [make_image(1), make_image(2, 40, "JPEG"), make_image(3, 16, "WEBP")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def export(capfd: pytest.CaptureFixture[str], checkpoint: Path, out: Path, *words: object) -> Path:
    ended = run_program(capfd, "export", checkpoint, "--to", "hf-model", "-o", out, "-q", *words)
    assert (ended.code, ended.out) == (0, f"{out}\n"), ended.err
    assert run_program(capfd, "check", out).code == 0
    return out


def test_open_clip_loads_the_same_weights_and_no_state_is_left(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import open_clip

    checkpoint = place / "queued"
    assert (checkpoint / "method").is_dir()
    out = export(capfd, checkpoint, tmp_path / "model")
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == {
        *("open_clip_config.json", "open_clip_model.safetensors", "README.md"),
        *("tokenizer.json", "tokenizer_config.json", ".vlcpctl/export.json"),
    }
    name = f"local-dir:{out}"
    model, _, preprocess = open_clip.create_model_and_transforms(name)
    ours = encoders.load_for_inference(checkpoint, "cpu")
    for key, value in load_file(checkpoint / "open_clip_model.safetensors").items():
        assert torch.equal(model.state_dict()[key], value), key
    ids = open_clip.get_tokenizer(name)(TEXTS)
    assert torch.equal(ids, ours.tokenize(TEXTS))
    pixels = torch.stack([preprocess(Image.open(io.BytesIO(one))) for one in IMAGES])
    views = [eval_view(decode_image(one), ours.transform) for one in IMAGES]
    model.eval()
    with torch.no_grad():
        image, text = ours.features(ours.pixels(torch.from_numpy(np.stack(views))), ids)
        torch.testing.assert_close(model.encode_image(pixels), image)
        torch.testing.assert_close(model.encode_text(ids), text)


def test_the_card_says_how_the_model_was_trained_and_how_good_it_is(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, checkpoint = place / "stream" / "00-part-0", place / "queued"
    rows = tmp_path / "rows.ndjson"
    how = ("--checkpoint", checkpoint, "--checkpoint", place / "plain", "-q")
    assert run_program(capfd, "eval-retrieval", task, *how, "-o", rows).code == 0
    given = ("--rows", rows, "--trained-on", place / "stream")
    card = (export(capfd, checkpoint, tmp_path / "model", *given) / "README.md").read_text()
    header = card.split("---\n")[1]
    assert header.startswith("license: unknown\nlibrary_name: open_clip\n")
    made = CheckpointManifest.read(checkpoint)
    assert f"| part 0 | {made.tasks[0]} | 12 |" in card
    assert f"| checkpoint id | {made.content} |" in card
    assert "| ctp.keep\\_queue | true |" in card
    assert "| lr | 0.001 | preset tiny, not in the paper |" in card
    assert "(CTP: compatible momentum contrast and topology preservation) on 1 task" in card
    (own,) = [
        row
        for row in map(json.loads, rows.read_text().splitlines())
        if row["checkpoint"] == made.content
    ]
    numbers = " | ".join(f"{value:.2f}" for value in own["metrics"].values())
    assert "retrieval (cross-modal, gallery own), in percent\n" in card
    assert f"| 00-part-0 | test | {numbers} |" in card
    assert card.count("| 00-part-0 |") == 1  # the rows of the other checkpoint are left out
    without = export(capfd, checkpoint, tmp_path / "without") / "README.md"
    assert "## Results" not in without.read_text()
    assert f"| part 0 | {made.tasks[0]} | not given |" in without.read_text()


def test_rows_and_tasks_of_the_card_decide_whether_an_export_is_finished(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text("{}\n")
    tasks = open_stream(place / "stream")
    request = ModelExport(checkpoint=place / "plain", out=tmp_path / "out")
    changes: list[dict[str, Any]] = [{"rows": [tmp_path / "rows"]}, {"tasks": tasks}]
    changes.append({"checkpoint": place / "queued"})
    found = [replace(request, **one).identity() for one in ({}, *changes)]
    assert all(found.count(one) == 1 for one in found)
    assert replace(request, out=place, force=True).identity() == found[0]


def test_the_card_names_the_previous_checkpoint(place: Path) -> None:
    made = CheckpointManifest.read(place / "plain")
    facts = model_facts(place / "plain", made)
    assert "previous checkpoint" not in model_card(Facts(made, facts))
    later = replace(made, parent="0123abcd")
    assert "| previous checkpoint | 0123abcd |" in model_card(Facts(later, facts))


def test_rows_of_other_checkpoints_and_data_options_are_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task, rows = place / "stream" / "00-part-0", tmp_path / "rows.ndjson"
    how = ("--checkpoint", place / "plain", "-q", "-o", rows)
    assert run_program(capfd, "eval-retrieval", task, *how).code == 0
    model = ("--to", "hf-model")
    cases: list[tuple[tuple[object, ...], int, str]] = [
        ((place / "queued", *model, "--rows", rows), 3, "has no rows of"),
        ((place / "queued", place / "plain", *model), 2, "takes one checkpoint, not 2 paths"),
        ((place / "queued", "--to", "hf"), 2, "is a checkpoint; export it with --to hf-model"),
        ((place / "queued", *model, "--split", "test"), 2, "--split has no effect with --to"),
        ((place / "buffer", *model), 2, "is a task; export it with"),
        ((tmp_path, *model), 3, "is not a checkpoint"),
    ]
    for words, code, said in cases:
        ended = run_program(capfd, "export", *words, "-o", tmp_path / "out", "-q")
        check_refused(ended, "export", code, said)
    assert not (tmp_path / "out").exists()


def test_a_changed_checkpoint_is_not_exported(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = place / "plain" / "open_clip_model.safetensors"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        words = ("export", place / "plain", "--to", "hf-model", "-o", tmp_path / "out", "-q")
        check_refused(run_program(capfd, *words), "export", 5, weights, "has changed")
    finally:
        weights.write_bytes(whole)
    assert list(tmp_path.iterdir()) == []


def test_forget_lists_an_exported_model_that_was_trained_on_the_pairs(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from vlcpctl.data.tasks.task import open_task

    key = open_task(place / "stream" / "00-part-0").split("train").keys[0]
    out = export(capfd, place / "plain", place / "exported")
    ended = run_program(capfd, "forget", "--key", key, place, "--dry-run", "--json")
    listed = {one["path"]: one["run"] for one in json.loads(ended.out)["checkpoints"]}
    assert listed[str(out)] == "seqf"


@pytest.fixture(scope="module")
def fusion(place: Path) -> Path:
    """A checkpoint of a fusion model."""
    from support.commands import train_step

    how: Any = {"preset": "tiny", "model": "albef-micro", "batch_size": 4, "quiet": True}
    train_step([place / "stream" / "00-part-0"], place / "fusion", "seqf", **how)
    return place / "fusion"


def ours_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """What our own encoder computes."""
    encoder = encoders.load_for_inference(checkpoint, "cpu")
    assert encoder.family == "fusion"
    views = [eval_view(decode_image(one), encoder.transform) for one in IMAGES]
    pixels, ids = encoder.inputs(torch.from_numpy(np.stack(views)), encoder.tokenize(TEXTS))
    with torch.no_grad():
        found = encoder.outputs(pixels, ids, ids, torch.ones_like(ids, dtype=torch.bool))
    words = found.logits.view(*ids.shape, -1)
    return {"image": found.image, "text": found.text, "fused": found.fused, "words": words}


def theirs_of(loaded: Any) -> dict[str, torch.Tensor]:
    """What the loader of an exported repository computes."""
    pixels = loaded.pixels([Image.open(io.BytesIO(one)) for one in IMAGES])
    ids = loaded.tokenize(TEXTS)
    with torch.no_grad():
        return {
            "image": loaded.embed_images(pixels),
            "text": loaded.embed_texts(ids),
            "fused": loaded.fuse(pixels, ids),
            "words": loaded.words(pixels, ids),
        }


def test_the_loader_of_a_fusion_model_computes_what_we_compute(
    fusion: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = export(capfd, fusion, tmp_path / "model")
    source = out / "modeling_fusion.py"
    assert source.read_bytes() == Path(modeling_fusion.__file__).read_bytes()
    assert not re.search("^(from|import) vlcpctl", source.read_text(), re.MULTILINE)
    about = importlib.util.spec_from_file_location("of_export", source)
    assert about is not None
    assert about.loader is not None
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    wanted, found = ours_of(fusion), theirs_of(module.load(out))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=0)
    assert "modeling_fusion" in (out / "README.md").read_text()


@pytest.mark.parametrize("mode", ["squash", "shortest", "longest"])
@pytest.mark.parametrize("kind", ["L", "RGBA", "P", "I;16", "RGB"])
def test_the_loader_prepares_images_as_we_do(mode: str, kind: str) -> None:
    from vlcpctl.core.transform import ImageTransform

    values = np.random.default_rng(0).integers(0, 256, (20, 34, 4), dtype=np.uint8)
    image = {
        "L": lambda: Image.fromarray(values[..., 0]),
        "RGBA": lambda: Image.fromarray(values),
        "P": lambda: Image.fromarray(values[..., :3]).convert("P"),
        "I;16": lambda: Image.fromarray(values[..., 0].astype(np.uint16) * 250),
        "RGB": lambda: Image.fromarray(values[..., :3]),
    }[kind]()
    file = io.BytesIO()
    image.save(file, "PNG")
    transform = ImageTransform(
        image_size=16, mean=(0, 0, 0), std=(1, 1, 1), resize_mode=mode, fill_color=7
    )
    prepared = {"resize_mode": mode, "interpolation": "bicubic", "fill_color": 7}
    own = modeling_fusion._rgb(Image.open(io.BytesIO(file.getvalue())))
    found = np.asarray(modeling_fusion._resized(own, 16, prepared))
    assert np.array_equal(found, eval_view(decode_image(file.getvalue()), transform))


@pytest.mark.parametrize("name", ["none", "ctp", "whitespace", "lower", "canonicalize"])
def test_the_loader_cleans_captions_as_we_do(name: str) -> None:
    from vlcpctl.models.tokenizers import cleaner

    for text in ('A "red" CAT; on: the  mat.', "&amp;amp; under_score\n caf\u00e9 ", "w " * 50):
        assert modeling_fusion.CLEAN[name](text) == cleaner(name)(text)


@pytest.mark.slow
def test_a_process_without_us_gets_the_same_scores(
    fusion: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from support.environments import run

    out = export(capfd, fusion, tmp_path / "model")
    np.savez(tmp_path / "given.npz", *[np.frombuffer(one, np.uint8) for one in IMAGES])
    code = f"""
import io, sys
sys.modules["vlcpctl"] = None  # importing it is an error
sys.path.insert(0, {str(out)!r})
import numpy, torch
from PIL import Image
from modeling_fusion import load
model = load({str(out)!r})
given = numpy.load({str(tmp_path / "given.npz")!r}).values()
pixels = model.pixels([Image.open(io.BytesIO(one.tobytes())) for one in given])
ids = model.tokenize({TEXTS!r})
with torch.no_grad():
    numpy.savez({str(tmp_path / "found.npz")!r}, image=model.embed_images(pixels),
                text=model.embed_texts(ids), fused=model.fuse(pixels, ids),
                words=model.words(pixels, ids))
"""
    run(sys.executable, "-c", code)
    found = np.load(tmp_path / "found.npz")
    for name, value in ours_of(fusion).items():
        assert np.abs(found[name] - value.numpy()).max() < 1e-5, name
