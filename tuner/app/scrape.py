"""One scrape of a server's metrics."""

from __future__ import annotations

import httpx

from tuner.runtime.loopback import loopback_client

_TIMEOUT = httpx.Timeout(5.0)


def scrape(url: str, api_key: str | None = None, path: str = "/metrics") -> str:
    """Return the metrics of the server at `url`, in its engine's own form, or nothing when it has none."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
    plain = url.startswith("http://")
    client = loopback_client(url, timeout=_TIMEOUT, headers=headers) if plain else httpx.Client(
        base_url=url, timeout=_TIMEOUT, headers=headers, trust_env=False
    )
    try:
        with client:
            answer = client.get(path)
    except httpx.HTTPError:
        return ""
    return answer.text if answer.status_code == 200 else ""
