"""The pictures of docs/guides/report.md and of the README.

python recipes/report_pictures.py [--browser /usr/bin/chromium]
python recipes/report_pictures.py --quickstart runs/quickstart/report
python recipes/report_pictures.py --week STATE/attempts/0003/draw-0/report

Needs pip install '.[dev]' and a Chromium. Those of the guide are of made-up rows
(tests/support/report_rows.py), the README's of the quickstart's report and of a week's page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from vlcpctl.core.console import emit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.report_rows import write_runs

STEPS = ".lead"
# Name, runs, scheme, width, the part of the page at the top, and height.
PICTURES = (
    ("3-runs", 3, "light", 1180, "h1", 1500),
    ("20-runs", 20, "light", 1180, STEPS, 1500),
)
SEEDS = {3: 2, 20: 1}
OUT = Path("docs/guides/report")
README_PICTURE = Path("docs/results/quickstart.png")
FORGOTTEN_PICTURE = Path("docs/guides/forgotten.png")
WEEK_PICTURE = Path("docs/results/week.png")
WEEK_SIZE = {"width": 960, "height": 900}
LOST = "02-food-drink"  # the task whose lost queries the README shows, with those of this run
LOST_RUN, MOST_LOST = "seqf", 4
MARGIN = 24  # pixels


def main() -> None:
    """Write the pictures."""
    args = _arguments()
    if args.quickstart is not None:
        whole, forgotten = _of_quickstart(args.quickstart, args.browser)
        _save(README_PICTURE, whole)
        _save(FORGOTTEN_PICTURE, forgotten)
    elif args.week is not None:
        _save(WEEK_PICTURE, _of_week(args.week, args.browser))
    else:
        with tempfile.TemporaryDirectory() as directory:
            _pictures(Path(directory), OUT, args.browser)


def _pictures(root: Path, out: Path, browser: str) -> None:
    from playwright.sync_api import sync_playwright

    out.mkdir(exist_ok=True)
    for runs, seeds in SEEDS.items():
        _report(root, runs, 9, seeds)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, runs, *look in PICTURES:
            page = (root / f"{runs}-9" / "report.html").as_uri()
            _save(out / f"{name}.png", _shot(chromium, page, *look))
        chromium.close()
    _figures(root, out)


def _of_quickstart(report: Path, browser: str) -> tuple[bytes, bytes]:
    """The curves of the report above the first queries that a run lost of a task; these queries."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = chromium.new_page(viewport={"width": 960, "height": 900}, device_scale_factor=2)
        tab.goto((report / "report.html").resolve().as_uri())
        curves = tab.locator(f"{STEPS} + figure").first.screenshot()
        tab.goto((report / "forgotten.html").resolve().as_uri())
        tab.locator(f"h2:text-is('{LOST}')").first.scroll_into_view_if_needed()
        start = tab.locator(f"h2:text-is('{LOST}')").first.bounding_box()["y"] - MARGIN
        tab.evaluate("y => scrollBy(0, y)", start)
        forgotten: bytes = tab.screenshot()
        cards = tab.locator(f"h2:text-is('{LOST}') ~ h3:text-is('{LOST_RUN}') ~ ul.cards").first
        cards.evaluate(
            "(list, most) => [...list.children].slice(most).forEach(one => one.remove())", MOST_LOST
        )
        lost = cards.screenshot()
        chromium.close()
    parts = [Image.open(BytesIO(part)).convert("RGB") for part in (curves, lost)]
    width, height = max(part.width for part in parts), sum(part.height for part in parts)
    whole = Image.new("RGB", (width + 2 * MARGIN, height + 3 * MARGIN), "white")
    top = MARGIN
    for part in parts:
        whole.paste(part, (MARGIN, top))
        top += part.height + MARGIN
    picture = BytesIO()
    whole.save(picture, "PNG")
    return picture.getvalue(), forgotten


def _of_week(report: Path, browser: str) -> bytes:
    """The top of a week's page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = chromium.new_page(viewport=WEEK_SIZE, device_scale_factor=2)
        tab.goto((report / "week.html").resolve().as_uri())
        picture: bytes = tab.screenshot()
        chromium.close()
    return picture


def _shot(chromium: Any, page: str, scheme: str, width: int, top: str, height: int) -> bytes:
    """A picture of the page below the element `top`."""
    size = {"width": width, "height": 900}
    context = chromium.new_context(color_scheme=scheme, viewport=size)
    tab = context.new_page()
    tab.goto(page)
    start = tab.locator(top).first.bounding_box()["y"] - 24
    clip = {"x": 0, "y": start, "width": width, "height": height}
    picture: bytes = tab.screenshot(full_page=True, clip=clip)
    context.close()
    return picture


def _figures(root: Path, out: Path) -> None:
    """A figure for a paper, as --figures draws it."""
    figures = root / "figures"
    _run("forgetting-report", root / "20-9.ndjson", "--figures", figures, "--quiet")
    (curves,) = figures.glob("*curves-two-columns.png")
    _save(out / "figure.png", curves.read_bytes())


def _save(path: Path, picture: bytes) -> None:
    """The picture with 256 colours, which is half as large and looks the same."""
    with Image.open(BytesIO(picture)) as image:
        palette = image.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE)
        palette.save(path, optimize=True)
    emit(f"{path}  {path.stat().st_size / 1000:.0f} kB")


def _report(root: Path, runs: int, tasks: int, seeds: int) -> Path:
    rows, out = root / f"{runs}-{tasks}.ndjson", root / f"{runs}-{tasks}"
    write_runs(rows, runs, tasks, seeds)
    _run("forgetting-report", rows, "-o", out, "--quiet")
    return out


def _run(*words: object) -> None:
    command = [sys.executable, "-m", "vlcpctl", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    parser.add_argument("--browser", default=found)
    parser.add_argument("--quickstart", type=Path, metavar="REPORT", help="make that of its report")
    parser.add_argument("--week", type=Path, metavar="REPORT", help="make that of a week's page")
    return parser.parse_args()


if __name__ == "__main__":
    main()
