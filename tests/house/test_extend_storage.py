"""A store, a bucket cloud, a queue and a sink of another package, found by their URLs and really used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stayfast
from stayfast.errors import UrlError
from stayfast.storage.stores.open_store import find_bucket, open_store

TOY = """
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.sqlite import SqliteSink
from stayfast.errors import ConflictError, KeyMissingError
from stayfast.storage.stores.bucket_client import BucketProvider, ObjectInfo
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry


class ToyStore(MemoryStore):
    example = "toy://name"
    writes = 0

    def put(self, key, data, *, if_generation=None):
        ToyStore.writes += 1
        return super().put(key, data, if_generation=if_generation)


class ToyClient:
    def __init__(self, bucket):
        self.inner = MemoryStore(f"memory://toy-cloud-{bucket}")

    def get(self, name, offset, length):
        return self.inner.get(name, offset=offset, length=length)

    def get_into(self, name, buffer, offset):
        return self.inner.read_into(name, buffer, offset=offset)

    def put(self, name, data, if_generation):
        return self.inner.put(name, data, if_generation=if_generation)

    def head(self, name):
        blob = self.inner.get(name)
        return ObjectInfo(blob.generation, len(blob.data))

    def list_page(self, prefix, token):
        return list(self.inner.keys(prefix)), ""

    def delete(self, name):
        self.inner.delete(name)

    def close(self):
        pass


CLOUD = BucketProvider("toycloud", "toycloud://bucket/prefix", "ask the toy", "0", ("TOY_ENDPOINT",), False, ToyClient)


class ToyQueue(SqliteQueue):
    example = "toyqueue:///path?queue=name"

    @classmethod
    def open_url(cls, url, *, sink, policy, create):
        return super().open_url("sqlite" + url[len("toyqueue"):], sink=sink, policy=policy, create=create)


class ToySink(SqliteSink):
    example = "toysink:///path?table=name"

    @classmethod
    def open_url(cls, url, *, create):
        return super().open_url("sqlite" + url[len("toysink"):], create=create)
"""
ENTRY_POINTS = """\
[stayfast.stores]
toy = toy_places:ToyStore
toycloud = toy_places:CLOUD
[stayfast.queues]
toyqueue = toy_places:ToyQueue
[stayfast.sinks]
toysink = toy_places:ToySink
"""
ENTRY = "from stayfast.cli.main import entry; entry()"


@pytest.fixture
def toy_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    metadata = folder / "toy_places-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "toy_places.py").write_text(TOY)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-places\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.parametrize("url", ["toy://runs", "toycloud://bucket/runs"])
@pytest.mark.usefixtures("toy_package")
def test_a_run_saves_to_a_store_of_another_package_and_resumes(url: str) -> None:
    with pytest.raises(stayfast.Interrupted), stayfast.run(url, 6) as run:
        for step in run.steps():
            if step == 2:
                run.interrupt("enough")
    with stayfast.run(url, 6) as run:
        assert list(run.steps()) == [3, 4, 5]
    assert [entry.key for entry in open_store(url).keys("HEAD")] == ["HEAD.json"]


@pytest.mark.usefixtures("toy_package")
def test_a_cloud_of_another_package_is_a_bucket_and_an_unknown_scheme_lists_it() -> None:
    assert find_bucket("toycloud://bucket") is not None
    assert find_bucket("toy://runs") is None
    with pytest.raises(UrlError) as refused:
        open_store("nothing://x")
    assert "gs://bucket/prefix" in str(refused.value)
    assert "toycloud://bucket/prefix" in str(refused.value)


def test_a_queue_and_a_sink_of_another_package_carry_a_batch(toy_package: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import stayfast\n@stayfast.task\ndef work(batch):\n    return batch\n")
    (tmp_path / "items.jsonl").write_text("".join(json.dumps({"id": f"k{number}"}) + "\n" for number in range(7)))
    places = ("--queue", f"toyqueue://{tmp_path}/work.db", "--sink", f"toysink://{tmp_path}/out.db?table=done")

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", ENTRY, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            env={**os.environ, "PYTHONPATH": str(toy_package), "STAYFAST_OUTCOME_FILE": os.devnull},
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("enqueue", *places, "items.jsonl")
    assert json.loads(run("work", "job:work", *places, "--output", "json"))["done"] == 7
    assert json.loads(run("audit", *places, "--output", "json"))["recorded"] == 7
