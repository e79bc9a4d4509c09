"""Tests in a real browser run where Playwright is installed: .ci/browser."""

import contextlib
import importlib.util
import os
import shutil

import pytest

# The sandbox asks for more than a container has; the rest would ask a network.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]

if importlib.util.find_spec("playwright") is None:
    collect_ignore = ["test_explorer.py", "test_site.py"]


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium: that of CHROMIUM, of the PATH, or Playwright's own."""
    from playwright import sync_api

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Opens pages of a width; afterwards none has asked a network or had an error."""
    asked, faults = [], []
    with contextlib.ExitStack() as stack:

        def open_page(address, width):
            size = {"width": width, "height": 1000}
            context = chromium.new_context(viewport=size, is_mobile=width < 500)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.goto(address)
            return page

        yield open_page
    local = ("http://localhost:", "ws://localhost:", "file:", "data:", "blob:")
    assert [address for address in asked if not address.startswith(local)] == []
    assert faults == []


@pytest.fixture
def overflow():
    """Tells by how many pixels a page is wider than the window."""
    return lambda page: page.evaluate(
        "document.documentElement.scrollWidth - window.innerWidth"
    )
