"""The page in Chromium: 3, 20 and 60 runs and 256 tasks, light, dark, on a phone and printed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.report_rows import run_rows

from vlcpctl.files.rows import row_of
from vlcpctl.report.page import page
from vlcpctl.report.report import ReportRequest, build

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

sync_api = pytest.importorskip("playwright.sync_api")

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
PAGES = {
    "3 runs": (3, 9, 2),
    "20 runs": (20, 9, 1),
    "60 runs": (60, 9, 1),
    "256 tasks": (3, 256, 1),
}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
    "print": {"color_scheme": "dark", "viewport": {"width": 1000, "height": 700}},
}

# Texts that are cut: HTML that overflows a box which neither scrolls nor shows the rest, SVG text
# that leaves its picture, and a page wider than its window.
CUT = """() => {
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    if (node.closest("svg") || node.closest("details:not([open])")) continue;
    const style = getComputedStyle(node);
    if (node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 &&
        ["hidden", "clip"].includes(style.overflowX)) found.push(node.outerHTML.slice(0, 80));
  }
  for (const text of document.querySelectorAll("svg text")) {
    const outer = text.ownerSVGElement.getBoundingClientRect();
    const box = text.getBoundingClientRect();
    if (!box.width) continue;
    if (box.left < outer.left - 1 || box.right > outer.right + 1 || box.top < outer.top - 1 ||
        box.bottom > outer.bottom + 1) found.push("svg: " + text.textContent);
  }
  for (const one of document.querySelectorAll("caption, h1, h2, h3, h4, p, li, figcaption")) {
    const range = document.createRange();
    range.selectNodeContents(one);
    if (range.getBoundingClientRect().right > innerWidth + 1) found.push(one.textContent);
  }
  for (const one of document.querySelectorAll("input[placeholder]")) {
    const width = document.createElement("canvas").getContext("2d");
    width.font = getComputedStyle(one).font;
    if (width.measureText(one.placeholder).width > one.clientWidth) found.push(one.placeholder);
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    found.push(`page: ${document.documentElement.scrollWidth} px`);
  }
  return found;
}"""

# On paper: panels over their neighbours, and buttons, which headings that are repeated leave out.
ON_PAPER = """() => [
  ...[...document.querySelectorAll(".panels > figure")].filter(
    one => one.getClientRects().length && one.scrollWidth > one.clientWidth + 1),
  ...[...document.querySelectorAll("th > button")].filter(one => one.getClientRects().length),
].map(one => one.textContent)"""

# (text, ratio) of every text whose contrast with its background is below WCAG's 4.5 : 1.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => {
      c /= 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const seen = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = node.ownerSVGElement ? style.fill : style.color;
    let paper = "rgb(255, 255, 255)";
    for (let at = node; at; at = at.parentElement) {
      const background = getComputedStyle(at).backgroundColor;
      if (rgba(background)[3] === 255) { paper = background; break; }
    }
    seen.set(`${ink} on ${paper}`, [ink, paper, walker.currentNode.textContent.trim()]);
  }
  const low = [];
  for (const [ink, paper, text] of seen.values()) {
    const [a, b] = [luminance(rgba(ink)), luminance(rgba(paper))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([text, ink, paper, Math.round(ratio * 100) / 100]);
  }
  return [seen.size, low];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    found = {}
    for name, (runs, tasks, seeds) in PAGES.items():
        rows = run_rows(runs, tasks, seeds, joint=True)
        places = [row_of(one, f"rows:{number}") for number, one in enumerate(rows, 1)]
        found[name] = root / f"{name}.html"
        found[name].write_text(page(build(places, ReportRequest())), encoding="utf-8")
    return found


def _open(browser: Any, path: Path, look: str, **options: Any) -> tuple[Any, list[str]]:
    """The opened page, and everything that it reported or asked for."""
    tab = browser.new_context(**{**LOOKS[look], **options}).new_page()
    said: list[str] = []
    tab.on("console", lambda one: said.append(f"console: {one.text}"))
    tab.on("pageerror", lambda one: said.append(f"error: {one}"))
    tab.on("request", lambda one: said.append(one.url))
    if look == "print":
        tab.emulate_media(media="print")
    tab.goto(path.as_uri())
    said = [one for one in said if not one.startswith("data:image/png;") and one != path.as_uri()]
    return tab, said


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_fetched_or_reported(
    browser: Any, pages: dict[str, Path], name: str, look: str
) -> None:
    tab, said = _open(browser, pages[name], look)
    assert said == []
    # A printed page has no window.
    assert tab.evaluate(ON_PAPER if look == "print" else CUT) == []
    colours, low = tab.evaluate(CONTRAST)
    assert colours > 1
    assert low == []
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    tab.context.close()


def test_the_page_reads_without_its_script(browser: Any, pages: dict[str, Path]) -> None:
    tab, said = _open(browser, pages["20 runs"], "light", java_script_enabled=False)
    assert said == []
    assert tab.locator("main figure svg").first.is_visible()
    assert tab.locator("button").count() == tab.locator("input").count() == 0
    tab.locator("summary").first.click()
    assert tab.locator("details[open] th").first.is_visible()
    assert tab.locator("details:not([open]) td").first.is_visible(), "its shades"
    assert not tab.locator("details:not([open]) th").first.is_visible()
    tab.context.close()


def test_runs_are_filtered_hidden_and_sorted(browser: Any, pages: dict[str, Path]) -> None:
    tab, _ = _open(browser, pages["20 runs"], "light")
    status = tab.get_by_role("status")
    assert status.inner_text() == "20 of 20 runs shown"
    tab.get_by_label("Filter").fill("ctp lr1e")
    assert status.inner_text() == "1 of 20 runs shown"
    rows = tab.locator("main table tbody tr[data-run]:visible")
    assert {row.inner_text().split()[0] for row in rows.all()} == {"ctp-lr1e-5"}
    assert tab.locator("main .panels.small figure:visible").count() == 1
    tab.get_by_label("Filter").fill("")
    tab.get_by_label("joint", exact=True).uncheck()
    assert status.inner_text() == "19 of 20 runs shown"
    tab.get_by_role("button", name="Hide all").click()
    assert status.inner_text() == "0 of 20 runs shown"
    tab.get_by_role("button", name="Show all").click()
    tab.get_by_label("Sort by").select_option("final score, best first")
    names = tab.locator("main .panels.small figure .name")
    values = [float(one.inner_text()) for one in tab.locator("main .panels.small .value").all()]
    assert values == sorted(values, reverse=True)
    tab.get_by_label("Sort by").select_option("name")
    shown = names.all_inner_texts()
    assert shown == sorted(shown)
    tab.context.close()


def test_tables_are_sorted_by_click_and_by_key(browser: Any, pages: dict[str, Path]) -> None:
    tab, _ = _open(browser, pages["20 runs"], "light")
    table = tab.locator("main table").first
    head = table.locator("thead th", has_text="R@mean").last
    body = table.locator("tbody").nth(1)

    def column() -> list[float]:
        cells = body.locator("tr[data-run] td:nth-last-child(3)").all_inner_texts()
        return [float(text) for text in cells]

    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    names = table.locator("thead th").first
    names.get_by_role("button").press("Space")
    assert names.get_attribute("aria-sort") == "ascending"
    assert head.get_attribute("aria-sort") is None
    assert body.locator("tr").first.inner_text().strip() == "Memory free"  # groups stay
    tab.context.close()
