"""The section `missions`, compiled into what a policy asks."""

from __future__ import annotations

import os
from stat import S_ISLNK

from aegis.core.digest import kid_of
from aegis.core.names import SelectorMap
from aegis.guards.budget import BudgetGuard, Quote
from aegis.guards.flow import FlowGuard
from aegis.guards.mission import MissionGuard
from aegis.guards.postconditions import PostconditionsGuard
from aegis.guards.scope.match import Resolve
from aegis.guards.scope.paths import pattern_segments
from aegis.guards.scope.touch import Segments
from aegis.keys.jws import IssuerKey
from aegis.pipeline.mission_rules import MissionRules
from aegis.pipeline.settings_missions import MissionSettings, public_key
from aegis.rules import Scanner


def compile_missions(settings: MissionSettings, scanner: Scanner) -> MissionRules:
    """What the policy brings to missions; raises nothing: the settings were checked where they were read."""
    resolve: Resolve | None = real_segments if settings.file_system == "shared" else None
    issuers = [IssuerKey(public_key(text), name) for name, text in settings.issuers.items()]
    return MissionRules(
        guards=(MissionGuard(required=settings.required, resolve=resolve), BudgetGuard(), FlowGuard()),
        result_guards=(PostconditionsGuard(scanner),),
        required=settings.required,
        audience=settings.audience,
        issuers={kid_of(key.public): key for key in issuers},
        quotes=SelectorMap({one.tool: Quote(money=one.money, tokens=one.tokens) for one in settings.quotes}),
        tool_keys=SelectorMap({name: public_key(text) for name, text in settings.tool_keys.items()}),
        signing=frozenset(map(public_key, settings.tool_keys.values())),
    )


def real_segments(name: Segments) -> Segments | None:
    """Where an absolute path or one below the home really leads; `None` for relative and drive paths."""
    if not name or name[0] not in ("/", "~"):
        return None
    text = "/" + "/".join(name[1:]) if name[0] == "/" else os.path.expanduser("/".join(name))  # noqa: PTH111
    try:
        if name[0] == "/" and not _meets_link(text):
            return name
        real = os.path.realpath(text)
    except (OSError, ValueError):
        return ("", text)  # what cannot be followed is inside of no scope
    return pattern_segments(real)


def _meets_link(text: str) -> bool:
    """Whether a link stands on the way of an absolute path without `..`; below what does not exist there is none."""
    at = 0
    while at >= 0:
        at = text.find("/", at + 1)
        try:
            if S_ISLNK(os.lstat(text if at < 0 else text[:at]).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
    return False
