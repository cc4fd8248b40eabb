"""The pages in a real browser: a run under kills, dead letters, hostile names, phone and keyboard."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet_world
import pytest
from dashboard_server import SOURCE, Dashboard, environment, row, write_run
from real_browser import complaints, emulate, eventually, open_browser, text

from cluster.scenarios import job
from servers.api_server import ApiServer
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, RetryPolicy
from stayfast.dashboard.run_view import identify
from stayfast.runtime.run_record.record import RECORD_KEY, CheckpointRecord, RunRecord, encode

EVIL = "<img src=x onerror=hacked=1>"


@pytest.fixture(scope="module")
def one_browser() -> Iterator[Any]:
    found = open_browser()
    try:
        yield found
    finally:
        found.quit()


@pytest.fixture
def browser(one_browser: Any) -> Any:
    """The same browser for all, on an empty page and with an empty console."""
    one_browser.get("about:blank")
    complaints(one_browser)
    return one_browser


def train(folder: Path, steps: int = 100000) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "stayfast.proof.demo.training",
        f"file://{folder}",
        str(steps),
        str(folder) + ".log",
    ]
    more = environment(STAYFAST_USD_PER_HOUR="2", STAYFAST_CAPACITY="spot", STAYFAST_DEMO_PAUSE="0.005")
    return subprocess.Popen(command, env=more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def step_of(browser: Any) -> str:
    """The step that the page shows, or nothing."""
    found = re.search(r"([\d,]+) of 100,000", text(browser, ".runs"))
    return found[1] if found else ""


def test_step_attempt_kill_and_notice_appear_by_themselves(browser: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    emulate(browser, 1280, 900)
    processes = []
    try:
        with Dashboard(tmp_path, str(runs)) as dashboard:
            browser.get(dashboard.url)
            eventually(lambda: "No runs here yet" in text(browser))
            processes.append(train(runs / "llm-7"))
            eventually(lambda: "llm-7" in text(browser, ".runs"))
            eventually(lambda: re.search(r"attempt 1\b", text(browser, ".runs")))
            first = eventually(lambda: step_of(browser))
            eventually(lambda: step_of(browser) not in ("", first))  # the step moves on, nobody reloads
            browser.execute_script("window.notReloaded = true")

            processes[-1].kill()
            processes[-1].wait()
            processes.append(train(runs / "llm-7"))
            eventually(lambda: "attempt 2" in text(browser, ".runs"))
            eventually(lambda: "1 without a warning" in text(browser, ".tiles"))
            assert browser.execute_script("return document.querySelectorAll('.strip i.lost').length") == 1

            browser.execute_script("document.querySelector('.runs a').click()")
            eventually(lambda: "killed without warning" in text(browser))
            eventually(lambda: browser.execute_script("return document.querySelector('tr[data-attempt=\"2\"]')"))
            eventually(lambda: "complete" in text(browser))  # its newest checkpoint was looked at
            eventually(lambda: browser.execute_script("return document.querySelectorAll('svg.chart').length") >= 1)
            processes[-1].send_signal(signal.SIGTERM)
            assert processes[-1].wait(60) == 75
            eventually(lambda: "interrupted" in text(browser, "main .card:first-child"))
            assert browser.execute_script("return window.notReloaded") is True
            assert complaints(browser) == []
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_dashboard_that_comes_back_is_found_again(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    with Dashboard(tmp_path, str(tmp_path / "runs")) as dashboard:
        browser.get(dashboard.url)
        eventually(lambda: text(browser, "#live") == "live")
    eventually(lambda: text(browser, "#live") == "reconnecting")
    assert "Traceback" not in dashboard.log.read_text()  # it had a viewer when it was told to end
    write_run(tmp_path / "runs" / "a", row(1), row(2))
    with Dashboard(tmp_path, str(tmp_path / "runs"), port=dashboard.port):
        eventually(lambda: text(browser, "#live") == "live")
        eventually(lambda: "attempt 2" in text(browser, ".runs"))  # what happened in between was asked for
        browser.get("about:blank")


@pytest.fixture
def dead_letters(tmp_path: Path) -> str:
    url = f"sqlite://{tmp_path}/work.db?queue=images"
    queue = open_queue(url, policy=RetryPolicy(max_failures=1))
    queue.enqueue((key, json.dumps({"k": key})) for key in ("plain", EVIL, "third"))
    queue.fail([Failure(lease, f"Traceback\nValueError: {EVIL}", final=True) for lease in queue.claim(9)])
    queue.close()
    return url


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def test_dead_letters_are_retried_with_the_keyboard_alone(browser: Any, tmp_path: Path, dead_letters: str) -> None:
    from selenium.webdriver.common.keys import Keys

    emulate(browser, 1280, 900)
    with Dashboard(tmp_path, "--queue", dead_letters, actions=True) as dashboard:
        browser.get(f"{dashboard.url}#/queue/{identify(dead_letters)}")
        eventually(lambda: "Retry all" in text(browser))
        assert EVIL in text(browser, "#dead")
        browser.execute_script("document.querySelector('[data-focus=\"retry-plain\"]').focus()")
        press(browser, Keys.ENTER)
        eventually(lambda: browser.execute_script("return document.getElementById('ask').open"))
        press(browser, "wrong", Keys.ENTER)
        eventually(lambda: "token is missing or wrong" in text(browser, "#ask-trouble"))
        browser.execute_script("document.querySelector('#ask input').value = ''")
        press(browser, dashboard.token, Keys.ENTER)
        eventually(lambda: not browser.execute_script("return document.getElementById('ask').open"))
        eventually(lambda: "plain" not in text(browser, "#dead"))
        assert "third" in text(browser, "#dead")
        browser.execute_script("document.querySelector('[data-focus=\"retry-all\"]').focus()")
        press(browser, Keys.ENTER)
        eventually(lambda: "Retry all 2" in text(browser, "#ask-title"))
        press(browser, Keys.ESCAPE)  # asked, and thought better of it
        assert "third" in text(browser, "#dead")
        press(browser, Keys.ENTER)  # the dialog gave the keyboard back to the button
        eventually(lambda: browser.execute_script("return document.getElementById('ask').open"))
        press(browser, Keys.ENTER)  # the token is remembered: only the question is left
        eventually(lambda: "Every item was done" in text(browser, "#dead"))
        said = complaints(browser)
        assert len(said) == 1, said  # the refused token
        assert "403" in said[0]
        stored = browser.execute_script(
            "return JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie"
        )
        assert dashboard.token not in stored
        assert "token" not in browser.current_url


def test_read_only_shows_no_buttons_that_change_anything(browser: Any, tmp_path: Path, dead_letters: str) -> None:
    with Dashboard(tmp_path, "--queue", dead_letters) as dashboard:
        browser.get(f"{dashboard.url}#/queue/{identify(dead_letters)}")
        eventually(lambda: "read-only" in text(browser))
        assert browser.execute_script("return document.querySelectorAll('main button').length") == 0


def test_names_are_text_wherever_they_come_from(browser: Any, tmp_path: Path, dead_letters: str) -> None:
    folder = tmp_path / "runs" / EVIL.replace("/", "")
    hostile = row(1, cause=EVIL, zone=f'"{EVIL}', machine="javascript:hacked=1", capacity="spot")
    write_run(folder, hostile, row(2, outcome=None, ended_at=None))
    with Dashboard(tmp_path, str(tmp_path / "runs"), "--queue", dead_letters) as dashboard:
        browser.get(dashboard.url)
        eventually(lambda: EVIL in text(browser, ".runs"))
        pages = [f"#/run/{identify(f'file://{folder}')}", f"#/queue/{identify(dead_letters)}", "#/run/<script>", "#/x"]
        for page in pages:
            browser.execute_script("location.hash = arguments[0]", page)
            eventually(lambda: text(browser))
        browser.execute_script("location.hash = arguments[0]", pages[0])
        eventually(lambda: EVIL in text(browser, "main table"))
        assert browser.execute_script("return typeof hacked") == "undefined"
        assert browser.execute_script("return document.querySelectorAll('main img, main script').length") == 0
        # And if it were markup, the browser would not take it: no HTML from strings, no inline script.
        script = "try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch (error) { return error.name }"
        assert browser.execute_script(script) == "TypeError"
        assert [line for line in complaints(browser) if "TrustedHTML" not in line] == []


def many(folder: Path) -> None:
    for number in range(30):
        write_run(
            folder / f"experiment-with-a-rather-long-name-{number:03d}", *(row(n + 1) for n in range(number % 7 + 1))
        )
    listed = tuple(CheckpointRecord(step, 1, "2026-11-15T10:00:00.000Z", size=10**9) for step in range(10_000, 0, -1))
    (folder / "big").mkdir()
    (folder / "big" / RECORD_KEY).write_bytes(encode(RunRecord("big", 1, "t", listed, (row(1),))))


def test_every_page_fits_phone_and_desk_in_light_and_dark(browser: Any, tmp_path: Path, dead_letters: str) -> None:
    many(tmp_path / "runs")
    big = identify(f"file://{tmp_path}/runs/big")
    with Dashboard(tmp_path, str(tmp_path / "runs"), "--queue", dead_letters) as dashboard:
        for width, dark in ((360, False), (1280, True)):
            emulate(browser, width, 800, dark=dark)
            browser.get(dashboard.url)
            for page in ("#/", "#/queues", f"#/run/{big}", f"#/queue/{identify(dead_letters)}"):
                browser.execute_script("location.hash = arguments[0]", page)
                eventually(lambda: browser.execute_script("return document.querySelectorAll('main .card').length > 0"))
                wide = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (width, page)
                assert unnamed(browser) == [], page
                assert browser.execute_script("return document.querySelectorAll('h1').length") == 1, page
        background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        emulate(browser, 1280, 800, dark=False)
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != background
        assert complaints(browser) == []


def test_the_fleet_says_what_waits_and_why(browser: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "llm-7", row(1))
    values = fleet_world.objects(run)
    hostile = job("ab", uid="evil", labels={"stayfast.dev/run": EVIL})
    with ApiServer() as cluster:
        fleet_world.fill(cluster, [*values, hostile])
        config = fleet_world.write_kubeconfig(tmp_path, cluster.url)
        with Dashboard(tmp_path, str(tmp_path / "runs"), "--kubeconfig", str(config)) as dashboard:
            for width, dark in ((360, True), (1280, False)):
                emulate(browser, width, 900, dark=dark)
                browser.get(dashboard.url)
                eventually(lambda: "llm-7" in text(browser, ".runs"))
                browser.execute_script("document.querySelector('nav a[data-page=\"fleet\"]').click()")
                eventually(lambda: "waiting for a machine" in text(browser))
                shown = text(browser)
                for words in ("in the queue", "its image cannot be pulled", "2 × preemption", "its machine ends in"):
                    assert words in shown, words
                assert EVIL in shown
                assert browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
                assert unnamed(browser) == []
                assert browser.execute_script("return document.querySelectorAll('h1').length") == 1
            assert browser.execute_script("return typeof hacked") == "undefined"
            browser.execute_script("document.querySelector('[data-fleet=\"llm-7\"] a').click()")
            eventually(lambda: "Time and money" in text(browser))
            browser.execute_script("location.hash = '#/fleet'")
            eventually(lambda: "sweep" in text(browser))
            cluster.tokens = set()  # nobody is let in any more
            eventually(lambda: "What stands here was seen" in text(browser), 60)
            assert "sweep" in text(browser)
            assert complaints(browser) == []


def unnamed(browser: Any) -> list[str]:
    """Controls and pictures without a name that a screen reader could say, and table heads that head nothing."""
    script = """
    const bad = [];
    const wanted = "a, button, input, select, img, svg, [role=img], [role=progressbar]";
    for (const node of document.querySelectorAll(wanted)) {
      if (node.closest("[hidden], dialog:not([open]), [aria-hidden=true]")) continue;
      const name = node.getAttribute("aria-label") ?? node.getAttribute("alt") ?? node.textContent.trim();
      if (!name && !(node.tagName === "IMG" && node.hasAttribute("alt"))) bad.push(node.outerHTML.slice(0, 120));
    }
    for (const node of document.querySelectorAll("th")) if (!node.scope) bad.push(node.outerHTML);
    for (const node of document.querySelectorAll("table")) if (!node.caption) bad.push("table");
    return bad"""
    return list(browser.execute_script(script))


def test_keyboard_goes_first_to_the_content_and_stays_where_it_was(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    emulate(browser, 1280, 900)
    write_run(tmp_path / "runs" / "a")
    with Dashboard(tmp_path, str(tmp_path / "runs")) as dashboard:
        browser.get(dashboard.url)
        eventually(lambda: "live" in text(browser, "#live"))
        press(browser, Keys.TAB)
        assert browser.execute_script("return document.activeElement.className") == "skip"
        browser.execute_script("document.querySelector('.runs a').focus()")
        write_run(tmp_path / "runs" / "a", row(1), row(2), row(3))
        write_run(tmp_path / "runs" / "b")
        eventually(lambda: "attempt 3" in text(browser, ".runs") and "b" in text(browser, ".runs"))
        assert browser.execute_script("return document.activeElement.textContent") == "a"


def test_contrast_of_text_in_both_themes() -> None:
    """WCAG AA: 4.5 to 1 for text on every ground it stands on."""
    style = (SOURCE / "stayfast/dashboard/pages/style.css").read_text()
    light = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", style.split("@media")[0]))
    dark = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", style.split('[data-theme="dark"] {')[1].split("}")[0]))
    assert set(dark) == set(light)
    pairs = [
        ("ink", "page"),
        ("ink", "card"),
        ("soft", "page"),
        ("soft", "card"),
        ("soft", "track"),
        ("soft", "idle-soft"),
    ]
    pairs += [("accent", "card"), ("accent-ink", "accent"), ("lost", "card"), ("warn", "card"), ("fail", "card")]
    pairs += [("run", "run-soft"), ("useful", "good-soft"), ("warn", "warn-soft"), ("lost", "bad-soft")]
    low = []
    for name, theme in (("light", light), ("dark", dark)):
        for front, back in pairs:
            ratio = contrast(theme[front], theme[back])
            if ratio < 4.5:
                low.append(f"{name}: {front} on {back} is {ratio:.2f}")
    assert low == []


def contrast(front: str, back: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    one, two = sorted((light(front), light(back)), reverse=True)
    return (one + 0.05) / (two + 0.05)
