"""People of the cockpit: accounts of a running gateway, and their browsers' requests without a browser."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

from aegis.bootstrap import State
from aegis.bootstrap.credentials import create_account
from support.served import Answer, Served

PASSWORD = "correct horse battery staple"


def state_of(gateway: Served) -> State:
    """What commands of the command line work on, over the gateway's own store."""
    place = gateway.deployment
    return cast("State", SimpleNamespace(ledger=place.ledger, store=place.store))


def person(gateway: Served, name: str, *roles: str) -> Person:
    """An account of that name, not signed in yet."""
    create_account(state_of(gateway), name, roles=roles, password=PASSWORD, by="operator:test")
    return Person(gateway=gateway, name=name)


@dataclass(kw_only=True)
class Person:
    """Somebody's browser, as far as headers and cookies go."""

    gateway: Served
    name: str
    cookie: str = ""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Open a page."""
        return self._send("GET", path, None, {"sec-fetch-mode": "navigate", **(headers or {})})

    def post(
        self, path: str, form: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a form of the cockpit."""
        sent = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
        return self._send("POST", path, urlencode(form or {}).encode(), {**sent, **(headers or {})})

    def sign_in(self, password: str = PASSWORD) -> Answer:
        """Sign in and keep the cookie."""
        answer = self.post("/sign-in", {"name": self.name, "password": password})
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=20)
        try:
            sent = {"cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body, {**sent, **headers})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=found, body=response.read())
        finally:
            connection.close()
