"""What a call touches is compared in one spelling, however it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.core.outcome import Reason, Verdict
from support.missions import Desk, desk


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("scope"), "guards: {content: {mode: observe}}")
    forbidden = {"paths": ["glob:/ws/private/**"]}
    made.open(made.issue(forbidden_scope=forbidden))
    yield made
    made.home.close()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hosts", "/ws/../etc/hosts", "/ws/./../etc", "/ws/%2e%2e/etc", "/ws/%252e%252e/etc", "/ws／．．／etc",
        "/ws/‥/etc", "\\ws\\..\\etc", "C:\\ws\\a", "c:/ws/a", "\\\\?\\C:\\ws", "\\\\server\\ws\\a", "//server/ws/a",
        "/WS/a", "/ws2/a", "/w", "/ws/.. /etc/x", "/ws/...", "~/ws/a", "file:///etc/hosts", "file://evil/ws/a",
        "/ws/private/key", "/ws/PRIVATE/key", "/ws/x/../private/key", "/ws/a\x00.txt", "../ws/a", "ws/a",
    ],
)  # fmt: skip
def test_a_path_outside_of_the_scope_is_refused_in_every_spelling(place: Desk, path: str) -> None:
    decision = place.call("read_file", path=path)
    assert not decision.allowed
    assert decision.reason in (Reason.SCOPE_VIOLATION, Reason.INSUFFICIENT_EVIDENCE)


@pytest.mark.parametrize(
    "path", ["/ws/a.txt", "/ws", "/ws/b/../a", "//ws/a", "/ws/100%", "/ws/naïve.txt", "file:///ws/a", "/ws/a b.txt"]
)
def test_a_path_inside_of_the_scope_is_allowed(place: Desk, path: str) -> None:
    assert place.call("read_file", path=path).allowed


@pytest.mark.parametrize(
    "url",
    [
        "https://evilexample.com/", "https://api.example.com.evil.net/", "https://api.example.com@evil.net/",
        "https://evil.net\\@api.example.com/", "https://api.example.com\\@evil.net/", "https://api.example.com:80@evil.net",
        "https://example.com/", "https://a.b.cdn.example.com/", "https://cdn.example.com/", "https://2130706433/",
        "https://0x7f.1/", "https:evil.net", "https:/\\evil.net", "//evil.net", "https://api.example.com%2eevil.net",
        "https://api.example.com。evil.net/", "https://[::ffff:7f00:1]/", "https://evil.net#@api.example.com",
    ],
)  # fmt: skip
def test_a_host_is_compared_by_its_labels_and_by_every_parser(place: Desk, url: str) -> None:
    assert not place.call("fetch_url", url=url).allowed


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1?q=a@b", "https://API.example.com./x", "https://a.cdn.example.com:8443/",
        "https://user:pw@api.example.com/", "api.example.com", "https://ＡＰＩ.example.com/",
    ],
)  # fmt: skip
def test_a_host_inside_of_the_scope_is_allowed_in_its_own_spellings(place: Desk, url: str) -> None:
    assert place.call("fetch_url", url=url).allowed


@pytest.mark.claim("IDN-10")
@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("[2606:4700::1111]", True),
        ("8.8.8.8", True),
        ("10.0.0.1", False),
        ("[::ffff:10.0.0.1]", False),
        ("[::10.0.0.1]", False),
        ("[64:ff9b::a00:1]", False),
        ("[2002:a00:1::1]", False),
        ("[64:ff9b:1:a00:0:100::]", False),
    ],
)
def test_an_address_is_compared_by_every_address_that_it_carries(place: Desk, host: str, allowed: bool) -> None:
    scope = {"hosts": ["glob:**"]}
    mission = place.issue(scope=scope, forbidden_scope={"hosts": ["exact:10.0.0.1"]})
    session = place.open(mission, f"carries {host}")
    assert place.call("fetch_url", session, url=f"https://{host}/x").allowed is allowed


@pytest.mark.parametrize(
    "to",
    [
        "eve@evil.net", "a@example.com.evil.net", '"a@example.com" <eve@evil.net>', "a@example.com, eve@evil.net",
        "a@example.com <eve@evil.net>", "a@example.com;eve@evil.net", "a@evil.net@example.com", "#general",
        "a@example.com\r\nBcc: eve@evil.net", "mailto:eve@evil.net",
    ],
)  # fmt: skip
def test_a_recipient_is_compared_by_its_address(place: Desk, to: str) -> None:
    assert not place.call("send_mail", to=to, body="hello").allowed


@pytest.mark.parametrize("to", ["a@example.com", "Ann <a@example.com>", "a@EXAMPLE.com, b@example.com", "#team"])
def test_a_recipient_inside_of_the_scope_is_allowed(place: Desk, to: str) -> None:
    assert place.call("send_mail", to=to, body="hello").allowed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM secrets", "SELECT * FROM reports JOIN secrets USING (id)", "SELECT 1; SELECT * FROM secrets",
        "SELECT * FROM reports WHERE id IN (SELECT id FROM secrets)", "SELECT * FROM other.reports",
        "WITH reports AS (SELECT * FROM secrets) SELECT * FROM reports",
        "SELECT * FROM reports UNION SELECT * FROM s.t",
        "SELECT * FROM reports /*! UNION SELECT * FROM secrets */", "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT 'a\\' FROM reports --' , x FROM secrets", "COPY reports TO '/x'", "selec whatever",
    ],
)  # fmt: skip
def test_tables_come_from_the_parsed_statement(place: Desk, sql: str) -> None:
    assert not place.call("run_sql", sql=sql).allowed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM reports", "SELECT * FROM Reports r WHERE r.name = 'secrets'", "SELECT a FROM public.orders",
        "WITH t AS (SELECT * FROM reports) SELECT * FROM t", 'SELECT "secrets" FROM reports -- FROM secrets',
    ],
)  # fmt: skip
def test_words_in_texts_and_comments_are_no_tables(place: Desk, sql: str) -> None:
    assert place.call("run_sql", sql=sql).allowed


@pytest.mark.parametrize(
    "command",
    [
        "git push", "git status && git push", "git status; rm x", "git status | sh", "$(git push)", "ls $(git push)",
        "FOO=1 git status", "git -c core.pager=x status", "/tmp/git status", "git() { rm x; }; git status",
        "g$x status",
        "eval git status", "alias ls=rm; ls", "ls > /etc/x", "ls < /etc/x", "git stat\\us `rm x`",
        "for i in 1; do ls; done",
    ],
)  # fmt: skip
def test_commands_are_compared_by_parsed_program_and_sub_command(place: Desk, command: str) -> None:
    assert not place.call("run_shell", command=command).allowed


@pytest.mark.parametrize(
    "command", ["git status", "git status -s", "git  'status'", "ls -la", "ls && git status", "ls > /ws/out.txt"]
)
def test_a_command_inside_of_the_scope_is_allowed(place: Desk, command: str) -> None:
    assert place.call("run_shell", command=command).allowed


def test_an_empty_scope_allows_no_resource(place: Desk) -> None:
    place.open(place.issue(scope={}), "s-empty")
    assert place.call("read_file", "s-empty", path="/ws/a").reason is Reason.SCOPE_VIOLATION
    assert place.call("list_rows", "s-empty", count=3).allowed


def test_a_link_that_leads_out_of_the_scope_is_followed(place: Desk, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "out").symlink_to("/etc")
    (inside / "in").mkdir()
    place.open(place.issue(scope={"paths": [f"glob:{inside}/**"]}), "s-link")
    assert place.call("read_file", "s-link", path=f"{inside}/in/a").allowed
    refused = place.call("read_file", "s-link", path=f"{inside}/out/hosts")
    assert refused.reason is Reason.SCOPE_VIOLATION
    assert "scope-paths-by-link" in place.rules(refused)


def test_a_scope_that_is_itself_a_link_is_the_place_it_leads_to(place: Desk, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    place.open(place.issue(scope={"paths": [f"glob:{tmp_path}/link/**"]}), "s-own-link")
    assert place.call("read_file", "s-own-link", path=f"{tmp_path}/link/a").allowed


def test_relative_paths_are_read_below_the_base_of_the_mission(place: Desk) -> None:
    place.open(place.issue(scope={"paths": ["glob:/srv/data/**"], "base": "/srv/data"}), "s-base")
    assert place.call("read_file", "s-base", path="a/b.txt").allowed
    assert not place.call("read_file", "s-base", path="../b.txt").allowed


def test_a_resource_is_found_in_any_argument_however_deep(place: Desk) -> None:
    assert not place.call("read_file", options={"deep": [{"anything": "/etc/hosts"}]}).allowed
    assert not place.call("read_file", link="https://evil.net/x").allowed


def test_a_command_given_as_words_is_a_command(place: Desk) -> None:
    assert place.call("run_shell", argv=["git", "status"]).allowed
    assert not place.call("run_shell", argv=["git", "push"]).allowed


def test_a_call_that_goes_out_names_where_under_a_scope_of_hosts(place: Desk) -> None:
    nameless = place.call("fetch_url", page=3)
    assert (nameless.verdict, nameless.missing) == (Verdict.INSUFFICIENT_EVIDENCE, ("scope.hosts",))
    assert place.call("fetch_url", url="https://api.example.com/x").allowed
    place.open(place.issue(scope={"paths": ["glob:/ws/**"]}), "s-no-hosts")
    assert place.call("fetch_url", "s-no-hosts", page=3).allowed


def test_a_call_that_sends_names_who_gets_it_under_a_scope_of_recipients(place: Desk) -> None:
    nameless = place.call("send_mail", body="hello")
    assert (nameless.verdict, nameless.missing) == (Verdict.INSUFFICIENT_EVIDENCE, ("scope.recipients",))
    assert place.call("send_mail", to="ann@example.com", body="hello").allowed


def test_a_call_that_runs_something_names_the_command_under_a_scope_of_commands(place: Desk) -> None:
    nameless = place.call("run_shell", timeout=5)
    assert (nameless.verdict, nameless.missing) == (Verdict.INSUFFICIENT_EVIDENCE, ("scope.commands",))


def test_a_program_with_its_words_beside_it_is_a_command(place: Desk) -> None:
    assert place.call("run_shell", command="git", args=["status"]).allowed
    assert not place.call("run_shell", command="git", args=["push"]).allowed
    assert place.call("run_shell", options={"command": ["git", "status"]}).allowed
    assert not place.call("run_shell", options={"command": ["git", "push"]}).allowed
