"""Real Chromium. A browser lives as long as one file of tests: its event loop would be in the way of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from support.deployments import TOOLS
from support.people import Person, person
from support.scripted_model import ScriptedModel, scripted_model
from support.served import Served, served

CHROMIUM = Path("/usr/bin/chromium")
ROLES = ("approver", "auditor", "admin", "issuer")
WAIT_MS = 15_000

Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.fail("chromium is missing: `sh scripts/system.sh chromium` installs it")
    with sync_playwright() as playwright:
        # The sandbox of Chromium does not start for root, which is who runs tests in containers.
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The model that drafts policies."""
    with scripted_model() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Served]:
    drafting = f"drafting: {{model: {{api: openai, url: {model.url}/v1, name: drafter, private: true}}}}\n"
    config = f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\n{TOOLS}{drafting}"
    with served(tmp_path_factory.mktemp("browser") / "home", config) as running:
        person(running, "dana", *ROLES)
        person(running, "erin", *ROLES)
        yield running


@pytest.fixture(scope="module")
def cookies(gateway: Served) -> Callable[[str], dict[str, str]]:
    """The session of somebody who signed in once for all tests of a file."""

    @cache
    def of(name: str) -> dict[str, str]:
        somebody = Person(gateway=gateway, name=name)
        somebody.sign_in()
        cookie, _, value = somebody.cookie.partition("=")
        return {"name": cookie, "value": value, "url": f"http://127.0.0.1:{gateway.port}"}

    return of


@pytest.fixture
def signed_in(browser: Browser, gateway: Served, cookies: Callable[[str], Any]) -> Iterator[Opened]:
    """Opens a browser of its own for somebody; whatever the page's console says against us fails the test."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def open_for(name: str = "dana", start: str = "/", **options: object) -> Page:
            context: BrowserContext = browser.new_context(
                base_url=f"http://127.0.0.1:{gateway.port}",
                **options,  # type: ignore[arg-type]
            )
            stack.callback(context.close)
            context.set_default_timeout(WAIT_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda said: complaints.append(said.text) if _against_us(said.type, said.text) else None)
            context.add_cookies([cookies(name)])
            if start:
                page.goto(start)
            return page

        yield open_for
    assert complaints == []


def _against_us(kind: str, text: str) -> bool:
    """An error of the page; that an answer was a 4xx, or that none came, is what some tests ask for."""
    asked = ("the server responded with a status of 4", "net::ERR_FAILED")
    return kind == "error" and not any(words in text for words in asked)
