"""Reads single small pieces of a model's files over HTTP: whole JSON files, and the headers of safetensors by range.

Only when the user asks for it. The token is what HF_TOKEN holds: it goes to the host that the address names and to no
other, over TLS (or to this host), and never into a message.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Self
from urllib.parse import quote

import httpx

from tuner.errors import ModelError
from tuner.runtime.environment import LOOPBACK

HUB = "https://huggingface.co"
LONGEST_HEADER = 100_000_000
"""The format's own limit, in bytes."""
FILE_LIMIT_S = 180.0
_LONGEST_JSON = 50_000_000
_FIRST_BYTES = 1 << 16
_MOST_HOPS = 5
_TIMEOUT = httpx.Timeout(20.0, connect=10.0)
_ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def hub_address(hub_id: str, revision: str | None) -> str:
    """Return where the files of a hub id lie; HF_ENDPOINT names another hub, as for the hub's own tools."""
    endpoint = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    return f"{endpoint}/{hub_id}/resolve/{quote(revision or 'main', safe='')}"


class RemoteFiles:
    """The files below one address, for as many threads as like."""

    def __init__(self, address: str) -> None:
        """Take the address of the folder.

        Raises:
            ModelError: it is no address that may be asked.

        """
        self._base = _url(address.rstrip("/") + "/")
        if self._base.userinfo:
            raise ModelError("the address of the weights holds a password", hint="set HF_TOKEN instead")
        token = os.environ.get("HF_TOKEN", "").strip()
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def whole(self, name: str) -> bytes | None:
        """Return a small file, or None when it is not there.

        Raises:
            ModelError: it cannot be read, or is no small file.

        """
        found = self._read(name, {}, _LONGEST_JSON + 1)
        if found is not None and len(found) > _LONGEST_JSON:
            raise ModelError(f"{self._base}{name} is longer than {_LONGEST_JSON // 1_000_000} MB")
        return found

    def header(self, name: str) -> bytes | None:
        """Return the JSON header of a safetensors file, or None when the file is not there. No weight is read.

        Raises:
            ModelError: it cannot be read, or is no safetensors file.

        """
        start = self._range(name, _FIRST_BYTES)
        if start is None:
            return None
        length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
        if not 2 <= length <= LONGEST_HEADER:
            raise ModelError(f"{self._base}{name} is no safetensors file", hint="its first eight bytes give no length")
        if len(start) < 8 + length:
            start = self._range(name, 8 + length) or b""
        if len(start) < 8 + length:
            raise ModelError(f"{self._base}{name} ends within its header", hint="is the upload complete?")
        return start[8 : 8 + length]

    def _range(self, name: str, count: int) -> bytes | None:
        return self._read(name, {"Range": f"bytes=0-{count - 1}"}, count)

    def _read(self, name: str, headers: Mapping[str, str], most: int) -> bytes | None:
        """Return up to `most` bytes from the beginning. A server that knows no ranges is hung up on after them."""
        url = self._base.join(quote(name))
        try:
            for _ in range(_MOST_HOPS):
                own = self._authorization if self._may_see_token(url) else {}
                with self._client.stream("GET", url, headers={**headers, **own}) as answer:
                    if answer.is_redirect:
                        url = _next(url, answer.headers.get("location", ""))
                        continue
                    if answer.status_code in _ABSENT:
                        return None
                    self._refuse(name, answer)
                    return _up_to(answer, most)
        except httpx.HTTPError as error:
            raise ModelError(
                f"{self._base}{name} cannot be read: {str(error) or type(error).__name__}",
                hint="is the network there, and HTTPS_PROXY set if it needs one?",
            ) from None
        raise ModelError(f"{self._base}{name} is redirected more than {_MOST_HOPS} times")

    def _may_see_token(self, url: httpx.URL) -> bool:
        same = (url.scheme, url.host, url.port) == (self._base.scheme, self._base.host, self._base.port)
        return same and (url.scheme == "https" or url.host in LOOPBACK)

    def _refuse(self, name: str, answer: httpx.Response) -> None:
        if answer.status_code in _DENIED:
            hint = "the model may be gated: accept its terms on its page, and set HF_TOKEN"
            raise ModelError(f"{self._base}{name} may not be read (HTTP {answer.status_code})", hint=hint)
        if answer.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise ModelError(f"{self._base}{name} cannot be read: HTTP {answer.status_code}")
        place = answer.headers.get("content-range", "bytes 0-")
        if answer.status_code == HTTPStatus.PARTIAL_CONTENT and not place.startswith("bytes 0-"):
            raise ModelError(f"{self._base}{name}: the server gave another range ({place[:40]}) than was asked for")


def _up_to(answer: httpx.Response, most: int) -> bytes:
    read = bytearray()
    limit = time.monotonic() + FILE_LIMIT_S
    for piece in answer.iter_bytes():
        read += piece
        if len(read) >= most:
            break
        if time.monotonic() > limit:
            raise httpx.ReadTimeout(f"not done after {FILE_LIMIT_S:g} s")
    return bytes(read[:most])


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ModelError(f"{text!r} is no address: {error}") from None
    if not url.host or not (url.scheme == "https" or (url.scheme == "http" and url.host in LOOPBACK)):
        raise ModelError(f"{text!r} is no https address", hint="give the address of the folder that holds config.json")
    return url


def _next(url: httpx.URL, location: str) -> httpx.URL:
    """Return where a redirect leads; never from TLS to plain HTTP."""
    try:
        target = url.join(location)
    except httpx.InvalidURL as error:
        raise ModelError(f"{url.host} redirects to what is no address: {error}") from None
    if not location or target.scheme not in ("http", "https") or (url.scheme == "https" and target.scheme == "http"):
        raise ModelError(f"{url.host} redirects to where nothing is read from")
    return target
