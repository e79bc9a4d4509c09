"""The site in a browser, from a disk: no overflow, colours, a search that finds.

The environment's SITE names the folder in which it was built.
"""

import os
import pathlib

import pytest

SITE = pathlib.Path(os.environ.get("SITE", "site"))
WIDTHS = (1280, 390)
PAGES = sorted(path.name for path in SITE.glob("*.html"))
# What a reader types, and a page that must be found.
SEARCHED = {"epsilon": "index.html", "ε": "html", "epsil": "reference"}
SEARCHED |= {"calibr": "reference", "σ": "mathematics"}


def test_there_is_a_site():
    assert {"index.html", "reference.html", "tutorial.html"} <= set(PAGES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_its_window(opened, overflow, name, width):
    page = opened((SITE / name).resolve().as_uri(), width)
    assert overflow(page) <= 0
    clipped = page.evaluate(
        """() => [...document.querySelectorAll("article *")].filter(each => {
            const box = each.getBoundingClientRect();
            if (!box.width || box.right <= window.innerWidth + 1) return false;
            for (let up = each; up; up = up.parentElement)
                if (/auto|scroll/.test(getComputedStyle(up).overflowX)) return false;
            return true;
        }).map(each => each.outerHTML.slice(0, 80))"""
    )
    assert clipped == []


@pytest.mark.parametrize("words", SEARCHED)
def test_search_finds_from_a_disk(opened, words):
    page = opened((SITE / "index.html").resolve().as_uri(), 1280)
    field = page.locator(".md-search__input")
    field.click()
    field.press_sequentially(words)
    page.locator(f'.md-search-result__link[href*="{SEARCHED[words]}"]').first.wait_for()


def test_formulas_are_typeset(opened):
    page = opened((SITE / "matrix.html").resolve().as_uri(), 1280)
    boxes = [each.bounding_box() for each in page.locator("math").all()]
    assert len(boxes) >= 3
    assert all(box["width"] > 5 and box["height"] > 5 for box in boxes if box)
    assert "\\frac" not in page.locator("article").inner_text()
