"""`auto` hooks what is installed, says so, and fails closed; `unhook` puts everything back."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic._base_client
import openai
import openai._base_client
import pytest

import aegis
from aegis.adapters import openai as openai_adapter
from aegis.cli.demo.provider import ScriptedProvider, Turn
from aegis.errors import ConfigError, InvalidCall, UnhookedFramework
from aegis.sdk import Report
from support.raw_server import answer, serving
from support.shell import aegis_python, environment
from support.worlds import MAIL, READ

SEAMS = (
    openai._base_client.SyncAPIClient,
    openai._base_client.AsyncAPIClient,
    anthropic._base_client.SyncAPIClient,
    anthropic._base_client.AsyncAPIClient,
)
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: critical}
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("AEGIS_URL", "AEGIS_API_KEY", "AEGIS_AGENT", "AEGIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AEGIS_HOME", str(tmp_path / "home"))
    before = [dict(owner.__dict__) for owner in SEAMS]
    yield
    aegis.unhook()
    assert [dict(owner.__dict__) for owner in SEAMS] == before


def config(tmp_path: Path, text: str = CONFIG) -> Path:
    file = tmp_path / "aegis.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return file


def ask(provider: ScriptedProvider) -> Any:
    client = openai.OpenAI(base_url=provider.url, api_key="k", max_retries=0)
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}]).choices[0].message


def test_one_line_puts_an_embedded_gate_before_every_call(tmp_path: Path) -> None:
    report = aegis.auto(config=config(tmp_path), agent="bot")
    assert (report.gateway, report.authenticated) == ("embedded", None)
    with ScriptedProvider([Turn(calls=(MAIL, READ))]) as provider:
        message = ask(provider)
    assert [call.function.name for call in message.tool_calls] == ["read_file"]


def test_the_report_names_framework_version_seams_and_what_is_refused(tmp_path: Path) -> None:
    report = aegis.auto(config=config(tmp_path))
    assert isinstance(report, Report)
    named = {one.framework: one for one in report.hooked}
    assert named.keys() >= {"openai", "anthropic"}
    assert named["openai"].version == openai.__version__
    assert "SyncAPIClient.request" in named["openai"].seams
    assert "realtime.connect" in named["openai"].barred
    assert "openai" in str(report)
    assert report.unhooked == ()


def test_a_gateway_over_plain_tcp_is_reported_as_not_authenticated() -> None:
    assert aegis.auto("http://127.0.0.1:9").authenticated is False
    assert "NOT authenticated" in str(aegis.auto("http://127.0.0.1:9"))
    assert aegis.auto("https://gateway.example").authenticated is True


def test_the_environment_names_gateway_key_and_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: answer(503, {})) as server, ScriptedProvider([Turn(calls=(READ,))]) as provider:
        monkeypatch.setenv("AEGIS_URL", server.url)
        monkeypatch.setenv("AEGIS_API_KEY", "key-1")
        monkeypatch.setenv("AEGIS_AGENT", "bot")
        assert aegis.auto().gateway == server.url
        assert ask(provider).tool_calls is None
    (request,) = server.received
    assert request.headers["authorization"] == "Bearer key-1"
    assert request.json["agent"] == "bot"


def test_without_its_gateway_nothing_runs() -> None:
    aegis.auto("http://127.0.0.1:9")
    with ScriptedProvider([Turn(calls=(READ,))]) as provider:
        message = ask(provider)
    assert message.tool_calls is None
    assert "`read_file` was not run" in message.content


def test_calling_it_again_replaces_the_hooks(tmp_path: Path) -> None:
    aegis.auto("http://127.0.0.1:9")
    aegis.auto(config=config(tmp_path))
    with ScriptedProvider([Turn(calls=(READ,))]) as provider:
        assert [call.function.name for call in ask(provider).tool_calls] == ["read_file"]
    aegis.unhook()
    with ScriptedProvider([Turn(calls=(MAIL,))]) as provider:
        assert [call.function.name for call in ask(provider).tool_calls] == ["send_email"]


def test_clients_made_before_are_hooked_too(tmp_path: Path) -> None:
    with ScriptedProvider([Turn(calls=(MAIL,))]) as provider:
        client = openai.OpenAI(base_url=provider.url, api_key="k", max_retries=0)
        create = client.chat.completions.create
        aegis.auto(config=config(tmp_path))
        completion = create(model="m", messages=[{"role": "user", "content": "go"}])
    assert completion.choices[0].message.tool_calls is None


def test_an_unsupported_version_is_an_error_that_names_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_adapter, "SUPPORTED", ((9, 0), (10,)))
    with pytest.raises(UnhookedFramework, match=r">=9.0,<10"):
        aegis.auto("http://127.0.0.1:9")
    # Nothing is half hooked.
    assert not any(
        inspect.unwrap(one.__dict__["_process_response"]) is not one.__dict__["_process_response"] for one in SEAMS
    )


def test_an_unsupported_version_can_be_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_adapter, "SUPPORTED", ((9, 0), (10,)))
    with pytest.warns(UserWarning, match="openai"):
        report = aegis.auto("http://127.0.0.1:9", on_unhooked="warn")
    assert {one.framework for one in report.hooked} >= {"anthropic"}
    assert "openai" not in {one.framework for one in report.hooked}
    assert len(report.unhooked) == 1


def test_a_seam_that_is_gone_leaves_nothing_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(openai._base_client.AsyncAPIClient, "_process_response")
    with pytest.raises(UnhookedFramework, match="_process_response"):
        aegis.auto("http://127.0.0.1:9")
    monkeypatch.undo()


def test_paths_that_cannot_be_covered_are_refused() -> None:
    aegis.auto("http://127.0.0.1:9")
    client = openai.OpenAI(base_url="http://127.0.0.1:9", api_key="k", max_retries=0)
    with pytest.raises(UnhookedFramework, match="connect"):
        client.realtime.connect(model="m")
    with pytest.warns(DeprecationWarning), pytest.raises(UnhookedFramework, match="Assistants"):
        client.beta.threads.runs.create("thread_1", assistant_id="a")


def test_paths_that_cannot_be_covered_may_be_left_open() -> None:
    report = aegis.auto("http://127.0.0.1:9", on_unhooked="warn")
    assert "realtime.connect" not in {path for one in report.hooked for path in one.barred}
    assert "realtime.connect" in {path for one in report.hooked for path in one.uncovered}
    assert openai.OpenAI(base_url="http://127.0.0.1:9", api_key="k").realtime.connect(model="m") is not None


def test_what_cannot_be_opened_is_raised(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall):
        aegis.auto("not a url")
    with pytest.raises(ConfigError):
        aegis.auto(config=config(tmp_path, "version: 1\nnonsense: true\n"))


def test_what_cannot_be_opened_leaves_the_hooks_in_force(tmp_path: Path) -> None:
    aegis.auto("http://127.0.0.1:9")
    with pytest.raises(ConfigError):
        aegis.auto(config=config(tmp_path, "version: 1\nnonsense: true\n"))
    with ScriptedProvider([Turn(calls=(READ,))]) as provider:
        assert ask(provider).tool_calls is None


LATER = """
import sys
import aegis
report = aegis.auto("http://127.0.0.1:9")
before = {"openai", "anthropic"} & set(sys.modules)
import openai
import anthropic
named = {one.framework for one in report.hooked}
bodies = (openai.OpenAI.request, anthropic.Anthropic._request)
print(sorted(before), {"openai", "anthropic"} <= named, all(hasattr(one, "__wrapped__") for one in bodies))
"""
BROKEN = """
import aegis
from aegis.errors import UnhookedFramework
aegis.auto("http://127.0.0.1:9")
from aegis.adapters import openai as adapter
adapter._hook_runners = lambda *_: adapter.gone
for _ in range(2):
    try:
        import openai
    except UnhookedFramework as error:
        print(error)
"""


def test_a_framework_that_the_program_does_not_use_is_not_loaded_and_hooked_as_soon_as_it_is() -> None:
    assert run_python(LATER) == "[] True True\n"


def test_a_framework_without_its_seams_cannot_be_imported_however_often_it_is_tried() -> None:
    assert run_python(BROKEN) == "`openai` does not have the expected seams\n" * 2


def run_python(program: str) -> str:
    """What a program in a process of its own says."""
    done = subprocess.run([aegis_python(), "-c", program], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_aegis_loads_neither_gate_nor_client() -> None:
    assert "auto" in dir(aegis)
    with pytest.raises(AttributeError):
        _ = aegis.nothing
