"""A headless Chromium for tests: Playwright's own where it is installed, else the system's; without one they skip."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SYSTEM = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator:
    """A Playwright browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        found = str(own) if own.is_file() else next((path for name in SYSTEM if (path := shutil.which(name))), None)
        if found is None:
            pytest.skip("no Chromium: run `playwright install chromium`, or install the system's package")
        browser = playwright.chromium.launch(executable_path=found)
        try:
            yield browser
        finally:
            browser.close()
