"""recipes/pretrained.sh: its data, its lines, and what its tables make of rows and reports."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.recipe_lines import (
    RECIPES,
    dry_run_of,
    options_of,
    options_of_command,
    paths_read,
    script,
    train_request,
)

from vlcpctl.data.buffer.policies import check_policy
from vlcpctl.jobs.script import CommandLine
from vlcpctl.methods import TABLE

maker = script("make_twemoji")
tables = script("pretrained_table")

FIRST, LAST = "00-smileys-emotion", "08-flags"


def one(code: str, name: str, order: int, **more: Any) -> dict[str, Any]:
    """An entry of the package's list of emoji."""
    entry = {"unified": code, "name": name, "sort_order": order, "image": f"{code.lower()}.png"}
    entry |= {"short_names": [name.lower().replace(" ", "_")], "category": "Objects"}
    return entry | {"subcategory": "light & video", "has_img_twitter": True} | more


def package_of(path: Path, entries: list[dict[str, Any]]) -> Path:
    """An npm package with a list and pictures, whose colour is that of the code point."""
    files = {"emoji.json": json.dumps(entries).encode()}
    for each in entries:
        shade = int(each["unified"].split("-")[0], 16) % 251
        buffer = io.BytesIO()
        Image.new("RGBA", (64, 64), (shade, 255 - shade, 40, 255)).save(buffer, "PNG")
        files[f"img/twitter/64/{each['image']}"] = buffer.getvalue()
    with tarfile.open(path, "w:gz") as package:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
    return path


def glyphs_of(path: Path, entries: list[dict[str, Any]]) -> Any:
    with tarfile.open(package_of(path, entries)) as package:
        return maker.read_glyphs(package)


def test_the_maker_reads_names_and_short_names_and_each_picture_once(tmp_path: Path) -> None:
    entries = [
        one("1F4A1", "ELECTRIC LIGHT BULB", 3, short_names=["bulb", "electric_light_bulb"]),
        one("1F1EA-1F1EC", "Egypt Flag", 2, short_names=["flag-eg"], subcategory="country-flag"),
        one("1F3FB", "EMOJI MODIFIER", 1, category="Component"),
        one("1F4A2", "ANGER SYMBOL", 0, has_img_twitter=False),
    ]
    entries.append(one("1F59C", "SAME PICTURE", 4))  # 251 code points on
    glyphs = glyphs_of(tmp_path / "package.tgz", entries)
    assert [(glyph.name, glyph.keywords, glyph.emoji) for glyph in glyphs] == [
        ("Egypt Flag", ("flag eg", "country flag"), "\U0001f1ea\U0001f1ec"),
        ("electric light bulb", ("bulb", "light & video"), "\U0001f4a1"),  # the name only once
    ]
    assert glyphs[0].image().size == (64, 64)


def test_pairs_have_captions_in_several_phrasings_and_held_out_views(tmp_path: Path) -> None:
    entries = [one("1F4A1", "LIGHT BULB", 0, short_names=["bulb"]), one("1F4B0", "MONEY BAG", 1)]
    out = tmp_path / "base.parquet"
    count = maker.write_pairs(out, glyphs_of(tmp_path / "package.tgz", entries))
    rows = pq.read_table(out).to_pylist()
    assert len(rows) == count == 2 * 25
    train, test = ([row for row in rows if row["split"] == name] for name in ("train", "test"))
    assert [row["captions"] for row in test] == [["light bulb"], ["money bag"]]
    assert {row["captions"][0] for row in train} == {"light bulb", "money bag"}
    bulbs = [row["captions"] for row in train if row["captions"][0] == "light bulb"]
    assert len({caption for captions in bulbs for caption in captions}) > 8
    assert {len(captions) for captions in bulbs} == {4}
    assert len({row["image"] for row in rows}) == count
    assert Image.open(io.BytesIO(rows[0]["image"])).size == (32, 32)
    assert {row["group"] for row in rows} == {"Objects"}


def test_pairs_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    glyphs = glyphs_of(tmp_path / "package.tgz", [one("1F4A1", "LIGHT BULB", 0)])
    for name in ("a.parquet", "b.parquet"):
        maker.write_pairs(tmp_path / name, glyphs)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_the_maker_refuses_another_package_by_its_digest(tmp_path: Path) -> None:
    other = package_of(tmp_path / "other.tgz", [one("1F4A1", "LIGHT BULB", 0)])
    with pytest.raises(SystemExit, match=r"is not emoji-datasource-twitter-16\.0\.0\.tgz: its SHA"):
        maker.main(tmp_path / "base.parquet", other)
    assert not (tmp_path / "base.parquet").exists()


def test_a_downloaded_package_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = package_of(tmp_path / "other.tgz", [one("1F4A1", "LIGHT BULB", 0)])
    asked = []

    def answer(url: str, timeout: int) -> io.BytesIO:
        asked.append((url, timeout))
        return io.BytesIO(other.read_bytes())

    monkeypatch.setattr(maker.urllib.request, "urlopen", answer)
    for _ in range(2):  # the second time it is already here
        with pytest.raises(SystemExit, match="its SHA-256 is"):
            maker.main(tmp_path / "base.parquet")
    assert [url for url, _ in asked] == [maker.URL]
    assert (tmp_path / maker.NAME).read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_every_line_is_one_that_the_program_takes() -> None:
    lines = dry_run_of("pretrained.sh")
    for line in lines:
        assert options_of(line), line
    for given in options_of_command(lines, "train-step"):
        train_request(given)
    for given in options_of_command(lines, "buffer"):
        has_checkpoint = given["checkpoint"] is not None
        check_policy(given["policy"], adds=False, has_checkpoint=has_checkpoint)


def test_what_a_line_reads_is_written_by_a_line_before_it() -> None:
    made: list[str | None] = [os.path.realpath("base.parquet")]
    for line in dry_run_of("pretrained.sh"):
        for path in paths_read(line) if line.words[0] != "sample" else []:
            assert CommandLine(0, (path,)).reads(made), f"{line} reads {path} too early"
        assert line.makes is not None
        assert line.makes not in made
        made.append(line.makes)


def test_a_given_model_takes_the_place_of_the_base() -> None:
    words = ("--pairs", "dataset_coco.json", "--images", "coco", "--methods", "seqf")
    lines = dry_run_of("pretrained.sh", "--model", "open_clip:ViT-B-32,openai", *words)
    (imported,) = options_of_command(lines, "import-checkpoint")
    assert str(imported["source"]) == "open_clip:ViT-B-32,openai"
    base = options_of_command(lines, "split")[0]
    assert [str(one) for one in base["sources"]] == ["base.json"]
    assert (str(base["out"]), *map(str, base["image_root"])) == ("base", "coco")
    trained = options_of_command(lines, "train-step")
    assert {(one["preset"], one["lr"]) for one in trained} == {("update", 1e-5), ("update", 5e-5)}
    assert all(one["previous"] is not None for one in trained)
    known = [
        one
        for one in options_of_command(lines, "eval-retrieval")
        if "base/00-base" in map(str, one["tasks"])
    ]
    assert len(known) == 4  # before any task, and after all of them for each seed


def steps() -> list[dict[str, Any]]:
    """The options of the steps, without the one that makes the base."""
    found = options_of_command(dry_run_of("pretrained.sh"), "train-step")
    assert str(found[0]["out"]) == "model"
    return found[1:]


def test_every_run_starts_from_the_base_under_one_budget_with_three_seeds() -> None:
    keys = ("preset", "steps", "epochs", "batch_size")
    assert len({tuple(str(one[key]) for key in keys) for one in steps()}) == 1
    firsts = [one for one in steps() if one["out"].name == FIRST]
    assert {str(one["previous"]) for one in firsts} == {"start"}
    for one in steps():
        if one["out"].name != FIRST:
            assert one["previous"].parent == one["out"].parent
            assert int(one["previous"].name[:2]) == int(one["out"].name[:2]) - 1
    lasts = [one for one in steps() if one["out"].name == LAST]
    runs = sorted((one["run"], one["seed"]) for one in lasts)
    assert len({name for name, _ in runs}) == 13
    assert runs == sorted((name, seed) for name in {name for name, _ in runs} for seed in range(3))


def test_rates_are_chosen_on_the_validation_split_of_the_first_three_groups() -> None:
    lines = dry_run_of("pretrained.sh")
    tried = [one for one in options_of_command(lines, "eval-retrieval") if one["split"] == "val"]
    assert len(tried) == 2 * 10
    for one in tried:
        assert [Path(task).name[:2] for task in one["tasks"]] == ["00", "01", "02"]
        (model,) = one["checkpoint"]
        assert str(model).startswith("selection/")
    reported = [
        str(path)
        for given in options_of_command(lines, "forgetting-report")
        for path in given["rows"]
    ]
    assert not [path for path in reported if path.startswith("selection")]
    assert {one["seed"] for one in steps() if str(one["out"]).startswith("selection")} == {100}


def test_buffers_hold_earlier_groups_only_and_each_method_has_the_one_it_needs() -> None:
    buffers = {
        str(one["out"]): one for one in options_of_command(dry_run_of("pretrained.sh"), "buffer")
    }
    for given in steps():
        needs = TABLE[given["method"].split("+")[0]]().needs(first=given["previous"] is None)
        if given["buffer"] is None:
            assert not needs.buffer, given["out"]
            continue
        held, tasks = buffers[str(given["buffer"])], []
        assert needs.policy in ("", held["policy"])
        while True:
            tasks.append(int(Path(held["task"]).name[:2]))
            if held["previous"] is None:
                break
            held = buffers[str(held["previous"])]
        assert tasks[::-1] == list(range(int(given["out"].name[:2])))


def test_switches_of_dha_are_rows_of_one_rate(tmp_path: Path) -> None:
    (tmp_path / "chosen.tsv").write_text("seqf\t2e-4\ndha\t5e-4\n")
    how = ("--methods", "seqf dha dha-adapt dha-strong dha-strong-adapt", "--out", str(tmp_path))
    found = {
        one["run"]: (tuple(one["set"] or ()), one["lr"])
        for one in options_of_command(dry_run_of("pretrained.sh", *how), "train-step")
        if one["method"] == "dha" and ":" not in one["run"]
    }
    assert set(found) == {"dha", "dha-adapt", "dha-strong", "dha-strong-adapt"}
    assert {rate for _, rate in found.values()} == {5e-4}
    for name, (flags, _) in found.items():
        assert ("dha.dynamic=false" in flags) == name.endswith("-adapt")
        assert ("dha.main_share=0.875" in flags) == ("strong" in name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "ewcc"), "unknown method 'ewcc'"),
        (("--methods", "er interpolate"), "interpolate needs seqf"),
        (("--pairs", "a.parquet", "--tarball", "b.tgz"), "--tarball has no effect with --pairs"),
        (("--speed", "9"), "unknown option '--speed'"),
        (("--emoji9",), "it runs on Emoji-9 always"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...], message: str) -> None:
    command = ["bash", RECIPES / "pretrained.sh", "--dry-run", *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def facts_of_run(name: str, merged: list[float]) -> list[dict[str, Any]]:
    """The facts of a run, as far as the tables read them."""
    times = {"merged_final": 1, "own_final": 2, "own_learned": 3}
    return [
        {"run": name, "metric": key, "values": [n * one for one in merged], "seeds": [0, 1]}
        for key, n in times.items()
    ]


def test_claims_say_in_which_seeds_the_papers_ordering_returns() -> None:
    scores = {"seqf": [3.0, 3.0], "lwf": [5.0, 6.0], "ewc": [2.0, 4.0], "geodl": [3.0, 4.0]}
    scores["modx"] = [1.0, 1.0]
    every = [one for name, values in scores.items() for one in facts_of_run(name, values)]
    runs = {run["run"]: run for run in tables.runs_of(every)}
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in tables.claims(runs)[2:]
    ]
    assert found[0][4] == "yes: +5.00 (1.41)"  # in the galleries of single tasks
    assert [(one[0], one[1], one[3]) for one in found] == [
        ("`lwf`", "`seqf`", "yes: +2.50 (0.71)"),
        ("`ewc`", "`seqf`", "in 1 of 2: +0.00 (1.41)"),
        ("`lwf`", "`ewc`", "yes: +2.50 (0.71)"),
        ("`geodl`", "`seqf`", "in 1 of 2: +0.50 (0.71)"),  # an equal score is not above
        ("`modx`", "`seqf`", "no: -2.00 (0.00)"),
        ("`modx`", "`ewc`", "no: -2.00 (1.41)"),
        ("`modx`", "`lwf`", "no: -4.50 (0.71)"),
    ]


def test_a_table_has_rates_seeds_and_what_the_base_still_has_of_its_own_pictures() -> None:
    base = {"run": "dha-adapt", "metric": "score", "data": "00-base"}
    facts = [*facts_of_run("seqf", [1.0, 2.0]), *facts_of_run("dha-adapt", [5.0, 6.0])]
    facts += [base | {"values": values} for values in ([60.0, 60.0], [40.0, 42.0])]
    _, _, first, second = tables.table(facts, {"dha": "2e-4"})
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:4] == ["`dha-adapt`", "2e-4", "5.50 (0.71)", "5.00, 6.00"]
    assert cells[4:] == ["16.50 (2.12)", "11.00 (1.41)", "-", "41.00 (1.41)"]
    assert second.startswith("| `seqf` |")


def test_the_base_is_compared_with_chance_before_it_is_trained_on_emoji9(tmp_path: Path) -> None:
    start = [("00-base", 70.0), ("00-a", 40.0), ("01-b", 60.0)]
    rows = [json.dumps({"task": task, "metrics": {"rm": rm}}) for task, rm in start]
    (tmp_path / "start.ndjson").write_text("\n".join(rows))
    scores = {"rm": 2.5, "i2t_r1": 1.0, "t2i_r1": 2.0, "i2t_r10": 3.0, "t2i_r10": 4.0}
    whole = {"metrics": scores, "n_images": 4, "n_texts": 20}
    (tmp_path / "zero-shot.ndjson").write_text(json.dumps(whole))
    chance = (25 + 100 + 100 + 5 + 25 + 50) / 6  # R@5 among 4 images is certain
    assert tables.base_lines(tmp_path) == [
        "- On held-out views of its own pictures: 70.0.",
        f"- Zero-shot among all pictures of Emoji-9: 2.50; chance {chance:.2f}.",
        "- R@1 there, from image to text and back: 1.00 and 2.00; R@10: 3.00 and 4.00.",
        "- Zero-shot in the gallery of each group: 50.00 on average.",
    ]


def angle_row(seed: int, since: int | None, step: int, value: float) -> dict[str, Any]:
    names = ("sam_image", "sam_text", "ram_image", "ram_text", "imav_i2t", "imav_t2i")
    metrics = {f"{name}_mean": value + place for place, name in enumerate(names)}
    row: dict[str, Any] = {"run": "modx", "split": "test", "seed": seed, "step": step}
    return row | {"since": {"step": since}, "metrics": metrics}


def test_angles_are_from_the_base_to_the_last_model_and_one_task_further() -> None:
    rows = [
        angle_row(seed, since, step, value + seed)
        for seed in (0, 1)
        for since, step, value in ((None, 0, 4.0), (0, 1, 8.0), (None, 1, 30.0))
    ]
    _, _, whole, single = tables.angle_table(rows)
    cells = [f"{mean} (0.7)" for mean in (30.5, 31.5, 32.5, 33.5, 35.0)]
    assert whole == f"| `modx` | test | base to last model | {' | '.join(cells)} |"
    assert single.startswith("| `modx` | test | one task further | 6.5 (0.7) |")


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_the_recipe_runs_without_a_network_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["LIGHT BULB", "MONEY BAG", "DOOR", "ROSE", "SHARK", "OCEAN"]
    entries = [one(f"1F4A{number}", name, number) for number, name in enumerate(names)]
    maker.write_pairs(tmp_path / "pairs.parquet", glyphs_of(tmp_path / "package.tgz", entries))
    for name, value in {"STEPS": "2", "SEEDS": "0", "BASE_STEPS": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # no way out
    words = ["--pairs", "pairs.parquet", "--out", "out", "--jobs", "2"]
    words += ["--methods", "seqf modx dha dha-strong-adapt interpolate icarl ctp+er"]
    command = ["bash", str(RECIPES / "pretrained.sh"), *words]
    for _ in range(2):
        ended = subprocess.run(
            command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=1800
        )
        assert ended.returncode == 0, ended.stderr[-3000:]
        table = (tmp_path / "out" / "table.md").read_text()
        assert table in ended.stdout
    for title in ("The base", "Memory-free", "With a buffer", "Angles on the first group"):
        assert f"## {title}\n" in table
    assert "| `modx` | `seqf` |" in table
    lines = (tmp_path / "out" / "chosen.tsv").read_text().splitlines()
    assert {line.split("\t")[0] for line in lines} == {"seqf", "modx", "dha", "icarl", "ctp+er"}
