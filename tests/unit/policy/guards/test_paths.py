"""Limits of paths: every spelling of a path lies inside, and so does the file that it leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import parse_config
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.detect.rules.cache import default_cache_folder
from aegis.errors import ConfigError
from aegis.policy.model import Incoming
from aegis.policy.policy import Policy

AGENT = Principal(id="p", roles=frozenset({"agent"}), agent="a")


def policy(folder: str, more: str = "") -> Policy:
    paths = f"{{file: ['{folder}/**'], /out/to: ['{folder}/*.pdf']}}"
    text = f"version: 1\ntools:\n  read_report: {{risk: low, paths: {paths}}}\n"
    return compile_policy(parse_config(text + more), cache=default_cache_folder())


def reason(judge: Policy, arguments: dict[str, Any], *, tool: str = "read_report", server: str | None = None) -> Reason:
    incoming = Incoming(
        tool=tool, server=server, arguments=arguments, principal=AGENT, agent="a", session="", call_id="c", now=0
    )
    combined = judge.evaluate(incoming).combined
    assert (combined.outcome is Outcome.BLOCK) is (combined.reason is not Reason.NONE)
    return combined.reason


@pytest.mark.parametrize(
    "path",
    ["/srv/reports/a.pdf", "/srv/reports/2024/q1/a.pdf", "/srv/reports/./x/../a.pdf"],
)
def test_a_path_inside_passes(path: str) -> None:
    assert reason(policy("/srv/reports"), {"file": path}) is Reason.NONE


@pytest.mark.parametrize(
    "path",
    [
        "/srv/secret.txt",
        "/srv/reports-old/a.pdf",
        "/srv/reports/../secret.txt",
        "/srv/reports/%2e%2e/secret.txt",
        "/srv/reports/．．/secret.txt",
        "/srv/reports\\..\\secret.txt",
        "srv/reports/a.pdf",
        "~/reports/a.pdf",
        "",
        "/srv/reports/a\u202etxt",
    ],
)
def test_a_path_outside_is_a_violation_of_the_scope_in_every_spelling(path: str) -> None:
    found = reason(policy("/srv/reports"), {"file": path})
    assert found in {Reason.SCOPE_VIOLATION, Reason.ATTACK_DETECTED}


def test_every_path_of_a_list_counts_and_a_pointer_names_one_place() -> None:
    judge = policy("/srv/reports")
    assert reason(judge, {"file": ["/srv/reports/a", "/srv/b"]}) is Reason.SCOPE_VIOLATION
    assert reason(judge, {"out": {"to": "/srv/reports/a.pdf"}}) is Reason.NONE
    assert reason(judge, {"out": {"to": "/srv/reports/sub/a.pdf"}}) is Reason.SCOPE_VIOLATION
    assert reason(judge, {"other": "/srv/b"}) is Reason.NONE


def test_a_limit_holds_on_every_server_and_for_every_spelling_of_the_name() -> None:
    judge = policy("/srv/reports")
    assert reason(judge, {"file": "/srv/b"}, server="mcp:files") is Reason.SCOPE_VIOLATION
    assert reason(judge, {"file": "/srv/b"}, tool="Read_Report") is Reason.SCOPE_VIOLATION


def test_a_link_that_leads_out_is_followed_where_the_files_are(tmp_path: Path) -> None:
    reports, secret = tmp_path / "reports", tmp_path / "secret"
    reports.mkdir()
    secret.mkdir()
    (secret / "a.txt").write_text("x", encoding="utf-8")
    (reports / "link").symlink_to(secret)
    (tmp_path / "also").symlink_to(reports)
    inside = str(reports)
    assert reason(policy(inside), {"file": f"{inside}/link/a.txt"}) is Reason.SCOPE_VIOLATION
    assert reason(policy(inside, "missions: {file_system: apart}\n"), {"file": f"{inside}/link/a.txt"}) is Reason.NONE
    assert reason(policy(str(tmp_path / "also")), {"file": f"{tmp_path}/also/b.txt"}) is Reason.NONE


def test_a_number_is_no_path_and_stands_for_one_nowhere_else() -> None:
    assert reason(policy("/srv/reports"), {"file": 7}) is Reason.SCOPE_VIOLATION
    assert reason(policy("/srv/reports"), {"file": ["/srv/reports/a.pdf", 7]}) is Reason.SCOPE_VIOLATION
    assert reason(policy("/srv/reports"), {"file": "/srv/reports/a.pdf", "page": 7, "all": True}) is Reason.NONE


@pytest.mark.parametrize("pattern", ["/srv/../etc/**", "/**", "", "/srv/a**", "/srv//a"])
def test_a_pattern_that_means_something_else_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(f"version: 1\ntools: {{a: {{paths: {{file: ['{pattern}']}}}}}}\n")
