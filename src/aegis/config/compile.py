"""From a checked configuration to a policy: everything that can fail, fails here, with file and line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from stat import S_ISLNK
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakValueDictionary

from aegis._version import __version__
from aegis.config.compile_reviews import compile_judges, compile_previews, judge_versions
from aegis.config.compile_tools import (
    approval_rules,
    compile_routes,
    compile_schema_guard,
    compile_standing,
    policy_approvals,
)
from aegis.config.config import Config, Source
from aegis.config.document import nearest
from aegis.config.sections import MissionSettings, public_key
from aegis.config.settings import Settings
from aegis.config.trusted import rule_folders
from aegis.core.behaviour import BehaviourRules
from aegis.core.canonical import canonical, kid_of, sha256
from aegis.core.extensions import load_extension
from aegis.core.names import SelectorMap, glob_match
from aegis.core.outcome import risk_of
from aegis.detect.facts import ReadLimits
from aegis.detect.rules import RuleSet, Scanner, builtin_folder, load
from aegis.detect.touch.paths import pattern_segments
from aegis.detect.touch.touch import Resolve, Segments
from aegis.errors import ConfigError, ExtensionError, Problem
from aegis.keys.jws import IssuerKey
from aegis.policy.guards.base import Guard, ResultGuard
from aegis.policy.guards.budget import BudgetGuard
from aegis.policy.guards.content import ContentGuard
from aegis.policy.guards.dataflow import DataflowGuard, DataflowRules, DriftGuard
from aegis.policy.guards.evidence import EvidenceGuard
from aegis.policy.guards.mission import FlowGuard, MissionGuard
from aegis.policy.guards.outflow import Links
from aegis.policy.guards.paths import PathsGuard, path_limit
from aegis.policy.guards.postconditions import PostconditionsGuard
from aegis.policy.guards.protected import ProtectedGuard
from aegis.policy.guards.rate import RateGuard, Windows
from aegis.policy.guards.registry import RegistryGuard, RegistryRules
from aegis.policy.guards.result import ResultContentGuard
from aegis.policy.guards.schema import SchemaGuard
from aegis.policy.guards.standing import GUARDS as STANDING_GUARDS
from aegis.policy.guards.standing import StandingGuard
from aegis.policy.mission import Quote
from aegis.policy.model import ALWAYS, MISSION_GUARDS, MISSION_RESULT_GUARDS, SLOW_GUARDS, MissionRules
from aegis.policy.policy import Policy

if TYPE_CHECKING:  # its engine takes long to load
    from aegis.policy.guards.cedar import CedarGuard

# The folders that agents work in, compiled into what follows links out of them on this machine.


def compile_links(folders: Sequence[str]) -> Links | None:
    """What follows links below `folders`; `None` where the operator named none."""
    return Links(tuple(folders), _follow) if folders else None


def _follow(path: str) -> str | None:
    """Where an absolute path really leads; `None` for a circle of links or what the system does not let us follow."""
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.realpath(path)  # what is not there yet, behind the links that are
    except (OSError, ValueError):
        return None


def compile_paths(settings: Settings) -> PathsGuard | None:
    """What keeps arguments within `tools.X.paths`; `None` where no tool has any."""
    follow = real_segments if settings.missions.file_system == "shared" else None
    base = next(iter(settings.guards.content.workspaces), "")
    tools = {
        name: [path_limit(argument, patterns, base=base, follow=follow) for argument, patterns in tool.paths.items()]
        for name, tool in settings.tools.items()
        if tool.paths
    }
    return PathsGuard(tools, base=base, follow=follow) if tools else None


# The section `missions`, compiled into what a policy asks.


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


# The digest of a policy: same meaning, same digest.

# Where things are stored, and where the settings came from, change no decision. Rules count by what they say.
_WITHOUT_MEANING: Final = {"version", "profile", "store", "durability", "rules"}


def policy_digest(
    settings: Settings, *, rules: str, judges: Sequence[str] = (), outside: Sequence[Sequence[str]] = ()
) -> str:
    """Give `sha-256:...` over the resolved settings, rules, judges, guards of packages and this package's version.

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
    # What a section that nobody wrote says changes no digest.
    if not meaning["approvals"]["standing"]:
        del meaning["approvals"]["standing"]
    if outside:
        whole["outside"] = [list(one) for one in outside]
    else:
        del meaning["guards"]["outside"]
    for entry in meaning["judges"]:
        if entry["extension"] is None:
            del entry["extension"], entry["options"]
    return sha256(canonical(whole))


__all__ = ["Policy", "compile_policy"]

_KEYS: Final = count(1)  # of compilations in this process


_SCANNERS: Final[WeakValueDictionary[str, Scanner]] = (
    WeakValueDictionary()
)  # those in use, by the digest of their rules


def _scanner(rules: RuleSet, cache: Path | None) -> Scanner:
    """Return the scanner of these rules that a policy of this process uses already, or a new one."""
    known = _SCANNERS.get(rules.digest)
    if known is None or known.rules != rules:
        known = _SCANNERS[rules.digest] = Scanner(rules, cache=cache)
    return known


def compile_policy(
    config: Config,
    *,
    scanner_folders: Sequence[Path] = (),
    previous: Policy | None = None,
    cache: Path | None = None,
    protected: Sequence[Path] = (),
) -> Policy:
    """The policy that `config` describes, ready to evaluate.

    `scanner_folders` hold the detector rules (the built-in ones where empty). What `previous`
    counted goes on counting, so that a reload frees nobody's limit, and its compiled rules are used
    again where they are the same. `cache` is a private folder for compiled rules. Calls that name
    one of the paths `protected` are blocked, or the configuration's own file and folders of rules. Raises
    `ConfigError` with every problem found.
    """
    settings = config.settings
    problems: list[Problem] = []
    # (1) Everything that users write in languages of their own.
    schema_guard = compile_schema_guard(config, problems)
    cedar_guard = None
    if any(policy.cedar is not None for policy in settings.policies):
        # Its engine takes long to load; a configuration without a policy in Cedar does not pay for that.
        from aegis.config.compile_cedar import compile_cedar_guard

        cedar_guard = compile_cedar_guard(config, problems)
    folders = rule_folders(config)
    rules = load(*(scanner_folders or (builtin_folder(),)), *folders, cache=cache)
    _check_exceptions(config, rules, problems)
    standing = compile_standing(config, rules.by_id, problems)
    judges = compile_judges(config, problems)
    outside, outside_results, versions = _outside(config, problems)
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda one: (one.file, one.line))))

    # (2) The guards by name.
    windows = Windows() if previous is None else previous.windows
    scanner = _scanner(rules, cache)
    options = settings.guards.content.compiled()
    guards: dict[str, Guard] = {
        "rate": _rate_guard(settings, windows),
        "registry": RegistryGuard(_registry(settings), names=settings.tools),
        "schema": schema_guard,
        "content": ContentGuard(scanner, options, compile_links(settings.guards.content.workspaces)),
    }
    # Without a Cedar policy there is nothing to ask; with one, what none permits is denied.
    if cedar_guard is not None:
        guards["cedar"] = cedar_guard
    if standing:
        guards |= {name: StandingGuard(guards[name], standing) for name in STANDING_GUARDS}
    guards |= outside
    result_guards: dict[str, ResultGuard] = {"content": ResultContentGuard(scanner, options), **outside_results}

    # (3) In the configured order, those that are on; guards of packages that no list names come last.
    calls, results = (
        [*names, *(name for name in settings.guards.outside if name not in names)]
        for names in (settings.pipeline.call, settings.pipeline.result)
    )
    call = [(guards[name], observed) for name, observed in _on(settings, calls) if name in guards]
    mode: Literal["enforce", "observe"] = "observe" if all(observed for _, observed in call) else "enforce"
    result = [(result_guards[name], observed) for name, observed in _on(settings, results) if name in result_guards]
    for stage, present in (("call", call), ("result", result)):
        if not present:
            message = f"no guard of `pipeline.{stage}` has anything to do on every {stage}"
            raise ConfigError((config.problem(("pipeline", stage), message),))
    # (4) Around them, what no list leaves out.
    files = [*([Path(config.file)] if config.file else []), *folders, *(path for path in protected if path.is_file())]
    homes = [path for path in protected if path not in files]
    always: dict[str, Guard] = {
        "protected": ProtectedGuard(homes, user_home=_user_home(), settings=files, process=os.getpid()),
        "evidence": EvidenceGuard(alone="content" not in (guard.name for guard, _ in call)),
    }
    limits = compile_paths(settings)
    if limits is not None and settings.guards.mode("schema") != "off":
        call = [(limits, settings.guards.mode("schema") == "observe"), *call]
    call = [*((always[name], observed) for name, observed in _on(settings, ALWAYS)), *call]
    digest = policy_digest(settings, rules=rules.digest, judges=judge_versions(judges), outside=versions)
    return Policy(
        digest=digest,
        source=Source(
            key=next(_KEYS),
            digest=digest,
            config=config,
            folders=tuple(str(folder) for folder in scanner_folders),
            cache=None if cache is None else str(cache),
            protected=tuple(str(path) for path in protected),
        ),
        guards=call,
        result_guards=result,
        routes=compile_routes(settings),
        approval_rules=approval_rules(settings),
        policy_approvals=policy_approvals(settings),
        limits=ReadLimits(
            max_depth=settings.limits.max_depth,
            max_strings=settings.limits.max_strings,
            max_bytes=settings.limits.max_bytes,
        ),
        evidence=settings.insufficient_evidence,
        mode=mode,
        scanner=scanner,
        windows=windows,
        missions=compile_missions(settings.missions, scanner),
        previews=compile_previews(settings),
        judges=judges,
        behaviour=BehaviourRules(
            containment=tuple(one.compiled() for one in settings.containment),
            cascade=settings.cascade.compiled(),
            baseline=settings.guards.behaviour.compiled(),
            reasoning=settings.guards.reasoning.compiled(),
            budgets=tuple(one.compiled() for one in settings.budgets),
            prices=tuple(one.compiled() for one in settings.prices),
            reads_trust=schema_guard.reads_trust or (cedar_guard is not None and cedar_guard.reads_trust),
            loops=settings.guards.loops.compiled(limited=settings.limits.rate is not None),
        ),
        dataflow=_dataflow(settings, cedar_guard, schema_guard),
    )


def _dataflow(settings: Settings, cedar: CedarGuard | None, schema: SchemaGuard) -> DataflowRules:
    chosen = settings.guards.dataflow
    reads = schema.session_reads if cedar is None else schema.session_reads | cedar.session_reads
    guard = None if chosen.mode == "off" else DataflowGuard(chosen.delegation)
    far = settings.guards.drift
    defers = settings.insufficient_evidence == "defer"
    return DataflowRules(
        guard=guard,
        mode=chosen.mode,
        unclassified=settings.sessions.unclassified,
        idle=settings.sessions.idle,
        reads=reads,
        drift=None
        if far.mode == "off"
        else DriftGuard(alert=far.alert, hold=far.hold, defers=defers, measures=far.embeddings is not None),
        notes_drift=far.mode == "observe",
        embeddings=None if far.mode == "off" or far.embeddings is None else far.embeddings.compiled(),
    )


def _outside(
    config: Config, problems: list[Problem]
) -> tuple[dict[str, Guard], dict[str, ResultGuard], list[tuple[str, str, str]]]:
    """The guards of installed packages for calls and for results by name, and what they are: name, package, version."""
    calls: dict[str, Guard] = {}
    results: dict[str, ResultGuard] = {}
    versions: list[tuple[str, str, str]] = []
    for name, settings in config.settings.guards.outside.items():
        try:
            extension = load_extension("guard", name)
            made = extension.made(settings.options, needs=("check", "check_result"))
        except ExtensionError as error:
            problems.append(config.problem(("guards", "outside", name), str(error)))
            continue
        called = getattr(made, "name", None)
        if called != name:
            message = f"the guard `{name}` of the package `{extension.package}` calls itself `{called}`"
            problems.append(config.problem(("guards", "outside", name), message))
            continue
        versions.append((name, extension.package, extension.version))
        if hasattr(made, "check"):
            calls[name] = made
        if hasattr(made, "check_result"):
            results[name] = made
    return calls, results, versions


_ELSEWHERE: Final = frozenset({*MISSION_GUARDS, *MISSION_RESULT_GUARDS, *SLOW_GUARDS})


def _user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # an account without a home directory
        return None


def _on(settings: Settings, names: Sequence[str]) -> list[tuple[str, bool]]:
    """The names of guards that run, and whether each is only observed."""
    modes = [(name, settings.guards.mode(name)) for name in names if name not in _ELSEWHERE]
    return [(name, mode == "observe") for name, mode in modes if mode != "off"]


def _rate_guard(settings: Settings, windows: Windows) -> RateGuard:
    limits = settings.limits
    # `rate: unlimited` has always said that nothing is limited; bytes alone are limited beside a rate that is large.
    return RateGuard(limits.rate, windows, byte_rate=None if limits.rate is None else limits.byte_rate)


def _registry(settings: Settings) -> RegistryRules:
    registry = settings.registry
    return RegistryRules(
        unregistered=registry.allow_unregistered,
        max_allowed_tier=risk_of(registry.max_allowed_tier),
        allow_critical=registry.allow_critical,
        escalation_threshold=risk_of(registry.escalation_threshold),
    )


_LISTED: Final = "`aegis rules list` names them"
_NARROW: Final = "name the rules that do not count, or set `guards.content.mode` to `observe`"


def _check_exceptions(config: Config, rules: RuleSet, problems: list[Problem]) -> None:
    """An exception for a rule or a place that does not exist would never be one, and none covers every rule."""
    content = config.settings.guards.content
    for section, items in (("exceptions", content.exceptions), ("overrides", content.overrides)):
        for position, item in enumerate(items):
            where = ("guards", "content", section, position)
            if "*" not in item.rule and item.rule not in rules.by_id:
                problems.append(
                    config.problem((*where, "rule"), f"there is no rule `{item.rule}`", nearest(item.rule, rules.by_id))
                )
                continue
            covered = sum(glob_match(item.rule, rule.id) for rule in rules.rules)
            if not covered:
                problems.append(config.problem((*where, "rule"), f"no rule is named like `{item.rule}`", _LISTED))
            elif covered * 2 > len(rules.rules) > 1 and getattr(item, "outcome", "allow") == "allow":
                problems.append(config.problem((*where, "rule"), f"`{item.rule}` would switch most rules off", _NARROW))
            if item.path and not item.path.startswith("/"):
                problems.append(
                    config.problem((*where, "path"), f"`{item.path}` is no JSON pointer", f"write `/{item.path}`")
                )
