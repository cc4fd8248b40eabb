"""Google's own Pub/Sub emulator as a test server: Java, on loopback, ended by its process id."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from postgres_server import free_port


def find_jar() -> str | None:
    roots = ["/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", os.path.expanduser("~/google-cloud-sdk")]
    gcloud = shutil.which("gcloud")
    if gcloud:
        roots.insert(0, str(Path(os.path.realpath(gcloud)).parent.parent))
    for root in roots:
        found = sorted(glob.glob(f"{root}/platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"))
        if found:
            return found[-1]
    return None


class PubsubServer:
    """One emulator process, with options for its Java machine."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._root = tempfile.mkdtemp(prefix="stayfast-pubsub-", dir="/tmp")
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._start()

    def _start(self) -> None:
        jar = find_jar()
        java = shutil.which("java")
        assert jar is not None
        assert java is not None
        command = [java, "-Xmx512m", *self._options, "-jar", jar, "--host=127.0.0.1", f"--port={self.port}"]
        with open(os.path.join(self._root, "log"), "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=self._root)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, Path(self._root, "log").read_text()[-2000:]
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the Pub/Sub emulator did not start within 60 s")

    def pause(self) -> None:
        """The network is cut: connections hang."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)
