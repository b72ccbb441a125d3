"""Signals become KeyboardInterrupt, and none is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tuner.cli.signals import ENDING, interruptible

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_every_ending_signal_interrupts(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)


def test_a_signal_that_came_inside_a_finalizer_is_not_lost() -> None:
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    with interruptible() as raise_again:
        raise_again()
        del_me = Finalized()
        del del_me
        with pytest.raises(KeyboardInterrupt):
            raise_again()


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with interruptible():
        assert [signal.getsignal(number) for number in ENDING] != before
    assert [signal.getsignal(number) for number in ENDING] == before


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible() as raise_again:
        os.kill(os.getpid(), signal.SIGHUP)
        raise_again()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
