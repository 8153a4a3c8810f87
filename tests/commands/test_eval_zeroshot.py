"""`vlcpctl eval-zeroshot`: rows of tasks and of folders, as a loop over a real model has them."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from support.checkpoints import save_run, tasks_of
from support.class_folders import write_class_folder, write_lines
from support.commands import eval_zeroshot as run
from support.eval_rows import rows_in

from vlcpctl.core.errors import BadInput, OutputExists, TooManySkipped, UsageError
from vlcpctl.data.classification.data_sets import open_data_sets
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.files.rows import read_rows
from vlcpctl.metrics.accuracy import accuracies, tally
from vlcpctl.testing.tiny_stream import make_image, make_pair, make_stream

CLASSES = ("cat", "dog", "bird", "fish", "frog", "horse")
TEMPLATES = ("a photo of a {c}.", "the {c}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of three tasks with three classes, a folder, and checkpoints of two steps."""
    root = tmp_path_factory.mktemp("zeroshot")
    make_stream(root / "stream", 3, 6, test=7)
    images = [(make_image(number), "png", number % 6) for number in range(25)]
    write_class_folder(root / "pets", images, CLASSES, TEMPLATES, per_tar=11)
    return save_run(root, "micro")


def evaluate(place: Path, out: Path, *words: Path | str, **options: Any) -> list[dict[str, Any]]:
    checkpoints = options.pop("checkpoints", [place / "run" / "00"])
    run([str(word) for word in words], checkpoints, out=out, quiet=True, **options)
    return rows_in(out)


def naive(
    checkpoint: Path, images: list[bytes], labels: list[int], prompts: list[list[str]]
) -> dict[str, float]:
    """One image and one prompt at a time, with open_clip's own transforms."""
    import open_clip

    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{checkpoint}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{checkpoint}")
    model.eval()
    classes = []
    with torch.no_grad():
        for own in prompts:
            texts = [model.encode_text(tokenizer([text]), normalize=True)[0] for text in own]
            mean = torch.stack(texts).mean(0)
            classes.append(mean / mean.norm())
        first, five, per_class = 0, 0, {label: [] for label in labels}
        for data, label in zip(images, labels, strict=True):
            pixels = transform(Image.open(io.BytesIO(data)).convert("RGB"))[None]
            image = model.encode_image(pixels, normalize=True)[0]
            scores = torch.stack([image @ one for one in classes])
            place = int((scores > scores[label]).sum())
            first, five = first + (place < 1), five + (place < 5)
            per_class[label].append(place < 1)
    found = {"acc1": 100 * first / len(images), "acc5": 100 * five / len(images)}
    recalls = [np.mean(hits) for hits in per_class.values()]
    return {**found, "mean_per_class_recall": 100 * float(np.mean(recalls))}


def test_a_folder_is_measured_as_a_loop_over_its_images_would(place: Path, tmp_path: Path) -> None:
    (row,) = evaluate(place, tmp_path / "rows", place / "pets", batch_size=4)
    images = [make_image(number) for number in range(25)]
    prompts = [[template.format(c=name) for template in TEMPLATES] for name in CLASSES]
    labels = [number % 6 for number in range(25)]
    assert row["metrics"] == pytest.approx(naive(place / "run" / "00", images, labels, prompts))
    assert 0 < row["metrics"]["acc1"] < row["metrics"]["acc5"]
    assert row["options"] == {"classes": "all", "prompts": row["prompts"]}
    kept = ("protocol", "task", "task_step", "stream", "n_classes", "n_images", "n_ties")
    assert [row[name] for name in kept] == ["all-classes", "pets", None, None, 6, 25, 0]


def test_classes_of_one_name_are_united_and_a_hit_in_either_is_a_hit(
    place: Path, tmp_path: Path
) -> None:
    names = ("cat", "dog", "bird", "fish", "dog", "horse", "dog", "hen")
    samples = [(make_image(number), "png", number % 8) for number in range(25)]
    folder = write_class_folder(tmp_path / "pets", samples, names, TEMPLATES)
    ranks = tmp_path / "ranks.parquet"
    (row,) = evaluate(place, tmp_path / "rows", folder, save_ranks=ranks)
    assert (row["n_classes"], row["options"]["united"], row["n_ties"]) == (8, 2, 0)
    # Naive: the six distinct names are the classes of the model, the eight labels those of images.
    united = sorted(set(names), key=names.index)
    prompts = [[template.format(c=name) for template in TEMPLATES] for name in united]
    images, labels = [one[0] for one in samples], [number % 8 for number in range(25)]
    place_of = [united.index(name) for name in names]
    found = naive(place / "run" / "00", images, [place_of[label] for label in labels], prompts)
    metrics = row["metrics"]
    assert (metrics["acc1"], metrics["acc5"]) == (found["acc1"], found["acc5"])
    own = pq.read_table(ranks).to_pylist()
    assert {one["label"] for one in own} == set(distinct_labels(names))
    assert {one["wrong"] for one in own} <= {*united, "dog [class 1]"}
    hits = [[one["rank"] == 1 for one in own[label::8]] for label in range(8)]
    recall = 100 * np.mean([np.mean(of_class) for of_class in hits])
    assert metrics["mean_per_class_recall"] == pytest.approx(recall)
    assert 0 < recall < 100


def test_the_classes_of_a_task_are_the_labels_of_its_stream_or_its_own(tmp_path: Path) -> None:
    stream = make_stream(
        tmp_path / "stream", 2, 6, test=6, pair=lambda n: make_pair(n)._replace(label=f"{n // 4}")
    )
    checkpoint = save_run(tmp_path, "micro", 1) / "run" / "00"
    _, second = sorted(stream.glob("[0-9]*"))
    how = {"checkpoints": [checkpoint]}
    (every,) = evaluate(tmp_path, tmp_path / "a", second, **how)
    (own,) = evaluate(tmp_path, tmp_path / "b", second, classes="task", **how)
    assert (every["n_classes"], own["n_classes"]) == (6, 3)
    assert (every["protocol"], own["protocol"]) == ("all-classes", "task-classes")
    assert every["options"] == {"classes": "all", "prompts": every["prompts"]}
    assert "acc5" not in own["metrics"]
    split = open_stream(stream)[1].split("test")
    expected = naive(
        checkpoint,
        [split.image(row) for row in range(len(split))],
        [int(label) for label in split.column("label")],
        [[f"a photo of a {number}."] for number in range(6)],
    )
    assert every["metrics"] == pytest.approx(expected)
    second.rename(tmp_path / "elsewhere")
    second.symlink_to(tmp_path / "elsewhere")
    (in_links,) = evaluate(tmp_path, tmp_path / "d", second, **how)
    assert in_links["metrics"] == every["metrics"]


def test_a_task_away_from_its_stream_needs_all_tasks(place: Path, tmp_path: Path) -> None:
    away = [Path(shutil.copytree(task, tmp_path / task.name)) for task in tasks_of(place)]
    with pytest.raises(BadInput, match="give all 3 tasks, or --classes task"):
        evaluate(place, tmp_path / "rows", *away[:2])
    here = evaluate(place, tmp_path / "a", *tasks_of(place))
    assert evaluate(place, tmp_path / "b", *away) == here


def test_tasks_have_their_step_and_the_rest_an_average(place: Path, tmp_path: Path) -> None:
    other = shutil.copytree(place / "pets", tmp_path / "wds_vtab-flowers")
    rows = evaluate(place, tmp_path / "rows", *tasks_of(place), place / "pets", other, split="test")
    assert [(row["task"], row["task_step"]) for row in rows] == [
        *(("00-part-0", 0), ("01-part-1", 1), ("02-part-2", 2)),
        *(("pets", None), ("flowers", None), ("average of 2", None)),
    ]
    for key, value in rows[5]["metrics"].items():
        assert value == pytest.approx((rows[3]["metrics"][key] + rows[4]["metrics"][key]) / 2)
    assert (rows[5]["tasks"], rows[5]["n_images"]) == (["pets", "flowers"], 50)
    assert len(read_rows([str(tmp_path / "rows")])) == 6


def test_prompts_are_the_given_ones_before_the_folders_own(place: Path, tmp_path: Path) -> None:
    write_lines(tmp_path / "own.txt", TEMPLATES)
    write_lines(tmp_path / "other.txt", ["some {c}"])
    (usual,) = evaluate(place, tmp_path / "a", place / "pets")
    (same,) = evaluate(place, tmp_path / "b", place / "pets", templates=tmp_path / "own.txt")
    (other,) = evaluate(place, tmp_path / "c", place / "pets", templates=tmp_path / "other.txt")
    assert usual == same
    assert other["prompts"] != usual["prompts"]
    with pytest.raises(OutputExists, match="contains other rows"):
        evaluate(place, tmp_path / "c", place / "pets")
    same_text = json.dumps({"pets": {name: ["an animal"] for name in CLASSES}})
    (tmp_path / "same.json").write_text(same_text)
    with pytest.raises(BadInput, match="have the same prompts"):
        evaluate(place, tmp_path / "d", place / "pets", templates=tmp_path / "same.json")


def broken_folder(folder: Path, broken: int, count: int = 40) -> Path:
    images = [(make_image(number), "png", number % 6) for number in range(count)]
    for number in range(broken):
        images[number] = (images[number][0][:-30], "png", 0)
    return write_class_folder(folder, images, CLASSES)


def test_a_data_set_is_found_by_name(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "pets", tmp_path / "wds_vtab-dtd")
    (row,) = evaluate(place, tmp_path / "rows", "dtd", data=tmp_path)
    assert row["task"] == "dtd"
    with pytest.raises(BadInput, match=r"has no folder for flowers: tried flowers, wds_flower"):
        evaluate(place, tmp_path / "rows", "flowers102", data=tmp_path)
    with pytest.raises(UsageError, match="give the directory that contains it with --data"):
        evaluate(place, tmp_path / "rows", "dtd")
    with pytest.raises(UsageError, match="did you mean 'food101'"):
        evaluate(place, tmp_path / "rows", "food11", data=tmp_path)


def test_images_that_cannot_be_decoded_are_counted_and_named(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [broken_folder(tmp_path / name, count, 8) for name, count in (("a", 2), ("b", 1))]
    both = [place / "run" / "00", place / "run" / "01"]
    how = {"max_skip": "2", "workers": 2, "checkpoints": both}
    rows = evaluate(place, tmp_path / "rows", *folders, **how)
    counts = [(row["n_images"], row["n_skipped"]) for row in rows]
    assert counts == [(6, 2), (7, 1), (13, 3)] * 2  # the average counts those left out of all
    first, _ = capsys.readouterr().err.splitlines()
    assert "a: left out 2 of 8 images" in first
    assert "0.tar, s0000000" in first
    for how, kind, word in (
        ({"max_skip": "1"}, TooManySkipped, "2 of 8"),
        ({"limit": 2, "max_skip": "100%"}, BadInput, "no image"),
    ):
        with pytest.raises(kind, match=word):
            evaluate(place, tmp_path / "none", folders[0], **how)
    assert not (tmp_path / "none").exists()


def test_imagenet_brings_names_and_templates(tmp_path: Path) -> None:
    folder = write_class_folder(tmp_path / "imagenet", [(make_image(0), "png", 999)], [])
    (folder / "classnames.txt").unlink()
    (data,) = open_data_sets(["imagenet1k"], tmp_path, "all")
    prompts = data.prompts(None)
    assert (len(prompts), sum(map(len, prompts))) == (1000, 80000)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("test/1.tar", None, "1.tar"),
        ("test/0.tar", "", "0.tar"),
        ("test/nshards.txt", None, "nshards.txt"),
        ("classnames.txt", "cat\ndog\nbird\n", "number below 3"),
        ("classnames.txt", None, "classnames.txt"),
        ("dataset_type.txt", "retrieval", "retrieval"),
        ("zeroshot_classification_templates.txt", "a {}", "{c}"),
    ],
)
def test_a_folder_that_is_not_whole_is_named(
    place: Path, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    folder = shutil.copytree(place / "pets", tmp_path / "pets")
    (folder / name).unlink(missing_ok=True)
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(BadInput, match=said):
        evaluate(place, tmp_path / "rows", folder)


def test_saved_ranks_give_the_accuracies_of_every_row(place: Path, tmp_path: Path) -> None:
    folder, ranks = broken_folder(tmp_path / "pets", 2), tmp_path / "ranks.parquet"
    both = [place / "run" / "00", place / "run" / "01"]
    data = [*tasks_of(place), folder, place / "pets"]
    shutil.copytree(data.pop(), tmp_path / "dogs")
    how = {"checkpoints": both, "batch_size": 4, "max_skip": "2", "save_ranks": ranks}
    rows = evaluate(place, tmp_path / "rows", *data, tmp_path / "dogs", **how)
    found = pq.read_table(ranks).to_pylist()
    alone = [row for row in rows if len(row["tasks"]) == 1]
    assert (len(rows), len(alone)) == (12, 10)
    assert len(found) == sum(row["n_images"] for row in alone)
    for row in alone:
        own = [one for one in found if all(one[name] == row[name] for name in ("data", "step"))]
        classes = sorted({one["label"] for one in own} | {one["wrong"] for one in own})
        known = [*classes, *(str(n) for n in range(row["n_classes"] - len(classes)))]
        labels = np.array([known.index(one["label"]) for one in own])
        counts = tally(np.array([one["rank"] for one in own]), labels, row["n_classes"])
        # The classes are in another order here, so that their mean may differ in the last bit.
        assert accuracies(counts) == pytest.approx(row["metrics"], abs=1e-12)
        for key in ("acc1", "acc5"):
            assert accuracies(counts).get(key) == row["metrics"].get(key)
        assert all(one["label"] != one["wrong"] for one in own)
        assert {one["direction"] for one in own} == {"i2c"}
    split = open_stream(place / "stream")[0].split("test")
    assert [one["query"] for one in found[:7]] == split.keys
    assert [one["label"] for one in found[:7]] == split.column("label")
    made = ranks.stat().st_mtime_ns
    assert evaluate(place, tmp_path / "rows", *data, tmp_path / "dogs", **how) == rows
    assert ranks.stat().st_mtime_ns == made


def test_the_id_of_a_folder_is_that_of_its_images_labels_and_classes(
    place: Path, tmp_path: Path
) -> None:
    def data_of(name: str, images: list[tuple[bytes, str, int]], *more: Any) -> str:
        folder = write_class_folder(tmp_path / name / "pets", images, *more)
        (row,) = evaluate(place, tmp_path / f"{name}.rows", folder)
        return str(row["data"])

    images = [(make_image(number), "png", number % 6) for number in range(12)]
    usual = data_of("a", images, CLASSES)
    assert data_of("b", images, CLASSES, ("other {c}",)) == usual  # prompts are not data
    relabelled = [*images[:-1], (images[-1][0], "png", 0)]
    other_image = [*images[:-1], (make_image(99), "png", 5)]
    changed = [
        data_of("c", relabelled, CLASSES),
        data_of("d", other_image, CLASSES),
        data_of("e", images, CLASSES[::-1]),
    ]
    assert len({usual, *changed}) == 4
