"""A file that one call of a session writes and a later one runs is read as what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import Deployment
from aegis.context import files
from aegis.context.files import COLLECTION
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.core.principal import Principal
from aegis.gate.repeat import erase_payload
from support.deployments import deployment

EVIL = "rm -rf /\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    opened = deployment(tmp_path / "home")
    yield opened
    opened.close()


def call(place: Deployment, tool: str, session: str | None = "s", **arguments: Any) -> Decision:
    return place.gate.decide(ToolCall(tool=tool, arguments=arguments, session=session))


def shell(place: Deployment, command: str, session: str | None = "s") -> Decision:
    return call(place, "bash", session, command=command)


def is_missing(decision: Decision) -> bool:
    return decision.outcome is Outcome.BLOCK and decision.verdict is Verdict.INSUFFICIENT_EVIDENCE


WRITES: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "/w/a.sh", "content": EVIL}),
    ("create_file", {"filename": "a.sh", "text": EVIL}),
    ("Write", {"file_path": "/w/a.sh", "content": EVIL}),
    ("str_replace_based_edit_tool", {"command": "create", "path": "/w/a.sh", "file_text": EVIL}),
    ("write_file", {"path": "a.sh", "content": "cm0gLXJmIC8K", "encoding": "base64"}),
    ("edit_file", {"path": "a.sh", "old_str": "ls", "new_str": EVIL}),
    ("append_to_file", {"path": "a.sh", "content": EVIL}),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: a.sh\n+rm -rf /\n*** End Patch\n"}),
    ("apply_patch", {"patch": "--- a/a.sh\n+++ b/a.sh\n@@ -1 +1 @@\n-ls\n+rm -rf /\n"}),
    ("bash", {"command": "cat > a.sh <<'EOF'\nrm -rf /\nEOF"}),
    ("bash", {"command": "printf 'rm -rf %s' / | tee a.sh"}),
    ("bash", {"command": "echo cm0gLXJmIC8K | base64 -d > a.sh"}),
    ("bash", {"command": "echo 'rm -rf /' > b; mv b a.sh"}),
]
RUNS = [
    "bash a.sh", "sh ./a.sh --fast", "./a.sh", "source a.sh", ". /w/a.sh", "cd /w && bash a.sh", "bash < a.sh",
    "cat a.sh | sh", "chmod +x a.sh && ./a.sh", "sudo bash a.sh", "nohup ./a.sh &", "bash -c 'bash a.sh'",
    "ssh host 'bash -s' < a.sh", "eval \"$(cat a.sh)\"", "cp a.sh c.sh && bash c.sh",
]  # fmt: skip


@pytest.mark.parametrize("written", WRITES, ids=lambda written: written[0])
def test_what_was_written_is_what_runs(place: Deployment, written: tuple[str, dict[str, Any]]) -> None:
    assert call(place, written[0], **written[1]).allowed
    decision = shell(place, "bash a.sh")
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.ATTACK_DETECTED)


@pytest.mark.parametrize("command", RUNS)
def test_a_file_is_run_in_many_ways(place: Deployment, command: str) -> None:
    assert shell(place, command, session="other").allowed
    call(place, "write_file", path="/w/a.sh", content=EVIL)
    assert shell(place, command).reason is Reason.ATTACK_DETECTED


@pytest.mark.parametrize(
    ("path", "content", "command"),
    [
        ("x.py", "import os\nos.system('rm -rf /')\n", "python x.py"),
        ("pkg/x.py", "import shutil\nshutil.rmtree('/')\n", "python -m pkg.x"),
        ("x.js", "require('child_process').execSync('rm -rf /')\n", "node x.js"),
        ("x", "#!/usr/bin/env python3\nimport shutil\nshutil.rmtree('/')\n", "./x"),
        ("Makefile", "all:\n\trm -rf /\n", "make"),
        ("build.mk", "all:\n\trm -rf /\n", "make -f build.mk"),
        ("x.awk", 'BEGIN { system("rm -rf /") }\n', "awk -f x.awk"),
        ("x.sql", "\\! rm -rf /\n", "psql -f x.sql"),
        ("cron.txt", "* * * * * rm -rf /\n", "crontab cron.txt"),
    ],
)
def test_a_file_is_read_in_the_language_of_what_runs_it(
    place: Deployment, path: str, content: str, command: str
) -> None:
    assert shell(place, command).allowed
    written = call(place, "write_file", path=path, content=content)
    assert Outcome.BLOCK in (written.outcome, shell(place, command).outcome)  # a make file is read when it is written


def test_a_statement_in_a_file_is_held_as_on_the_command_line(place: Deployment) -> None:
    call(place, "write_file", path="x.sql", content="DROP TABLE users;\n")
    assert shell(place, "psql -f x.sql").reason is shell(place, "psql -c 'DROP TABLE users;'").reason


def test_code_and_tools_that_run_a_file_run_what_was_written(place: Deployment) -> None:
    call(place, "write_file", path="tests/x.py", content="import os\nos.system('rm -rf /')\n")
    assert call(place, "run_script", path="tests/x.py").reason is Reason.ATTACK_DETECTED
    code = "import subprocess\nsubprocess.run(['python', 'tests/x.py'])\n"
    assert call(place, "python", code=code).reason is Reason.ATTACK_DETECTED


def test_edits_are_put_together(place: Deployment) -> None:
    call(place, "write_file", path="a.sh", content="rm -X /\n")
    call(place, "edit_file", path="a.sh", edits=[{"oldText": "X", "newText": "rf"}])
    assert shell(place, "bash a.sh").reason is Reason.ATTACK_DETECTED


def test_a_copy_of_a_copy_is_what_was_written(place: Deployment) -> None:
    call(place, "write_file", path="a.sh", content=EVIL)
    shell(place, "cp a.sh b.sh")
    shell(place, "mv b.sh c.sh")
    assert shell(place, "bash c.sh").reason is Reason.ATTACK_DETECTED


@pytest.mark.parametrize(
    "writes",
    [
        [("write_file", {"path": "a.sh", "content": "ls -la\n"}), ("bash", {"command": "bash a.sh"})],
        [("str_replace", {"path": "app.py", "old_str": "1", "new_str": "2"}), ("bash", {"command": "python app.py"})],
        [("edit_file", {"path": "tests/test_x.py", "new_str": "def test(): pass"}), ("bash", {"command": "pytest -q"})],
        [("bash", {"command": "curl -fsSL https://x.example/d.csv -o d.csv"}), ("bash", {"command": "head d.csv"})],
        [("bash", {"command": "pytest -q > out.log 2>&1"}), ("bash", {"command": "tail -5 out.log"})],
        [("bash", {"command": "curl -o d.json https://x.example/d"}), ("bash", {"command": "python load.py d.json"})],
        [("bash", {"command": "gcc -o app main.c"}), ("bash", {"command": "./app"})],
        [("bash", {"command": "python gen.py > data.txt"}), ("bash", {"command": "bash build.sh data.txt"})],
        [("write_file", {"path": "notes.md", "content": "never run rm -rf /"}), ("bash", {"command": "cat notes.md"})],
        [("write_file", {"path": "q.sql", "content": "select 1;"}), ("bash", {"command": "psql -f q.sql"})],
        [("write_file", {"path": "Makefile", "content": "all:\n\tgo build\n"}), ("bash", {"command": "make"})],
        [("bash", {"command": "cp config.example config.sh"}), ("bash", {"command": "source config.sh"})],
        [("write_file", {"path": "x.py", "content": "print('x' * 3)\n" * 900}), ("bash", {"command": "python x.py"})],
    ],
)  # fmt: skip
def test_daily_work_passes(place: Deployment, writes: list[tuple[str, dict[str, Any]]]) -> None:
    assert all(call(place, tool, **arguments).allowed for tool, arguments in writes)


def test_a_file_that_was_written_anew_is_what_it_holds_now(place: Deployment) -> None:
    call(place, "write_file", path="a.sh", content=EVIL)
    assert not shell(place, "bash a.sh").allowed
    call(place, "write_file", path="a.sh", content="ls\n")
    assert shell(place, "bash a.sh").allowed
    shell(place, "cat > /w/b.sh <<'EOF'\nrm -rf /\nEOF")
    assert not shell(place, "bash b.sh").allowed
    shell(place, "cat > /w/b.sh <<'EOF'\nls\nEOF")
    assert shell(place, "bash b.sh").allowed


def test_a_write_that_need_not_happen_replaces_nothing(place: Deployment) -> None:
    shell(place, "echo 'rm -rf /' > a.sh")
    shell(place, "echo 'rm -rf /' > /w/b.sh")
    for later in ("false && echo ls > a.sh", "cd /elsewhere; echo ls > a.sh", "echo ls > a.sh"):
        shell(place, later)
        shell(place, later.replace("a.sh", "/w/b.sh"))
    call(place, "write_file", path="a.sh", content="ls\n")
    assert not shell(place, "bash a.sh").allowed


def test_a_write_on_another_server_replaces_nothing(place: Deployment) -> None:
    call(place, "write_file", path="/w/a.sh", content=EVIL)
    there = ToolCall(tool="write_file", server="mcp:fs", arguments={"path": "/w/a.sh", "content": "ls\n"}, session="s")
    assert place.gate.decide(there).allowed
    assert not shell(place, "bash /w/a.sh").allowed


@pytest.mark.parametrize(
    "written",
    [
        ("bash", {"command": "curl -fsSL https://x.example/i.sh -o a.sh"}),
        ("bash", {"command": "wget https://x.example/a.sh"}),
        ("bash", {"command": "python generate.py > a.sh"}),
        ("bash", {"command": "curl -s https://x.example/i | tee a.sh"}),
        ("write_file", {"path": "a.sh", "content": "echo x\n" * 4_000}),
    ],
)
def test_what_cannot_be_known_is_missing_evidence_for_the_run(
    place: Deployment, written: tuple[str, dict[str, Any]]
) -> None:
    assert call(place, written[0], **written[1]).allowed
    assert is_missing(shell(place, "bash a.sh"))
    assert shell(place, "cat a.sh").allowed
    assert shell(place, "bash other.sh").allowed


def test_sessions_and_principals_share_no_memory_and_without_a_session_there_is_none(place: Deployment) -> None:
    call(place, "write_file", path="a.sh", content=EVIL)
    call(place, "write_file", session=None, path="b.sh", content=EVIL)
    assert shell(place, "bash a.sh", session="other").allowed
    assert shell(place, "bash b.sh", session=None).allowed
    other = Principal(id="someone", roles=frozenset({"agent"}))
    theirs = ToolCall(tool="bash", arguments={"command": "bash a.sh"}, session="s")
    assert place.gate.decide(theirs, principal=other).allowed


def test_every_gateway_of_a_deployment_decides_the_same(place: Deployment, tmp_path: Path) -> None:
    call(place, "write_file", path="a.sh", content=EVIL)
    other = deployment(tmp_path / "home")
    try:
        assert shell(other, "bash a.sh").reason is Reason.ATTACK_DETECTED
        call(other, "write_file", path="a.sh", content="ls\n")
    finally:
        other.close()
    assert shell(place, "bash a.sh").allowed


def test_a_blocked_write_is_not_remembered(place: Deployment) -> None:
    assert not call(place, "write_file", path="/etc/cron.d/a.sh", command="rm -rf /", content=EVIL).allowed
    assert shell(place, "bash a.sh").allowed


def test_an_erased_text_is_missing_evidence(place: Deployment) -> None:
    written = call(place, "write_file", path="a.sh", content="ls\n")
    assert shell(place, "bash a.sh").allowed
    place.ledger.append(erase_payload(written.decision_id, principal="p"))
    assert is_missing(shell(place, "sh a.sh"))


def test_neither_names_nor_texts_stand_readable_in_the_store(place: Deployment) -> None:
    call(place, "write_file", path="zebra-crossing.sh", content="echo giraffe\n")
    with place.store.reader() as reader:
        documents = reader.documents(COLLECTION)
    assert len(documents) == 2  # what is written with every call, and the calls
    for document in documents:
        assert b"zebra" not in document.body
        assert b"giraffe" not in document.body


def test_calls_that_write_nothing_leave_no_document(place: Deployment) -> None:
    for command in ("ls", "bash build.sh", "git status", "python manage.py test"):
        shell(place, command)
    call(place, "read_file", path="a.sh")
    with place.store.reader() as reader:
        assert reader.documents(COLLECTION) == []


def test_a_flood_of_writes_hides_nothing(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PIECE", 2)
    monkeypatch.setattr(files, "PIECES", 2)
    monkeypatch.setattr(files, "MOST_GONE", 8)
    call(place, "write_file", path="a.sh", content=EVIL)
    for number in range(5):
        call(place, "write_file", path=f"f{number}.txt", content="x")
    assert is_missing(shell(place, "bash a.sh"))
    assert shell(place, "bash build.sh").allowed
    with place.store.reader() as reader:
        assert len(reader.documents(COLLECTION)) == 2 + files.PIECES  # as many pieces as are kept, the head, the gone
    for number in range(20):
        call(place, "write_file", path=f"g{number}.txt", content="x")
    assert is_missing(shell(place, "bash build.sh"))  # nobody knows any more what was not written


def test_many_edits_of_one_file_hide_nothing(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_READ", 4)
    call(place, "write_file", path="/w/a.sh", content=EVIL)
    for number in range(5):
        call(place, "edit_file", path="/w/a.sh", new_str=f"echo {number}")
    assert is_missing(shell(place, "bash a.sh"))
    call(place, "write_file", path="/w/a.sh", content="ls\n")
    assert shell(place, "bash a.sh").allowed


def test_a_file_that_is_written_while_its_run_is_judged_is_judged_again(
    place: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Decision] = []
    looked_up = files.recalled
    call(place, "write_file", path="a.sh", content="ls\n")

    def late(*given: Any) -> Any:
        found = looked_up(*given)
        if not written:
            written.append(call(place, "write_file", path="a.sh", content=EVIL))
        return found

    monkeypatch.setattr("aegis.context.files.recalled", late)
    assert shell(place, "bash a.sh").reason is Reason.ATTACK_DETECTED
    assert len(written) == 1
