"""HTTP to a server of our own on this host."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx

SHORT = httpx.Timeout(5.0, connect=1.0)
# Plain HTTP needs no certificates, and reading the machine's costs a sixth of a second for each client.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def loopback_client(
    url: httpx.URL | str, *, timeout: httpx.Timeout = SHORT, headers: Mapping[str, str] | None = None
) -> httpx.Client:
    """Return a client for `url` (close it, or use it in a `with`) that no proxy or netrc of the shell reaches into."""
    return httpx.Client(base_url=url, timeout=timeout, headers=headers, trust_env=False, verify=_NO_CERTIFICATES)
