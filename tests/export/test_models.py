"""`vlcpctl export` of checkpoints: the same model, without state of training, and without us."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.program import check_refused, run_program

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.data.images.transforms import decode_image, eval_view
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.export.model import ModelExport
from vlcpctl.models import encoders
from vlcpctl.testing.tiny_stream import make_image

TEXTS = ["a red thing", 'Two, "green": (things)!', "x " * 40]
IMAGES = [make_image(1), make_image(2, 40, "JPEG"), make_image(3, 16, "WEBP")]


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
        ((place / "queued", "--to", "hf"), 2, "--to hf-model"),
        ((place / "buffer", *model), 2, "--to clip-benchmark"),
        ((tmp_path, *model), 3, "is not a checkpoint"),
    ]
    for words, code, said in cases:
        ended = run_program(capfd, "export", *words, "-o", tmp_path / "out", "-q")
        check_refused(ended, "export", code, said)
    assert not (tmp_path / "out").exists()


def test_forget_lists_an_exported_model_that_was_trained_on_the_pairs(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from vlcpctl.data.tasks.task import open_task

    key = open_task(place / "stream" / "00-part-0").split("train").keys[0]
    place = shutil.copytree(place, tmp_path / "place")
    out = export(capfd, place / "plain", place / "exported")
    ended = run_program(capfd, "forget", "--key", key, place, "--dry-run", "--json")
    listed = [one["path"] for one in json.loads(ended.out)["checkpoints"]]
    assert str(out) in listed


def test_a_fusion_model_is_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    how = ("--method", "seqf", "--preset", "tiny", "--model", "albef-micro", "--batch-size", 4)
    task, fusion = place / "stream" / "00-part-0", tmp_path / "fusion"
    assert run_program(capfd, "train-step", task, "-o", fusion, *how, "-q").code == 0
    for form in ("hf-model", "onnx"):
        ended = run_program(capfd, "export", fusion, "--to", form, "-o", tmp_path / "out")
        check_refused(ended, "export", 2, "dual encoders")
