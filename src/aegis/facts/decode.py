"""Decoders: each reads one encoding and answers the decoded text, or `None` where nothing changed.

Every decoder is linear, and its result is not much longer than its input. Each stands for something
that a program behind a tool really does: a web server decodes percent signs, a template engine
entities, a shell quotes, a script base64.
"""

from __future__ import annotations

import base64
import binascii
import html
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

import re2

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"
_PAIRS: Final = {(high + low).encode(): bytes.fromhex(high + low) for high in _HEX_DIGITS for low in _HEX_DIGITS}
_OVERLONG: Final = {
    # UTF-8 decoders that skip the shortest-form check read these as `.` `/` `\` (CVE-2000-0884).
    b"\xc0\xae": b".", b"\xc0\xaf": b"/", b"\xc0\x2e": b".", b"\xc0\x2f": b"/", b"\xc1\x9c": b"\\", b"\xc0\x5c": b"\\",
    b"\xc1\x1c": b"\\", b"\xc1\xaf": b"/", b"\xe0\x80\xaf": b"/", b"\xe0\x80\xae": b".",
    b"\xe0\x80\xa5": b"%", b"\xf0\x80\x80\xaf": b"/",
}  # fmt: skip
_ZERO_X: Final = re2.compile(r"(?:0x[0-9a-fA-F]{2}){2,}")
_HEX_SET: Final = frozenset(_HEX_DIGITS)
_HEX_CHARS: Final = {pair.decode(): chr(byte[0]) for pair, byte in _PAIRS.items()}
_OCTAL: Final = {f"{code:03o}": chr(code) for code in range(256)}
_NAMED: Final = {"n": "\n", "r": "\r", "t": "\t", "v": "\v", "f": "\f", "0": "\0"}
_BASE64: Final = re2.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = re2.compile(
    r"(?:0x|\\x)?[0-9a-fA-F]{16,}|(?:\\x[0-9a-fA-F]{2}){6,}|(?:[0-9a-fA-F]{2}[ :]){8,}[0-9a-fA-F]{2}"
)
_BITS: Final = re2.compile(r"(?:[01]{8}[ ,]?){6,}")
_BASE32: Final = re2.compile(r"\b[A-Z2-7]{16,}={0,6}")
NUMBERED: Final = r"\b(?:\d{2,3}(?:,| |, )){8}"  # characters by their numbers, decimal or octal
_NUMBERS: Final = re2.compile(r"\b(?:\d{2,3}(?:,| |, )){7,}\d{2,3}\b")
_MOST_NUMBER: Final = 126
_VERSION: Final = 6  # digits of a version that a comment of MySQL asks for
_CHARS: Final = re2.compile(r"(?i)(?:chr|char|fromcharcode)\s*\(\s*((?:\d{2,3}\s*,?\s*)+)\)")
SPELLS: Final = r"(?:\b[A-Za-z][ .*_|-]){7,}[A-Za-z]\b"
_SPELLED: Final = re2.compile(SPELLS)
HIDES: Final = (  # what every encoded run begins with
    rf"{NUMBERED}|"
    r"[A-Za-z0-9+/_-]{12}|(?:\\x[0-9a-fA-F]{2}){6}|(?:[0-9a-fA-F]{2}[ :]){8}|(?:[01]{8}[ ,]?){6}"
)
_MAX_RUNS: Final = 16  # encoded runs of one text that are a reading each
_MAX_JOINED: Final = 112  # further ones that are decoded, as lines of one reading
_LEAST_TEXT: Final = 6
_LEAST_PADDED: Final = 4
_LONGEST_PADDED: Final = 16  # characters: in longer ones any run is decoded
_BASE64_CHARS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_CONTROLS: Final = bytes(code for code in (*range(32), 127) if code not in b"\n\r\t")  # no text holds them
_LEAST_PLUS: Final = 2
_PADDING: Final = ("", "===", "==", "=")  # by how many characters the last group of four has


def percent(text: str) -> str | None:
    """Percent-decoded, with `%uXXXX` and overlong UTF-8 read as lenient servers read them."""
    if "%" not in text:
        return None
    first, *pieces = text.encode("utf-8", "replace").split(b"%")
    out = [first]
    for piece in pieces:
        byte = _PAIRS.get(piece[:2])
        if byte is not None:
            out += (byte, piece[2:])
        elif piece[:1] == b"u" and piece[1:3] in _PAIRS and piece[3:5] in _PAIRS:
            out += (chr(int(piece[1:5], 16)).encode("utf-8", "replace"), piece[5:])
        else:
            out += (b"%", piece)
    data = b"".join(out)
    for overlong, plain in _OVERLONG.items():
        if overlong in data:
            data = data.replace(overlong, plain)
    decoded: str = data.decode("utf-8", "replace")
    return decoded if decoded != text else None


def form(text: str) -> str | None:
    """Form encoding: `+` stands for a blank where the text has no other blanks."""
    if text.count("+") < _LEAST_PLUS or " " in text:
        return None
    return text.replace("+", " ")


def entities(text: str) -> str | None:
    """HTML character references decoded."""
    if "&" not in text:
        return None
    decoded = html.unescape(text)
    return decoded if decoded != text else None


def escapes(text: str) -> str | None:
    r"""Backslash escapes (`\x2e`, `\u002e`, `\056`, `\n`) and runs of `0x2e` decoded."""
    decoded = text
    if "\\" in text:
        first, *pieces = text.split("\\")
        decoded = first + "".join(map(_unescaped, pieces))
    if "0x" in decoded:
        decoded = _ZERO_X.sub(lambda match: bytes.fromhex(match.group().replace("0x", "")).decode("latin-1"), decoded)
    return decoded if decoded != text else None


def _unescaped(piece: str) -> str:
    """What follows a backslash, read with it."""
    char = _OCTAL.get(piece[:3])
    if char is not None:
        return char + piece[3:]
    lead = piece[:1]
    if lead == "x" and piece[1:3] in _HEX_CHARS:
        return _HEX_CHARS[piece[1:3]] + piece[3:]
    if lead == "u":
        digits, end = (piece[1:5], 5) if len(piece) > 4 else ("", 0)
        if piece[1:2] == "{":
            digits, closed, _ = piece[2:9].partition("}")
            digits, end = (digits, len(digits) + 3) if closed else ("", 0)
        if digits and _HEX_SET.issuperset(digits):
            code = int(digits, 16)
            known = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
            return (chr(code) if known else "\ufffd") + piece[end:]
    char = _NAMED.get(lead)
    return f"\\{piece}" if char is None else char + piece[1:]


def sql_comments(text: str) -> str | None:
    """Inline comments removed, and what version comments (`/*!50000 ... */`) hold executed."""
    if "/*" not in text:
        return None
    joined: list[str] = []
    spaced: list[str] = []
    at = 0
    start = text.find("/*")
    while start >= 0 and (end := text.find("*/", start + 2)) >= 0:
        held, executed = "", text[start + 2] == "!"
        if executed:
            held = text[start + 3 : end]
            version = len(held) - len(held.lstrip("0123456789"))
            held = held[min(version, _VERSION) :]
        between = text[at:start]
        joined += (between, held)
        spaced += (between, f" {held} " if executed else " ")
        at = end + 2
        start = text.find("/*", at)
    if not at:
        return None
    rest = text[at:]
    return f"{''.join(spaced)}{rest}\n{''.join(joined)}{rest}"


def character_codes(text: str) -> str | None:
    """What calls like `CHAR(39,32)` and `String.fromCharCode(60,115)` spell."""
    if "(" not in text:
        return None
    spelled = "".join(
        "".join(chr(int(code)) for code in match.group(1).replace(",", " ").split() if int(code) < 256)
        for match in _CHARS.finditer(text)
    )
    return spelled if len(spelled) >= _LEAST_TEXT else None


def spelled_out(text: str) -> str | None:
    """Words written letter by letter (`i g n o r e`) put together."""
    match = _SPELLED.search(text)
    if match is None:
        return None
    return str(_SPELLED.sub(lambda found: found.group()[::2], text))


def hidden_runs(text: str) -> Iterator[tuple[str, str]]:
    """Texts that stand encoded inside `text` as base64, base32, hex, bits or numbers, with the name of the encoding.

    There are none where `HIDES` does not match.
    """
    for name, pattern, decoder in _RUNS:
        further: list[str] = []
        for number, match in enumerate(pattern.finditer(text)):
            if number >= _MAX_RUNS + _MAX_JOINED:
                break
            decoded = decoder(match.group())
            if decoded is not None and number < _MAX_RUNS:
                yield name, decoded
            elif decoded is not None:
                further.append(decoded)
        if further:
            yield name, "\n".join(further)


def padded(text: str) -> str | None:
    """What a short text decodes to that is base64 as a whole and says so by its padding (`LmVudg==`)."""
    if text[-1:] != "=" or len(text) > _LONGEST_PADDED or len(text) % 4 or text.rstrip("=").strip(_BASE64_CHARS):
        return None
    return _from_base64(text, _LEAST_PADDED)


def may_be_encoded(run: str) -> bool:
    """Whether a run of base64's characters decodes to a text (as base32 too), or is nothing but hex digits."""
    if not run.strip("0123456789abcdefABCDEF") or _from_base64(run) is not None:
        return True
    return run.isupper() and _from_base32(run) is not None


def _from_base64(run: str, least: int = _LEAST_TEXT) -> str | None:
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        left = len(body) % 4
        return _text(binascii.a2b_base64(f"{body[:-1] if left == 1 else body}{_PADDING[left]}"), least)
    except (binascii.Error, ValueError):
        return None


def _from_hex(run: str) -> str | None:
    digits = run.replace("\\x", "").replace("0x", "").replace(" ", "").replace(":", "")
    return _text(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _from_base32(run: str) -> str | None:
    body = run.rstrip("=")
    body = body[: len(body) - (1 if len(body) % 8 in {1, 3, 6} else 0)]
    try:
        return _text(base64.b32decode(f"{body}{'=' * (-len(body) % 8)}"))
    except (binascii.Error, ValueError):
        return None


def _from_decimal(run: str) -> str | None:
    return _from_numbers(run, 10)


def _from_octal(run: str) -> str | None:
    return None if "8" in run or "9" in run else _from_numbers(run, 8)


def _from_numbers(run: str, base: int) -> str | None:
    codes = [int(word, base) for word in run.replace(",", " ").split()]
    return _text(bytes(codes)) if max(codes) <= _MOST_NUMBER else None


def _from_bits(run: str) -> str | None:
    bits = run.replace(" ", "").replace(",", "")
    return _text(bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8)))


def _text(data: bytes, least: int = _LEAST_TEXT) -> str | None:
    """The bytes as text of at least so many characters, where they are one that a person or a program would read."""
    if b"\0" in data[1::2] and data[1::2].count(0) > len(data) // 3:
        data = data[::2]  # UTF-16LE, the way PowerShell encodes commands
    if len(data.translate(None, _CONTROLS)) < len(data):  # what only looked encoded mostly holds one: said at once
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    readable = all(char.isprintable() or char in "\n\r\t" or unicodedata.category(char) == "Cf" for char in text)
    return text if len(text) >= least and readable else None


_RUNS: Final[tuple[tuple[str, Any, Callable[[str], str | None]], ...]] = (
    ("base64", _BASE64, _from_base64),
    ("hex", _HEX, _from_hex),
    ("bits", _BITS, _from_bits),
    ("base32", _BASE32, _from_base32),
    ("decimal", _NUMBERS, _from_decimal),
    ("octal", _NUMBERS, _from_octal),
)
