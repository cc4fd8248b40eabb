"""The SKUs of the Cloud Billing Catalog, page by page."""

from __future__ import annotations

import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from stayfast.errors import SettingError, StoreUnavailableError
from stayfast.model.variables import BILLING_API_KEY as KEY_VARIABLE
from stayfast.model.variables import BILLING_ENDPOINT as ENDPOINT_VARIABLE

ENDPOINT = "https://cloudbilling.googleapis.com"
SERVICE = "services/6F81-5844-456A"
MAX_PAGES, MAX_PAGE_BYTES = 100, 64 << 20


def billing_key() -> str:
    """The API key, without which there is no answer."""
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise SettingError(f"{KEY_VARIABLE} is not set", help="create an API key for cloudbilling.googleapis.com")
    return key


def read_skus(key: str) -> Iterator[dict[str, Any]]:
    """All SKUs of Compute Engine."""
    endpoint = os.environ.get(ENDPOINT_VARIABLE, ENDPOINT)
    token = ""
    for _ in range(MAX_PAGES):
        query = {"pageSize": 5000, "currencyCode": "USD", "key": key} | ({"pageToken": token} if token else {})
        page = _get(f"{endpoint}/v1/{SERVICE}/skus?{urllib.parse.urlencode(query)}", endpoint)
        skus = page.get("skus", [])
        if not isinstance(skus, list):
            raise StoreUnavailableError(f"{endpoint} answered something that is not a list of SKUs")
        yield from (sku for sku in skus if isinstance(sku, dict))
        token = str(page.get("nextPageToken") or "")
        if not token:
            return
    raise StoreUnavailableError(f"{endpoint} answered more than {MAX_PAGES} pages")


def _get(url: str, endpoint: str) -> dict[str, Any]:
    """One page. The key is in the URL, so that no message here may show the URL."""
    if not re.match(r"https?://[^/\[\]]+", endpoint):
        raise SettingError(f"{ENDPOINT_VARIABLE} is {endpoint!r}", help="write an https URL")
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            data = answer.read(MAX_PAGE_BYTES + 1)
        if len(data) > MAX_PAGE_BYTES:
            raise StoreUnavailableError(f"{endpoint} answered a page of more than {MAX_PAGE_BYTES >> 20} MiB")
        page = json.loads(data)
    except urllib.error.HTTPError as error:
        cure = f"check the key in {KEY_VARIABLE}" if error.code in (400, 401, 403) else "try again later"
        raise StoreUnavailableError(f"{endpoint} answered {error.code}", help=cure) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise StoreUnavailableError(f"{endpoint} cannot be read ({reason})", help="check the network") from None
    if not isinstance(page, dict):
        raise StoreUnavailableError(f"{endpoint} answered something that is not a page of SKUs")
    return page
