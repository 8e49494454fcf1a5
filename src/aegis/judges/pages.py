"""Judges on the pages: what each said about a call, and whether they answer at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from aegis.cockpit.text import covered
from aegis.core.ports import Reader, Search
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload
from aegis.judges.values import ESCALATED, REJECTED

MOST_RUNS: Final = 32  # runs of one call that a page shows
LOOKED_AT: Final = 200  # newest receipts of judges by which their health is told
_LOOKED: Final[frozenset[str]] = frozenset({"passed", *REJECTED, *ESCALATED})


def runs(
    parts: Parts, reader: Reader, receipt: Mapping[str, Any], *, hidden: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return what each judge of a decision said; their words are left out where `hidden` is `None`, else masked."""
    found = []
    for run_id in receipt.get("judge", {}).get("runs", ())[:MOST_RUNS]:
        ended = [entry for entry in reader.search(Search(parent=run_id, limit=8)) if entry.kind == "judge"]
        body = orjson.loads(ended[0].body) if ended else {}
        told = body.get("judge", {})
        said: dict[str, Any] = {}
        if ended and hidden is not None:
            payload = load_payload(parts, reader, ended[0])[0] or {}
            said = covered(payload.get("result") or {}, hidden)
        found.append(
            {
                "receipt": run_id,
                "name": told.get("name", ""),
                "validator": told.get("validator", ""),
                "version": told.get("version", ""),
                "cause": told.get("cause", "under way"),
                "state": state_of(told.get("cause", "")),
                "score": told.get("score"),
                "confidence": told.get("confidence"),
                "ms": told.get("ms"),
                "reasoning": said.get("reasoning", ""),
                "signals": said.get("signals", ()),
            }
        )
    return found


def health(reader: Reader, configured: Sequence[str]) -> list[dict[str, str]]:
    """Return how the newest runs of each judge ended; one that never ran says so."""
    ended: dict[str, list[str]] = {name: [] for name in configured}
    newest: dict[str, str] = {}
    for entry in reader.search(Search(kind="judge", limit=LOOKED_AT)):
        body = orjson.loads(entry.body)
        if body.get("action") == "ended":
            name = str(body["judge"]["name"])
            ended.setdefault(name, []).append(str(body["judge"].get("cause", "lost")))
            newest.setdefault(name, str(body["time"]))
    return [_health(name, causes, newest.get(name, "")) for name, causes in ended.items()]


def state_of(cause: str) -> str:
    """Return a cause as the word of a tag: a judge that looked is well whatever it said."""
    if cause == "passed":
        return "ok"
    return "bad" if cause in REJECTED else "warn"


def _health(name: str, causes: Sequence[str], newest: str) -> dict[str, str]:
    failed = Counter(cause for cause in causes if cause not in _LOOKED)
    if not causes:
        return {"name": f"judge {name}", "state": "ok", "told": "has not run yet"}
    worst = f", most often by {failed.most_common(1)[0][0]}" if failed else ""
    told = f"{failed.total()} of its last {len(causes)} runs failed{worst}; last run "
    state = "ok" if not failed else "bad" if causes[0] in failed and 2 * failed.total() > len(causes) else "warn"
    return {"name": f"judge {name}", "state": state, "told": told, "time": newest}
