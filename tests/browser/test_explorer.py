"""The explorer in a browser: what it shows is what the functions behind it say."""

import contextlib
import dataclasses
import re
import shlex
import signal
import subprocess
import sys

import pytest

from dp_accounting_ext.command_line import explorer
from dp_accounting_ext.studies import calibration
from dp_accounting_ext.studies import comparison
from dp_accounting_ext.studies import training_run

RUN = training_run.TrainingRun(
    dataset_size=6000, batch_size=250, epochs=3, noise_multiplier=1.3, delta=1e-6
)
COMMAND = "explore --quiet --dataset-size 6000 --batch-size 250 --epochs 3"
COMMAND += " --noise-multiplier 1.3 --delta 1e-6"
WIDTHS = (1280, 390)
SLIDERS = {"noise": "noise multiplier", "records": "records"}
SLIDERS |= {"batch": "records of a batch", "epochs": "epochs", "δ": "δ"}
SLIDERS |= {"group": "records of one user"}
QUOTED = dataclasses.replace(RUN, sampling="random allocation")
RUN_15 = dataclasses.replace(RUN, noise_multiplier=1.5)


@contextlib.contextmanager
def started(more=""):
    """The process of a page and its address, and afterwards an end without an error."""
    command = [sys.executable, "-m", "dp_accounting_ext", *shlex.split(COMMAND + more)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process, re.search(r"http://\S+", process.stdout.readline())[0]
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "The page has ended.\n", "")


@contextlib.contextmanager
def served(more=""):
    """The address of a page."""
    with started(more) as (_, address):
        yield address


@pytest.fixture(scope="module")
def address():
    with served() as found:
        yield found


def whole(page, rows=4):
    """The table's cells, when nothing in it is missing any more."""
    from playwright import sync_api

    cell = page.locator("td")
    expect = sync_api.expect
    page.locator("tbody tr").first.wait_for()
    expect(cell.filter(has_text="…")).to_have_count(0, timeout=60_000)
    expect(page.locator("tbody tr")).to_have_count(rows)
    lines = page.locator("tbody tr").all()
    return [line.locator("td").all_inner_texts() for line in lines]


def move(page, name, key):
    """Moves a slider by a key, from the place that a finger gave it."""
    page.get_by_role("slider", name=SLIDERS[name], exact=True).press(key)


def brackets(shown, rows):
    """The cells are the bounds of these rows, rounded outwards."""
    assert [cells[0] for cells in shown] == [row.sampling for row in rows]
    for cells, row in zip(shown, rows, strict=True):
        lower, upper = map(float, cells[1:3])
        assert lower <= row.epsilon_lower <= row.epsilon_upper <= upper
        assert upper - lower <= row.epsilon_upper - row.epsilon_lower + 3e-4 * upper


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_shows_what_is_computed(address, opened, overflow, width):
    page = opened(address, width)
    brackets(whole(page), comparison.compare(RUN))
    page.get_by_text("is certified to be at most").wait_for()
    assert overflow(page) <= 0
    canvas = page.locator("canvas").first.bounding_box()
    assert canvas["width"] > 0.5 * width
    shown = page.locator("pre").all_inner_texts()
    assert shown == [
        explorer.commands_of(QUOTED, None),
        explorer.python_of(QUOTED, None),
    ]
    quoted = page.locator("blockquote").inner_text()
    assert quoted == explorer.sentence_of(QUOTED)


def test_a_slider_that_is_moved_changes_the_page(address, opened):
    page = opened(address, 1280)
    whole(page)
    move(page, "noise", "ArrowRight")
    page.get_by_text("noise multiplier: 1.5").wait_for()
    page.locator("pre", has_text="noise-multiplier 1.5").wait_for()
    brackets(whole(page), comparison.compare(RUN_15))


def test_noise_is_found_for_a_target(address, opened):
    page = opened(address, 1280)
    page.get_by_role("radio", name="ε to be met").check()
    page.locator("th", has_text="noise").wait_for()
    shown = whole(page)
    unknown = dataclasses.replace(RUN, noise_multiplier=None)
    rows = calibration.calibrate(unknown, 2.0)
    brackets(shown, rows)
    for cells, row in zip(shown, rows, strict=True):
        assert cells[-1] == f"{row.noise_multiplier:g}"


def test_settings_without_a_meaning_are_told(opened):
    with served(" --batch-size 6000") as address:
        page = opened(address, 390)
        whole(page)
        move(page, "batch", "ArrowRight")
        page.locator("b", has_text="batch_size must be at most dataset_size").wait_for()
        move(page, "batch", "ArrowLeft")
        whole(page)


def test_a_button_copies(address, opened):
    page = opened(address, 1280)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("pre").first.wait_for()
    button = page.get_by_role("button", name="copy the commands")
    button.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == explorer.commands_of(QUOTED, None)
    assert button.inner_text() == "copied"
    named = [f"copy the {what}" for what in ("sentence", "commands", "Python")]
    page.get_by_role("button", name=named[0]).click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == explorer.sentence_of(QUOTED)
    labels = "each => each.map(button => button.ariaLabel)"
    assert page.locator("button").evaluate_all(labels) == named


def test_copy_waits_for_the_sentence(opened):
    """Of a group it takes seconds, after the commands are there."""
    with served(" --group-size 8") as address:
        page = opened(address, 1280)
        page.locator("blockquote", has_text="computing …").wait_for()
        page.get_by_role("button", name="copy the commands").wait_for()
        assert page.get_by_role("button", name="copy the sentence").count() == 0


def test_a_screen_reader_reads_names_and_values(address, opened):
    page = opened(address, 1280)
    whole(page)
    expected = ["1.3", "6,000", "250", "3", "10 to the minus 6", "1"]
    for name, value in zip(SLIDERS.values(), expected, strict=True):
        slider = page.get_by_role("slider", name=name, exact=True)
        assert slider.get_attribute("aria-valuetext") == value
    assert page.get_by_role("slider").count() == len(expected)
    told = page.get_by_role("status")
    assert "random allocation: ε at most" in told.inner_text()
    assert "with noise multiplier 1.3" in told.inner_text()
    move(page, "noise", "ArrowRight")
    page.get_by_role("status").filter(has_text="multiplier 1.5").wait_for()


def test_a_page_whose_program_has_ended_says_so(opened):
    with started() as (process, address):
        page = opened(address, 390)
        whole(page)
        assert page.get_by_role("alert").inner_text() == ""
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        page.get_by_role("alert").filter(has_text="has ended").wait_for()
        main = page.locator("main")
        assert float(main.evaluate("each => getComputedStyle(each).opacity")) < 0.5
        assert main.evaluate("each => each.inert")
        assert page.get_by_text("Client connection was lost").count() == 0


def test_what_is_not_waited_for_is_stopped(opened):
    """Groups of 40 take minutes: the page answers another slider at once."""
    with served(" --group-size 40") as address:
        page = opened(address, 1280)
        page.locator("td", has_text="no amplification").wait_for()
        move(page, "group", "Home")
        brackets(whole(page), comparison.compare(RUN))
