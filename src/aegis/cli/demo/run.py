"""The demonstration: a real gateway, two real clients, tools that really run, and a log that verifies."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from aegis.cli.demo.agents import anthropic_agent, openai_agent
from aegis.cli.demo.approver import Approver
from aegis.cli.demo.provider import ScriptedProvider
from aegis.cli.demo.stage import AGENT, PERSON, DemoFailed, Stage, run_aegis, stage
from aegis.cli.demo.story import ANTHROPIC, APPROVED, EXPECTED, OPENAI, POISONED, Fate
from aegis.cli.demo.tools import Tools
from aegis.cli.output import Column, print_line, show_list

APPROVAL_S: Final = 60  # the approver of the story answers within a second

_COLUMNS: Final = (
    Column(title="CLIENT", member="client"),
    Column(title="TOOL", member="tool"),
    Column(title="DECISION", member="decision"),
    Column(title="REASON", member="reason"),
    Column(title="WHAT HAPPENED", member="fate"),
    Column(title="WHAT IT WAS", member="told"),
)


def run(*, once: bool) -> None:
    """Show it all; without `once`, leave the gateway up until Ctrl-C. Raises `DemoFailed`."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-demo-"))
    try:
        _say("starting a gateway with the embedded store")
        with stage(folder) as here:
            _say(f"gateway: {here.url} (demonstration data only, under {folder})")
            _export(here, folder / "before")
            tools = Tools(folder / "workspace")
            _openai(here, tools)
            _anthropic(here, tools)
            rows = _rows(here, tools)
            print_line()
            show_list(rows, _COLUMNS, as_json=False, empty="no call was decided")
            print_line()
            _check(rows, tools)
            _verify(here, folder)
            if not once:
                _stay(here, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _openai(here: Stage, tools: Tools) -> None:
    import openai

    import aegis

    _say("an agent on the `openai` client, streaming; held calls wait for a person")
    aegis.auto(url=here.url, api_key=here.agent_key, agent=AGENT, on_unhooked="warn", approval_timeout=APPROVAL_S)
    approver = Approver(here, APPROVED)
    approver.start()
    try:
        with ScriptedProvider(OPENAI) as provider, aegis.session("openai", task="send ada her receipt"):
            client = openai.OpenAI(base_url=provider.url, api_key="demo", max_retries=0)
            _say(f"  it ends with: {openai_agent(client, tools, 'send ada her receipt', stream=True)}")
    finally:
        approver.stop()


def _anthropic(here: Stage, tools: Tools) -> None:
    import anthropic

    import aegis

    _say("an agent on the `anthropic` client; held calls come back as refusals")
    aegis.auto(url=here.url, api_key=here.agent_key, agent=AGENT, on_approval="block", on_unhooked="warn")
    with ScriptedProvider(ANTHROPIC) as provider, aegis.session("anthropic", task="look at the opening hours"):
        client = anthropic.Anthropic(base_url=provider.anthropic_url, api_key="demo", max_retries=0)
        _say(f"  it ends with: {anthropic_agent(client, tools, 'look at the opening hours')}")


def _rows(here: Stage, tools: Tools) -> list[dict[str, Any]]:
    """What the log knows of each call, beside what the tools really did."""
    asked = here.gateway.ask
    decided = asked("GET", "/v1/receipts?kind=decision&limit=100", here.auditor_key)["items"]
    held = asked("GET", "/v1/approvals", here.approver_key)["items"]
    pending = {item["call_id"] for item in held if item["state"] == "pending"}
    withheld = {
        item["call_id"]
        for item in asked("GET", "/v1/receipts?kind=result&limit=100", here.auditor_key)["items"]
        if item["decision"] == "block"
    }
    rows = []
    for item in sorted(decided, key=lambda one: one["index"]):
        call_id = item["call_id"]
        fate = _fate(item["decision"], call_id in tools.ran, call_id in pending)
        expected = EXPECTED.get(call_id)
        rows.append(
            {
                "call_id": call_id,
                "client": item["session"],
                "tool": item["tool"],
                "decision": item["decision"],
                "reason": item["reason"],
                "fate": f"{fate}, result withheld" if call_id in withheld else fate,
                "told": "" if expected is None else expected.told,
            }
        )
    return rows


def _fate(decision: str, ran: bool, pending: bool) -> Fate:
    if pending and not ran:
        return "waits for a person"
    if not ran:
        return "not run"
    if decision == "sanitize":
        return "ran with changed arguments"
    return "ran after approval" if decision == "require_approval" else "ran"


def _check(rows: list[dict[str, Any]], tools: Tools) -> None:
    """Everything is as the story has it, or the demonstration failed."""
    found = {row["call_id"]: (row["decision"], row["fate"].partition(",")[0]) for row in rows}
    wrong = [
        f"{call_id}: {found.get(call_id)} instead of {(expected.decision, expected.fate)}"
        for call_id, expected in EXPECTED.items()
        if found.get(call_id) != (expected.decision, expected.fate)
    ]
    if "result withheld" not in next((row["fate"] for row in rows if row["call_id"] == POISONED), ""):
        wrong.append("the page that gives orders reached the model")
    if tools.invoices != 2:
        wrong.append("the table was dropped")
    if [message["to"] for message in tools.outbox if "to" in message] != ["ada@example.com"]:
        wrong.append("the approved mail did not go out exactly once")
    if wrong:
        raise DemoFailed("a call did not end as it must: " + "; ".join(wrong))


def _export(here: Stage, out: Path) -> None:
    code, text = run_aegis("log", "export", "--home", str(here.home), "--out", str(out))
    if code:
        raise DemoFailed(f"the log could not be exported: {text.strip()}")


def _verify(here: Stage, folder: Path) -> None:
    """Verify the log offline, against the keys and the checkpoint that were kept from before the agents ran."""
    _export(here, folder / "after")
    kept = folder / "before"
    words = ("--key", str(kept / "keys.json"), "--since", str(kept / "checkpoint"))
    code, text = run_aegis("log", "verify", str(folder / "after"), *words)
    print_line("offline verification of the exported log, with keys and a checkpoint kept from before:")
    print_line(text.rstrip())
    if code:
        raise DemoFailed("the log does not verify")


def _stay(here: Stage, folder: Path) -> None:
    """Leave everything up until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    key = folder / "approver.key"
    key.touch(mode=0o600)
    key.write_text(here.approver_key)
    with contextlib.suppress(KeyboardInterrupt):
        print_line()
        print_line(f"the cockpit: {here.url}/ (sign in as {PERSON} with the password {here.password})")
        print_line(f"the gateway stays up at {here.url}; one mail still waits for a person:")
        print_line(f"  {_own_command()} approvals list --url {here.url} --api-key-file {shlex.quote(str(key))}")
        _say("Ctrl-C ends it and removes what it wrote")
        threading.Event().wait()


def _own_command() -> str:
    """The command line that runs now, by its path: another shell may find no `aegis`, or another one."""
    program = Path(sys.argv[0])
    words = [str(program.absolute())] if program.name == "aegis" else [sys.executable, "-m", "aegis.cli"]
    return shlex.join(words)


def _say(text: str) -> None:
    print_line(text)
    sys.stdout.flush()
