"""Make the pictures of docs/images again, from real runs under real signals: python tools/make_screenshots.py

Needs chromium, chromedriver and selenium (the test extra). ``--all FOLDER`` also takes every page in light, dark and at
phone width into that folder, for looking at them. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT / "src", ROOT / "tests", ROOT / "tests" / "dashboard"):
    sys.path.insert(0, str(folder))

import fleet_world  # noqa: E402 - the path must be set first
from dashboard_server import Dashboard, environment  # noqa: E402
from real_browser import emulate, eventually, open_browser, text  # noqa: E402

from servers.api_server import ApiServer  # noqa: E402
from stayfast.batch.queue.open_queue import open_queue  # noqa: E402
from stayfast.batch.queue.protocol import Failure, RetryPolicy  # noqa: E402
from stayfast.dashboard.run_view import identify  # noqa: E402

RUNS = {
    "llm-7b-pretrain": ("us-central1-a", 6000),
    "ranker-v3": ("us-central1-c", 700),
    "vision-ablation-2": ("us-central1-f", 500),
}
SPEC = """\
name: {name}
kind: train
image: us-docker.pkg.dev/p/r/t:v1
command: [python, train.py]
accelerator: {{type: h100, count: 8}}
work: {{hours: 48}}
state: {{size: 14GB, checkpoints: "file://{runs}/{name}"}}
location: {{region: us-central1}}
"""


def start(runs: Path, name: str) -> subprocess.Popen[bytes]:
    """The demo's training program, as one attempt of a run."""
    zone, steps = RUNS[name]
    log = str(runs.parent / f"{name}.log")
    more = {"STAYFAST_USD_PER_HOUR": "29.4", "STAYFAST_CAPACITY": "spot", "STAYFAST_DEMO_PAUSE": "0.02"}
    more |= {"STAYFAST_ZONE": zone, "STAYFAST_MACHINE": f"gke-h100-{zone[-1]}-{random.getrandbits(16):04x}"}
    command = [sys.executable, "-m", "stayfast.proof.demo.training", f"file://{runs}/{name}", str(steps), log]
    return subprocess.Popen(command, env=environment(**more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def storm(runs: Path, seconds: float, seed: int = 7) -> Iterator[None]:
    """All runs, with SIGTERM and SIGKILL from time to time; at the end one is left running."""
    chance = random.Random(seed)
    processes = {name: start(runs, name) for name in RUNS}
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(1.0, 2.2))
            name = chance.choice(list(RUNS))
            process = processes[name]
            if process.poll() is None:
                process.send_signal(chance.choice((signal.SIGTERM, signal.SIGKILL)))
                process.wait(30)
                time.sleep(chance.uniform(0.3, 1.2))  # no machine for a while
            if process.returncode != 0:
                processes[name] = start(runs, name)
        yield
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def dead_letters(folder: Path) -> str:
    """A queue with work done, work left, and some that failed."""
    url = f"sqlite://{folder}/captions.db?queue=captions"
    queue = open_queue(url, policy=RetryPolicy(max_failures=1))
    queue.enqueue((f"image-{number:05d}", json.dumps({"image": f"gs://data/{number}.jpg"})) for number in range(4000))
    queue.complete(queue.claim(2950))
    leases = queue.claim(5)
    reason = "Traceback (most recent call last):\n  …\nPIL.UnidentifiedImageError: cannot identify image file"
    queue.fail([Failure(lease, reason, final=True) for lease in leases])
    queue.claim(120)
    return url


def shoot(browser: Any, path: Path, width: int, height: int, *, dark: bool = False) -> None:
    """The page as it stands, after its transitions."""
    emulate(browser, width, height, dark=dark)
    time.sleep(1.2)
    browser.save_screenshot(str(path))
    print(path)


def visit(browser: Any, dashboard: Dashboard, page: str, words: str) -> None:
    browser.get("about:blank")
    browser.get(f"{dashboard.url}{page}")
    eventually(lambda: words in text(browser, "body"))


def world(folder: Path, browser: Any, images: Path, everything: Path | None) -> None:
    runs = folder / "runs"
    runs.mkdir()
    for name in RUNS:
        (folder / f"{name}.yaml").write_text(SPEC.format(runs=runs, name=name))
    queue = dead_letters(folder)
    with ApiServer() as cluster, storm(runs, 40):
        fleet_world.fill(cluster, fleet_world.objects(f"file://{runs}/llm-7b-pretrain"))
        config = fleet_world.write_kubeconfig(folder, cluster.url)
        given = ["--queue", queue, "--kubeconfig", str(config)]
        given += [word for name in RUNS for word in ("-f", str(folder / f"{name}.yaml"))]
        with Dashboard(folder, str(runs), *given, actions=True) as dashboard:
            run = identify(f"file://{runs}/llm-7b-pretrain")
            pages = {
                "overview": ("", "ranker-v3"),
                "run": (f"#/run/{run}", "Time and money"),
                "fleet": ("#/fleet", "waiting for a machine"),
                "queues": ("#/queues", "captions"),
                "queue": (f"#/queue/{identify(queue)}", "Dead letters"),
            }
            for name, height in (("overview", 830), ("run", 1330), ("fleet", 1250)):
                emulate(browser, 1280, height)
                visit(browser, dashboard, *pages[name])
                shoot(browser, images / f"dashboard-{name}.png", 1280, height)
            visit(browser, dashboard, *pages["overview"])
            shoot(browser, images / "dashboard-phone.png", 390, 844, dark=True)
            if everything is not None:
                everything.mkdir(parents=True, exist_ok=True)
                for name, (page, words) in pages.items():
                    visit(browser, dashboard, page, words)
                    for kind, width in (("desk", 1280), ("phone", 390)):
                        for dark in (False, True):
                            emulate(browser, width, 900, dark=dark)
                            high = browser.execute_script("return document.documentElement.scrollHeight")
                            shade = "dark" if dark else "light"
                            shoot(browser, everything / f"{name}-{kind}-{shade}.png", width, min(4000, high), dark=dark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", metavar="FOLDER")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page in every form, too")
    options = parser.parse_args()
    os.environ["BROWSER_REQUIRED"] = "1"
    browser = open_browser()
    folder = Path(tempfile.mkdtemp(prefix="stayfast-pictures-"))
    try:
        world(folder, browser, options.into, options.all)
    finally:
        browser.quit()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
