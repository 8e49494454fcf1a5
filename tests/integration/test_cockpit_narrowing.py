"""Approving with less on a page: by place, without a private value in the page and without a mask in the call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.people import Person, person
from support.served import Served, served

IBAN = "DE89370400440532013000"
SECOND_IBAN = "GB82WEST12345698765432"
TO = ["ada@example.com", "bob@example.com", "carol@example.com"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("narrowing") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def dana(gateway: Served) -> Person:
    dana = person(gateway, "dana", "approver", "auditor")
    dana.sign_in()
    return dana


def arguments(**more: Any) -> dict[str, Any]:
    return {"to": list(TO), "body": f"pay {IBAN} or {SECOND_IBAN}", "quantity": 9, **more}


def held(gateway: Served, call_id: str, **more: Any) -> str:
    answer = gateway.decide("send_email", arguments=arguments(**more), call_id=call_id)
    assert answer.status == 202
    approval: str = answer.json["approval"]["id"]
    return approval


def fields(page: str) -> dict[str, str]:
    """The field of each place that the form offers, by what it says it leaves out."""
    found = re.findall(r'name="drop-([0-9a-f]+)".*?<b class="mono">([^<]*)</b>', page, re.DOTALL)
    return {f"{name}#{at}" if at else name: field for at, (field, name) in _numbered(found)}


def _numbered(found: list[tuple[str, str]]) -> Iterator[tuple[int, tuple[str, str]]]:
    seen: dict[str, int] = {}
    for field, name in found:
        yield seen.get(name, 0), (field, name)
        seen[name] = seen.get(name, 0) + 1


def less(dana: Person, approval: str, **form: str) -> Any:
    page = dana.get(f"/approvals/{approval}").body.decode()
    digests = dict(re.findall(r'name="(call_digest|policy_digest)" value="([^"]+)"', page))
    return dana.post(f"/approvals/{approval}", {"decision": "less", **digests, **form})


@pytest.mark.claim("COK-12")
def test_a_page_holds_no_private_value_before_it_is_revealed(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "private", note=f"also {IBAN}", task=f"pay {IBAN}")
    page = dana.get(f"/approvals/{approval}").body.decode()
    assert IBAN not in page
    assert SECOND_IBAN not in page
    assert "DE****00" in page
    shown = dana.post(f"/approvals/{approval}/reveal").body.decode()
    assert IBAN in re.sub(r"</?mark>", "", shown)
    # What a form carries are places, and nothing that was held.
    assert all(value in ("", "yes") for value in re.findall(r'name="(?:drop|new)-[^"]*" value="([^"]*)"', shown))


@pytest.mark.claim("COK-12")
def test_what_is_left_out_by_place_leaves_the_rest_as_it_was(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "less")
    page = dana.get(f"/approvals/{approval}").body.decode()
    place = fields(page)
    answer = less(dana, approval, **{f"drop-{place['1']}": "yes", "reason": "not to Bob"})
    assert answer.status == 303
    again = gateway.decide("send_email", arguments=arguments(), call_id="less").json
    assert again["decision"] == "sanitize"
    assert again["arguments"] == arguments(to=[TO[0], TO[2]])
    assert IBAN not in dana.get(f"/approvals/{approval}").body.decode()


def test_a_smaller_number_is_typed(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "smaller")
    place = fields(dana.get(f"/approvals/{approval}").body.decode())
    wrong = less(dana, approval, **{f"new-{place['quantity']}": "many", "reason": "fewer will do"})
    assert wrong.status == 422
    page = wrong.body.decode()
    assert "/quantity" in page
    assert 'value="many"' in page
    assert "fewer will do" in page
    assert less(dana, approval, **{f"new-{place['quantity']}": "2"}).status == 303
    again = gateway.decide("send_email", arguments=arguments(), call_id="smaller").json
    assert again["arguments"] == arguments(quantity=2)


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 422),
        ({"new-" + "0" * 20: "   "}, 422),
        ({"drop-" + "0" * 20: "yes"}, 409),
        ({"new-" + "0" * 20: "3"}, 409),
    ],
)
def test_a_form_that_narrows_nothing_that_is_held_is_refused(
    gateway: Served, dana: Person, form: dict[str, str], status: int
) -> None:
    approval = held(gateway, f"nothing-{status}-{len(form)}-{'-'.join(form)[:4]}")
    assert less(dana, approval, **form).status == status
    assert gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["state"] == "pending"


def test_a_call_with_more_places_than_a_form_holds_says_so(gateway: Served, dana: Person) -> None:
    approval = held(gateway, "wide", rows=list(range(400)))
    page = dana.get(f"/approvals/{approval}").body.decode()
    assert "too many values" in page
    assert 'name="drop-' not in page


def test_a_secret_behind_an_encoding_hides_the_whole_value(gateway: Served, dana: Person) -> None:
    encoded = "cGF5IERFODkzNzA0MDA0NDA1MzIwMTMwMDAgdG9kYXkgcGxlYXNl"  # a bank account number in base64
    approval = held(gateway, "encoded", body=encoded)
    found = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json["findings"]
    page = dana.get(f"/approvals/{approval}").body.decode()
    assert any(one["category"] == "pii" for one in found)
    assert encoded not in page
