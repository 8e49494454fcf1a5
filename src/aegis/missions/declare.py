"""Reading a mission: the closed schema first, then what its members mean together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import jsonschema_rs
import msgspec
import orjson
from msgspec import inspect

from aegis.core.json import convert
from aegis.core.mission import KINDS, MAX_LIFETIME_S, Declaration, Postcondition, Scope
from aegis.core.names import covers, overlap
from aegis.core.ports import Signer
from aegis.core.text import has_controls
from aegis.detect.touch.touch import compile_entry
from aegis.errors import MissionInvalid
from aegis.missions import status

# What may stand at a member of a mission, in one sentence for whoever wrote another thing there.

_TIMES: Final = ("iat", "exp")
_RESOURCES: Final = "^(exact|glob):"


def expected(member: str) -> str:
    """What belongs at `member` (as `scope.paths[0]`); empty where there is nothing to add."""
    if member in _TIMES:
        return f"`{member}` is a whole number of seconds since 1970, such as `date -d '+1 hour' +%s` prints"
    found = _whole() if member.isidentifier() and _type_at(member) is None else _type_at(member)
    if isinstance(found, inspect.StructType):
        return "the members are " + _listed(field.encode_name for field in found.fields)
    if isinstance(found, inspect.LiteralType):
        return "it is one of " + _listed(str(value) for value in found.values)
    if isinstance(found, inspect.StrType) and found.pattern == _RESOURCES:
        return "it is `exact:VALUE` or `glob:PATTERN`, such as `glob:/reports/**`"
    if isinstance(found, inspect.StrType) and found.pattern:
        return f"it matches `{found.pattern}`"
    if isinstance(found, inspect.IntType):
        return "it is a whole number" + ("" if found.ge is None else f" of at least {found.ge}")
    return ""


def _type_at(member: str) -> Any:
    """The type of a member, and `None` where no mission has such a one."""
    found: Any = _whole()
    for step in filter(None, member.replace("[", ".[").split(".")):
        if isinstance(found, inspect.VarTupleType) and step.startswith("["):
            found = found.item_type
        elif isinstance(found, inspect.DictType):
            found = found.value_type
        elif isinstance(found, inspect.StructType):
            found = next((field.type for field in found.fields if field.encode_name == step), None)
        else:
            return None
        if isinstance(found, inspect.UnionType):  # what may be absent is something or nothing
            found = found.types[0]
    return found


@cache
def _whole() -> inspect.Type:
    return inspect.type_info(Declaration)


def _listed(names: Iterator[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


_WITH_LIMIT: Final = "max_bytes"
_LONG_S: Final = 30 * 86_400


def read_declaration(claims: Any) -> Declaration:
    """The mission that `claims` spell; raises `MissionInvalid` naming the member that is wrong."""
    try:
        declaration = convert(claims, Declaration)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        member = where.rstrip("`").lstrip(".") or what.partition("`")[2].partition("`")[0]
        message = f"the mission is malformed at `{member}`: {_plain(what)}"
        raise MissionInvalid(message, member=member, hint=expected(member)) from error
    check(declaration)
    return declaration


def verify_mission(token: str, issuer_for: status.IssuerFor) -> Declaration:
    """The mission of a token that its trusted issuer signed; raises `MissionInvalid` otherwise."""
    return read_declaration(status.verify_issued(token, status.MISSION, issuer_for))


def sign_mission(declaration: Declaration, signer: Signer) -> str:
    """The compact JWS of a checked mission; members that hold their default are left out."""
    check(declaration)
    return status.sign(signer, status.MISSION, orjson.dumps(to_claims(declaration), option=orjson.OPT_SORT_KEYS))


def to_claims(declaration: Declaration) -> dict[str, Any]:
    """The JSON object of a mission without members that hold their default."""
    claims: dict[str, Any] = _without_defaults(declaration)
    # RFC 8037 names key type and curve in every JWK, defaults or not.
    if declaration.cnf is not None:
        claims["cnf"] = {"jwk": msgspec.to_builtins(declaration.cnf.jwk)}
    return claims


def check(declaration: Declaration) -> None:
    """Guarantee that a mission can be enforced as a whole; raises `MissionInvalid` naming the member."""
    if declaration.exp <= declaration.iat:
        raise MissionInvalid("`exp` is not after `iat`", member="exp")
    if declaration.exp - declaration.iat > MAX_LIFETIME_S:
        raise MissionInvalid("`exp` is more than 366 days after `iat`", member="exp")
    for member in ("iss", "sub", "aud", "jti", "mission_id"):
        if not getattr(declaration, member).strip():
            raise MissionInvalid(f"`{member}` is blank", member=member)
        if has_controls(getattr(declaration, member)):
            raise MissionInvalid(f"`{member}` holds control characters", member=member)
    for member, selectors in (
        ("tools.allow", declaration.tools.allow),
        ("tools.forbid", declaration.tools.forbid),
        ("delegation.subjects", declaration.delegation.subjects),
    ):
        if any(not one.strip() or one.endswith("/") or one.startswith("/") for one in selectors):
            raise MissionInvalid(f"`{member}` holds a selector that names nothing", member=member)
    if declaration.delegation.depth and not declaration.delegation.subjects:
        raise MissionInvalid("`delegation.depth` is more than 0 and `subjects` names nobody", member="delegation")
    _check_scope(declaration)
    _check_flow(declaration)
    _check_evidence(declaration)
    seen: set[str] = set()
    for position, condition in enumerate(declaration.postconditions):
        member = f"postconditions[{position}]"
        if condition.id in seen:
            raise MissionInvalid(f"`{member}.id` is there twice", member=member)
        seen.add(condition.id)
        _check_postcondition(condition, member)


def remarks(declaration: Declaration) -> list[str]:
    """What an issuer should look at again before signing; none of it is an error."""
    found = [
        f"`scope.{kind}` holds a lone `**`, which allows every resource of that kind"
        for kind in KINDS
        if any(entry in ("glob:**", "glob:/**") for entry in declaration.scope.of(kind))
    ]
    if "*" in declaration.tools.allow:
        found.append("`tools.allow` holds `*`, which allows every tool that is not forbidden")
    if declaration.insufficient_evidence == "fail-open-with-attestation":
        found.append("`insufficient_evidence` lets calls run that could not be evaluated")
    if declaration.mode == "attest":
        found.append("`mode: attest` records violations and refuses nothing")
    if not declaration.budgets.ceilings():
        found.append("`budgets` sets no ceiling")
    if declaration.exp - declaration.iat > _LONG_S:
        found.append("the mission runs for more than 30 days")
    if declaration.cnf is None:
        found.append("without `cnf`, whoever has the agent's credential can use the mission")
    return found


def _check_scope(declaration: Declaration) -> None:
    base = declaration.scope.base
    if base and not base.startswith("/"):
        raise MissionInvalid("`scope.base` is not an absolute path", member="scope.base")
    if declaration.forbidden_scope.base:
        raise MissionInvalid("`forbidden_scope.base` has no meaning; set `scope.base`", member="forbidden_scope.base")
    for kind in KINDS:
        allowed = list(_entries(declaration.scope, "scope", kind, base))
        forbidden = list(_entries(declaration.forbidden_scope, "forbidden_scope", kind, base))
        # A carve-out is clear only where it lies inside of what is allowed, or apart from it.
        for inner_text, inner in forbidden:
            for outer_text, outer in allowed:
                if overlap(outer, inner) and (not covers(outer, inner) or covers(inner, outer)):
                    message = f"`{outer_text}` and the forbidden `{inner_text}` overlap ambiguously"
                    raise MissionInvalid(message, member=f"forbidden_scope.{kind}")


def _entries(scope: Scope, member: str, kind: Any, base: str) -> Iterator[tuple[str, Any]]:
    for entry in scope.of(kind):
        try:
            yield entry, compile_entry(kind, entry, base)
        except ValueError as error:
            raise MissionInvalid(f"{error}", member=f"{member}.{kind}") from error


def _check_flow(declaration: Declaration) -> None:
    flow = declaration.flow
    said: dict[tuple[str, str], str] = {}
    for position, rule in enumerate(flow.rules):
        member = f"flow.rules[{position}]"
        for name in (rule.source, rule.sink):
            if name not in flow.classes:
                raise MissionInvalid(f"`{member}` names the class `{name}`, which is not there", member=member)
        before = said.setdefault((rule.source, rule.sink), rule.action)
        if before != rule.action:
            raise MissionInvalid(f"`{member}` contradicts an earlier rule", member=member)


def _check_evidence(declaration: Declaration) -> None:
    for name in declaration.evidence:
        if name in ("session_proof", "call_proof") and declaration.cnf is None:
            raise MissionInvalid(f"`evidence` asks for `{name}`, which needs a holder key", member="cnf")
        if name == "tool_manifest" and declaration.tool_manifest is None:
            raise MissionInvalid("`evidence` asks for `tool_manifest`, which is not set", member="tool_manifest")


def _check_postcondition(condition: Postcondition, member: str) -> None:
    if (condition.limit > 0) is not (condition.check == _WITH_LIMIT):
        raise MissionInvalid(f"`{member}.limit` belongs to `max_bytes`, which needs it", member=f"{member}.limit")
    if bool(condition.sources) is not (condition.check == "allowed_sources"):
        raise MissionInvalid(f"`{member}.sources` belongs to `allowed_sources`", member=f"{member}.sources")
    for entry in condition.sources:
        try:
            compile_entry("hosts", entry)
        except ValueError as error:
            raise MissionInvalid(f"{error}", member=f"{member}.sources") from error
    if bool(condition.schema) is not (condition.check == "schema"):
        raise MissionInvalid(f"`{member}.schema` belongs to `schema`, which needs it", member=f"{member}.schema")
    if condition.schema:
        try:
            jsonschema_rs.validator_for(orjson.loads(condition.schema))
        except (ValueError, jsonschema_rs.ValidationError) as error:
            raise MissionInvalid(f"`{member}.schema` is not a JSON Schema", member=f"{member}.schema") from error


def _without_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        out: dict[str, Any] = {}
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if inner != default:
                out[field.name] = _without_defaults(inner)
        return out
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_defaults(item) for key, item in value.items()}
    return value


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:].rstrip(".")
