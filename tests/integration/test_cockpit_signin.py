"""Who gets into the cockpit, and what a page of somebody else's can make a browser do: nothing."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.bootstrap.credentials import alter_account, first_link, password_link
from aegis.cockpit.page import COLLECTION, FORGOTTEN_S, FREE, LONGEST_S, SLOTS, Throttle
from aegis.cockpit.surface import PAGES
from aegis.core.times import MICROS
from aegis.errors import InvalidCall
from aegis.keys.accounts import IDLE_S, find_session
from support.people import PASSWORD, Person, person, state_of
from support.served import Served, served


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("signin") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def dana(gateway: Served) -> Person:
    return person(gateway, "dana", "approver", "auditor", "admin", "issuer")


@pytest.mark.claim("COK-01")
def test_no_page_opens_without_a_session(gateway: Served) -> None:
    nobody = Person(gateway=gateway, name="nobody")
    for page in PAGES:
        if page.permission is None:
            continue
        path = page.path.replace("{id}", "x").replace("{id:path}", "x").replace("{name}", "x")
        answer = nobody.get(path) if page.method == "GET" else nobody.post(path)
        assert answer.status in (303, 401), (page.method, page.path)
        if answer.status == 303:
            assert answer.headers["location"].startswith("/sign-in")


def test_a_person_signs_in_and_out(dana: Person) -> None:
    assert dana.get("/").headers["location"] == "/sign-in?next=%2F"
    answer = dana.sign_in()
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert dana.get("/").status == 200
    kept = dana.cookie
    assert dana.post("/sign-out").status == 303
    dana.cookie = kept
    assert dana.get("/").status == 303


@pytest.mark.claim("COK-18")
def test_what_was_typed_outlives_the_session_and_is_sent_only_by_the_person(gateway: Served, dana: Person) -> None:
    dana.sign_in()
    held = gateway.decide("send_email", arguments={"to": "a@example.com"}, call_id="typed").json["approval"]["id"]
    dana.cookie = ""
    typed = {"decision": "deny", "reason": 'too "late" <b>\nand wrong'}
    page = dana.post(f"/approvals/{held}", typed, {"sec-fetch-mode": "navigate"})
    assert page.status == 401
    body = page.body.decode()
    assert f'name="kept" value="/approvals/{held}"' in body
    assert "too &#34;late&#34; &lt;b&gt;\nand wrong" in body
    kept = {"kept": f"/approvals/{held}"} | {f"kept.{name}": value for name, value in typed.items()}
    again = dana.post("/sign-in", {"name": "dana", "password": "wrong-password", **kept})
    assert again.status == 401
    assert f'name="kept" value="/approvals/{held}"' in again.body.decode()
    shown = dana.post("/sign-in", {"name": "dana", "password": PASSWORD, **kept})
    assert shown.status == 200
    assert "What you had typed was not sent" in shown.body.decode()
    assert f'action="/approvals/{held}"' in shown.body.decode()
    assert gateway.ask("GET", f"/v1/approvals/{held}", key="ann").json["state"] == "pending"
    elsewhere = {**kept, "kept": "//evil.example/x"}
    assert dana.post("/sign-in", {"name": "dana", "password": PASSWORD, **elsewhere}).status == 303


def test_behind_tls_the_cookie_is_bound_to_this_host(gateway: Served, dana: Person) -> None:
    origin = f"https://127.0.0.1:{gateway.port}"
    answer = dana.post("/sign-in", {"name": "dana", "password": PASSWORD}, {"origin": origin})
    assert answer.headers["set-cookie"].startswith("__Host-aegis_session=")
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.claim("COK-02")
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "https://elsewhere.example"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
    ],
)
def test_a_form_that_was_not_sent_from_here_is_refused(dana: Person, headers: dict[str, str]) -> None:
    dana.sign_in()
    assert dana.post("/sign-out", headers=headers).status == 403
    assert dana.get("/").status == 200


@pytest.mark.claim("COK-02")
def test_a_form_without_any_word_of_its_origin_is_refused(gateway: Served, dana: Person) -> None:
    dana.sign_in()
    answer = gateway.ask("POST", "/sign-out", b"", key=None, headers={"cookie": dana.cookie})
    assert answer.status == 403


def test_a_wrong_name_and_a_wrong_password_look_the_same(gateway: Served) -> None:
    somebody = person(gateway, "mallory", "approver")
    wrong = somebody.sign_in("not the password")
    unknown = Person(gateway=gateway, name="mallorx").sign_in("not the password")
    assert wrong.status == unknown.status == 401
    assert wrong.body.replace(b"mallory", b"mallorx") == unknown.body


def try_on(gateway: Served, name: str) -> None:
    """Try a name each time that it may be, until it has to wait for longer than these tests take."""
    now = gateway.app.services.clock()
    for count in range(1, 7):
        now += (1 << count) * MICROS
        Throttle(gateway.deployment.store, lambda at=now: at).attempt(name)


@pytest.mark.claim("COK-03")
def test_a_name_that_was_tried_too_often_has_to_wait(gateway: Served) -> None:
    target = person(gateway, "target", "approver")
    for _ in range(FREE + 1):
        assert target.sign_in("wrong, wrong, wrong").status == 401
    try_on(gateway, "target")
    assert target.sign_in("wrong, wrong, wrong").status == 429
    assert target.sign_in().status == 429
    assert person(gateway, "other.person", "approver").sign_in().status == 303


@pytest.mark.claim("COK-03")
def test_tries_are_counted_over_every_process_and_survive_a_restart(tmp_path: Path) -> None:
    with served(tmp_path / "home") as first, served(tmp_path / "home") as second:
        here = person(first, "target", "approver")
        there = Person(gateway=second, name="target")
        for number in range(FREE + 1):
            assert (here, there)[number % 2].sign_in("wrong, wrong, wrong").status == 401
        try_on(first, "target")
        assert (here.sign_in().status, there.sign_in().status) == (429, 429)
    with served(tmp_path / "home") as again:
        waiting = Throttle(again.deployment.store, again.app.services.clock)
        # One more failure than the restarted process ever saw: it goes on counting where the others were.
        later = Throttle(again.deployment.store, lambda: again.app.services.clock() + 2 * LONGEST_S * MICROS)
        later.attempt("target")
        with pytest.raises(InvalidCall, match="tried too often"):
            waiting.attempt("target")


def test_a_success_and_a_long_time_begin_the_count_anew(gateway: Served) -> None:
    store, now = gateway.deployment.store, gateway.app.services.clock()
    clock = [now]
    throttle = Throttle(store, lambda: clock[0])
    for _ in range(FREE + 1):
        throttle.attempt("forgotten")
    with pytest.raises(InvalidCall):
        throttle.attempt("forgotten")
    clock[0] = now + FORGOTTEN_S * MICROS
    for _ in range(FREE + 1):
        throttle.attempt("forgotten")
    throttle.succeeded("forgotten")
    throttle.attempt("forgotten")


def test_made_up_names_are_kept_in_bounded_room(gateway: Served) -> None:
    throttle = Throttle(gateway.deployment.store, gateway.app.services.clock)
    for number in range(50):
        throttle.attempt(f"{number}" * 1_000)
    with gateway.deployment.store.reader() as reader:
        kept = reader.documents(COLLECTION)
    assert all(int(one.key) < SLOTS and len(one.body) < 100 for one in kept)


@pytest.mark.claim("COK-01")
def test_a_session_ends_when_it_is_not_used(gateway: Served) -> None:
    idle = person(gateway, "idle", "auditor")
    idle.sign_in()
    token = idle.cookie.partition("=")[2]
    now = gateway.app.services.clock()
    with gateway.deployment.store.reader() as reader:
        assert find_session(reader, token, now=now) is not None
        assert find_session(reader, token, now=now + (IDLE_S + 1) * MICROS) is None


@pytest.mark.claim("COK-01")
@pytest.mark.parametrize("change", ["disable", "password"])
def test_a_change_of_the_account_ends_its_sessions(gateway: Served, change: str) -> None:
    changed = person(gateway, f"changed-{change}", "auditor")
    changed.sign_in()
    assert changed.get("/").status == 200
    if change == "disable":
        alter_account(state_of(gateway), changed.name, "disable", to="disabled", by="operator:test")
        assert changed.sign_in().status == 401
    else:
        alter_account(state_of(gateway), changed.name, "password", password="another long password", by="operator:test")
    changed.cookie = changed.cookie or ""
    assert changed.get("/").status == 303


def test_a_page_needs_its_role(gateway: Served) -> None:
    approver = person(gateway, "only-approver", "approver")
    approver.sign_in()
    assert approver.get("/").status == 200
    assert approver.get("/log-key").status == 403


def test_sign_in_leads_nowhere_else(gateway: Served, dana: Person) -> None:
    for target in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb"):
        answer = dana.post("/sign-in", {"name": "dana", "password": PASSWORD, "next": target})
        assert answer.headers["location"] == "/"
    answer = dana.post("/sign-in", {"name": "dana", "password": PASSWORD, "next": "/?agent=bot"})
    assert answer.headers["location"] == "/?agent=bot"


def test_the_first_link_makes_one_account_and_works_once(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        token = first_link(gateway.deployment.store)
        other = first_link(gateway.deployment.store)
        first = Person(gateway=gateway, name="first")
        assert first.get(f"/welcome?token={token}").status == 200
        form = {"token": token, "name": "first", "password": PASSWORD, "again": PASSWORD}
        assert first.post("/welcome", {**form, "again": "something else"}).status == 422
        answer = first.post("/welcome", form)
        assert answer.status == 303
        first.cookie = answer.headers["set-cookie"].partition(";")[0]
        assert first.get("/").status == 200
        assert first.post("/welcome", form).status == 410
        assert first.post("/welcome", {**form, "token": other, "name": "second"}).status == 410
        assert first_link(gateway.deployment.store) is None
        assert first.sign_in().status == 303


def test_a_password_link_sets_a_new_password_once(gateway: Served) -> None:
    lost = person(gateway, "lost", "auditor")
    token = password_link(state_of(gateway), "lost")
    form = {"token": token, "name": "ignored", "password": "a new long password", "again": "a new long password"}
    assert lost.post("/welcome", form).status == 303
    assert lost.post("/welcome", form).status == 410
    assert lost.sign_in().status == 401
    assert lost.sign_in("a new long password").status == 303


def test_accounts_and_sign_ins_are_on_the_record(gateway: Served, dana: Person) -> None:
    person(gateway, "recorded", "auditor")
    state = state_of(gateway)
    alter_account(state, "recorded", "password", password="another long password", by="operator:test")
    alter_account(state, "recorded", "disable", to="disabled", by="operator:test")
    dana.sign_in()
    grants = gateway.ask("GET", "/v1/receipts?kind=grant&limit=1000", key="auditor").json["items"]
    assert {"create", "disable", "password"} <= {grant["action"] for grant in grants}
    newest = gateway.ask("GET", "/v1/receipts?kind=access&limit=1", key="auditor").json["items"][0]
    assert (newest["action"], newest["principal"]) == ("sign_in", "dana")


@pytest.mark.claim("COK-04")
def test_every_page_allows_its_own_files_alone(dana: Person) -> None:
    dana.sign_in()
    for path in ("/sign-in", "/", "/account", "/no-such-page"):
        answer = dana.get(path, {"accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert "frame-ancestors 'none'" in policy
        text = answer.body.decode()
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        assert "<script>" not in text


def test_assets_are_kept_by_their_version(dana: Person) -> None:
    page = dana.get("/sign-in").body.decode()
    path = page.partition('href="/assets/')[2].partition('"')[0]
    answer = dana.get(f"/assets/{path}")
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    version, _, name = path.partition("/")
    assert dana.get(f"/assets/{'0' * len(version)}/{name}").headers["cache-control"] == "no-store"
    assert dana.get(f"/assets/{version}/nothing.css").status == 404
    assert dana.get("/").headers["cache-control"] == "no-store"


@pytest.mark.claim("COK-01")
def test_the_live_feed_ends_with_its_session_however_much_is_recorded(
    gateway: Served, dana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aegis.cockpit.now.STANDING_S", 0.2)
    dana.sign_in()
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    connection.request("GET", "/live", headers={"cookie": dana.cookie})
    feed = connection.getresponse()
    assert feed.readline().startswith(b"retry:")
    over = threading.Event()

    def record() -> None:
        while not over.is_set():
            gateway.decide()

    busy = threading.Thread(target=record)
    busy.start()
    try:
        while not feed.readline().startswith(b"data:"):
            continue
        dana.post("/sign-out")
        assert feed.read().endswith(b"event: ended\ndata: {}\n\n")
    finally:
        over.set()
        busy.join()
        connection.close()
