"""The reference names everything that it has to name, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest
import re2
from reference.command_line import commands

from aegis import __version__
from aegis.cli.run import build
from aegis.config.settings import PROFILES, Settings
from aegis.core.outcome import EFFECTS, ROLES, Category, Outcome, Reason, Risk, Verdict
from aegis.core.receipt import KINDS, MEMBERS
from aegis.detect.rules import builtin_folder, load
from aegis.policy.model import CALL_GUARDS, RESULT_GUARDS
from aegis.server.telemetry import Metrics

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLACE = re2.compile(r"`((?:src/aegis|tests|scripts)/[a-z0-9_/.]+)`")
LINK = re2.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

WORDS = [
    *(outcome.word for outcome in Outcome),
    *(verdict.word for verdict in Verdict),
    *(reason.value for reason in Reason),
    *(risk.word for risk in Risk),
    *get_args(Category),
    *EFFECTS,
    *ROLES,
]
EXPECTED: dict[str, list[str]] = {
    "words.md": WORDS,
    "receipt.md": [*KINDS, *MEMBERS],
    "guards.md": [*CALL_GUARDS, *RESULT_GUARDS],
    "rules.md": [rule.id for rule in load(builtin_folder()).rules],
    "profiles.md": list(PROFILES),
    "metrics.md": [family.name for family in Metrics().collect()],
    "configuration.md": list(Settings.model_fields),
    "command-line.md": [" ".join(path) for path, _ in commands(build(), ("aegis",))],
}


@pytest.mark.parametrize("page", EXPECTED)
def test_a_page_of_the_reference_is_complete(page: str) -> None:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert [word for word in EXPECTED[page] if word not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    dead = []
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        target = unquote(match.group(1))
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        if not (page.parent / target.partition("#")[0]).exists():
            dead.append(target)
    assert dead == []


def test_every_page_can_be_reached_from_the_table_of_contents() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        for match in LINK.finditer(page.read_text(encoding="utf-8")):
            target = unquote(match.group(1)).partition("#")[0]
            if target and "://" not in target:
                waiting.append((page.parent / target).resolve())
    assert [page.relative_to(ROOT).as_posix() for page in PAGES if page not in seen] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_of_the_code_that_a_page_names_are_there(page: Path) -> None:
    if page.parent.name == "adr":  # a decision names the places of its time
        return
    named = {match.group(1) for match in PLACE.finditer(page.read_text(encoding="utf-8"))}
    assert [place for place in sorted(named) if not (ROOT / place).exists()] == []


def test_the_page_on_base_urls_shows_the_programs_that_run() -> None:
    page = (ROOT / "docs/howto/proxy-javascript-and-go.md").read_text(encoding="utf-8")
    for path in ("examples/js/proxied.mjs", "examples/go/proxied/main.go"):
        assert (ROOT / path).read_text(encoding="utf-8") in page, path


def test_the_changelog_is_read_per_release_and_says_nothing_twice() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert releases[:2] == ["Unreleased", __version__]
    told = [entry.strip() for entry in re.split(r"^(?:- |#+ .*$)", text, flags=re.MULTILINE) if len(entry.strip()) > 40]
    assert sorted(told) == sorted(set(told))
    kinds = re.findall(r"^### (.*)$", text.split("\n## ")[1], re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
