"""Effect classes of a call: from what its strings do first, then from the verbs in the tool's name."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from aegis.core.outcome import Effect
from aegis.facts.lexicon import words_of

_VERBS: Final[dict[Effect, frozenset[str]]] = {
    "external_send": frozenset({
        "send", "email", "mail", "post", "publish", "tweet", "share", "upload", "notify", "reply", "forward",
        "message",
        "webhook", "submit", "transfer", "pay", "invite", "broadcast", "sms", "push",
    }),
    "write": frozenset({
        "write", "create", "update", "delete", "remove", "insert", "add", "edit", "set", "save", "put", "modify",
        "move",
        "rename", "append", "cancel", "book", "order", "schedule", "replace", "drop", "patch", "purchase",
    }),
    "exec": frozenset({"run", "execute", "exec", "eval", "bash", "shell", "terminal", "python", "command",
        "invoke", "launch"}),
    "network": frozenset({"fetch", "download", "http", "browse", "crawl", "request", "scrape", "url", "web",
        "curl", "ping"}),
    "read": frozenset({
        "read", "get", "list", "search", "find", "lookup", "query", "show", "view", "check", "describe", "count",
        "load",
        "select", "retrieve", "calculate", "open", "fetch",
    }),
}  # fmt: skip


@lru_cache(maxsize=8_192)
def named_effects(tool: str) -> frozenset[Effect]:
    """The effects that the verbs of a tool's name speak of; empty where there is none."""
    words = set(words_of(tool))
    return frozenset(effect for effect, verbs in _VERBS.items() if words & verbs)
