"""Adapters and notifiers of packages that are really installed: found by entry point, and named where they fail."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aegis
from aegis.config.config import parse_config
from aegis.errors import ConfigError, UnhookedFramework
from aegis.outbound.send import DeliveryTarget, Message, NotTaken, request_of
from aegis.sdk.hooking import load_adapter
from aegis.testing.adapters import CHECKS, Bench, hooked
from support.pages import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "write-an-adapter-outside.md"
NOTIFIERS = """
from aegis.outbound.client import Request


def page(message, url, secret):
    if secret == "bad":
        raise RuntimeError(url)
    return Request(method="POST", url=url, headers={"authorization": secret}, body=message.text.encode())


def nothing(message, url, secret):
    return None


page.aegis_protocol = nothing.aegis_protocol = 1


def old(message, url, secret):
    return None
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package of one module, with entry points by group."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, module: str, text: str, points: str = "") -> None:
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)

    yield install
    aegis.unhook()
    for module in set(sys.modules) - before:
        if module.startswith(("toybox", "aegis_toybox", "paging")):
            del sys.modules[module]


def files() -> dict[str, str]:
    """The files that the page shows, by name."""
    notes = [(block.note.partition(": "), block.text) for block in blocks(PAGE.read_text(encoding="utf-8"))]
    return {note[2]: text for note, text in notes if note[0] == "file"}


def toybox(install: Install, change: Callable[[str], str] = lambda text: text) -> None:
    install("toybox", "toybox", files()["toybox.py"])
    points = "[aegis.adapters]\ntoybox = aegis_toybox\n"
    install("aegis-toybox", "aegis_toybox", change(files()["aegis_toybox.py"]), points)


def drive(bench: Bench) -> None:
    from toybox import Tool  # type: ignore[import-not-found]

    for call in bench.calls:
        try:
            told = Tool(call.tool, getattr(bench, call.tool)).run(call.id, dict(call.arguments))
        except RuntimeError as error:
            told = str(error)
        bench.told[call.id] = told


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_adapter_of_another_package_keeps_every_promise(install: Install, check: Callable[..., None]) -> None:
    toybox(install)
    module = load_adapter("toybox").module
    check(lambda **options: hooked(module, **options), drive)


def test_auto_hooks_what_another_package_brings(install: Install, tmp_path: Path) -> None:
    toybox(install)
    report = aegis.auto(home=tmp_path / "state", on_unhooked="warn")
    (one,) = [one for one in report.hooked if one.framework == "toybox"]
    assert (one.version, one.supported, one.seams) == ("1.0", ">=1,<2", ("Tool.run",))
    from toybox import Tool

    told = Tool("shell", lambda command: "ran").run("call_0123456789abcdefgh", {"command": "rm -rf /"})
    assert "`shell` was not run" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: "import no_such_module\n" + text, "ModuleNotFoundError"),
        (lambda text: text.replace('= 1, "toybox"', '= 7, "toybox"'), "speaks protocol 7"),
        (lambda text: text.replace("SUPPORTED", "VERSIONS"), "has no `SUPPORTED`"),
        (lambda text: text.replace('= 1, "toybox"', '= 1, "openai"'), "which Aegis hooks itself"),
        (lambda text: text.replace("    patches.", "    raise RuntimeError('a secret')\n    patches."), "RuntimeError"),
        (lambda text: text.replace("    return Seams", "    patches.gone()\n    return Seams"), "the expected seams"),
    ],
    ids=["does not load", "another protocol", "no versions", "one of ours", "fails", "misses its seam"],
)
def test_an_adapter_that_cannot_be_used_is_named_with_its_package(
    install: Install, tmp_path: Path, change: Callable[[str], str], told: str
) -> None:
    toybox(install, change)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = aegis.auto(home=tmp_path / "state", on_unhooked="warn")
    (said,) = [text for text in report.unhooked if "toybox" in text]
    assert "`aegis-toybox`" in said and told in said and "a secret" not in said
    assert any("aegis-toybox" in str(one.message) for one in warned)
    with pytest.raises(UnhookedFramework, match="aegis-toybox"):
        aegis.auto(home=tmp_path / "state")


def paging(install: Install) -> None:
    names = "".join(f"{name} = paging:{name}\n" for name in ("page", "nothing", "old"))
    install("aegis-paging", "paging", NOTIFIERS, f"[aegis.notifiers]\n{names}email = paging:page\n")


def message(kind: str, secret: str = "k") -> Message:
    target = DeliveryTarget(kind=kind, url="https://pager.example/secret-path", secret=secret)
    more: dict[str, Any] = {"event": "approval.pending", "link": "", "data": {}, "created_at": 0, "due_at": 0}
    return Message(id="0" * 32, target=target, text="a call waits", **more)


def test_a_notifier_of_another_package_makes_the_request_that_is_sent(install: Install) -> None:
    paging(install)
    request = request_of(message("page"), 0)
    assert (request.url, dict(request.headers)) == ("https://pager.example/secret-path", {"authorization": "k"})
    assert request.body == b"a call waits"


@pytest.mark.parametrize(
    ("kind", "secret", "told"),
    [
        ("page", "bad", "failed: RuntimeError"),
        ("nothing", "k", "gave no `Request`"),
        ("gone", "k", "no installed package"),
    ],
)
def test_a_notifier_that_fails_is_named_and_says_no_value(install: Install, kind: str, secret: str, told: str) -> None:
    paging(install)
    with pytest.raises(NotTaken, match=told) as refused:
        request_of(message(kind, secret), 0)
    assert "secret-path" not in str(refused.value)
    assert kind == "gone" or "`aegis-paging`" in str(refused.value)


def settings(kind: str) -> str:
    return f"version: 1\napprovals: {{notify: [{{kind: {kind}, url: 'https://h.example/x'}}]}}\n"


def test_the_configuration_names_a_notifier_of_another_package(install: Install) -> None:
    paging(install)
    parse_config(settings("page"))
    with pytest.raises(ConfigError, match=r"aegis-paging.* does not say which protocol"):
        parse_config(settings("old"))
    for kind in ("pager", "email"):
        with pytest.raises(ConfigError, match=f"cannot be `{kind}`"):
            parse_config(settings(kind))
