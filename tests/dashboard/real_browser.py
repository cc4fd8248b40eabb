"""Debian's chromium, headless, with its console kept; no network is needed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest


def open_browser() -> Any:
    """A browser, or a skip; .ci/run says when it must be there."""
    program = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        if os.environ.get("BROWSER_REQUIRED"):
            pytest.fail("chromium or chromedriver is not installed, and CI must have it")
        pytest.skip("chromium or chromedriver is not installed")
    if not os.environ.get("BROWSER_REQUIRED"):
        pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_page_load_timeout(60)
    return browser


def emulate(browser: Any, width: int, height: int, *, dark: bool = False) -> None:
    """The size of a screen, and what its owner prefers."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def text(browser: Any, selector: str = "main") -> str:
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText).join('\\n')"
    return str(browser.execute_script(script, selector))


def eventually(look: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What ``look`` finds; generous, because a loaded machine is slow and that is not what is tested."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.03)


def complaints(browser: Any) -> list[str]:
    """Everything on the console that is no plain information."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
