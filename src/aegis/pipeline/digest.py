"""The digest of a policy: same meaning, same digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis._version import __version__
from aegis.core.canonical import canonical
from aegis.core.digest import sha256
from aegis.pipeline.settings import Settings

# Where things are stored, and where the settings came from, change no decision. Rules count by what they say.
_WITHOUT_MEANING: Final = {"version", "profile", "store", "durability", "rules"}


def policy_digest(settings: Settings, *, rules: str, judges: Sequence[str] = ()) -> str:
    """`sha-256:...` over the resolved settings, rules, judges and this package's version.

    Order of keys, comments, the profile that a value came from, spellings of durations and sizes,
    and descriptions make no difference.
    """
    meaning: dict[str, Any] = settings.model_dump(mode="json", by_alias=True, exclude=_WITHOUT_MEANING)
    for tool in meaning["tools"].values():
        del tool["description"]
        if tool["effects"] is not None:
            tool["effects"] = sorted(tool["effects"])
    for policy in meaning["policies"]:
        del policy["description"]
    whole: dict[str, Any] = {"settings": meaning, "rules": rules, "package": __version__}
    if judges:
        whole["judges"] = list(judges)
    return sha256(canonical(whole))
