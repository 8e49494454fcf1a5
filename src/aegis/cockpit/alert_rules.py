"""Rules of alerts as they are kept: what is watched, how much of it is too much, and who is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
import orjson
from msgspec import structs

from aegis.behaviour.alerts import RULES, group_id
from aegis.core.json import convert
from aegis.core.ports import Document, Reader, Transaction
from aegis.errors import EgressRefused, InvalidCall, StoreCorrupt
from aegis.outbound.send import (
    MAX_RECIPIENTS,
    DeliveryTarget,
    is_address,
    mail_server,
)

MAX_RULES: Final = 100
MAX_NAME_CHARS: Final = 100
MAX_URL_CHARS: Final = 2_000
KEPT: Final = 20  # what one rule remembers of the word that it sent
MAX_LIMIT: Final = 1_000_000

Watch = Literal["blocks", "new_rule", "waiting", "budget", "silent", "alarms", "digest", "refusing"]
WATCHES: Final[dict[Watch, str]] = {
    "blocks": "more than this many calls are blocked within ten minutes",
    "new_rule": "a rule is broken that was never broken before",
    "waiting": "a held call has waited for this many seconds",
    "budget": "a mission has used this many percent of one of its budgets",
    "silent": "nothing was recorded for this many minutes",
    "alarms": "an alarm is raised or something is contained, those of one cause together",
    "digest": "a week has ended (Sunday midnight, UTC), with the digest of it",
    "refusing": "the gateway cannot record, and refuses",
}
COUNTED: Final = frozenset({"blocks", "waiting", "budget", "silent"})
MAX_PERCENT: Final = 100
MAX_MINUTES: Final = 10_080  # a week, after which a group is over
MAX_TOLD: Final = 500  # groups that one rule remembers that it told of


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSent:
    """Word that a rule sent: which message, when, and what it said."""

    message: str
    time: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertTold:
    """What a rule told of one group: since when nobody has looked, when last, up to which receipt, and how often."""

    since: int
    at: int
    index: int
    text: str
    escalated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertRule:
    """One rule. `state` is what its last look left behind, so that the same thing is told once.

    `told` is what it told of, by the id of the group; where nobody looked for `escalate_s`, `escalate` is told too.
    """

    id: str
    name: str
    watch: Watch
    limit: int
    target: DeliveryTarget
    by: str
    created_at: int
    fired_at: int = 0
    state: str = ""
    log: tuple[AlertSent, ...] = field(default_factory=tuple)
    told: Mapping[str, AlertTold] = field(default_factory=dict)
    escalate: DeliveryTarget | None = None
    escalate_s: int = 0
    version: int = 1

    @property
    def group(self) -> str:
        """The id of the group that its own alarms are."""
        return group_id(f"alert_{self.watch}", (self.id,))

    def remember(self, sent: AlertSent) -> AlertRule:
        """Return the rule with one more line in its log, one version on."""
        return replace(self, log=(sent, *self.log)[:KEPT], version=self.version + 1)


def checked_name(name: str) -> str:
    """Return what a rule is called; raises `InvalidCall`."""
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise InvalidCall(f"a name has 1 to {MAX_NAME_CHARS} characters")
    return name


def checked_target(form: Mapping[str, str]) -> DeliveryTarget:
    """Return where word goes; raises `InvalidCall` for an address that is none, or a webhook without a secret."""
    kind, url, secret = form.get("kind", ""), form.get("url", "").strip(), form.get("secret", "").strip()
    private = form.get("private") == "yes"
    if kind not in ("webhook", "slack", "email"):
        raise InvalidCall("word goes to a webhook, to Slack or by e-mail")
    if len(url) > MAX_URL_CHARS or len(secret) > MAX_URL_CHARS:
        raise InvalidCall("the address or the secret is too long")
    host = ""
    if not url.startswith(("${env:", "file:")):
        try:
            host = mail_server(url, "").host if kind == "email" else urlsplit(url).hostname or ""
        except (EgressRefused, ValueError) as error:
            raise InvalidCall("the address is not one of a server", hint=str(error)) from error
        secure, plain = ("smtps", "smtp") if kind == "email" else ("https", "http")
        scheme = url.partition(":")[0].lower()
        if scheme not in (secure, plain) or not host:
            raise InvalidCall(
                "the address is not a URL", hint=f"{secure}://..., or a reference such as `${{env:HOOK}}`"
            )
        if scheme == plain and not private:
            raise InvalidCall("word goes out over TLS", hint=f"{secure}://..., or allow a private host")
    if kind == "webhook" and not secret:
        raise InvalidCall("a webhook is signed, and needs a secret")
    sender, to = _mail_addresses(form) if kind == "email" else ("", ())
    return DeliveryTarget(
        kind="webhook" if kind == "webhook" else "slack" if kind == "slack" else "email",
        url=url,
        secret=secret,
        private=(host,) if private and host else (),
        sender=sender,
        to=to,
    )


def checked_escalation(form: Mapping[str, str]) -> tuple[DeliveryTarget | None, int]:
    """Return who else is told where nobody looks, and after how many seconds; raises `InvalidCall`."""
    minutes = form.get("escalate_minutes", "").strip()
    if not minutes:
        return None, 0
    if not (minutes.isascii() and minutes.isdigit() and len(minutes) <= 5 and 1 <= int(minutes) <= MAX_MINUTES):
        raise InvalidCall(f"somebody else is told after 1 to {MAX_MINUTES} minutes")
    second = {name.removeprefix("escalate_"): value for name, value in form.items() if name.startswith("escalate_")}
    return checked_target({**second, "sender": form.get("sender", "")}), int(minutes) * 60


def _mail_addresses(form: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """From whom and to whom mail goes; raises `InvalidCall`."""
    sender = form.get("sender", "").strip()
    to = tuple(dict.fromkeys(one.strip() for one in form.get("to", "").split(",") if one.strip()))
    if not 1 <= len(to) <= MAX_RECIPIENTS or not all(map(is_address, (sender, *to))):
        raise InvalidCall(
            f"mail goes from one address to 1 to {MAX_RECIPIENTS} others", hint="plain ones, such as ops@example.com"
        )
    return sender, to


def checked_watch(watch: str, limit: str) -> tuple[Watch, int]:
    """Return what is watched and how much is too much; raises `InvalidCall`."""
    found = next((known for known in WATCHES if known == watch), None)
    if found is None:
        raise InvalidCall("there is no such thing to watch")
    if found not in COUNTED:
        return found, 0
    most = MAX_PERCENT if found == "budget" else MAX_LIMIT
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 7 and 1 <= int(limit) <= most):
        raise InvalidCall(f"the number must be from 1 to {most}")
    return found, int(limit)


def put_rule(transaction: Transaction, rule: AlertRule) -> None:
    """Write a rule; raises `StoreConflict` where another process was first."""
    body: dict[str, Any] = {
        "name": rule.name,
        "watch": rule.watch,
        "limit": rule.limit,
        "target": structs.asdict(rule.target),
        "by": rule.by,
        "created_at": rule.created_at,
        "fired_at": rule.fired_at,
        "state": rule.state,
        "log": [[sent.message, sent.time, sent.text] for sent in rule.log],
        "told": {group: asdict(told) for group, told in rule.told.items()},
        "escalate": None if rule.escalate is None else structs.asdict(rule.escalate),
        "escalate_s": rule.escalate_s,
    }
    transaction.put_document(
        Document(collection=RULES, key=rule.id, version=rule.version, body=orjson.dumps(body), state="on")
    )


def find_rule(reader: Reader, rule_id: str) -> AlertRule:
    """Return one rule; raises `InvalidCall` (404) where there is none."""
    document = reader.document(RULES, rule_id)
    if document is None:
        raise InvalidCall("there is no such alert", code="not_found", status=404)
    return _from_document(document)


def list_rules(reader: Reader) -> list[AlertRule]:
    """Return every rule, in the order in which they were made."""
    return [_from_document(document) for document in reader.documents(RULES, limit=MAX_RULES)]


def _from_document(document: Document) -> AlertRule:
    try:
        body = orjson.loads(document.body)
        return AlertRule(
            id=document.key,
            name=body["name"],
            watch=body["watch"],
            limit=body["limit"],
            target=convert(body["target"], DeliveryTarget),
            by=body["by"],
            created_at=body["created_at"],
            fired_at=body["fired_at"],
            state=body["state"],
            log=tuple(AlertSent(message=row[0], time=row[1], text=row[2]) for row in body["log"]),
            told=convert(body.get("told", {}), dict[str, AlertTold]),
            escalate=None if body.get("escalate") is None else convert(body["escalate"], DeliveryTarget),
            escalate_s=body.get("escalate_s", 0),
            version=document.version,
        )
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise StoreCorrupt("the record of an alert is damaged") from error
