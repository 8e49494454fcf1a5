"""What an approver is shown: the effect on a copy, a summary, or why there is none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from aegis.approvals.previews.dryrun import DryRuns
from aegis.approvals.previews.look import look_at
from aegis.core.approval import Looked, Preview, PreviewRules, ToolPreview
from aegis.sandbox import command as available
from aegis.sandbox.view import read_folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    (place / "build").mkdir(parents=True)
    (place / "build" / "old.o").write_text("object")
    (place / "notes.txt").write_text("one\ntwo\n")
    return place


def look(
    tool: str, arguments: dict[str, Any], workspace: Path | None = None, *, how: ToolPreview | None = None, **rules: Any
) -> Preview:
    known = PreviewRules(workspace=str(workspace or ""), **rules)
    looked = Looked(
        tool=tool, server=None, arguments=arguments, mounts=(), dryrun=how is not None, rules=known, tool_preview=how
    )
    return look_at(looked, DryRuns())


def changes(preview: Preview) -> list[tuple[str, str]]:
    assert preview.state == "done", preview.why
    return [(row["change"], row["path"]) for row in preview.effect["workspaces"][0]["files"]]


def test_a_command_shows_what_it_would_create_change_and_delete(workspace: Path) -> None:
    before = read_folder(str(workspace)).digest
    command = "rm -rf build && touch ok && echo three >> notes.txt && echo said; exit 3"
    preview = look("run_shell", {"command": command}, workspace)
    assert changes(preview) == [
        ("deleted", "build"), ("deleted", "build/old.o"), ("changed", "notes.txt"), ("created", "ok"),
    ]  # fmt: skip
    notes = preview.effect["workspaces"][0]["files"][2]
    assert "+three" in notes["diff"]
    assert (notes["before"], notes["after"]) == (8, 14)
    assert (preview.effect["exit_code"], preview.effect["stdout"]) == (3, "said\n")
    shown = preview.effect["workspaces"][0]
    assert shown["digest_before"] == shown["digest_after"] == before == read_folder(str(workspace)).digest


def test_a_program_with_arguments_and_a_folder_runs_as_one(workspace: Path) -> None:
    preview = look("exec", {"command": ["sh", "-c", "touch here"], "cwd": "build"}, workspace)
    assert changes(preview) == [("created", "build/here")]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("write_file", {"path": "notes.txt", "content": "new"}, [("changed", "notes.txt")]),
        ("write_file", {"path": "a/b.txt", "content": "x"}, [("created", "a"), ("created", "a/b.txt")]),
        ("delete_file", {"path": "notes.txt"}, [("deleted", "notes.txt")]),
        ("move_file", {"source": "notes.txt", "path": "notes.txt", "destination": "n2"},
         [("created", "n2"), ("deleted", "notes.txt")]),
        ("copy_file", {"path": "notes.txt", "destination": "n3"}, [("created", "n3")]),
    ],
)  # fmt: skip
def test_file_operations_are_tried_on_the_copy(
    workspace: Path, tool: str, arguments: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    before = read_folder(str(workspace)).digest
    assert changes(look(tool, arguments, workspace)) == expected
    assert read_folder(str(workspace)).digest == before


def test_arguments_of_a_file_operation_are_never_a_program(workspace: Path) -> None:
    preview = look("delete_file", {"path": "$(touch pwned); -rf x"}, workspace)
    assert changes(preview) == []


def test_a_command_that_does_not_end_has_no_preview(workspace: Path) -> None:
    preview = look("run_shell", {"command": "sleep 60"}, workspace, seconds=0.5)
    assert (preview.state, preview.why) == ("failed", "the preview failed: it did not end in time")


def test_without_a_sandbox_or_a_workspace_the_reason_is_said(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look("run_shell", {"command": "true"}).why.startswith("no preview: no workspace is configured")
    monkeypatch.setattr(available, "program", lambda: None)
    preview = look("run_shell", {"command": "true"}, workspace)
    assert (preview.state, preview.why) == ("none", f"no preview: {available.MISSING}")


def test_an_unknown_tool_says_that_nothing_says_how() -> None:
    assert look("frobnicate", {"level": 3}).why == "no preview: nothing says how to look at a call of this tool"


def test_a_request_is_summed_up_and_never_sent() -> None:
    arguments = {
        "method": "post", "url": "https://api.example.com:8443/v1/x?token=abc",
        "headers": {"Authorization": "Bearer abcdefghijkl"}, "body": {"amount": 3},
    }  # fmt: skip
    effect = look("http_request", arguments).effect
    assert (effect["method"], effect["host"], effect["port"], effect["body_bytes"]) == (
        "POST", "api.example.com", 8443, 12,
    )  # fmt: skip
    assert "abcdefgh" not in json.dumps(effect)
    assert "token=abc" not in json.dumps(effect)
    assert effect["addresses"] == "not looked up"
    resolved = look("http_request", {"url": "http://localhost/x"}, resolve=True).effect
    assert "127.0.0.1" in resolved["addresses"]


def test_a_card_shows_the_fields_of_its_template_and_what_is_missing() -> None:
    how = ToolPreview(kind="card", title="A payment", fields={"To": "/to/iban", "Amount": "/amount", "Note": "/note"})
    effect = look("pay", {"to": {"iban": "DE02"}, "amount": 5, "more": "x" * 9}, how=how).effect
    assert effect == {"title": "A payment", "fields": {"To": "DE02", "Amount": 5, "Note": {"missing": True}}}


def test_a_registered_dry_run_is_asked_with_its_time_and_its_faults() -> None:
    runs = DryRuns()
    runs.register("deploy", lambda arguments: {"pods": arguments["count"]})
    runs.register("slow", lambda _: time.sleep(5))
    runs.register("broken", lambda _: 1 / 0)

    def ask(tool: str) -> Preview:
        rules = PreviewRules(seconds=0.2)
        return look_at(
            Looked(tool=tool, server=None, arguments={"count": 2}, mounts=(), dryrun=True, rules=rules), runs
        )

    assert ask("deploy").effect == {"pods": 2}
    assert ask("slow").why == "the dry run failed: it did not end in time"
    assert ask("broken").why == "the dry run failed: `ZeroDivisionError`"


class _Tool(BaseHTTPRequestHandler):
    asked: list[dict[str, Any]] = []  # noqa: RUF012 - one server, one list

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        assert "authorization" not in {name.lower() for name in self.headers}
        status = 500 if body["arguments"].get("fail") else 200
        data = json.dumps({"would": "restart 3 pods"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tool) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/dry-run"
        server.shutdown()


def test_the_tools_own_endpoint_is_asked_where_it_may_be(endpoint: str) -> None:
    how = ToolPreview(kind="endpoint", url=endpoint)
    preview = look("restart", {"pods": 3}, how=how, private=frozenset({"127.0.0.1"}))
    assert preview.effect == {"would": "restart 3 pods"}
    assert _Tool.asked[-1]["dry_run"] is True
    assert look("restart", {"fail": 1}, how=how, private=frozenset({"127.0.0.1"})).why.endswith("answered 500")
    assert look("restart", {"pods": 3}, how=how).state == "failed"
