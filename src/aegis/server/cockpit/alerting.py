"""Looking at the rules of alerts: what is true now, whether it was told, and telling it once.

Word is written to the outbox in the transaction of its receipt. Only a store that cannot be written is told
directly, because nothing could be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from aegis.approvals.model import COLLECTION as APPROVALS
from aegis.approvals.model import from_document
from aegis.audit.writer import Unit
from aegis.core.ports import Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS, rfc3339
from aegis.delivery import outbox
from aegis.delivery.message import Message
from aegis.delivery.send import Clients, NotTaken, send
from aegis.errors import InvalidCall, StoreConflict, StoreError
from aegis.gate.ids import new_id
from aegis.server.cockpit.alert_rules import AlertRule, Sent, list_rules, put_rule
from aegis.server.cockpit.missions import near_end
from aegis.server.cockpit.rollup import Rollup
from aegis.server.cockpit.tally import MINUTE_US, Tally
from aegis.server.services import Services

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
        """What a rule finds: a word for the state, and the text to send where there is something to tell."""
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
        """Whether nothing but alarms was recorded: that an alert told of silence does not end it."""
        with self._services.store.reader() as reader:
            newest = reader.search(Search(limit=_ALARMS))
        if not newest:
            return _NOTHING
        minutes = (now - next((one.time for one in newest if one.kind != "alarm"), newest[-1].time)) // MINUTE_US
        span = "a minute" if minutes == 1 else f"{minutes} minutes"
        return ("over", f"nothing was recorded for {span}") if minutes >= rule.limit else _NOTHING

    def _new_rules(self, rule: AlertRule, tally: Tally) -> tuple[str, str]:
        """Rules broken for the first time since the last look; the first look only learns."""
        if not self._rollup.complete:
            return rule.state, ""
        seen = rule.state.partition(":")[2]
        fresh = [group for group in tally.groups.values() if seen and group.first_index >= int(seen)]
        older = {group.rule for group in tally.groups.values() if seen and group.first_index < int(seen)}
        names = sorted({group.rule for group in fresh} - older)
        return f"at:{tally.next}", f"broken for the first time: {', '.join(names[:10])}" if names else ""

    def _budgets(self, rule: AlertRule) -> tuple[str, str]:
        """Budgets that came near their end since the last look; what is told stays told until it has room again."""
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
        changed = replace(rule.remember(Sent(message=message.id, time=now, text=text)), state=state, fired_at=now)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            put_rule(transaction, changed)
            outbox.put(transaction, message)
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
    """The message of a rule; it holds names, and no value of an argument."""
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
