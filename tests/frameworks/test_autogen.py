"""AutoGen: tools that stream their results, run past a workbench and in one; handoffs that come to nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from autogen_core import CancellationToken
from pydantic import BaseModel

from aegis.cli.demo.provider import Call, Turn
from aegis.errors import CallRefused
from frameworks.drivers.autogen import FRAMEWORK, agent_of
from frameworks.model import READ, hooked
from support.decider import ScriptedDecider, blocked, changed, withheld
from support.worlds import scripted, world

tools: Any = import_module("autogen_core.tools")


class Mail(BaseModel):
    to: str


class Said(BaseModel):
    text: str


class Mailing(cast("type[Any]", tools.BaseStreamTool)):  # type: ignore[misc]
    """A tool that says how far it is."""

    def __init__(self) -> None:
        super().__init__(Mail, Said, "send_email", "d")
        self.ran: list[str] = []

    async def run(self, args: Mail, cancellation_token: Any) -> Said:
        raise AssertionError("it streams")

    async def run_stream(self, args: Mail, cancellation_token: Any) -> AsyncIterator[Said]:
        self.ran.append(args.to)
        yield Said(text="secret of the way")
        yield Said(text="sent")


def directly(tool: Mailing) -> AsyncIterator[Any]:
    found: AsyncIterator[Any] = tool.run_json_stream({"to": "a@example.com"}, CancellationToken())
    return found


def in_a_workbench(tool: Mailing) -> AsyncIterator[Any]:
    bench = tools.StaticStreamWorkbench([tool])
    found: AsyncIterator[Any] = bench.call_tool_stream("send_email", {"to": "a@example.com"}, CancellationToken())
    return found


def said(decider: ScriptedDecider, tool: Mailing, run: Callable[[Mailing], AsyncIterator[Any]]) -> str:
    async def go() -> str:
        try:
            return str([one async for one in run(tool)])
        except CallRefused as refused:
            return str(refused)

    with hooked(FRAMEWORK, decider):
        return asyncio.run(go())


@pytest.mark.parametrize("run", [directly, in_a_workbench])
def test_a_tool_that_streams_is_decided_once_and_nothing_is_told_before_its_result_is_judged(
    run: Callable[[Mailing], AsyncIterator[Any]],
) -> None:
    tool, decider = Mailing(), scripted(send_email=blocked)
    assert "`send_email` was not run" in said(decider, tool, run)
    assert tool.ran == []

    decider = scripted()
    assert "sent" in said(decider, tool, run)
    assert tool.ran == ["a@example.com"]
    assert len(decider.decided) == len(decider.observed) == 1

    decider.inspect = withheld
    told = said(decider, tool, run)
    assert "withheld" in told
    assert "secret" not in told

    decider.inspect = lambda value: changed("[masked]")
    told = said(decider, tool, run)
    assert "[masked]" in told
    assert "secret" not in told


HANDOFF = Call(tool="transfer_to_b", arguments={}, id="call_handoff_0123456789")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_agent_goes_on_when_its_handoff_is_blocked(streams: bool) -> None:
    async def go(one: Any) -> Any:
        return (await agent_of(one, handoffs=["b"], model_client_stream=streams).run(task="go")).messages[-1]

    turns = Turn(calls=(HANDOFF, READ)), Turn(text="done")
    with hooked(FRAMEWORK, scripted(transfer_to_b=blocked)), world(*turns) as one:
        assert asyncio.run(go(one)).content == "done"
        assert "`transfer_to_b` was not run" in one.results_sent(1)[HANDOFF.id]
        assert one.results_sent(1)[READ.id] == "text"
    with hooked(FRAMEWORK, scripted()), world(*turns) as one:
        assert asyncio.run(go(one)).target == "b"


def test_the_tutorial_gets_three_verdicts(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/tutorial/three-verdicts.md").read_text(encoding="utf-8")
    configuration = page.split("```yaml\n")[1].split("```")[0]
    code = page.split("<!-- not run: runs where `autogen` is tested -->\n```python\n")[1].split("```")[0]
    tmp_path.chmod(0o700)
    for name, text in (("aegis.yaml", configuration), ("agent.py", code)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "agent.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "AEGIS_ON_APPROVAL": "block", "HOME": str(tmp_path)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "call-1 one customer called Ann"
    assert "`find_customer` was not run" in second
    assert "`refund` was not run" in third
