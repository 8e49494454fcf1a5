"""`aegis demo`: a real gateway, two real clients, tools that really run, and a log that verifies."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from aegis.cli import output
from aegis.cli.demo.provider import Call, ScriptedProvider, Turn
from aegis.cli.demo.stage import AGENT, PERSON, SCHEMAS, DemoFailed, DemoTools, Stage, run_aegis, stage
from aegis.cli.output import columns, print_line, say, show_list
from aegis.errors import AegisError

if TYPE_CHECKING:
    import anthropic
    import openai


def demo(
    once: Annotated[bool, typer.Option("--once", help="exit at the end; otherwise the gateway stays up")] = False,
) -> int:
    """Show a gateway, two agents on real clients, and the log of what happened, verified offline.

    The model is a script on loopback that speaks the vendors' wire protocols; everything else is
    real. Exits 1 when anything is not as it must be.
    """
    try:
        import anthropic  # noqa: F401  the story needs both clients, and the server
        import openai  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise AegisError(
            f'the demonstration needs the package `{error.name}`: pip install "aegis-guard[server,openai,anthropic]"'
        ) from error
    from aegis.cli.demo.stage import DemoFailed

    try:
        run(once=once)
    except DemoFailed as error:
        say(str(error), code="demo")
        return output.REFUSED
    return output.DONE


# Two sample agents over the vendors' own clients: a loop of answer, tools, results; no word of Aegis.

MAX_TURNS: Final = 12

_CHAT_TOOLS: Final[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in SCHEMAS.items()
]
_CLAUDE_TOOLS: Final[Any] = [
    {"name": name, "input_schema": {"type": "object", "properties": properties}} for name, properties in SCHEMAS.items()
]


def openai_agent(client: openai.OpenAI, tools: DemoTools, task: str, *, stream: bool) -> str:
    """Works on `task` with OpenAI's client until the model calls no more tools; its last words."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        if stream:
            with client.chat.completions.stream(model="scripted", messages=messages, tools=_CHAT_TOOLS) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.create(model="scripted", messages=messages, tools=_CHAT_TOOLS)
            message = answer.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            result = tools.run(call.id, call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError("the agent did not come to an end")


def anthropic_agent(client: anthropic.Anthropic, tools: DemoTools, task: str) -> str:
    """Works on `task` with Anthropic's client until the model calls no more tools; its last words."""
    messages: list[Any] = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        answer = client.messages.create(model="scripted", max_tokens=1_000, messages=messages, tools=_CLAUDE_TOOLS)
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in answer.content if block.type == "text")
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": tools.run(call.id, call.name, dict(call.input))}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
    raise RuntimeError("the agent did not come to an end")


# The person of the demonstration: says yes to one call, over the same API that a real one uses.

_LOOK_S: Final = 0.1


class Approver(threading.Thread):
    """Approves the held call `call_id` as soon as it is in the queue; leaves every other one alone."""

    def __init__(self, stage: Stage, call_id: str):
        super().__init__(name="demo-approver", daemon=True)
        self._stage = stage
        self._call_id = call_id
        self._done = threading.Event()

    def run(self) -> None:
        """Look at the queue until the call is there and answered."""
        gateway, key = self._stage.gateway, self._stage.approver_key
        while not self._done.wait(_LOOK_S):
            listed: dict[str, Any] = gateway.ask("GET", "/v1/approvals", key)
            for item in listed["items"]:
                if item["call_id"] == self._call_id and item["state"] == "pending":
                    answer = {"decision": "approve", "reason": "the customer asked for it"}
                    gateway.ask("POST", f"/v1/approvals/{item['id']}", key, answer)
                    return

    def stop(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()


# What the scripted model does in the demonstration, and what has to become of each of its calls.

Fate = Literal["ran", "ran with changed arguments", "ran after approval", "not run", "waits for a person"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """One call of the story: what the decision must be, what then happens, and why it is told."""

    decision: str
    fate: Fate
    told: str


def _id(name: str) -> str:
    """A call id of the length that providers give: a short one would count as a counter, and get a suffix."""
    return f"call_demonstration_{name}"


APPROVED: Final = _id("o5")
POISONED: Final = _id("a1")
SECRET: Final = "ghp_" + "x7Kq2mVt9RbL4wNc8PzY1sDf6HgJ3aEu5QoT"  # made up: no service knows it

OPENAI: Final = (
    Turn(
        text="Let me look at the notes and the invoices.",
        calls=(
            Call(tool="read_file", arguments={"path": "notes.txt"}, id=_id("o1")),
            Call(tool="query_db", arguments={"sql": "SELECT id, customer FROM invoices WHERE paid = 0"}, id=_id("o2")),
            Call(tool="query_db", arguments={"sql": "SELECT 1; DROP TABLE invoices; --"}, id=_id("o3")),
        ),
    ),
    Turn(
        calls=(
            Call(tool="read_file", arguments={"path": "../../../../etc/shadow"}, id=_id("o4")),
            Call(
                tool="send_email",
                arguments={"to": "ada@example.com", "subject": "Receipt 4411", "body": "Thank you, it is paid."},
                id=_id("o5"),
            ),
        ),
    ),
    Turn(text="The receipt is on its way."),
)

ANTHROPIC: Final = (
    Turn(calls=(Call(tool="read_file", arguments={"path": "web-page.txt"}, id=_id("a1")),)),
    Turn(
        calls=(
            Call(
                tool="post_note",
                arguments={"text": f"deployed with token {SECRET}, all green"},
                id=_id("a2"),
            ),
            Call(
                tool="send_email",
                arguments={"to": "grace@example.com", "subject": "Invoice 4412", "body": "It is still open."},
                id=_id("a3"),
            ),
        )
    ),
    Turn(text="The rest has to wait for a person."),
)

EXPECTED: Final = {
    _id("o1"): Expected(decision="allow", fate="ran", told="an ordinary read"),
    _id("o2"): Expected(decision="allow", fate="ran", told="an ordinary query, in the same turn"),
    _id("o3"): Expected(decision="block", fate="not run", told="a stacked DROP TABLE; its siblings go on"),
    _id("o4"): Expected(decision="block", fate="not run", told="a path that climbs to a sensitive file"),
    _id("o5"): Expected(
        decision="require_approval", fate="ran after approval", told="a mail, held until a person said yes"
    ),
    _id("a1"): Expected(decision="allow", fate="ran", told="a page whose text gives orders: its result is withheld"),
    _id("a2"): Expected(decision="sanitize", fate="ran with changed arguments", told="a secret on its way out, masked"),
    _id("a3"): Expected(decision="require_approval", fate="waits for a person", told="a mail that nobody approved yet"),
}


APPROVAL_S: Final = 60  # the approver of the story answers within a second

_COLUMNS: Final = columns("client", "tool", "decision", "reason", ("fate", "WHAT HAPPENED"), ("told", "WHAT IT WAS"))


def run(*, once: bool) -> None:
    """Show it all; without `once`, leave the gateway up until Ctrl-C. Raises `DemoFailed`."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-demo-"))
    try:
        _say("starting a gateway with the embedded store")
        with stage(folder) as here:
            _say(f"gateway: {here.url} (demonstration data only, under {folder})")
            _export(here, folder / "before")
            tools = DemoTools(folder / "workspace")
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


def _openai(here: Stage, tools: DemoTools) -> None:
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


def _anthropic(here: Stage, tools: DemoTools) -> None:
    import anthropic

    import aegis

    _say("an agent on the `anthropic` client; held calls come back as refusals")
    aegis.auto(url=here.url, api_key=here.agent_key, agent=AGENT, on_approval="block", on_unhooked="warn")
    with (
        ScriptedProvider(ANTHROPIC) as provider,
        aegis.session("anthropic", task="look at the opening hours and post a note of them"),
    ):
        client = anthropic.Anthropic(base_url=provider.anthropic_url, api_key="demo", max_retries=0)
        _say(f"  it ends with: {anthropic_agent(client, tools, 'look at the opening hours and post a note of them')}")


def _rows(here: Stage, tools: DemoTools) -> list[dict[str, Any]]:
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


def _check(rows: list[dict[str, Any]], tools: DemoTools) -> None:
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
