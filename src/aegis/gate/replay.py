"""What a policy would have made of recorded calls: nothing is recorded, charged or run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import orjson

from aegis.config.text import summary_of
from aegis.core.ports import Entry, Search
from aegis.core.principal import Principal
from aegis.core.times import rfc3339
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy

Evaluate = Callable[[Policy, Incoming], Evaluation]

# Refused before any guard of a policy was asked: another policy changes nothing about them.
_BEFORE_POLICY: Final = frozenset({"revocation", "credential", "idempotency"})


def replayed(parts: Parts, evaluate: Evaluate, candidate: Policy, search: Search) -> dict[str, Any]:
    """Return what the candidate makes of the calls that `search` finds; `last` is the index of the earliest of them.

    `before` and `after` count outcomes, `changed` lists calls that would have ended otherwise and `summary` counts
    them; `skipped` are calls whose arguments are erased or which no policy was asked about.
    """
    changed: list[dict[str, Any]] = []
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    skipped, last = 0, None
    since, until = None, None
    with parts.store.reader() as reader:
        for entry in reader.search(search):
            last, since, until = entry.index, entry.time, until or entry.time
            body = orjson.loads(entry.body)
            payload, _ = load_payload(parts, reader, entry)
            refused_before = any(guard["guard"] in _BEFORE_POLICY for guard in body["guards"])
            if refused_before or payload is None or "arguments" not in payload:  # erased, or beyond its agent's rate
                skipped += 1
                continue
            combined = evaluate(candidate, _incoming(entry, payload)).combined
            outcome, reason = combined.outcome.word, combined.reason.value
            before[entry.decision] += 1
            after[outcome] += 1
            if (outcome, reason) != (entry.decision, entry.reason):
                changed.append(
                    {
                        "receipt_id": entry.receipt_id,
                        "index": entry.index,
                        "tool": entry.tool,
                        "agent": entry.agent,
                        "before": {"decision": entry.decision, "reason": entry.reason},
                        "after": {"decision": outcome, "reason": reason},
                    }
                )
    return {
        "digest": candidate.digest,
        "replayed": sum(before.values()),
        "skipped": skipped,
        "before": dict(before),
        "after": dict(after),
        "changed": changed,
        "summary": summary_of(changed),
        "span": {"since": since and rfc3339(since), "until": until and rfc3339(until)},
        "last": last,
    }


def _incoming(entry: Entry, payload: dict[str, Any]) -> Incoming:
    return Incoming(
        tool=payload["tool"],
        server=payload["server"],
        arguments=payload["arguments"],
        principal=Principal(id=entry.principal, roles=frozenset({"agent"}), agent=entry.agent),
        agent=entry.agent,
        session=entry.session,
        call_id=entry.call_id,
        now=entry.time,
        task=payload.get("claimed", {}).get("task"),
        charge=False,
    )
