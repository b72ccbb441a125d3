"""What every engine adapter must keep. Inherit in a class named Test..., with a `case` fixture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.domain.engine import EngineConfig, LaunchSpec, ServerMetrics, Setting, StartupFacts
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind
from tuner.engines.base import Engine
from tuner.errors import FlagError, LlmtuneError

MODELS = {"local": plans.local_model(), "hub": plans.hub_model()}


@dataclass(frozen=True)
class EngineCase:
    """One adapter with what it takes to ask it anything."""

    engine: Engine
    install: EngineInstall
    good: tuple[tuple[str, Any], ...]
    """Settings that this version takes, each flag once."""
    bad: tuple[tuple[str, Any], ...]
    """Settings that it does not take."""
    reserved: tuple[str, ...] = ("host", "port", "model")
    deaths: tuple[tuple[str, int | None, FailureKind], ...] = field(default=())
    """Logs with exit codes, and the kind of failure that they tell."""

    def config(self, *pairs: tuple[str, Any], **changes: Any) -> EngineConfig:
        chosen = tuple(Setting(flag=flag, value=value, **changes) for flag, value in pairs)
        return EngineConfig(engine=self.install.engine, version=self.install.version, settings=chosen)

    def launch(self, model: ModelSpec, *pairs: tuple[str, Any], **changes: Any) -> LaunchSpec:
        return self.engine.launch(model, self.config(*pairs, **changes), self.install)


QUIET = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
logs = st.one_of(st.text(max_size=200), st.lists(st.sampled_from([
    "ERROR 01-01 00:00:00 [core.py:1] RuntimeError: x", "[TRT-LLM] [E] failed", "torch.OutOfMemoryError: CUDA out of memory",
    "INFO 01-01 00:00:00 [a.py:1] GPU KV cache size: 1,000 tokens", "Model loading took 1.5 GiB", "", "{", 'a{b="c"} 1',
]), max_size=6).map("\n".join))


class EngineContract:
    """Holds for every adapter."""

    # --- check

    def test_takes_what_its_version_has(self, case: EngineCase) -> None:
        for flag, value in case.good:
            case.engine.check(flag, value, case.install.version)

    def test_refuses_what_its_version_does_not_have_in_words(self, case: EngineCase) -> None:
        for flag, value in (*case.bad, ("no-such-flag-at-all", 1)):
            with pytest.raises(FlagError) as caught:
                case.engine.check(flag, value, case.install.version)
            assert flag.split(":")[-1].replace("-", "_") in caught.value.message.replace("-", "_")
            assert "\n" not in caught.value.message

    def test_keeps_to_itself_where_to_listen_and_what_to_serve(self, case: EngineCase) -> None:
        for flag in case.reserved:
            with pytest.raises(FlagError, match="cannot be set here"):
                case.engine.check(flag, "x", case.install.version)

    # --- launch

    @pytest.mark.parametrize("kind", MODELS)
    def test_a_launch_says_all_that_is_needed(self, case: EngineCase, kind: str) -> None:
        model = MODELS[kind]
        spec = case.launch(model, *case.good)
        assert spec.program[: len(case.install.program)] == case.install.program
        assert model.location in spec.arguments
        assert spec.model == model.location
        assert spec.model_is_local is model.is_local
        assert spec.served_name
        assert spec.health_path.startswith("/")
        assert spec.secret_env == (() if model.is_local else ("HF_TOKEN",))

    def test_where_to_listen_is_filled_in_and_nothing_else_is(self, case: EngineCase) -> None:
        spec = case.launch(MODELS["local"], *case.good)
        words = spec.command("127.0.0.1", 54321)
        assert words[: len(spec.program)] == spec.program
        marks = {file.mark for file in spec.files}
        kept = zip(words[len(spec.program) :], spec.arguments, strict=False)
        assert all(word == argument for word, argument in kept if argument not in marks)
        listening = words[len(spec.program) + len(spec.arguments) :]
        assert any("127.0.0.1" in word for word in listening)
        assert any("54321" in word for word in listening)
        assert not any("{" in word for word in listening)

    def test_a_launch_is_pure(self, case: EngineCase) -> None:
        assert case.launch(MODELS["local"], *case.good) == case.launch(MODELS["local"], *reversed(case.good))

    def test_a_launch_is_of_the_values_and_not_of_who_asked(self, case: EngineCase) -> None:
        asked = [case.launch(MODELS["local"], *case.good, source=source) for source in ("user", "trial", "baseline")]
        assert asked[0] == asked[1] == asked[2]

    def test_every_setting_shows(self, case: EngineCase) -> None:
        """Measured = emitted: a setting that the launch does not carry would be measured and not deployed."""
        bare = case.launch(MODELS["local"])
        whole = case.launch(MODELS["local"], *case.good)
        for index in range(len(case.good)):
            one = case.launch(MODELS["local"], case.good[index])
            rest = case.launch(MODELS["local"], *case.good[:index], *case.good[index + 1 :])
            assert one != bare, case.good[index]
            assert rest != whole, case.good[index]

    def test_a_launch_survives_json(self, case: EngineCase) -> None:
        spec = case.launch(MODELS["hub"], *case.good)
        assert LaunchSpec.model_validate_json(spec.model_dump_json()) == spec

    def test_a_cpu_build_reserves_no_gpu(self, case: EngineCase) -> None:
        cpu = case.install.model_copy(update={"build": "cpu"})
        assert case.engine.launch(MODELS["local"], case.config(*case.good), cpu).devices == 0
        cuda = case.install.model_copy(update={"build": "cuda"})
        assert case.engine.launch(MODELS["local"], case.config(), cuda).devices >= 1

    def test_an_image_is_never_a_floating_tag(self, case: EngineCase) -> None:
        image = case.launch(MODELS["local"]).image
        assert image is None or (":" in image and not image.endswith((":latest", ":nightly")))

    # --- footprint

    @pytest.mark.parametrize("kind", MODELS)
    def test_a_footprint_is_positive_and_pure(self, case: EngineCase, kind: str) -> None:
        for pairs in ((), case.good):
            found = case.engine.footprint(MODELS[kind], case.config(*pairs))
            assert found == case.engine.footprint(MODELS[kind], case.config(*pairs))
            assert found.devices >= 1
            for size in (found.weight_bits, found.kv_bits, found.max_sequences, found.max_context, found.batched_tokens):
                assert size is None or size > 0

    # --- reading

    def test_of_nothing_nothing_is_known(self, case: EngineCase) -> None:
        facts = case.engine.startup_facts("", "")
        assert facts == StartupFacts(resolved=facts.resolved)
        assert facts.resolved == {}
        assert case.engine.server_metrics("") == ServerMetrics()
        assert case.engine.fatal("") is None
        assert case.engine.phase("")

    def test_deaths(self, case: EngineCase) -> None:
        assert case.deaths
        for text, exit_code, kind in case.deaths:
            found = case.engine.classify(text, exit_code)
            assert found.failure is kind, (text, found)
            assert found.reason
            assert "\n" not in found.reason

    @pytest.mark.parametrize(
        ("exit_code", "kind"),
        [(None, FailureKind.HUNG), (-9, FailureKind.OUT_OF_MEMORY), (2, FailureKind.BAD_FLAG), (1, FailureKind.CRASHED),
         (-11, FailureKind.CRASHED)],
    )
    def test_a_silent_end(self, case: EngineCase, exit_code: int | None, kind: FailureKind) -> None:
        assert case.engine.classify("", exit_code).failure is kind

    @QUIET
    @given(logs, st.one_of(st.none(), st.integers(-64, 255)))
    def test_any_log_can_be_read(self, case: EngineCase, text: str, exit_code: int | None) -> None:
        found = case.engine.classify(text, exit_code)
        assert found.reason
        assert len(found.reason) <= 500
        assert isinstance(case.engine.startup_facts(text, text), StartupFacts)
        assert isinstance(case.engine.server_metrics(text), ServerMetrics)
        assert case.engine.phase(text)
        fatal = case.engine.fatal(text)
        assert fatal is None or fatal in text

    def test_a_start_may_take_longer_for_a_larger_model(self, case: EngineCase) -> None:
        small, large = (plans.local_model(weight_bytes=size) for size in (10**6, 10**12))
        times = [case.engine.start_timeout_s(model, case.config()) for model in (small, large)]
        assert 1 < times[0] < times[1]

    @QUIET
    @given(flag=st.text(max_size=12), value=st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5)))
    def test_any_setting_is_taken_or_refused_in_words(self, case: EngineCase, flag: str, value: Any) -> None:
        try:
            case.engine.check(flag, value, case.install.version)
        except LlmtuneError as error:
            assert error.message  # noqa: PT017
