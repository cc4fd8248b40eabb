"""A real PostgreSQL server for tests: its own directory, its own port on loopback, not run as root."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


def find_binaries() -> str | None:
    """The directory with initdb and postgres, newest version first."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)
    if found:
        return os.path.dirname(found[0])
    initdb = shutil.which("initdb")
    return os.path.dirname(os.path.realpath(initdb)) if initdb else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """initdb, start, stop, restart; every command is bounded in time."""

    def __init__(self) -> None:
        binaries = find_binaries()
        assert binaries is not None
        self._binaries = binaries
        self.root = Path(tempfile.mkdtemp(prefix="stayfast-pg-", dir="/tmp"))
        self.port = free_port()
        self._user = None if os.getuid() else next(n for n in ("postgres", "nobody") if _exists(n))
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self.root, entry.pw_uid, entry.pw_gid)
        self.data = self.root / "data"
        self._run("initdb", "-D", str(self.data), "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.root} -c max_connections=60"
        )
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.root / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is the crash: no shutdown checkpoint, recovery at the next start."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def close(self) -> None:
        try:
            self.stop("immediate")
        except subprocess.CalledProcessError:
            pass
        shutil.rmtree(self.root, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [os.path.join(self._binaries, program), *arguments]
        if self._user:
            command = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", *command]
            if self._user == "nobody":
                command[2] = "--regid=nogroup"
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "LC_ALL": "C"}
        with open(self.root / "tool.log", "ab") as log:
            subprocess.run(
                command,
                check=True,
                timeout=60,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd="/",
                env=environment,
            )


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
