"""A configuration on its way into force: its text, its difference, its problems by line, and its history."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from aegis.approvals.effect import Line
from aegis.core.ports import Document, Search
from aegis.errors import StoreConflict
from aegis.server.services import Services

TEXTS: Final = "config_texts"
HISTORY: Final = 50
_LOOKED: Final = 500  # receipts among which they are found: drafts and alerts are receipts of a configuration too
ACTIONS: Final = frozenset({"start", "api", "file", "signal"})  # what puts a configuration in force
_CONTEXT: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChange:
    """One receipt of a configuration; `text` says whether it is another one, which can be shown again."""

    receipt_id: str
    index: int
    time: str
    by: str
    action: str
    digest: str
    text: bool
    in_force: bool


def text_of_form(form: Mapping[str, str]) -> str:
    """Return the text of a form, with the line ends of a file (HTML, 4.10.11.6 sends CRLF)."""
    text = form.get("text", "").replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def difference(before: str, after: str) -> list[Line]:
    """Return what changes from one text to the other, with a few lines around it."""
    if before == after:
        return []
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_CONTEXT))[2:]
    kinds = {"+": "add", "-": "del", "@": "at"}
    return [
        Line(kind=kinds.get(line[:1], ""), sign=line[0] if line[:1] in "+-" else "", text=_body(line)) for line in lines
    ]


def keep_text(services: Services, digest: str, text: str) -> None:
    """Keep a text under the digest of its policy, so that it can be put in force again."""
    with services.store.transaction() as transaction:
        found = transaction.document(TEXTS, digest)
        version = 1 if found is None else found.version + 1
        try:
            transaction.put_document(Document(collection=TEXTS, key=digest, version=version, body=text.encode()))
        except StoreConflict:  # another process keeps the same text under the same digest
            return


def kept_text(services: Services, digest: str) -> str | None:
    """Return the text of an earlier configuration, where the cockpit saw it in force."""
    with services.store.reader() as reader:
        found = reader.document(TEXTS, digest)
    return None if found is None else found.body.decode()


def history(services: Services) -> list[TextChange]:
    """Which configurations were put in force, by whom, newest first."""
    in_force = services.policy.current.digest
    with services.store.reader() as reader:
        entries = reader.search(Search(kind="config", limit=_LOOKED))
        bodies = [body for body in (orjson.loads(entry.body) for entry in entries) if body["action"] in ACTIONS]
        bodies = bodies[:HISTORY]
        kept = {body["policy_digest"] for body in bodies if reader.document(TEXTS, body["policy_digest"]) is not None}
    newest = next((body for body in bodies if body["policy_digest"] == in_force), None)
    return [
        TextChange(
            receipt_id=body["receipt_id"],
            index=body["index"],
            time=body["time"],
            by=body["principal"],
            action=body["action"],
            digest=body["policy_digest"],
            text=body["policy_digest"] in kept and body["policy_digest"] != in_force,
            in_force=body is newest,
        )
        for body in bodies
    ]


def _body(line: str) -> str:
    return line[1:] if line[:1] in "+- " else line
