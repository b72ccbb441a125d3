"""Server-sent events, read from bytes as they come."""

from __future__ import annotations

LONGEST_EVENT = 16 * 1024 * 1024


class EventTooLongError(ValueError):
    """An event that does not end: this is no event stream."""


class SseParser:
    """Splits a byte stream into the data of its events.

    Takes LF, CRLF and CR line ends, `data:` with or without a blank, comments (`: ping`), events of several lines, and
    events split or merged over reads (https://html.spec.whatwg.org/multipage/server-sent-events.html). `error` holds
    the data of the first event that was named `error`.
    """

    __slots__ = ("_rest", "error")

    def __init__(self) -> None:
        self._rest = b""
        self.error: bytes | None = None

    @property
    def open(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete, in order.

        Raises:
            EventTooLongError: after 16 MiB without an end of an event.

        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if b"\r" in data:
            data = self._unify_line_ends(data)
        parts = data.split(b"\n\n")
        rest = parts.pop()
        if rest:
            self._rest = rest + self._rest
            if len(self._rest) > LONGEST_EVENT:
                raise EventTooLongError
        return [payload for part in parts if (payload := self._payload(part))]

    def flush(self) -> list[bytes]:
        """Return the event that the end of the stream left open, if it holds data."""
        rest, self._rest = self._rest.rstrip(b"\r\n"), b""
        payload = self._payload(rest)
        return [payload] if payload else []

    def _unify_line_ends(self, data: bytes) -> bytes:
        if data.endswith(b"\r"):  # its LF may be in the next read
            data, self._rest = data[:-1], b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _payload(self, event: bytes) -> bytes:
        if event.startswith(b"data:") and b"\n" not in event:
            return event[6:] if event[5:6] == b" " else event[5:]
        lines: list[bytes] = []
        name = b""
        for line in event.split(b"\n"):
            key, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if key == b"data":
                lines.append(value)
            elif key == b"event":
                name = value
        payload = b"\n".join(lines)
        if name == b"error" and self.error is None:
            self.error = payload
        return payload
