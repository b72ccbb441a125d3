"""The emitter contract over every emitter and every kind of plan."""

import pytest

from tests.contract.emitter_contract import EmitterContract
from tests.fakes.plans import CASES
from tuner.output.emitters import EMITTERS

pytestmark = pytest.mark.contract


@pytest.fixture(params=sorted(EMITTERS))
def emitter(request):
    return EMITTERS[request.param]


@pytest.fixture(params=sorted(CASES))
def plan(request):
    return CASES[request.param]()


class TestEmitters(EmitterContract):
    def test_the_name_is_the_key(self, emitter):
        assert EMITTERS[emitter.name] is emitter


def test_no_two_emitters_write_the_same_file():
    for build in CASES.values():
        names = [name for emitter in EMITTERS.values() for name in emitter.files(build())]
        assert len(names) == len(set(names))
