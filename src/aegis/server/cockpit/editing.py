"""A configuration on its way into force: its text, its difference, its problems by line, and its history."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

from aegis.core.ports import Document, Search
from aegis.errors import StoreConflict
from aegis.pipeline.document import plain
from aegis.pipeline.reload import PolicyHolder, read_trusted
from aegis.server.cockpit.effect import Line
from aegis.server.services import Services

TEXTS: Final = "config_texts"
HISTORY: Final = 50
ACTIONS: Final = frozenset({"start", "api", "file", "signal"})  # what puts a configuration in force
_CONTEXT: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One receipt of a configuration; `text` says whether the cockpit can show it again."""

    receipt_id: str
    index: int
    time: str
    by: str
    action: str
    digest: str
    text: bool
    in_force: bool


def text_in_force(holder: PolicyHolder) -> str:
    """The configuration in force as text: its file where there is one, else everything that it says."""
    if holder.path is not None:
        return read_trusted(holder.path)
    return yaml.safe_dump(plain(holder.config.node), sort_keys=False, allow_unicode=True, width=110)


def text_of_form(form: Mapping[str, str]) -> str:
    """The text of a form, with the line ends of a file (HTML, 4.10.11.6 sends CRLF)."""
    text = form.get("text", "").replace("\r\n", "\n")
    return text if text.endswith("\n") else text + "\n"


def difference(before: str, after: str) -> list[Line]:
    """What changes from one text to the other, with a few lines around it."""
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
    """The text of an earlier configuration, where the cockpit saw it in force."""
    with services.store.reader() as reader:
        found = reader.document(TEXTS, digest)
    return None if found is None else found.body.decode()


def history(services: Services) -> list[Change]:
    """Which configurations were put in force, by whom, newest first."""
    in_force = services.policy.current.digest
    with services.store.reader() as reader:
        entries = reader.search(Search(kind="config", limit=HISTORY))
        bodies = [body for body in (orjson.loads(entry.body) for entry in entries) if body["action"] in ACTIONS]
        kept = {body["policy_digest"] for body in bodies if reader.document(TEXTS, body["policy_digest"]) is not None}
    return [
        Change(
            receipt_id=body["receipt_id"],
            index=body["index"],
            time=body["time"],
            by=body["principal"],
            action=body["action"],
            digest=body["policy_digest"],
            text=body["policy_digest"] in kept,
            in_force=body["policy_digest"] == in_force,
        )
        for body in bodies
    ]


def with_exception(text: str, exception: dict[str, Any]) -> str:
    """`text` with one more exception of the content guard; comments around it stay where they can.

    The file is a person's: it is edited in place where its shape is plain, and written anew otherwise.
    """
    parsed = yaml.safe_load(text) or {}
    content = parsed.setdefault("guards", {}).setdefault("content", {})
    line = yaml.safe_dump(exception, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True).strip()
    placed = _placed(text.splitlines(), line, bool(content.get("exceptions")))
    content.setdefault("exceptions", []).append(exception)
    if placed is not None and yaml.safe_load(placed) == parsed:
        return placed
    return yaml.safe_dump(parsed, sort_keys=False, allow_unicode=True, width=110)


def _placed(lines: Sequence[str], exception: str, has_list: bool) -> str | None:
    """The exception below an `exceptions:` of its own line, or as a section at the end."""
    if has_list:
        for at, line in enumerate(lines):
            if line.strip() == "exceptions:" and at + 1 < len(lines):
                indent = len(lines[at + 1]) - len(lines[at + 1].lstrip())
                return "\n".join([*lines[: at + 1], f"{' ' * indent}- {exception}", *lines[at + 1 :]]) + "\n"
        return None
    if any(line.startswith("guards:") for line in lines):
        return None
    return "\n".join([*lines, "", "guards:", "  content:", "    exceptions:", f"      - {exception}"]) + "\n"


def _body(line: str) -> str:
    return line[1:] if line[:1] in "+- " else line
