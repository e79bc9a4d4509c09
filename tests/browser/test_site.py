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


@pytest.mark.parametrize("width", WIDTHS)
def test_code_has_colours_and_a_button_that_copies(opened, width):
    page = opened((SITE / "index.html").resolve().as_uri(), width)
    block = page.locator(".highlight", has_text="import dp_accounting_ext").first
    colours = block.evaluate(
        """each => [...each.querySelectorAll("code, .kn, .s2")].map(
            part => getComputedStyle(part).color)"""
    )
    assert len(set(colours)) >= 3
    page.locator(".md-clipboard, .md-code__button").first.wait_for(state="attached")


@pytest.mark.parametrize("words", SEARCHED)
def test_search_finds_from_a_disk(opened, words):
    page = opened((SITE / "index.html").resolve().as_uri(), 1280)
    field = page.locator(".md-search__input")
    field.click()
    field.press_sequentially(words)
    page.locator(f'.md-search-result__link[href*="{SEARCHED[words]}"]').first.wait_for()


def test_the_page_of_tasks_is_found_first(opened):
    page = opened((SITE / "index.html").resolve().as_uri(), 1280)
    page.locator(".md-search__input").click()
    page.locator(".md-search__input").fill("epsilon")
    first = page.locator(".md-search-result__item").first
    first.locator('.md-search-result__link[href*="index.html"]').first.wait_for()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_button_that_copies_is_seen_and_covers_no_code(opened, width):
    page = opened((SITE / "index.html").resolve().as_uri(), width)
    page.locator(".md-code__button").first.wait_for()
    found = page.evaluate(
        """() => [...document.querySelectorAll("pre")].map(pre => {
            const button = pre.querySelector(".md-code__button"), area = new Range()
            if (!button) return null
            area.selectNodeContents(pre.querySelector("code"))
            const text = [...area.getClientRects()].filter(each => each.width > 1)
            const box = button.getBoundingClientRect()
            const covers = each => each.right > box.left && each.left < box.right
                && each.bottom > box.top && each.top < box.bottom
            return [text.filter(covers).length, getComputedStyle(button).color]
        }).filter(Boolean)"""
    )
    assert len(found) > 5
    for covered, colour in found:
        assert width > 600 or covered == 0
        *_, alpha = colour.removesuffix(")").split(",")
        assert float(alpha) >= 0.5


def test_tables_of_the_tutorial_show_epsilon_on_a_telephone(opened):
    page = opened((SITE / "tutorial.html").resolve().as_uri(), 390)
    ends = page.evaluate(
        """() => [...document.querySelectorAll(".output td, .output th")].filter(
            each => each.closest("table").rows[0].cells[each.cellIndex]
                .innerText.startsWith("ε")
        ).map(each => each.getBoundingClientRect().right)"""
    )
    assert len(ends) > 20 and max(ends) <= 390
    assert "e^ε" not in page.locator("article .output").all_inner_texts()


def test_formulas_are_typeset(opened):
    page = opened((SITE / "matrix.html").resolve().as_uri(), 1280)
    boxes = [each.bounding_box() for each in page.locator("math").all()]
    assert len(boxes) >= 3
    assert all(box["width"] > 5 and box["height"] > 5 for box in boxes if box)
    assert "\\frac" not in page.locator("article").inner_text()
