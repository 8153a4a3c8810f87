"""The recipes of Mod-X train, evaluate and report what the paper's tables have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recipe_lines import DATA, dry_run_of, options_of_command
from support.recipe_tables import reported, run_recipe, shown_tables, tables_of

from vlcpctl.report.papers import load_paper

COCO_FLICKR, ECOMMERCE = "modx_coco_flickr.sh", "modx_ecommerce.sh"
CC12M, OPENAI = "modx_cc12m.sh", "modx_openai_coco_flickr.sh"
WEIGHTS = ("--weights", f"{DATA}/openai.safetensors")
REPORTS = {
    COCO_FLICKR: (
        *(f"modx-{number}" for number in range(1, 8)),
        *("modx-fig1", "modx-fig2", "modx-fig6", "modx-fig8a", "modx-fig8b"),
        *("modx-fig9", "modx-fig10"),
    ),
    ECOMMERCE: ("modx-4", "modx-8", "modx-fig7", "modx-fig11"),
    CC12M: ("modx-9", "modx-10", "modx-fig12"),
    OPENAI: ("modx-11",),
}
MODES = {
    "paper": lambda recipe: ("--data", DATA, *(WEIGHTS if recipe in {ECOMMERCE, OPENAI} else ())),
    "Emoji-9": lambda recipe: ("--emoji9",),
}
# Table 4 has the settings of two recipes.
OF_OTHERS = {
    (COCO_FLICKR, "modx-4"): ["data=*ecommerce*"],
}

each_mode = pytest.mark.parametrize("mode", MODES)


@each_mode
@pytest.mark.parametrize(
    ("recipe", "name"), [(recipe, name) for recipe in REPORTS for name in REPORTS[recipe]]
)
def test_every_run_and_data_set_of_a_table_is_in_the_report(
    recipe: str, name: str, mode: str
) -> None:
    found = reported(dry_run_of(recipe, *MODES[mode](recipe)), name)
    assert found.lacks(load_paper(name)) == OF_OTHERS.get((recipe, name), [])


@each_mode
@pytest.mark.parametrize("recipe", REPORTS)
def test_the_report_ends_with_all_tables(recipe: str, mode: str) -> None:
    assert tables_of(dry_run_of(recipe, *MODES[mode](recipe))) == [REPORTS[recipe]]


def test_rows_of_the_model_at_the_start_are_of_the_model_that_the_runs_start_from() -> None:
    for recipe, name in ((COCO_FLICKR, "coco"), (ECOMMERCE, "openai"), (OPENAI, "openai")):
        lines = dry_run_of(recipe, *MODES["paper"](recipe))
        measured = {
            str(path)
            for given in options_of_command(lines, "eval-retrieval")
            for path in given["checkpoint"]
        }
        firsts = {
            given["run"]: str(given["previous"])
            for given in reversed(options_of_command(lines, "train-step"))
            if given["previous"] is not None
        }
        assert firsts["seqf"].split("/")[-1] == name
        assert {firsts[run] for run in ("seqf", "modx", "ewc") if run in firsts} <= measured


@pytest.mark.parametrize("name", ["modx-1", "modx-5", "modx-fig2", "modx-fig8a", "modx-fig8b"])
def test_printed_angles_add_up_to_a_hundred_but_for_two_misprints(name: str) -> None:
    table = load_paper(name)
    found = {
        row.name: round(total, 2)
        for row in table.rows
        if abs(100 - (total := sum(float(cell.printed or 0) for cell in row.cells))) > 0.03
    }
    wanted = {"modx-5": {"ImAM (1,2)": 99.0}, "modx-fig8b": {"RAM (2,3)": 89.74}}
    assert found == wanted.get(name, {})


@each_mode
@pytest.mark.parametrize("recipe", [COCO_FLICKR, CC12M])
def test_linear_probes_are_those_of_the_authors(recipe: str, mode: str) -> None:
    probes = options_of_command(dry_run_of(recipe, *MODES[mode](recipe)), "eval-probe")
    assert {given["protocol"] for given in probes} == {"modx"}
    assert {given["epochs"] for given in probes} == {None if mode == "paper" else 5}
    pairs = {pair for cell in load_paper("modx-10").rows[0].cells for pair in cell.selectors}
    assert ("protocol", "modx") in pairs
    assert ("protocol", "modx") in load_paper("modx-fig9").selectors


TURNS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5))
WIDE, NARROW = (
    ("[0, 15]", "(15, 20]", "(20, 25]", "(25, 30]", "(30, 180]"),
    (*("[0, 5]", "(5, 10]", "(10, 15]", "(15, 20]", "(20, 180]"),),
)
RECALLS = tuple(
    f"{way} {name} R@{k}"
    for way in ("I2T", "T2I")
    for name in ("Flickr30K(1K)", "COCO(5K)")
    for k in (1, 5, 10)
)
SHORT = tuple(f"{name} {way}" for name in ("COCO", "Flickr30K") for way in ("I2T", "T2I"))
PHASES = ("Initial", *(f"phase {number}" for number in range(1, 6)))
PANELS = tuple(
    f"{way} R@1, {name}"
    for way in ("Image-Text", "Text-Image")
    for name in ("COCO(5K)", "Flickr30K(1K)")
)
SETTINGS = (
    *("Batch size", "Vocabulary size", "Training epochs", "Initial temperature tau", "alpha"),
    *("Weight decay", "Warm-up iterations (%)", "Learning rate"),
    *("Adam beta1", "Adam beta2", "Adam epsilon"),
)
FIRST, BOTH = "pretrained on COCO", "COCO + Flickr30K | CLIP_jt"
EVERY = ("ct", "EWC", "LWF", "DER", "Mod-X", "jt")
ROWS = {
    "modx-1": tuple(f"RAM ({one},{two})" for one, two in TURNS),
    "modx-2": ("CLIP_jt", "CLIP_Mod-X with 5000", "CLIP_Mod-X with 3000", "CLIP_Mod-X"),
    "modx-3": ("CLIP_Mod-X", "CLIP_Mod-X with cls", "CLIP_ct", "CLIP_ct with cls"),
    "modx-4": SETTINGS,
    "modx-5": tuple(f"ImAM ({one},{two})" for one, two in TURNS),
    "modx-6": (
        *(f"{FIRST} | CLIP_0", f"{FIRST} | CLIP_ct"),
        *(f"{FIRST} | alpha = {alpha}" for alpha in (10, 15, 20, 25, 30)),
        BOTH,
    ),
    "modx-7": (*(f"{FIRST} | CLIP_{name}" for name in ("0", "ct", "EWC", "Mod-X")), BOTH),
    "modx-fig1": tuple(f"{panel} | CLIP_{name}" for panel in PANELS for name in ("ct", "jt")),
    "modx-fig2": tuple(f"SAM {one}-{two}" for one, two in TURNS),
    "modx-fig6": tuple(f"{panel} | CLIP_{name}" for panel in PANELS for name in EVERY),
    "modx-fig8a": tuple(f"SAM {one}-{two}" for one, two in TURNS),
    "modx-fig8b": tuple(f"RAM ({one},{two})" for one, two in TURNS),
    "modx-fig9": tuple(
        f"ImageNet top-1, linear probe | CLIP_{name}" for name in ("ct", "Mod-X", "jt")
    ),
    "modx-fig10": tuple(f"ImAM ({one},{two})" for one, two in TURNS),
}
HEADINGS = {
    "modx-1": tuple(f"degrees {name}" for name in WIDE),
    "modx-2": SHORT,
    "modx-3": SHORT,
    "modx-4": ("(a) Section 5.2", "(b) Section 5.3"),
    "modx-5": tuple(f"degrees {name}" for name in NARROW),
    "modx-6": RECALLS,
    "modx-7": RECALLS,
    "modx-fig1": PHASES,
    "modx-fig2": tuple(f"degrees {name}" for name in NARROW),
    "modx-fig6": PHASES,
    "modx-fig8a": tuple(f"degrees {name}" for name in NARROW),
    "modx-fig8b": tuple(f"degrees {name}" for name in WIDE),
    "modx-fig9": PHASES,
    "modx-fig10": tuple(f"degrees {name}" for name in NARROW),
}


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_tables_of_coco_and_flickr30k_on_emoji9(tmp_path: Path) -> None:
    words = ("--emoji9", "--methods", "joint seqf ewc modx", "--train", "--steps 1")
    run_recipe(COCO_FLICKR, *words, "--out", tmp_path)
    tables = shown_tables(tmp_path / "report")
    assert {name: found.rows for name, found in tables.items()} == ROWS
    assert {name: found.headings for name, found in tables.items()} == HEADINGS
    trained = ("ct", "EWC", "Mod-X", "jt")
    assert {name: found.filled_rows for name, found in tables.items()} == {
        **{name: {*ROWS[name]} for name in ROWS},
        "modx-2": {"CLIP_jt", "CLIP_Mod-X"},
        "modx-3": {"CLIP_ct", "CLIP_Mod-X"},
        "modx-4": {*SETTINGS} - {"Vocabulary size"},
        "modx-6": {*(f"{FIRST} | {name}" for name in ("CLIP_0", "CLIP_ct", "alpha = 20")), BOTH},
        "modx-fig6": {f"{panel} | CLIP_{name}" for panel in PANELS for name in trained},
    }
    assert tables["modx-4"].filled_columns == {"(a) Section 5.2"}
    assert all(len(tables[name].filled_columns) == 5 for name in ("modx-1", "modx-5"))
    assert all(len(tables[name].filled_columns) == 6 for name in ("modx-fig6", "modx-fig9"))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        (
            CC12M,
            {
                "modx-9": (("CLIP_ct", "CLIP_Mod-X", "CLIP_jt"), RECALLS, 36),
                "modx-10": (
                    ("CLIP_jt", "CLIP_Mod-X", "CLIP_ct"),
                    (
                        *(
                            f"Zero-shot classification {name}"
                            for name in ("Cifar10", "Caltech101", "Places365", "ObjectNet")
                        ),
                        "Zero-shot classification ImageNet",
                        "Zero-shot classification Average",
                        "Linear probe ImageNet",
                    ),
                    21,
                ),
                "modx-fig12": (
                    tuple(
                        f"{panel} | CLIP_{name}"
                        for panel in PANELS
                        for name in ("ct", "Mod-X", "jt")
                    ),
                    tuple(f"phase {number}" for number in range(1, 11)),
                    4 * (10 + 10 + 1),
                ),
            },
        ),
        (
            ECOMMERCE,
            {
                "modx-4": (SETTINGS, HEADINGS["modx-4"], 10),
                "modx-8": (
                    ("CLIP_vit32", "CLIP_ct", "CLIP_EWC", "CLIP_Mod-X", "CLIP_ft"),
                    tuple(
                        f"{way} {name} R@{k}"
                        for way in ("I2T", "T2I")
                        for name in ("Flickr30K(1K)", "COCO(5K)", "EC(5K)")
                        for k in (1, 5)
                    ),
                    60,
                ),
                "modx-fig7": (
                    tuple(
                        f"{way} R@1, {data} | CLIP_{name}"
                        for way in ("Image-Text", "Text-Image")
                        for data in ("EC(5K)", "COCO(5K)", "Flickr30K(1K)")
                        for name in ("ct", "EWC", "Mod-X", "ft")
                    ),
                    PHASES,
                    6 * (3 * 6 + 2),
                ),
                "modx-fig11": (
                    tuple(f"CLIP {one}-{two}" for one, two in TURNS),
                    tuple(f"{side} {name}" for side in ("image", "text") for name in WIDE),
                    60,
                ),
            },
        ),
        (
            OPENAI,
            {"modx-11": (("CLIP_vit32", "CLIP_ct", "CLIP_Mod-X", "CLIP_ft"), RECALLS, 48)},
        ),
    ],
)
def test_the_tables_of_a_recipe_on_emoji9(
    tmp_path: Path, recipe: str, wanted: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]]
) -> None:
    run_recipe(recipe, "--emoji9", "--train", "--steps 1", "--out", tmp_path)
    tables = shown_tables(tmp_path / "report")
    found = {name: (one.rows, one.headings, len(one.filled)) for name, one in tables.items()}
    assert found == wanted
