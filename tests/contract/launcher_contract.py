"""What every launcher must keep. Inherit in a class named Test..., with `launcher`, `spec` and `dying_spec` fixtures.

`spec` starts a server that becomes ready within seconds, `dying_spec` one that ends by itself with exit code 3 before it
is ready and says "last words" in its log.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tuner.domain.engine import LaunchSpec
from tuner.errors import EngineError
from tuner.runtime.base import HANDLE_FILE, Handle, Launcher, Server
from tuner.runtime.ready import NotReady, Ready, wait_ready

READY_LIMIT_S = 60.0


def wait_until(condition: Callable[[], bool], limit_s: float = 30.0) -> bool:
    """Poll until the condition holds; False when it does not in time. Generous, for slow machines."""
    limit = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def nobody_answers(handle: Handle) -> bool:
    try:
        with socket.create_connection((handle.host, handle.port), timeout=1):
            return False
    except OSError:
        return True


def become_ready(server: Server, spec: LaunchSpec, timeout_s: float = READY_LIMIT_S) -> Ready | NotReady:
    return wait_ready(
        server,
        spec,
        timeout_s=timeout_s,
        probe_prompt="Say a word",
        fatal=lambda log: next((line for line in log.splitlines() if "Engine core initialization failed" in line), None),
        phase=lambda log: "listening" if "startup complete" in log else "starting",
    )


class LauncherContract:
    """Holds for every launcher."""

    def test_a_server_becomes_ready_and_is_gone_afterwards(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path / "trial") as server:
            result = become_ready(server, spec)
            assert isinstance(result, Ready), result
            assert server.exit_code() is None
            assert server.owns_listener()
            assert server.listener() == "ours"
            assert server.fault() is None
            assert server.teardown is None
            models = httpx.get(f"{server.url}/v1/models", trust_env=False).json()
            assert [model["id"] for model in models["data"]] == [spec.served_name]
        assert server.exit_code() is not None
        assert server.teardown is not None
        assert server.teardown.clean
        assert nobody_answers(server.handle)
        assert not server.owns_listener()

    def test_the_handle_is_json_beside_the_log(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path / "a" / "b") as server:
            written = Handle.model_validate_json((tmp_path / "a" / "b" / HANDLE_FILE).read_text())
            assert written == server.handle
            assert written.launcher == launcher.name
            assert server.log_path == tmp_path / "a" / "b" / written.log
            assert server.url == f"http://{written.host}:{written.port}"
        assert not (tmp_path / "a" / "b" / HANDLE_FILE).exists(), "a handle that is left is work for reap"
        assert server.log_path.exists()

    def test_uses_are_numbers_above_zero_or_unknown(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path) as server:
            become_ready(server, spec)
            for reading in (server.memory_bytes(), server.cpu_seconds()):
                assert reading is None or reading > 0

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_taken_down_when_the_block_fails(
        self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path, error: type[BaseException]
    ):
        with pytest.raises(error), launcher.start(spec, tmp_path) as server:  # noqa: PT012  (the block is the test)
            become_ready(server, spec)
            raise error
        assert server.teardown is not None
        assert server.teardown.clean
        assert nobody_answers(server.handle)

    def test_taken_down_before_it_was_ready(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path) as server:
            pass
        assert server.teardown is not None
        assert server.teardown.clean
        assert nobody_answers(server.handle)

    def test_servers_side_by_side_have_ports_of_their_own(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path / "1") as one, launcher.start(spec, tmp_path / "2") as two:
            assert one.handle.port != two.handle.port
            results = [become_ready(one, spec), become_ready(two, spec)]
            assert all(isinstance(result, Ready) for result in results), results
            assert one.owns_listener()
            assert two.owns_listener()

    def test_a_server_that_dies_is_seen(self, launcher: Launcher, dying_spec: LaunchSpec, tmp_path: Path):
        with launcher.start(dying_spec, tmp_path) as server:
            result = become_ready(server, dying_spec)
            assert isinstance(result, NotReady), result
            assert result.kind == "exited"
            assert result.exit_code == 3
            assert result.seconds < READY_LIMIT_S / 2
            assert "last words" in server.log_text()
            assert server.log_complete()
            assert server.exit_code() == 3
        assert server.teardown is not None
        assert server.teardown.clean
        assert server.exit_code() == 3

    def test_a_program_that_is_not_there_is_one_clear_error(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        gone = spec.model_copy(update={"program": ("/nowhere/vllm", "serve")})
        with pytest.raises(EngineError, match="/nowhere/vllm"), launcher.start(gone, tmp_path):
            pass

    def test_nothing_is_left_to_reap_after_a_clean_end(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        with launcher.start(spec, tmp_path) as server:
            pass
        assert launcher.reap(server.handle) is False

    def test_no_thread_is_left(self, launcher: Launcher, spec: LaunchSpec, tmp_path: Path):
        before = set(threading.enumerate())
        with launcher.start(spec, tmp_path) as server:
            become_ready(server, spec)
        assert wait_until(lambda: set(threading.enumerate()) <= before)
