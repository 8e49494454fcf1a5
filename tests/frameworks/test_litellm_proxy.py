"""A LiteLLM proxy with the guardrail in its configuration: no blocked call is handed on; each conversation is one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn

CONFIG = """
model_list:
  - model_name: any
    litellm_params: {{model: openai/m, api_base: "{openai}", api_key: k}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-m, api_base: "{anthropic}", api_key: k}}
guardrails:
  - guardrail_name: aegis
    litellm_params:
      guardrail: aegis.adapters.litellm_guardrail.AegisGuardrail
      mode: [pre_call, pre_mcp_call]
      default_on: true
general_settings: {{master_key: sk-master}}
litellm_settings: {{num_retries: 0}}
"""
INJECTION = Call(tool="find_customer", arguments={"name": "x' OR '1'='1' --"}, id="call_find_0123456789")
HARMLESS = Call(tool="find_customer", arguments={"name": "Ann"}, id="call_find_9876543210")
PATIENCE = 300.0  # seconds until a proxy that does not come up ends the test
TOOL = {"type": "function", "function": {"name": "find_customer", "parameters": {"type": "object"}}}


@contextmanager
def proxy(folder: Path, provider: ScriptedProvider, **environment: str) -> Iterator[str]:
    """The address of a proxy that is up."""
    folder.chmod(0o700)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(openai=provider.url, anthropic=provider.anthropic_url), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "HOME": str(folder),
        "AEGIS_HOME": str(folder / "state"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **environment,
    }
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--port", str(port)], env=env, cwd=folder, stdout=log, stderr=log)
        try:
            yield _up(f"http://127.0.0.1:{port}", process, folder / "log")
        finally:
            process.terminate()
            process.wait(60)


def _up(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    tick = threading.Event()
    for _ in range(int(PATIENCE / 0.5)):
        if process.poll() is not None:
            raise ChildProcessError(log.read_text(errors="replace")[-4000:])
        try:
            with urllib.request.urlopen(f"{url}/health/liveliness", timeout=5):
                return url
        except (urllib.error.URLError, OSError):
            tick.wait(0.5)
    raise TimeoutError(log.read_text(errors="replace")[-4000:])


def ask(url: str, model: str, *, stream: bool, session: str) -> str:
    """What a client of the proxy gets, as text; `session` is its word for the conversation."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "who is Ann?"}],
        "tools": [TOOL],
        "stream": stream,
        "litellm_session_id": session,
    }
    headers = {"authorization": "Bearer sk-master", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
    return text


def test_a_proxy_hands_on_no_blocked_call(tmp_path: Path) -> None:
    turns = [Turn(calls=(one,)) for one in (INJECTION, HARMLESS)] * 4
    with ScriptedProvider(turns) as provider, proxy(tmp_path, provider) as url:
        for model in ("any", "claude"):
            for stream in (False, True):
                refused = ask(url, model, stream=stream, session="c-1")
                assert "tool_calls" not in refused or '"tool_calls":null' in refused.replace(" ", "")
                assert "was not run" in refused
                assert "call_find_9876543210" in ask(url, model, stream=stream, session="c-2")
    sessions = _sessions(tmp_path / "state")
    assert len(sessions) == 2
    assert all(name.startswith("litellm-") for name in sessions)


def _sessions(home: Path) -> set[str]:
    """The sessions that the receipts of the embedded gate name."""
    command = [sys.executable, "-c", "from aegis.cli import main; main()", "log", "show", "--home", str(home), "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    found: Any = json.loads(shown)
    receipts = found["items"] if isinstance(found, dict) else found
    return {one["session"] for one in receipts if one.get("kind") == "decision"}


def test_a_proxy_that_cannot_be_hooked_does_not_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    with ScriptedProvider([]) as provider, pytest.raises(ChildProcessError):
        proxy(tmp_path, provider, AEGIS_CONFIG=missing).__enter__()
