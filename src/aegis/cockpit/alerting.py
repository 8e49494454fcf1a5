"""Looking at the rules of alerts: what is true now, whether it was told, and telling it once.

Word is written to the outbox in the transaction of its receipt. Only a store that cannot be written is told
directly, because nothing could be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from msgspec import structs

from aegis.approvals.values import COLLECTION as APPROVALS
from aegis.approvals.values import from_document
from aegis.behaviour.alerts import (
    UNMARKED,
    WINDOW_US,
    AlertGroup,
    AlertMark,
    link_to,
    read_groups,
    read_marks,
)
from aegis.behaviour.digest import WEEK_US, digest_of, digest_text
from aegis.cockpit.alert_rules import MAX_TOLD, AlertRule, AlertSent, AlertTold, list_rules, put_rule
from aegis.cockpit.rollup import MINUTE_US, Rollup, Tally
from aegis.core.outcome import Outcome, Risk
from aegis.core.ports import Search, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS, rfc3339
from aegis.errors import InvalidCall, StoreConflict, StoreError
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.missions.lineage import near_end
from aegis.outbound import worker
from aegis.outbound.send import (
    Clients,
    DeliveryTarget,
    Message,
    NotTaken,
    send,
)
from aegis.server.services import Services

PERIOD_S: Final = 2.0
QUIET_S: Final = 900  # how long a rule is silent after it told of something that goes on
WINDOW_MIN: Final = 10
LOOKED_AT: Final = 1_000  # held calls looked at in one round
_ALARMS: Final = 200  # newest receipts among which one that is no alarm is looked for
BLOCK: Final = 3  # the column of blocked calls in a row of counts
_NOTHING: Final = ("", "")
_TOLD_ONCE: Final = frozenset({"new_rule", "budget", "digest"})
_FIRST_MONDAY_US: Final = 4 * 86_400 * MICROS  # 1970 began on a Thursday
MAX_TEXT_CHARS: Final = 20_000  # of one message
MAX_KEPT_CHARS: Final = 500  # of it in the log of its rule
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
        self._groups: Mapping[str, AlertGroup] = {}
        self._groups_at = -1
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
        groups, marks = await asyncio.to_thread(self._grouped, now)
        for rule in self._rules:
            if await self._escalated(rule, groups, marks, now):
                continue
            if rule.watch == "alarms":
                await self._alarms(rule, groups, marks, now)
                continue
            state, text = await asyncio.to_thread(self._look, rule, now)
            # A state that is new is told; one that goes on is told again after a while, if it is a count.
            again = state == rule.state and rule.watch not in _TOLD_ONCE and now - rule.fired_at > QUIET_S * MICROS
            if text and (state != rule.state or again):
                muted = marks.get(rule.group, UNMARKED).mutes(Risk.MEDIUM, now)
                told = rule.told if muted else _told_again(rule, rule.group, groups, marks, text, now)
                await self._tell(replace(rule, told=told), state, text, now, muted=muted)
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
        if rule.watch == "digest":
            return self._digest(rule, now)
        return _NOTHING

    def _grouped(self, now: int) -> tuple[Mapping[str, AlertGroup], Mapping[str, AlertMark]]:
        """Return the alarms by their cause, made again where something was recorded, and what people said of them."""
        with self._services.store.reader() as reader:
            size = reader.head().size
            if self._groups_at != size:
                self._groups, self._groups_at = read_groups(reader, now)[0], size
            return self._groups, read_marks(reader)

    async def _alarms(
        self, rule: AlertRule, groups: Mapping[str, AlertGroup], marks: Mapping[str, AlertMark], now: int
    ) -> None:
        """Tell of every cause that is new, and of the others from time to time how often they came since."""
        for group in sorted(groups.values(), key=lambda one: (-one.severity, one.index)):
            told = rule.told.get(group.id)
            fresh = group.last >= rule.created_at if told is None else group.index > told.index
            waits = told is not None and now - told.at <= QUIET_S * MICROS
            own = group.action.startswith("alert_")
            if own or not fresh or waits or marks.get(group.id, UNMARKED).mutes(group.severity, now):
                continue
            after = replace(rule, told=_told_again(rule, group.id, groups, marks, group.words, now))
            if not await self._tell(after, rule.state, f"{group.severity.word}: {group.words}", now, group=group.id):
                return
            rule = replace(after, version=rule.version + 1)

    async def _escalated(
        self, rule: AlertRule, groups: Mapping[str, AlertGroup], marks: Mapping[str, AlertMark], now: int
    ) -> bool:
        """Tell the second address of what the first was told and nobody has looked at since; whether it was told.

        One at a time: the next look takes the next one, from the rule as it is kept then.
        """
        if rule.escalate is None:
            return False
        for group, told in rule.told.items():
            looked = marks.get(group, UNMARKED).seen_at >= told.since
            if told.escalated or looked or group not in groups or now - told.since < rule.escalate_s * MICROS:
                continue
            minutes = (now - told.since) // MINUTE_US
            span = "a minute" if minutes == 1 else f"{minutes} minutes"
            text = f"nobody has looked at this for {span}: {told.text}"
            passed = replace(rule, told={**rule.told, group: replace(told, escalated=True)})
            await self._tell(passed, rule.state, text, now, group=group, second=rule.escalate)
            return True
        return False

    def _digest(self, rule: AlertRule, now: int) -> tuple[str, str]:
        """Return the digest of the week that ended since the last look; the first look only learns which week it is."""
        week = (now - _FIRST_MONDAY_US) // WEEK_US
        state = f"week:{week}"
        if rule.state in ("", state):
            return state, ""
        end = week * WEEK_US + _FIRST_MONDAY_US
        with self._services.store.reader() as reader:
            return state, digest_text(digest_of(reader, since=end - WEEK_US, until=end - 1))[:MAX_TEXT_CHARS]

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

    async def _tell(
        self,
        rule: AlertRule,
        state: str,
        text: str,
        now: int,
        *,
        group: str = "",
        muted: bool = False,
        second: DeliveryTarget | None = None,
    ) -> bool:
        """Tell it, unless it is muted, and record that it held; whether no other process was first.

        `second` is the address that is told in place of the rule's own.
        """
        action = f"alert_{rule.watch}" if second is None else "alert_escalated"
        base = self._services.policy.current.approval_rules.link
        event, link = action.replace("_", ".", 1), link_to(base, group or rule.group)
        message = message_of(rule, text, now, event=event, link=link)
        if second is not None:
            message = structs.replace(message, target=second)
        sent = AlertSent(message="" if muted else message.id, time=now, text=text[:MAX_KEPT_CHARS])
        changed = replace(rule.remember(sent), state=state, fired_at=now)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            put_rule(transaction, changed)
            if not muted:
                worker.put(transaction, message)
            noted = {"guard": "alerts", "outcome": Outcome.ALLOW.word, "rules": [rule.id]}
            members: dict[str, Any] = {"kind": "alarm", "receipt_id": new_id(), "principal": "gate"}
            return (Draft(members={**members, "action": action, "guards": [noted]}),)

        try:
            await self._services.gate.arecord(Unit(apply=apply))
        except StoreConflict:  # another process told it
            return False
        self._services.deliveries.start()
        return True

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


def _told_again(
    rule: AlertRule,
    group: str,
    groups: Mapping[str, AlertGroup],
    marks: Mapping[str, AlertMark],
    text: str,
    now: int,
) -> dict[str, AlertTold]:
    """Return what a rule told, with one group told now; whoever looked before has not looked at this."""
    before, found = rule.told.get(group), groups.get(group)
    unseen = before is not None and marks.get(group, UNMARKED).seen_at < before.since
    told = AlertTold(
        since=before.since if before is not None and unseen else now,
        at=now,
        index=0 if found is None else found.index,
        text=text[:MAX_KEPT_CHARS],
        escalated=before is not None and unseen and before.escalated,
    )
    kept = {name: one for name, one in rule.told.items() if name != group and one.at > now - WINDOW_US}
    return {**dict(list(kept.items())[1 - MAX_TOLD :]), group: told}


def message_of(rule: AlertRule, text: str, now: int, *, event: str = "", link: str = "") -> Message:
    """Return the message of a rule; it holds names, and no value of an argument."""
    return Message(
        id=new_id(),
        target=rule.target,
        event=event or f"alert.{rule.watch}",
        text=f"{rule.name}: {text}",
        link=link,
        data={"alert": rule.name, "watch": rule.watch, "text": text, "time": rfc3339(now)},
        created_at=now,
        due_at=now,
    )
