"""Looking at the rules of alerts: what is true now, whether it was told, and telling it once.

Word is written to the outbox in the transaction of its receipt. Only a store that cannot be written is told
directly, because nothing could be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
import orjson

from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import from_document
from aegis.cockpit.rollup import MINUTE_US, Rollup, Tally
from aegis.core.ports import Document, Reader, Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS, rfc3339
from aegis.errors import EgressRefused, InvalidCall, StoreConflict, StoreCorrupt, StoreError
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.missions.lineage import near_end
from aegis.outbound import worker
from aegis.outbound.send import (
    MAX_RECIPIENTS,
    Clients,
    DeliveryTarget,
    Message,
    NotTaken,
    is_address,
    mail_server,
    send,
)
from aegis.server.services import Services

# Rules of alerts as they are kept: what is watched, how much of it is too much, and who is told.

COLLECTION: Final = "alert_rules"
MAX_RULES: Final = 100
MAX_NAME_CHARS: Final = 100
MAX_URL_CHARS: Final = 2_000
KEPT: Final = 20  # what one rule remembers of the word that it sent
MAX_LIMIT: Final = 1_000_000

Watch = Literal["blocks", "new_rule", "waiting", "budget", "silent", "refusing"]
WATCHES: Final[dict[Watch, str]] = {
    "blocks": "more than this many calls are blocked within ten minutes",
    "new_rule": "a rule is broken that was never broken before",
    "waiting": "a held call has waited for this many seconds",
    "budget": "a mission has used this many percent of one of its budgets",
    "silent": "nothing was recorded for this many minutes",
    "refusing": "the gateway cannot record, and refuses",
}
COUNTED: Final = frozenset({"blocks", "waiting", "budget", "silent"})
MAX_PERCENT: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSent:
    """Word that a rule sent: which message, when, and what it said."""

    message: str
    time: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertRule:
    """One rule. `state` is what its last look left behind, so that the same thing is told once."""

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
    version: int = 1

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
        "target": asdict(rule.target),
        "by": rule.by,
        "created_at": rule.created_at,
        "fired_at": rule.fired_at,
        "state": rule.state,
        "log": [[sent.message, sent.time, sent.text] for sent in rule.log],
    }
    transaction.put_document(
        Document(collection=COLLECTION, key=rule.id, version=rule.version, body=orjson.dumps(body), state="on")
    )


def find_rule(reader: Reader, rule_id: str) -> AlertRule:
    """Return one rule; raises `InvalidCall` (404) where there is none."""
    document = reader.document(COLLECTION, rule_id)
    if document is None:
        raise InvalidCall("there is no such alert", code="not_found", status=404)
    return _from_document(document)


def list_rules(reader: Reader) -> list[AlertRule]:
    """Return every rule, in the order in which they were made."""
    return [_from_document(document) for document in reader.documents(COLLECTION, limit=MAX_RULES)]


def _from_document(document: Document) -> AlertRule:
    try:
        body = orjson.loads(document.body)
        return AlertRule(
            id=document.key,
            name=body["name"],
            watch=body["watch"],
            limit=body["limit"],
            target=msgspec.convert(body["target"], DeliveryTarget),
            by=body["by"],
            created_at=body["created_at"],
            fired_at=body["fired_at"],
            state=body["state"],
            log=tuple(AlertSent(message=row[0], time=row[1], text=row[2]) for row in body["log"]),
            version=document.version,
        )
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise StoreCorrupt("the record of an alert is damaged") from error


PERIOD_S: Final = 2.0
QUIET_S: Final = 900  # how long a rule is silent after it told of something that goes on
WINDOW_MIN: Final = 10
LOOKED_AT: Final = 1_000  # held calls looked at in one round
_ALARMS: Final = 200  # newest receipts among which one that is no alarm is looked for
BLOCK: Final = 3  # the column of blocked calls in a row of counts
_NOTHING: Final = ("", "")
_TOLD_ONCE: Final = frozenset({"new_rule", "budget"})
_NAMED: Final = 10  # budgets that one message names

_log = logging.getLogger("aegis.server.cockpit")


class Alerting:
    """Looks at the rules of one store while the gateway runs; `rounds` counts its looks."""

    def __init__(self, services: Services, rollup: Rollup):
        self._services = services
        self._rollup = rollup
        self._rules: Sequence[AlertRule] = ()
        self._refusing_told = -float(QUIET_S)
        self._budgets_at: dict[str, tuple[int, int]] = {}
        self.rounds = 0

    async def watch(self) -> None:
        """Look every few seconds; runs until it is cancelled."""
        clients = Clients()
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                try:
                    await self._round()
                except StoreError:
                    _log.warning("alerts cannot be looked at, the store does not answer")
                await self._refusing(clients)
                self.rounds += 1
        finally:
            await clients.aclose()

    async def _round(self) -> None:
        self._rules = await asyncio.to_thread(self._read)
        if not self._rules:
            return
        await self._rollup.watched()
        now = self._services.clock()
        for rule in self._rules:
            state, text = await asyncio.to_thread(self._look, rule, now)
            # A state that is new is told; one that goes on is told again after a while, if it is a count.
            again = state == rule.state and rule.watch not in _TOLD_ONCE and now - rule.fired_at > QUIET_S * MICROS
            if text and (state != rule.state or again):
                await self._tell(rule, state, text, now)
            elif state != rule.state:
                await asyncio.to_thread(self._settle, rule, state)

    def _read(self) -> list[AlertRule]:
        with self._services.store.reader() as reader:
            return list_rules(reader)

    def _look(self, rule: AlertRule, now: int) -> tuple[str, str]:
        """Return what a rule finds: a word for the state, and the text to send where there is something to tell."""
        tally = self._rollup.tally
        if rule.watch == "blocks":
            last = now // MINUTE_US
            blocked = sum(tally.minutes.get(last - at, (0, 0, 0, 0))[BLOCK] for at in range(WINDOW_MIN))
            over = blocked > rule.limit
            return ("over", f"{blocked} calls were blocked within {WINDOW_MIN} minutes") if over else _NOTHING
        if rule.watch == "new_rule":
            return self._new_rules(rule, tally)
        if rule.watch == "waiting":
            return self._waiting(rule, now)
        if rule.watch == "budget":
            return self._budgets(rule)
        if rule.watch == "silent":
            return self._silent(rule, now)
        return _NOTHING

    def _silent(self, rule: AlertRule, now: int) -> tuple[str, str]:
        """Tell whether nothing but alarms was recorded: that an alert told of silence does not end it."""
        with self._services.store.reader() as reader:
            newest = reader.search(Search(limit=_ALARMS))
        if not newest:
            return _NOTHING
        minutes = (now - next((one.time for one in newest if one.kind != "alarm"), newest[-1].time)) // MINUTE_US
        span = "a minute" if minutes == 1 else f"{minutes} minutes"
        return ("over", f"nothing was recorded for {span}") if minutes >= rule.limit else _NOTHING

    def _new_rules(self, rule: AlertRule, tally: Tally) -> tuple[str, str]:
        """Return rules broken for the first time since the last look; the first look only learns."""
        if not self._rollup.complete:
            return rule.state, ""
        seen = rule.state.partition(":")[2]
        fresh = [group for group in tally.groups.values() if seen and group.first_index >= int(seen)]
        older = {group.rule for group in tally.groups.values() if seen and group.first_index < int(seen)}
        names = sorted({group.rule for group in fresh} - older)
        return f"at:{tally.next}", f"broken for the first time: {', '.join(names[:10])}" if names else ""

    def _budgets(self, rule: AlertRule) -> tuple[str, str]:
        """Return budgets that came near their end since the last look; each is told once, until it has room again."""
        with self._services.store.reader() as reader:
            size = reader.head().size
        if self._budgets_at.get(rule.id) == (size, rule.version):
            return rule.state, ""  # every charge is a receipt: nothing was charged since
        near = near_end(self._services, rule.limit)
        told = set(rule.state.split("\n")) if rule.state else set()
        fresh = [name for name in near if name not in told]
        state = "\n".join(near[:LOOKED_AT])
        if state == rule.state:
            self._budgets_at[rule.id] = (size, rule.version)
        more = f", and {len(fresh) - _NAMED} more" if len(fresh) > _NAMED else ""
        text = f"{rule.limit} % or more are used of {', '.join(fresh[:_NAMED])}{more}" if fresh else ""
        return state, text

    def _waiting(self, rule: AlertRule, now: int) -> tuple[str, str]:
        with self._services.store.reader() as reader:
            held = map(from_document, reader.documents(APPROVALS, state="pending", limit=LOOKED_AT))
            late = [one for one in held if one.created_at + rule.limit * MICROS <= now < one.expires_at]
        if not late:
            return _NOTHING
        oldest = min(late, key=lambda one: one.created_at)
        more = f", and {len(late) - 1} more wait" if len(late) > 1 else ""
        return oldest.id, f"a call of the tool `{oldest.tool}` by the agent `{oldest.agent}` waits for an answer{more}"

    async def _tell(self, rule: AlertRule, state: str, text: str, now: int) -> None:
        message = message_of(rule, text, now)
        changed = replace(rule.remember(AlertSent(message=message.id, time=now, text=text)), state=state, fired_at=now)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            put_rule(transaction, changed)
            worker.put(transaction, message)
            members = {"kind": "alarm", "receipt_id": new_id(), "principal": "gate", "action": f"alert_{rule.watch}"}
            return (Draft(members=members),)

        try:
            await self._services.gate.arecord(Unit(apply=apply))
        except StoreConflict:  # another process told it
            return
        self._services.deliveries.start()

    def _settle(self, rule: AlertRule, state: str) -> None:
        try:
            with self._services.store.transaction() as transaction:
                put_rule(transaction, replace(rule, state=state, version=rule.version + 1))
        except StoreConflict:  # another process looked at the same moment
            _log.debug("another process looked at an alert", extra={"alert": rule.id})

    async def _refusing(self, clients: Clients) -> None:
        """The store does not take anything: tell those who asked for that, directly."""
        asked = [rule for rule in self._rules if rule.watch == "refusing"]
        if not asked or monotonic() - self._refusing_told < QUIET_S:
            return
        try:
            await self._services.readiness.check()
        except InvalidCall as problem:
            self._refusing_told = monotonic()
            now = self._services.clock()
            for rule in asked:
                try:
                    await send(message_of(rule, f"every call is refused: {problem.message}", now), clients, now)
                except NotTaken:
                    _log.warning("an alert was not taken", extra={"alert": rule.id})


def message_of(rule: AlertRule, text: str, now: int, *, event: str = "") -> Message:
    """Return the message of a rule; it holds names, and no value of an argument."""
    return Message(
        id=new_id(),
        target=rule.target,
        event=event or f"alert.{rule.watch}",
        text=f"{rule.name}: {text}",
        link="",
        data={"alert": rule.name, "watch": rule.watch, "text": text, "time": rfc3339(now)},
        created_at=now,
        due_at=now,
    )
