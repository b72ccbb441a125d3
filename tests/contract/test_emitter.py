"""The emitter contract over every emitter and every kind of plan."""

from functools import cache

import pytest

from tests.contract.emitter_contract import EmitterContract
from tests.fakes.cases import CASES as GOLDEN
from tuner.output.emitters import EMITTERS

pytestmark = pytest.mark.contract

CASES = {name: build for name, build in GOLDEN.items() if name.removesuffix("-all") == name}
"""The same plans are golden in every format too; once is enough here."""


@pytest.fixture(params=sorted(EMITTERS))
def emitter(request):
    return EMITTERS[request.param]


@cache
def built(case):
    return CASES[case]()


@pytest.fixture(params=sorted(CASES))
def plan(request):
    return built(request.param)


class TestEmitters(EmitterContract):
    def test_the_name_is_the_key(self, emitter):
        assert EMITTERS[emitter.name] is emitter


def test_no_two_emitters_write_the_same_file():
    for build in CASES.values():
        names = [name for emitter in EMITTERS.values() for name in emitter.files(build())]
        assert len(names) == len(set(names))
