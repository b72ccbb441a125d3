"""The launchers: the contract for each, and for processes that nothing is ever left, whoever dies and however."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.launcher_contract import LauncherContract, become_ready, nobody_answers, wait_until
from tests.fakes import fake_engine
from tests.fakes.fake_launcher import Death, FakeLauncher
from tuner.domain.engine import LaunchSpec
from tuner.engines.vllm import VllmEngine
from tuner.errors import EngineError, OutputError, PortError
from tuner.runtime import ready, tree
from tuner.runtime.base import HANDLE_FILE, Handle
from tuner.runtime.launchers import LAUNCHERS
from tuner.runtime.process import ProcessLauncher, ProcessServer
from tuner.runtime.processes import process_table
from tuner.runtime.ready import NotReady, Ready, wait_ready

pytestmark = [pytest.mark.contract, pytest.mark.skipif(sys.platform != "linux", reason="engines are started on Linux")]

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "fakes" / "fake_engine.py"


def spec_of(*faults: str, secret_env: tuple[str, ...] = (), env: dict[str, str] | None = None) -> LaunchSpec:
    arguments = ["some/model", "--served-model-name", "m", *(word for fault in faults for word in ("--fault", fault))]
    return LaunchSpec(
        program=(sys.executable, str(FAKE), "serve"),
        arguments=tuple(arguments),
        bind=("--host", "{host}", "--port", "{port}"),
        model="some/model",
        model_is_local=True,
        served_name="m",
        secret_env=secret_env,
        env=env or {},
    )


def tree_pids(server: ProcessServer) -> set[int]:
    handle = server.handle
    return {row.pid for row in tree.tree_of((handle.guard_pid, handle.guard_created))}


def living(pids: set[int]) -> set[int]:
    table = process_table()
    return {pid for pid in pids if pid in table and table[pid].state not in "ZX"}


class TestProcessLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> ProcessLauncher:
        return ProcessLauncher(grace_s=5.0)

    @pytest.fixture
    def spec(self) -> LaunchSpec:
        return spec_of()

    @pytest.fixture
    def dying_spec(self) -> LaunchSpec:
        return spec_of("slow-start:60", "say:last words", "exit:3@0.3")


class TestFakeLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> FakeLauncher:
        return FakeLauncher(die=lambda spec: Death(3, "last words") if "--die" in spec.arguments else None)

    @pytest.fixture
    def spec(self) -> LaunchSpec:
        return spec_of()

    @pytest.fixture
    def dying_spec(self) -> LaunchSpec:
        return spec_of().model_copy(update={"arguments": ("some/model", "--die")})


def test_launchers_are_listed_by_their_names():
    assert {name: make().name for name, make in LAUNCHERS.items()} == {name: name for name in LAUNCHERS}


class TestTrees:
    def test_children_and_orphans_go_with_the_engine(self, tmp_path: Path):
        with ProcessLauncher().start(spec_of("spawn-orphans:2", "spawn-children:2"), tmp_path) as server:
            assert isinstance(become_ready(server, spec_of()), Ready)
            pids = tree_pids(server)
            assert len(pids) == 6  # guard, engine, two of each
        assert living(pids) == set()
        assert server.teardown is not None
        assert not server.teardown.forced

    def test_sigterm_is_tried_first_and_sigkill_is_the_end(self, tmp_path: Path):
        spec = spec_of("ignore-sigterm", "spawn-orphans:1", "spawn-children:1")
        with ProcessLauncher(grace_s=0.3).start(spec, tmp_path) as server:
            become_ready(server, spec)
            pids = tree_pids(server)
        assert living(pids) == set()
        assert server.exit_code() == -signal.SIGKILL
        assert server.teardown is not None
        assert server.teardown.forced
        assert server.teardown.clean

    def test_a_polite_engine_is_not_killed(self, tmp_path: Path):
        with ProcessLauncher().start(spec_of(), tmp_path) as server:
            become_ready(server, spec_of())
        assert server.exit_code() == 0
        assert server.teardown is not None
        assert not server.teardown.forced

    def test_survivors_of_a_dead_engine_are_ended_while_we_watch(self, tmp_path: Path):
        spec = spec_of("spawn-orphans:2", "spawn-children:1", "exit:3@1")
        with ProcessLauncher(grace_s=1.0).start(spec, tmp_path) as server:
            become_ready(server, spec)
            pids = tree_pids(server)
            assert wait_until(lambda: server.exit_code() == 3)
            assert wait_until(lambda: not living(pids)), "orphans of a dead engine keep its memory"

    def test_a_child_that_keeps_the_port_is_not_left(self, tmp_path: Path):
        with ProcessLauncher(grace_s=1.0).start(spec_of("claim-and-leave"), tmp_path) as server:
            assert wait_until(lambda: server.exit_code() == 0)
        assert server.teardown is not None
        assert server.teardown.clean
        assert nobody_answers(server.handle)

    def test_ctrl_c_in_the_teardown_ends_the_engine_at_once(self, tmp_path: Path):
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=["ignore-sigterm"], grace=60.0)
        with running(script) as process:
            handle = read_handle(tmp_path)
            assert wait_until(lambda: not nobody_answers(handle))
            process.send_signal(signal.SIGINT)  # leaves the block
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)  # in the grace of 60 s
            assert process.wait(20) != 0
            assert tree.leftovers(handle) == []

    def test_output_without_end_does_not_block(self, tmp_path: Path):
        with ProcessLauncher(grace_s=5.0).start(spec_of("flood@0.5"), tmp_path) as server:
            assert isinstance(become_ready(server, spec_of()), Ready)
            assert wait_until(lambda: server.log_path.stat().st_size > 200_000)
        assert server.teardown is not None
        assert server.teardown.clean


CHILD_SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.contract.test_launcher import spec_of
from tuner.runtime.process import ProcessLauncher
with ProcessLauncher(grace_s={grace}).start(spec_of(*{faults!r}), Path({folder!r})) as server:
    print("started", flush=True)
    time.sleep(600)
"""


@contextmanager
def running(script: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def read_handle(folder: Path) -> Handle:
    return Handle.model_validate_json((folder / HANDLE_FILE).read_text())


class TestDeathOfLlmtune:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
    def test_nothing_is_left(self, tmp_path: Path, number: signal.Signals):
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=["spawn-orphans:1"], grace=5.0)
        with running(script) as process:
            handle = read_handle(tmp_path)
            assert wait_until(lambda: not nobody_answers(handle))
            pids = {row.pid for row in tree.leftovers(handle)}
            assert len(pids) == 3  # guard, engine, orphan
            process.send_signal(number)
            process.wait()
            assert wait_until(lambda: not living(pids))
            assert nobody_answers(handle)

    def test_nothing_is_left_of_an_engine_that_ignores_sigterm(self, tmp_path: Path):
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=["ignore-sigterm"], grace=0.5)
        with running(script) as process:
            handle = read_handle(tmp_path)
            assert wait_until(lambda: not nobody_answers(handle))
            pids = {row.pid for row in tree.leftovers(handle)}
            process.kill()
            process.wait()
            assert wait_until(lambda: not living(pids))

    def test_a_fork_of_llmtune_does_not_keep_the_engine_alive(self, tmp_path: Path):
        fork = "import os; child = os.fork(); child or (os.close(1), time.sleep(60), os._exit(0)); print(child, flush=True)"
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=[], grace=1.0)
        script = script.replace('print("started", flush=True)', f'print("started", flush=True); {fork}')
        with running(script) as process:
            assert process.stdout is not None
            fork_pid = int(process.stdout.readline())
            handle = read_handle(tmp_path)
            process.kill()
            process.wait()
            try:
                assert wait_until(lambda: not living({handle.pid, handle.guard_pid or 0}))
                assert living({fork_pid})
            finally:
                os.kill(fork_pid, signal.SIGKILL)

    def test_nothing_is_left_where_the_system_has_no_process_descriptors(self, tmp_path: Path):
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=["spawn-orphans:1"], grace=1.0)
        old_system = "import os; del os.pidfd_open; from tuner.runtime import process\n"
        old_system += "process._GUARD = 'import os; del os.pidfd_open; ' + process._GUARD\nwith Process"
        with running(script.replace("with Process", old_system)) as process:
            handle = read_handle(tmp_path)
            assert wait_until(lambda: not nobody_answers(handle))
            pids = {row.pid for row in tree.leftovers(handle)}
            assert len(pids) == 3
            process.kill()
            process.wait()
            assert wait_until(lambda: not living(pids))


class TestReap:
    def test_after_the_guard_and_llmtune_were_killed(self, tmp_path: Path):
        faults = ["spawn-orphans:1", "spawn-children:1", "spawn-nameless:1"]
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=faults, grace=5.0)
        with running(script) as process:
            handle = read_handle(tmp_path)
            assert wait_until(lambda: not nobody_answers(handle))
            pids = {row.pid for row in tree.leftovers(handle)}
            os.kill(process.pid, signal.SIGSTOP)  # it must not clean up while we look
            assert handle.guard_pid is not None
            os.kill(handle.guard_pid, signal.SIGKILL)
            assert wait_until(lambda: handle.pid not in living(pids)), "the kernel ends the engine with its guard"
            assert len(living(pids)) == 3
            assert ProcessLauncher().reap(handle) is False, "its llmtune still lives"
            process.kill()
            process.wait()
            assert ProcessLauncher().reap(handle) is True
            assert living(pids) == set()
            assert ProcessLauncher().reap(handle) is False

    def test_while_the_guard_hangs(self, tmp_path: Path):
        script = CHILD_SCRIPT.format(root=str(ROOT), folder=str(tmp_path), faults=[], grace=1.0)
        with running(script) as process:
            handle = read_handle(tmp_path)
            pids = {handle.pid, handle.guard_pid or 0}
            os.kill(handle.guard_pid or 0, signal.SIGSTOP)
            process.kill()
            process.wait()
            assert ProcessLauncher(grace_s=0.5).reap(handle) is True
            assert wait_until(lambda: not living(pids))

    def test_the_same_process_cleans_up_after_a_dead_guard(self, tmp_path: Path):
        spec = spec_of("spawn-orphans:1")
        with ProcessLauncher(grace_s=1.0).start(spec, tmp_path) as server:
            become_ready(server, spec)
            pids = tree_pids(server)
            assert server.handle.guard_pid is not None
            os.kill(server.handle.guard_pid, signal.SIGKILL)
            assert wait_until(lambda: server.exit_code() == -signal.SIGKILL)
            assert "guard" in str(server.fault())
            result = become_ready(server, spec)
            assert isinstance(result, NotReady)
            assert result.kind == "machine"
        assert living(pids) == set()
        assert server.teardown is not None
        assert server.teardown.clean

    @pytest.mark.parametrize("change", ["created", "boot"])
    def test_a_reused_pid_is_not_harmed(self, tmp_path: Path, change: str):
        with ProcessLauncher().start(spec_of(), tmp_path) as server:
            pass
        # A stranger sits where the dead engine's and guard's numbers were, as the leader of a session, too.
        stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
        row = process_table()[stranger.pid]
        same = {"pid": stranger.pid, "guard_pid": stranger.pid, "created": row.created, "guard_created": row.created}
        other = {"boot": "another-boot"} if change == "boot" else {"created": row.created - 1, "guard_created": row.created - 1}
        try:
            assert ProcessLauncher().reap(server.handle.model_copy(update={**same, **other})) is False
            assert stranger.poll() is None
        finally:
            stranger.kill()
            stranger.wait()


class TestReadiness:
    @pytest.mark.parametrize(
        ("faults", "kind", "code", "says"),
        [
            (["slow-start:60", "oom@0.3"], "exited", 1, "Engine core initialization failed"),
            (["slow-start:60", "killed@0.3"], "exited", -9, "exit code -9"),
            (["argparse-error"], "exited", 2, "exit code 2"),
            (["slow-start:60", "fatal-line-but-alive@0.3"], "fatal_line", None, "Engine core initialization failed"),
            (["stall", "fatal-line-but-alive@0.6"], "fatal_line", None, "Engine core initialization failed"),
            (["die-after-requests:1"], "exited", 1, "exit code 1"),
            (["wrong-model"], "wrong_model", None, "somebody-elses-model"),
            (["hang"], "timeout", None, "nothing listens"),
            (["unhealthy"], "timeout", None, "503"),
            (["stall"], "timeout", None, "no completion"),
            (["no-answer"], "no_answer", None, "500"),
            (["empty-answer"], "no_answer", None, "200"),
        ],
    )
    def test_every_way_not_to_become_ready_has_its_name(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        faults: list[str],
        kind: str,
        code: int | None,
        says: str,
    ):
        monkeypatch.setattr(ready, "REFUSAL_LIMIT_S", 0.5)
        monkeypatch.setattr(ready, "LAST_WORDS_S", 0.5)
        limit = 2.0 if kind == "timeout" else 60.0
        with ProcessLauncher(grace_s=2.0).start(spec_of(*faults), tmp_path) as server:
            result = become_ready(server, spec_of(), timeout_s=limit)
            assert isinstance(result, NotReady)
            assert (result.kind, result.exit_code) == (kind, code)
            assert says in result.detail
            assert result.seconds < 30
        assert server.teardown is not None
        assert server.teardown.clean

    def test_up_d05_healthy_is_not_ready(self, tmp_path: Path):
        """A server whose /health answers early is ready only when a completion comes."""
        started = time.monotonic()
        with ProcessLauncher().start(spec_of("early-health:1.5"), tmp_path) as server:
            result = become_ready(server, spec_of(), timeout_s=60)
            assert isinstance(result, Ready)
            assert time.monotonic() - started > 1.5

    def test_phases_are_told_as_the_log_grows(self, tmp_path: Path):
        heard: list[str] = []
        engine = VllmEngine()
        with ProcessLauncher().start(spec_of("slow-start:0.5"), tmp_path) as server:
            result = wait_ready(
                server, spec_of(), timeout_s=60, on_phase=heard.append, fatal=engine.fatal, phase=engine.phase
            )
        assert isinstance(result, Ready)
        assert 0 < result.answer_s <= result.seconds
        assert heard == list(dict.fromkeys(heard)), "a phase is told once"
        assert heard[-1] == "listening"
        assert "loading weights" in heard


class TestPorts:
    def test_a_port_that_is_taken_is_not_chosen(self, tmp_path: Path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            busy = taken.getsockname()[1]
            with (
                pytest.raises(PortError, match=str(busy)),
                ProcessLauncher(ports=[busy]).start(spec_of(), tmp_path / "1"),
            ):
                pass
            assert not (tmp_path / "1").exists()

    def test_a_foreign_server_on_the_port_is_not_taken_for_ours(self, tmp_path: Path):
        spec = spec_of("slow-start:60")
        with ProcessLauncher().start(spec, tmp_path) as server:
            foreign = subprocess.Popen(
                [sys.executable, str(FAKE), "serve", "m", "--port", str(server.handle.port)], stdout=subprocess.DEVNULL
            )
            try:
                result = become_ready(server, spec, timeout_s=30)
                assert isinstance(result, NotReady)
                assert result.kind == "foreign_listener"
                assert str(server.handle.port) in result.detail
                assert server.listener() == "foreign"
                assert not server.owns_listener()
                assert server.exit_code() is None
            finally:
                foreign.kill()
                foreign.wait()

    def test_a_port_taken_between_choice_and_bind_ends_the_start(self, tmp_path: Path):
        spec = spec_of("slow-start:1")
        with ProcessLauncher().start(spec, tmp_path) as server:
            with socket.create_server(("127.0.0.1", server.handle.port)):
                result = become_ready(server, spec)
            assert isinstance(result, NotReady)
            assert result.kind in ("foreign_listener", "exited")


class TestSecrets:
    OWN = "correct-horse-battery"

    def test_no_token_reaches_the_folder(self, tmp_path: Path):
        ambient = {**os.environ, "HF_TOKEN": "hf_zY9xW8vU7tS6rQ5pO4nM3lK2", "MY_SECRET": self.OWN}
        launcher = ProcessLauncher(environment=ambient)
        spec = spec_of("print-token", secret_env=("HF_TOKEN", "MY_SECRET"))
        with launcher.start(spec, tmp_path) as server:
            assert isinstance(become_ready(server, spec), Ready)
            handle = server.handle
            shown = Path(f"/proc/{handle.guard_pid}/cmdline").read_bytes() + Path(f"/proc/{handle.pid}/cmdline").read_bytes()
        tokens = [fake_engine.HF_SHAPED, fake_engine.SK_SHAPED, ambient["HF_TOKEN"], self.OWN]
        for path in tmp_path.rglob("*"):
            for token in tokens:
                assert token not in path.read_text(), path
        for token in tokens:
            assert token.encode() not in shown
        assert server.log_text().count("[redacted]") >= 3 * len(tokens)

    def test_secrets_that_were_not_asked_for_do_not_reach_the_engine(self, tmp_path: Path):
        launcher = ProcessLauncher(environment={**os.environ, "MY_SECRET": self.OWN, "VLLM_API_KEY": "sk-1"})
        with launcher.start(spec_of(), tmp_path) as server:
            environment = Path(f"/proc/{server.handle.pid}/environ").read_bytes()
        assert self.OWN.encode() not in environment
        assert b"VLLM_API_KEY" not in environment


class TestErrors:
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path):
        (tmp_path / "file").write_text("")
        with pytest.raises(OutputError, match="file"), ProcessLauncher().start(spec_of(), tmp_path / "file" / "trial"):
            pass

    def test_a_program_that_is_no_program(self, tmp_path: Path):
        program = tmp_path / "vllm"
        program.write_bytes(b"\x7fELF but not really")
        program.chmod(0o755)
        spec = spec_of().model_copy(update={"program": (str(program),)})
        with pytest.raises(EngineError, match="vllm"), ProcessLauncher().start(spec, tmp_path / "trial"):
            pass
        assert tree.listening_inodes(1) == set()

    def test_the_log_of_an_earlier_try_is_kept_but_not_read(self, tmp_path: Path):
        (tmp_path / "engine.log").write_text("RuntimeError: Engine core initialization failed\n")
        with ProcessLauncher().start(spec_of(), tmp_path) as server:
            assert isinstance(become_ready(server, spec_of()), Ready)
            assert "initialization failed" not in server.log_text()
        assert "initialization failed" in server.log_path.read_text()

    def test_the_program_can_be_replaced(self, tmp_path: Path):
        spec = spec_of().model_copy(update={"program": ("/nowhere/vllm", "serve")})
        launcher = ProcessLauncher(program=(sys.executable, str(FAKE), "serve"))
        with launcher.start(spec, tmp_path) as server:
            assert isinstance(become_ready(server, spec), Ready)
            command = Path(f"/proc/{server.handle.pid}/cmdline").read_text().split("\0")
            assert command[1:3] == [str(FAKE), "serve"]
