"""From a finished exchange to its record."""

from __future__ import annotations

from tuner.domain.load_record import RequestRecord
from tuner.load.client import Exchange


def to_record(exchange: Exchange, now_ns: int, *, open_loop: bool) -> RequestRecord:
    """Turn a finished exchange into its record."""
    request, reply = exchange.request, exchange.reply
    tokens = reply.tokens()
    error = reply.error(tokens)
    sent = exchange.sent_ns
    return RequestRecord(
        id=request.id, group=request.group, warmup=request.warmup, asked_input_tokens=request.input_tokens,
        asked_output_tokens=request.output_tokens, scheduled_ns=exchange.scheduled_ns,
        start_ns=exchange.scheduled_ns if open_loop or sent is None else sent, sent_ns=sent, end_ns=now_ns,
        chunk_ns=tokens.at_ns, chunk_tokens=tokens.counts, input_tokens=reply.input_tokens,
        output_tokens=tokens.total, from_usage=reply.last_usage is not None and not tokens.mismatch,
        count_mismatch=tokens.mismatch, finish_reason=reply.finish_reason, status=reply.status,
        error=None if error is None else error[0], detail="" if error is None else error[1],
        session=request.session, answer_ns=reply.answer_ns, retries=exchange.retries,
    )
