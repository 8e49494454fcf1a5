"""What the pages of the cockpit cost over a long log: on the server, and until a browser can be used."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from aegis.bootstrap.credentials import create_account
from aegis.bootstrap.state import State, open_state
from aegis.core.receipt import Draft
from aegis.gate.events import new_id
from aegis.keys.accounts import PERSONAL_ROLES
from aegis.log.writer import Unit
from aegis.server.http import MAX_CALLS
from benchmarks.cockpit_feed import decide, live_feed
from benchmarks.deployments import CONFIG, running, write
from benchmarks.stats import timing

RECEIPTS: Final = 1_000_000
QUICK: Final = 20_000
UNIT: Final = 1_000  # receipts of one commit
VISITS: Final = 30
PASSWORD: Final = "only for a benchmark on loopback"
CHROMIUM: Final = Path("/usr/bin/chromium")
DIGEST: Final = "sha-256:" + "0" * 64
PAGES: Final = {
    "now": "/",
    "now, one agent": "/?agent=agent-7",
    "now, blocked": "/?decision=block",
    "approvals": "/approvals",
    "sessions": "/sessions",
    "session": "/sessions/s-77?principal=agent:agent-77",
    "violations": "/violations",
    "violations, one rule": "/violations?rule=rule-10",
    "policies": "/policies",
    "replay": "/policies/replay",
    "draft": "/policies/draft",
    "playground": "/policies/playground",
    "agents": "/agents",
    "agent, with what is usual of it": "/agents/bench",
    "alerts": "/alerts",
    "audit, with retention": "/audit",
    "audit, search": "/audit?tool=tool-3&decision=block",
    "audit, found nowhere": "/audit?agent=agent-4&tool=tool-3",
    "account": "/account",
}
REAL: Final = 1_200  # calls that the gateway decides itself: they have payloads, and make a baseline
_IRREVERSIBLE: Final = "tools:\n  pay: {risk: high, irreversible: true, effects: [write]}\n"


def cockpit(folder: Path, quick: bool) -> dict[str, Any]:
    """Server times of every page over a long log, beside the same pages over a short one."""
    size = QUICK if quick else RECEIPTS
    long = measured(folder / "long", size, quick=quick, browser=True)
    short = measured(folder / "short", 1_000, quick=quick, browser=False)
    pages = {
        name: {**times, "short_p50_ms": short["pages"][name]["p50_ms"]} for name, times in long.pop("pages").items()
    }
    return {"receipts": size, **long, "pages": pages}


def measured(home: Path, receipts: int, *, quick: bool, browser: bool) -> dict[str, Any]:
    """The pages over a log of that many receipts; with `browser` in Chromium too."""
    text = CONFIG.format(durability="os").replace("tools:\n", _IRREVERSIBLE)
    with closing(open_state(write(home, text), home)) as state:
        started = time.perf_counter()
        fill(state, receipts)
        filled = time.perf_counter() - started
        create_account(state, "bench", roles=PERSONAL_ROLES, password=PASSWORD, by="operator:bench")
    with running(home, text) as (host, port, key, pid):
        cookie = sign_in(host, port)
        first = visit(host, port, cookie, "/")
        counted = wait_counted(host, port, cookie)
        paths = {
            **PAGES,
            **seeded(host, port, cookie, key),
            "call, blocked": link(host, port, cookie, "/?decision=block", "/calls/"),
        }
        pages: dict[str, dict[str, float]] = {}
        for name, path in paths.items():
            times = [visit(host, port, cookie, path) for _ in range(VISITS + 1)][1:]
            found = timing([round(one * 1e9) for one in times])
            pages[name] = {"p50_ms": round(found["p50"] / 1e3, 2), "p95_ms": round(found["p95"] / 1e3, 2)}
        return {
            "fill_s": round(filled, 1),
            "first_visit_ms": round(first * 1e3, 1),
            "counted_s": round(counted, 1),
            "pages": pages,
            **(in_browser(host, port, key, pid, paths, quick) if browser else {}),
        }


def fill(state: State, receipts: int) -> None:
    """Decisions of a hundred agents in ten thousand sessions, in commits of `UNIT`; they have no payload."""
    for start in range(0, receipts, UNIT):
        drafts = tuple(draft(number) for number in range(start, min(start + UNIT, receipts)))
        state.ledger.append(Unit(drafts=drafts))


def draft(number: int) -> Draft:
    """One decision; every fiftieth is blocked."""
    blocked = number % 50 == 0
    agent = f"agent-{number % 100}"
    return Draft(
        members={
            "kind": "decision",
            "receipt_id": new_id(),
            "agent": agent,
            "principal": f"agent:{agent}",
            "session": f"s-{number % 10_000}",
            "call_id": f"call-{number}",
            "tool": f"tool-{number % 40}",
            "call_commitment": DIGEST,
            "effects": ["read"],
            "risk": "high" if blocked else "low",
            "decision": "block" if blocked else "allow",
            "verdict": "violation" if blocked else "compliant",
            "reason": "attack_detected" if blocked else "none",
            "guards": [
                {"guard": "content", "outcome": "block", "rules": [f"rule-{number % 60}"]}
                if blocked
                else {"guard": "content", "outcome": "allow", "rules": []}
            ],
            "policy_digest": DIGEST,
            "settings": {"mode": "enforce", "insufficient_evidence": "fail-closed"},
        }
    )


def ask(host: str, port: int, method: str, path: str, cookie: str = "", form: Any = None) -> Iterator[Any]:
    """The answer and its body."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    with closing(connection):
        headers = {"sec-fetch-site": "same-origin", "cookie": cookie}
        connection.request(method, path, urlencode(form) if form else None, headers)
        response = connection.getresponse()
        yield response
        yield response.read()


def sign_in(host: str, port: int) -> str:
    """The cookie of a session."""
    response, _ = ask(host, port, "POST", "/sign-in", form={"name": "bench", "password": PASSWORD})
    return str(response.getheader("set-cookie")).partition(";")[0]


def visit(host: str, port: int, cookie: str, path: str) -> float:
    """Seconds from request to the last byte of the answer."""
    started = time.perf_counter()
    response, _ = ask(host, port, "GET", path, cookie)
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}")
    return time.perf_counter() - started


def wait_counted(host: str, port: int, cookie: str, seconds: float = 900.0) -> float:
    """How long until the counts hold the whole log, beside which pages can be used."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        _, body = ask(host, port, "GET", "/", cookie)
        if b"The log is being counted" not in body:
            return time.perf_counter() - started
        time.sleep(0.25)
    raise RuntimeError("the log was not counted in time")


def link(host: str, port: int, cookie: str, page: str, to: str) -> str:
    """The first link of a page that begins so."""
    _, body = ask(host, port, "GET", page, cookie)
    text: str = body.decode()
    if f'href="{to}' not in text:
        raise RuntimeError(f"{page} has no link to {to}")
    return to + unescape(text.partition(f'href="{to}')[2].partition('"')[0])


def seeded(host: str, port: int, cookie: str, key: str) -> dict[str, str]:
    """Have real calls decided, one of them held; the pages that show them."""
    sessions = [f"real-{at % 20}" for at in range(REAL)]
    calls = [
        {"tool": "read_file", "arguments": {"path": f"{at}.txt"}, "session": one} for at, one in enumerate(sessions)
    ]
    for start in range(0, REAL, MAX_CALLS):
        decide(host, port, key, calls[start : start + MAX_CALLS])
    held = decide(host, port, key, [{"tool": "pay", "arguments": {"iban": "DE00", "amount": 12}, "session": "real-0"}])[
        0
    ]
    return {
        "approvals, one held": "/approvals",
        "held call": f"/approvals/{held['approval']['id']}",
        "session, of real calls": link(host, port, cookie, "/sessions", "/sessions/real-0"),
        "call, with its arguments": f"/calls/{held['receipt']['id']}",
    }


def in_browser(host: str, port: int, key: str, pid: int, paths: Mapping[str, str], quick: bool) -> dict[str, Any]:
    """Milliseconds from navigation to a page that can be used, the median of five; and the live feed; in Chromium."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        raise RuntimeError("chromium is missing: `sh scripts/system.sh chromium` installs it")
    found: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(base_url=f"http://{host}:{port}")
        page.goto("/sign-in")
        page.get_by_label("Name").fill("bench")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/")
        for name, path in paths.items():
            times = []
            for _ in range(5):
                page.goto(path)
                times.append(page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"))
            found[name] = round(sorted(times)[2], 1)
        feed = live_feed(page, host, port, key, pid, quick)
        browser.close()
    return {"interactive_ms": found, "live_feed": feed}
