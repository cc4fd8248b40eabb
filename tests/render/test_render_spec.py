"""The fields that rendering added to the workload file: read strictly, in the schema, and said once."""

from __future__ import annotations

import pytest
from render_cases import TRAIN

from stayfast.capacity.spec import json_schema, read_spec
from stayfast.errors import DocumentError

FULL = """\
volume:
  kind: filestore
  path: /mnt/shared
  size: 2TiB
service_account: trainer@project.iam.gserviceaccount.com
"""


def test_the_fields_are_read():
    spec = read_spec(TRAIN + FULL, "w.yaml")
    assert (spec.volume_kind, spec.volume_path, spec.volume_bytes) == ("filestore", "/mnt/shared", 2 * 2**40)
    assert spec.service_account == "trainer@project.iam.gserviceaccount.com"


def test_without_them_nothing_is_mounted():
    spec = read_spec(TRAIN, "w.yaml")
    assert (spec.volume_kind, spec.volume_bytes, spec.volume_bucket, spec.service_account) == (None, None, None, None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("volume: {kind: filestor}\n", "write filestore"),
        ("volume: {}\n", "kind is missing"),
        ("volume: {kind: gcsfuse, bucket: 'gs://b'}\n", "volume.bucket"),
        ("volume: {kind: gcsfuse, bucket: 'B A D'}\n", "volume.bucket"),
        ("volume: {kind: filestore, path: relative}\n", "volume.path"),
        ("volume: {kind: filestore, path: '/a b'}\n", "volume.path"),
        ("volume: {kind: filestore, size: big}\n", "a size such as"),
        ("volumes: {kind: filestore}\n", "write volume"),
        ("service_account: me@example.com\n", "service_account"),
        ("service_account: 'x; rm -rf /@y.gserviceaccount.com'\n", "service_account"),
    ],
)
def test_mistakes_are_named_with_their_place(more, said):
    with pytest.raises(DocumentError) as caught:
        read_spec(TRAIN + more, "w.yaml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("w.yaml:")


def test_the_schema_for_editors_has_them():
    properties = json_schema()["properties"]
    assert properties["volume"]["properties"]["kind"]["enum"] == ["filestore", "gcsfuse", "regional-disk"]
    assert properties["volume"]["additionalProperties"] is False
    assert "service_account" in properties
