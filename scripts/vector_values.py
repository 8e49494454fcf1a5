"""Vectors of what is computed from values alone: canonical JSON, digests, masks, words, tokens, webhooks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson

from aegis.core import call, canonical, outcome, text
from aegis.core import json as strict
from aegis.core.ed25519 import SigningKey
from aegis.core.outcome import message_for
from aegis.errors import AegisError, InvalidCall
from aegis.keys import jws, permits
from aegis.keys.keyring import Ed25519Signer
from aegis.missions import holder, status
from aegis.outbound.send import headers_for, verify_webhook

Case = dict[str, Any]

NOW: Final = 1_800_000_000  # seconds since the epoch, at which every vector is looked at
_SALT: Final = bytes(range(32))


def seed(number: int) -> bytes:
    """Make the private half of a test key: it is in this repository, so it protects nothing."""
    return bytes([number]) * 32


# Canonical JSON and digests.

_VALUES: Final = {
    "empty object": "{}",
    "white space is dropped": ' { "b" : [ 1 , 2 ] ,\n"a":\tnull } ',
    "keys are ordered by UTF-16 code units": '{"\\ud83d\\ude00":1,"\\ufb33":2,"a":3,"\\u00e9":4,"":5}',
    "controls are escaped, the rest is not": (
        '"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\\\/\\u007f\\u2028\\u00e9\\ud83d\\ude00"'
    ),
    "the last integer that a double holds": "9007199254740991",
    "an integer beyond 2^53 keeps its digits": "9007199254740993",
    "a negative integer beyond 2^53 keeps its digits": "-9007199254740993",
    "an integer beyond 2^64 keeps its digits": "18446744073709551617",
    "an account number of thirty digits keeps them": '{"account":123456789012345678901234567890}',
    "a one and thirty zeros is an integer": "1" + "0" * 30,
    "an integer of 308 digits keeps them": "7" * 308,
    "a double that is whole is written as an integer": "1.0",
    "negative zero is zero": "-0",
    "negative zero as a double is zero": "-0.0",
    "an exponent makes a double": "1E3",
    "a double beyond 2^53 is a double": "9007199254740993.0",
    "the smallest double": "5e-324",
    "the largest double": "1.7976931348623157e308",
    "a double of 21 digits": "1e20",
    "a double of 22 digits takes an exponent": "1e21",
    "a small double": "0.000001",
    "a smaller double takes an exponent": "0.0000001",
    "a third": "0.3333333333333333",
    "a double that rounds to even": "1e23",
    "nesting as deep as it may be": "[" * 199 + "1" + "]" * 199,
    "nesting as deep as it may be, with nothing inside": "[" * 200 + "]" * 200,
    "the same text in two normal forms stays two texts": '["\\u00e9","e\\u0301"]',
    "an object in a list in an object": '{"z":[{"y":{},"x":[]}],"a":[[]]}',
}
_REFUSED: Final = {
    "duplicate key": b'{"a":1,"a":2}',
    "duplicate key by another spelling": b'{"a":1,"\\u0061":2}',
    "duplicate key further inside": b'{"x":[{"a":1,"a":1}]}',
    "not a number": b"[NaN]",
    "infinity": b"[Infinity]",
    "a number beyond a double": b"[1e400]",
    "lone high surrogate": b'["\\ud800"]',
    "lone low surrogate": b'["\\udc00x"]',
    "lone surrogate in a key": b'{"\\ud800":1}',
    "bytes that are not UTF-8": b'["\xff"]',
    "an overlong encoding": b'["\xc0\xaf"]',
    "a surrogate as UTF-8 bytes": b'["\xed\xa0\x80"]',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "data after the value": b"{} {}",
    "a trailing comma": b"[1,]",
    "a comment": b"[1] // no",
    "a leading zero": b"[01]",
    "a plus sign": b"[+1]",
    "a point without digits": b"[1.]",
    "single quotes": b"['a']",
    "a raw control character": b'["\n"]',
    "an unknown escape": b'["\\x41"]',
    "nothing": b"",
    "a cut value": b'{"a":',
    "nesting beyond what is read": b"[" * 201 + b"]" * 201,
    "a value nested beyond what is read": b"[" * 200 + b"1" + b"]" * 200,
    "an integer beyond a double": b"2" + b"0" * 308,
    "an integer of too many digits": b"7" * (canonical.MAX_DIGITS + 1),
}


def canonical_json() -> Case:
    """JSON texts with their canonical bytes, and byte strings that are refused."""
    values = []
    for name, written in _VALUES.items():
        done = canonical.canonical(strict.parse(written.encode()))
        values.append({"name": name, "json": written, "canonical": done.decode(), "sha256": canonical.sha256(done)})
    refused = []
    for name, data in _REFUSED.items():
        _refusal(lambda data=data: canonical.canonical(strict.parse(data)))  # type: ignore[misc]
        refused.append({"name": name, "base64": base64_of(data)})
    return {"values": values, "refused": refused}


def digests() -> Case:
    """Digests of calls, the identifiers of keys, and commitments."""
    calls = []
    for name, server, tool, written in (
        ("no server", None, "send_email", '{"to":"a@example.com"}'),
        ("a server", "mcp:mail", "send_email", '{"to":"a@example.com"}'),
        ("no arguments", None, "ping", "{}"),
        ("an amount beyond 2^53", None, "pay", '{"amount":9007199254740993}'),
        ("an amount beyond 2^53 that differs by one", None, "pay", '{"amount":9007199254740992}'),
        ("the same amount as a double", None, "pay", '{"amount":9007199254740992.0}'),
        ("other order and white space", None, "pay", '{ "to": "x",\n "amount": 1.0 }'),
        ("the same, canonical", None, "pay", '{"amount":1,"to":"x"}'),
        ("a tool with a name outside of ASCII", "mcp:é", "прочесть", '{"путь":"/é"}'),
        ("quotes in a name", None, 'a"b\\c', "{}"),
    ):
        arguments = canonical.canonical(strict.parse(written.encode()))
        calls.append(
            {
                "name": name,
                "server": server,
                "tool": tool,
                "arguments": written,
                "digest": canonical.call_digest(server=server, tool=tool, arguments=arguments),
            }
        )
    request, ran = (str(one["digest"]) for one in calls[:2])
    publics = [SigningKey(seed(number)).public for number in (1, 2)]
    return {
        "calls": calls,
        "keys": [{"public": key.hex(), "kid": canonical.kid_of(key)} for key in publics],
        "call_commitments": [{
            "salt": _SALT.hex(),
            "request_digest": request,
            "call_digest": ran,
            "commitment": canonical.call_commitment(_SALT, request, ran),
        }],
        "payload_commitments": [
            {"salt": _SALT.hex(), "payload": one, "commitment": canonical.payload_commitment(_SALT, one.encode())}
            for one in ("", '{"amount":9007199254740993}')
        ],
    }  # fmt: skip


# Masks, words and limits.


def masking() -> Case:
    """What stands for a text or a value where nobody has the right to see it."""
    texts = [
        "",
        "a",
        "12345678",
        "123456789",
        "sk-live-0123456789abcdef",
        "päßwörter",
        "😀😀😀😀😀😀😀😀😀😀",
        "a\nb\tc d e f",
    ]
    values = [
        '{"user":"alice@example.com","pin":1234,"ok":true,"none":null,"list":["short",9007199254740993,1.5]}',
        '"a text of its own"',
        "[]",
    ]
    return {
        "texts": [{"text": one, "masked": text.mask(one)} for one in texts],
        "values": [
            {"json": one, "masked": canonical.canonical(text.mask_value(strict.parse(one.encode()))).decode()}
            for one in values
        ],
    }


def words() -> Case:
    """The closed sets in their order, the sentence of each reason, and the limits of a call."""
    return {
        "outcomes": [one.word for one in outcome.Outcome],
        "verdicts": [one.word for one in outcome.Verdict],
        "risks": [one.word for one in outcome.Risk],
        "reasons": [{"reason": one.word, "message": message_for(outcome.Outcome.BLOCK, one)} for one in outcome.Reason],
        "sanitized": message_for(outcome.Outcome.SANITIZE, outcome.Reason.NONE),
        "limits": {
            "name_chars": call.MAX_NAME_CHARS,
            "task_chars": call.MAX_TASK_CHARS,
            "unresolved": call.MAX_UNRESOLVED,
            "proof_chars": call.MAX_PROOF_CHARS,
            "nesting": canonical.MAX_NESTING,
            "digits": canonical.MAX_DIGITS,
            "permit_seconds": permits.LIFETIME_S,
            "permit_skew_seconds": permits.MAX_SKEW_S,
        },
    }


# Permits and proofs of possession.

_ARGUMENTS: Final = '{"amount":9007199254740993,"to":"a@example.com"}'


def _claims(**changed: Any) -> dict[str, Any]:
    digest = canonical.call_digest(
        server="mcp:bank", tool="pay", arguments=canonical.canonical(strict.parse(_ARGUMENTS.encode()))
    )
    claims: dict[str, Any] = {
        "sub": "bot", "aud": "mcp:bank/pay", "tool": "pay", "server": "mcp:bank", "session": "s-1", "call_id": "call_7",
        "call_digest": digest, "decision_id": "d-1", "receipt": 41, "mode": "enforce", "online": False, "jti": "p-1",
        "iat": NOW - 1, "exp": NOW + 59,
    }  # fmt: skip
    return {**claims, **changed}


def _token(claims: object, *, number: int = 3, typ: str = permits.TYPE, header: dict[str, Any] | None = None) -> str:
    key = Ed25519Signer(seed(number), "permit")
    named = {"alg": "EdDSA", "kid": key.kid, "typ": typ} if header is None else {**header}
    signed = jws.encode(orjson.dumps(named)) + b"." + jws.encode(orjson.dumps(claims))
    return (signed + b"." + jws.encode(key.sign(signed))).decode()


def permit_cases() -> Case:
    """Permits looked at offline, one verifier a case and one attempt after the other."""
    key, other = Ed25519Signer(seed(3), "permit"), Ed25519Signer(seed(4), "permit")
    keys = {"keys": [{
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": key.kid,
        "x": jws.encode(key.public).decode(), "purpose": "permit",
    }, {
        "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": other.kid,
        "x": jws.encode(other.public).decode(), "purpose": "receipt",
    }]}  # fmt: skip
    good = _token(_claims())
    head, body, sig = good.split(".")
    same = {"tool": "pay", "server": "mcp:bank", "arguments": _ARGUMENTS}
    kid = key.kid
    cases: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
        ("a permit opens its call once", [(good, same), (good, same)]),
        ("the server may be left to the permit", [(good, {**same, "server": None})]),
        ("two permits of one call", [(good, same), (_token(_claims(jti="p-2")), same)]),
        ("another amount, and then the right one", [
            (good, {**same, "arguments": _ARGUMENTS.replace("0993", "0992")}), (good, same)]),
        ("another tool", [(good, {**same, "tool": "refund"})]),
        ("another server", [(good, {**same, "server": "mcp:shop"})]),
        ("one argument more", [(good, {**same, "arguments": _ARGUMENTS[:-1] + ',"memo":"x"}'})]),
        ("over", [(_token(_claims(iat=NOW - 60, exp=NOW)), same)]),
        ("lives too long", [(_token(_claims(exp=NOW + 600)), same)]),
        ("from the future", [(_token(_claims(iat=NOW + 31, exp=NOW + 60)), same)]),
        ("a little from the future", [(_token(_claims(iat=NOW + 30, exp=NOW + 60)), same)]),
        ("given while calls were only observed", [(_token(_claims(mode="observe")), same)]),
        ("redeemed at the gateway alone", [(_token(_claims(online=True)), same)]),
        ("a claim too many", [(_token(_claims(admin=True)), same)]),
        ("a claim too few", [(_token({k: v for k, v in _claims().items() if k != "jti"}), same)]),
        ("a claim of another type", [(_token(_claims(exp=str(NOW + 59))), same)]),
        ("no object", [(_token([1]), same)]),
        ("signed by a key of another purpose", [(_token(_claims(), number=4), same)]),
        ("signed by a stranger under a trusted name", [(_token(_claims(), number=5,
            header={"alg": "EdDSA", "kid": kid, "typ": permits.TYPE}), same)]),
        ("of another type", [(_token(_claims(), typ="aegis-mission+jwt"), same)]),
        ("without an algorithm", [(_token(_claims(), header={"alg": "none", "kid": kid, "typ": permits.TYPE}), same)]),
        ("another algorithm", [(_token(_claims(), header={"alg": "HS256", "kid": kid, "typ": permits.TYPE}), same)]),
        ("critical extensions", [(_token(_claims(), header={
            "alg": "EdDSA", "kid": kid, "typ": permits.TYPE, "crit": ["exp"]}), same)]),
        ("a key of its own", [(_token(_claims(), header={
            "alg": "EdDSA", "kid": kid, "typ": permits.TYPE, "jwk": {"kty": "OKP"}}), same)]),
        ("no signature", [(f"{head}.{body}.", same)]),
        ("a changed signature", [(f"{head}.{body}.{'A' if sig[0] != 'A' else 'B'}{sig[1:]}", same)]),
        ("changed claims", [(f"{head}.{jws.encode(orjson.dumps(_claims(exp=NOW + 58))).decode()}.{sig}", same)]),
        ("padding", [(good + "==", same)]),
        ("another spelling of the last character", [(good[:-1] + _sibling(good[-1]), same)]),
        ("two parts", [(f"{head}.{body}", same)]),
        ("four parts", [(good + ".x", same)]),
        ("nothing", [("", same)]),
    ]  # fmt: skip
    return {"now": NOW, "keys": keys, "cases": [_permit_case(name, keys, steps) for name, steps in cases]}


def _permit_case(name: str, keys: dict[str, Any], steps: list[tuple[str, dict[str, Any]]]) -> Case:
    verifier = permits.OfflinePermits(keys, clock=lambda: NOW * 1_000_000)
    attempts = []
    for permit, asked in steps:
        try:
            found: Case = {
                "permit_id": verifier.redeem(
                    permit, tool=asked["tool"], server=asked["server"], arguments=json.loads(asked["arguments"])
                )
            }
        except InvalidCall as error:
            found = {"refused": {"code": error.code, "status": error.status}}
        attempts.append({"permit": permit, **asked, "expect": found})
    return {"name": name, "attempts": attempts}


def _sibling(char: str) -> str:
    """Another character of base64url that differs in the bits which a last character does not use."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(char) ^ 1]


def proofs() -> Case:
    """Proofs of possession: what a holder signs when a session begins, and with each call."""
    key = Ed25519Signer(seed(6), "holder", "bot")
    opening = {"audience": "https://gate.example", "nonce": "n-1", "mission_id": "m-1", "session": "s-1"}
    begun = holder.prove_session(key, now_seconds=NOW, **opening)
    calls = []
    for number, (server, tool, written) in enumerate(
        [(None, "ping", "{}"), ("mcp:bank", "pay", _ARGUMENTS), (None, "ping", "{}")], start=7
    ):
        arguments = canonical.canonical(strict.parse(written.encode()))
        digest = canonical.call_digest(server=server, tool=tool, arguments=arguments)
        token = holder.prove_calls(key, audience=opening["audience"], session="s-1", number=number, digests=(digest,))
        calls.append({
            "server": server, "tool": tool, "arguments": written, "number": number, "proof": token,
            "claims": jws.verify(token, status.CALL_PROOF, {key.kid: key.public}.get),
        })  # fmt: skip
    return {
        "holder": {
            "secret": seed(6).hex(), "public": key.public.hex(), "kid": key.kid,
            "cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": jws.encode(key.public).decode()}},
        },
        "session": {
            **opening, "now": NOW, "typ": status.SESSION_PROOF, "proof": begun,
            "claims": jws.verify(begun, status.SESSION_PROOF, {key.kid: key.public}.get),
        },
        "typ": status.CALL_PROOF,
        "first_number": 7,
        "calls": calls,
    }  # fmt: skip


# Webhooks.


def webhooks() -> Case:
    """Signed webhooks as a receiver gets them (Standard Webhooks 1.0)."""
    plain, encoded = "a shared secret", "whsec_" + base64_of(seed(7))
    body = '{"type":"approval.opened","amount":9007199254740993}'
    good = headers_for(encoded, "msg_1", NOW, body.encode())
    signed = good["webhook-signature"]
    stale = partial(headers_for, encoded, "msg_1")
    cases: list[tuple[str, str, dict[str, str], str]] = [
        ("signed", encoded, good, body),
        ("signed with a secret that is plain text", plain, headers_for(plain, "msg_1", NOW, body.encode()), body),
        ("headers in another case", encoded, {name.title(): value for name, value in good.items()}, body),
        ("one of several signatures holds", encoded, {**good, "webhook-signature": f"v1,AAAA v2,BBBB {signed}"}, body),
        ("as old as it may be", encoded, stale(NOW - 300, body.encode()), body),
        ("too old", encoded, stale(NOW - 301, body.encode()), body),
        ("from the future", encoded, stale(NOW + 301, body.encode()), body),
        ("another body", encoded, good, body.replace("0993", "0992")),
        ("another id", encoded, {**good, "webhook-id": "msg_2"}, body),
        ("another time", encoded, {**good, "webhook-timestamp": str(NOW + 1)}, body),
        ("another secret", plain, good, body),
        ("another version", encoded, {**good, "webhook-signature": signed.replace("v1,", "v1a,")}, body),
        ("no id", encoded, {name: value for name, value in good.items() if name != "webhook-id"}, body),
        ("no signature", encoded, {name: value for name, value in good.items() if name != "webhook-signature"}, body),
        ("a time that is no number", encoded, {**good, "webhook-timestamp": "now"}, body),
        ("a secret that is not base64", "whsec_!", good, body),
        ("a signed body that is not strict JSON", encoded, stale(NOW, b'{"a":1,"a":2}'), '{"a":1,"a":2}'),
    ]
    return {"now": NOW, "cases": [_webhook(*case) for case in cases]}


def _webhook(name: str, secret: str, headers: dict[str, str], body: str) -> Case:
    try:
        value = verify_webhook(secret, headers, body.encode(), now=NOW)
        expect: Case = {"body": canonical.canonical(value).decode()}
    except InvalidCall as error:
        expect = {"refused": {"code": error.code}}
    return {"name": name, "secret": secret, "headers": headers, "body": body, "expect": expect}


def _refusal(run: Callable[[], object]) -> AegisError:
    try:
        run()
    except AegisError as error:
        return error
    raise AssertionError("a vector of a refusal was taken")


def base64_of(data: bytes) -> str:
    """Spell bytes as text."""
    return base64.b64encode(data).decode()
