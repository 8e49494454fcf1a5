"""What is wrong with settings that are each well-formed: contradictions, and things never enforced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pydantic import BaseModel

from aegis.config.document import nearest
from aegis.config.sections import public_key
from aegis.config.settings import Settings
from aegis.config.tools import ApprovalSettings, OwnApprovalSettings, PolicySettings
from aegis.core.extensions import load_extension
from aegis.core.names import Selector, glob_match
from aegis.errors import ExtensionError, Problem
from aegis.policy.model import (
    ALWAYS,
    CALL_GUARDS,
    MISSION_GUARDS,
    MISSION_RESULT_GUARDS,
    RESULT_GUARDS,
    SLOW_GUARDS,
    UNLISTED_GUARDS,
    check_guard,
    outside_scheme,
)

# Names that no package can take: a call is always asked about by our own.
_OWN_GUARDS: Final = frozenset(
    {
        *ALWAYS,
        "paths",
        *CALL_GUARDS,
        *RESULT_GUARDS,
        *MISSION_GUARDS,
        *MISSION_RESULT_GUARDS,
        *SLOW_GUARDS,
        *UNLISTED_GUARDS,
        "stream",
    }
)
Place = Callable[[tuple[str | int, ...], str, str], Problem]
# Members whose entries may come again: words of a command line, and what others define.
_FREE: Final = frozenset({"cmd.run", "command", "deny", "options", "schema"})


def check(settings: Settings, place: Place) -> list[Problem]:
    """Every problem of settings whose members are each well-formed; none where they can be enforced."""
    return [
        *_repeated(settings, (), place),
        *_judges(settings, place),
        *_pipeline(settings, place),
        *_registry(settings, place),
        *_tools(settings, place),
        *_policies(settings, place),
        *_approvers(settings.approvals, settings.approvals, ("approvals",), place),
        *_link(settings, place),
        *_store(settings, place),
        *_keys(settings, place),
    ]


def _repeated(value: object, where: tuple[str | int, ...], place: Place) -> Iterator[Problem]:
    """Entries of a list that stand in it twice, in every section: one of them was meant to be another."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            key = field.alias or name
            if key not in _FREE:
                yield from _repeated(getattr(value, name), (*where, key), place)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _repeated(inner, (*where, key), place)
    elif isinstance(value, (list, tuple)):
        seen: set[object] = set()
        for position, inner in enumerate(value):
            if isinstance(inner, (str, int, float)):
                if inner in seen:
                    yield place((*where, position), f"`{inner}` is there twice", "")
                seen.add(inner)
            else:
                yield from _repeated(inner, (*where, position), place)


def given_keys(settings: Settings) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Every public key of somebody else that a configuration names, with its place."""
    for section in ("issuers", "tool_keys"):
        for name, text in getattr(settings.missions, section).items():
            yield ("missions", section, name), public_key(text)


def _keys(settings: Settings, place: Place) -> Iterator[Problem]:
    """One key, one purpose, one owner: tools of one server may share a key, and nobody else shares one."""
    owners: dict[bytes, tuple[str, ...]] = {}
    for where, key in given_keys(settings):
        other = owners.setdefault(key, where)
        if other != where and "issuers" in (where[1], other[1]):
            yield place(where, f"this is the key of `{'.'.join(other)}` as well", "give each purpose a key of its own")


def _judges(settings: Settings, place: Place) -> Iterator[Problem]:
    names: set[str] = set()
    for position, entry in enumerate(settings.judges):
        if entry.name in names:
            yield place(("judges", position, "name"), f"the judge entry `{entry.name}` is there twice", "")
        names.add(entry.name)
    for name, tool in settings.tools.items():
        harmful = sorted({"write", "exec", "external_send"} & set(tool.effects or ()))
        if tool.skip_judge and not tool.unsafe_skip_judge_with_effects and (harmful or tool.irreversible):
            why = f"has the effect `{harmful[0]}`" if harmful else "cannot be undone"
            hint = "leave `skip_judge` out, or set `unsafe_skip_judge_with_effects: true`"
            yield place(("tools", name, "skip_judge"), f"a tool that {why} does not go without a judge", hint)


def _pipeline(settings: Settings, place: Place) -> Iterator[Problem]:
    outside = tuple(settings.guards.outside)
    for name in outside:
        if name in _OWN_GUARDS:
            hint = "no package can replace it; register the other one under a name of its own"
            yield place(("guards", "outside", name), f"the guard `{name}` comes with Aegis", hint)
    stages = (
        ("call", settings.pipeline.call, CALL_GUARDS, (*MISSION_GUARDS, *SLOW_GUARDS, *outside)),
        ("result", settings.pipeline.result, RESULT_GUARDS, (*MISSION_RESULT_GUARDS, *outside)),
    )
    for stage, names, known, of_missions in stages:
        for position, name in enumerate(names):
            where = ("pipeline", stage, position)
            try:
                check_guard(name, (*known, *of_missions))
            except ValueError as error:
                yield place(where, str(error), nearest(name, known))
        known_names = [name for name in names if name in known]
        if known_names and all(settings.guards.mode(name) == "off" for name in known_names):
            hint = "to let calls pass and record what the guards say, use `mode: observe`"
            yield place(("pipeline", stage), f"every guard of `pipeline.{stage}` is off", hint)
    # A check that was written down and that no guard would ever make.
    wanted = {
        "schema": any(tool.schema_ is not None for tool in settings.tools.values())
        or any(policy.cedar is None for policy in settings.policies),
        "cedar": any(policy.cedar is not None for policy in settings.policies),
    }
    for guard, needed in wanted.items():
        if needed and guard not in settings.pipeline.call and settings.guards.mode(guard) != "off":
            hint = f"add `{guard}` to `pipeline.call`, or set its mode to `off`"
            yield place(
                ("pipeline", "call"), f"checks are written for the guard `{guard}`, which would never run", hint
            )


def _registry(settings: Settings, place: Place) -> Iterator[Problem]:
    registry = settings.registry
    if registry.allow_critical and registry.max_allowed_tier != "critical":
        message = f"`allow_critical` has no effect below `max_allowed_tier: {registry.max_allowed_tier}`"
        yield place(("registry", "allow_critical"), message, "set `max_allowed_tier: critical` as well")


def _tools(settings: Settings, place: Place) -> Iterator[Problem]:
    seen: dict[tuple[str | None, str], str] = {}
    for name, tool in settings.tools.items():
        selector = Selector(name)
        where = ("tools", name)
        if not selector.tool or selector.server == "":
            yield place(where, f"the selector `{name}` names no tool", "write `tool`, `server/tool` or `server/*`")
        identity = (_collapsed(selector.server), _collapsed(selector.tool) or "")
        if identity in seen:
            message = f"the selector `{name}` is never reached: `{seen[identity]}` covers the same tools"
            yield place(where, message, "names are compared without regard to case and look")
        seen[identity] = name
        if tool.effects is not None and "none" in tool.effects and len(tool.effects) > 1:
            yield place((*where, "effects"), "`none` stands beside other effects", "")
        if tool.effects == ["none"] and tool.irreversible:
            yield place((*where, "irreversible"), "a tool without effects cannot be irreversible", "")
        if tool.approvals is not None:
            yield from _approvers(tool.approvals, settings.approvals, (*where, "approvals"), place)


def _store(settings: Settings, place: Place) -> Iterator[Problem]:
    scheme = outside_scheme(settings.store)
    if scheme:
        try:
            load_extension("store", scheme)
        except ExtensionError as error:
            yield place(("store",), str(error), "")


def _link(settings: Settings, place: Place) -> Iterator[Problem]:
    link = settings.approvals.link
    if link and not link.startswith(("https://", "http://")):
        yield place(("approvals", "link"), "the link is not a web address", "write `https://HOST`")


def _policies(settings: Settings, place: Place) -> Iterator[Problem]:
    names: set[str] = set()
    for position, policy in enumerate(settings.policies):
        where = ("policies", position)
        if policy.name in names:
            yield place((*where, "name"), f"the policy `{policy.name}` is there twice", "")
        names.add(policy.name)
        forms = [policy.schema_ is not None, policy.deny is not None, policy.cedar is not None]
        if sum(forms) != 1:
            yield place(where, f"the policy `{policy.name}` needs exactly one of `schema`, `deny` and `cedar`", "")
            continue
        if policy.cedar is not None:
            if policy.select is not None:
                yield place((*where, "select"), "a Cedar policy selects by its own scope", "remove `select`")
        else:
            yield from _select(policy, settings, where, place)
        if policy.approvals is not None:
            if policy.outcome == "block":
                yield place((*where, "approvals"), "the policy never holds a call", "set `outcome: require_approval`")
            yield from _approvers(policy.approvals, settings.approvals, (*where, "approvals"), place)


def _select(
    policy: PolicySettings, settings: Settings, where: tuple[str | int, ...], place: Place
) -> Iterator[Problem]:
    select = policy.select
    if select is None:
        return
    chosen = (select.tool, select.category, select.effect, select.session)
    if all(one is None for one in chosen) or (
        select.session is not None and not select.session.model_dump(exclude_none=True)
    ):
        message = f"the policy `{policy.name}` selects nothing"
        yield place((*where, "select"), message, "without `select`, a policy is about every call")
        return
    categories = {tool.category for tool in settings.tools.values() if tool.category}
    if select.category is not None and select.category not in categories:
        message = f"no tool is of the category `{select.category}`"
        yield place((*where, "select", "category"), message, nearest(select.category, categories))
    if settings.registry.allow_unregistered == "block":
        for text in select.tool or ():
            if not any(_may_meet(text, name) for name in settings.tools):
                message = f"the selector `{text}` is never reached: no registered tool matches"
                yield place((*where, "select", "tool"), message, nearest(text, settings.tools))


def _approvers(
    own: ApprovalSettings | OwnApprovalSettings,
    default: ApprovalSettings,
    where: tuple[str | int, ...],
    place: Place,
) -> Iterator[Problem]:
    approvers = default.approvers if own.approvers is None else own.approvers
    quorum = default.quorum if own.quorum is None else own.quorum
    on_timeout = default.on_timeout if own.on_timeout is None else own.on_timeout
    for position, name in enumerate(approvers):
        group = name.removeprefix("group:")
        if group != name and group not in default.groups:
            message = f"there is no group `{group}`"
            yield place((*where, "approvers", position), message, nearest(group, default.groups))
    people = _people(approvers, default)
    if people is not None and quorum > len(people):
        message = f"a quorum of {quorum} cannot be reached by {len(people)} approvers"
        yield place((*where, "quorum"), message, "")
    if on_timeout == "next" and len(approvers) < 2:
        yield place((*where, "on_timeout"), "`next` needs a second approver", "")


def _people(approvers: list[str], default: ApprovalSettings) -> set[str] | None:
    """Everybody whom the list names, or `None` where a role stands for any number of them."""
    people: set[str] = set()
    for name in approvers:
        kind, _, who = name.partition(":")
        if kind == "role":
            return None
        people |= set(default.groups.get(who, ())) if kind == "group" else {who}
    return people


def _collapsed(pattern: str | None) -> str | None:
    """The pattern with runs of `*` as one: they match the same names."""
    if pattern is None:
        return None
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern


def _may_meet(select: str, registered: str) -> bool:
    """Whether a policy's selector can cover a tool that a registry entry covers (may say yes too often)."""
    one, other = Selector(select), Selector(registered)
    if "*" in other.tool or (other.server is not None and "*" in other.server):
        return True
    servers = one.server is None or (other.server is not None and glob_match(one.server, other.server))
    return glob_match(one.tool, other.tool) and servers
