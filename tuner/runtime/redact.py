"""Takes secrets out of what an engine prints, before it reaches a file.

Standard library only and light to import: the guard uses it.
"""

from __future__ import annotations

import re

LONGEST_PIECE = 65536
SHORTEST_SECRET = 6
MASK = b"[redacted]"

_TOKENS = re.compile(
    rb"(?<![A-Za-z0-9_-])(?:hf_(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{16,}|sk-(?=[A-Za-z_-]*[0-9A-Z])[A-Za-z0-9_-]{16,}"
    rb"|nvapi-[A-Za-z0-9_-]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})"
    rb"|(?<=Bearer )[A-Za-z0-9._~+/=-]{8,}"
    rb"|(?:(?<=password=)|(?<=api_key=)|(?<=api-key=))[^\s\"',;&)]{6,}"
)


class Redactor:
    """Takes secrets out of a stream of bytes: the given values, and whatever is shaped like a token.

    It works on whole lines, so a secret is found however the writes were cut.
    """

    def __init__(self, secrets: list[bytes]) -> None:
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        self._secrets = sorted((line for line in lines if len(line) >= SHORTEST_SECRET), key=len, reverse=True)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes and return what may be written now."""
        data = self._held + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - end > LONGEST_PIECE:
            # A blank ends every token. A piece without one is no log text and could hide half a secret: left out.
            blank = data.rfind(b" ", end) + 1
            if not blank:
                self._held = b""
                return self.clean(data[:end]) + b"[%d bytes without a break left out]\n" % (len(data) - end)
            end = blank
        self._held = data[end:]
        return self.clean(data[:end])

    def finish(self) -> bytes:
        """Return the last, unfinished line."""
        rest, self._held = self._held, b""
        return self.clean(rest)

    def clean(self, text: bytes) -> bytes:
        """Return `text` with every secret masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _TOKENS.sub(MASK, text)
