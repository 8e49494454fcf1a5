"""The other readings of a string: what decoders, shells and readers make of it, to a bounded depth.

Most strings are short plain words and have none; a few cheap tests say so.
"""

from __future__ import annotations

import base64
import binascii
import html
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.fold import skeleton, tag_text
from aegis.detect.markup import without_samples
from aegis.detect.quick import one_of
from aegis.detect.shell.unquote import QUOTES, uncaret, unquote_shell

# Decoders: each reads one encoding and answers the decoded text, or `None` where nothing changed.
#
# Every decoder is linear, and its result is not much longer than its input. Each stands for something that a
# program behind a tool really does: a web server decodes percent signs, a template engine entities, a shell quotes,
# a script base64.

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"
_PAIRS: Final = {(high + low).encode(): bytes.fromhex(high + low) for high in _HEX_DIGITS for low in _HEX_DIGITS}
_OVERLONG: Final = {
    # UTF-8 decoders that skip the shortest-form check read these as `.` `/` `\` (CVE-2000-0884).
    b"\xc0\xae": b".", b"\xc0\xaf": b"/", b"\xc0\x2e": b".", b"\xc0\x2f": b"/", b"\xc1\x9c": b"\\", b"\xc0\x5c": b"\\",
    b"\xc1\x1c": b"\\", b"\xc1\xaf": b"/", b"\xe0\x80\xaf": b"/", b"\xe0\x80\xae": b".",
    b"\xe0\x80\xa5": b"%", b"\xf0\x80\x80\xaf": b"/",
}  # fmt: skip
_ZERO_X: Final = Lazy(r"(?:0x[0-9a-fA-F]{2}){2,}")
_HEX_SET: Final = frozenset(_HEX_DIGITS)
_HEX_CHARS: Final = {pair.decode(): chr(byte[0]) for pair, byte in _PAIRS.items()}
_OCTAL: Final = {f"{code:03o}": chr(code) for code in range(256)}
_NAMED: Final = {"n": "\n", "r": "\r", "t": "\t", "v": "\v", "f": "\f", "0": "\0"}
_BASE64: Final = Lazy(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX: Final = Lazy(r"(?:0x|\\x)?[0-9a-fA-F]{16,}|(?:\\x[0-9a-fA-F]{2}){6,}|(?:[0-9a-fA-F]{2}[ :]){8,}[0-9a-fA-F]{2}")
_BITS: Final = Lazy(r"(?:[01]{8}[ ,]?){6,}")
_BASE32: Final = Lazy(r"\b[A-Z2-7]{16,}={0,6}")
NUMBERED: Final = r"\b(?:\d{2,3}(?:,| |, )){8}"  # characters by their numbers, decimal or octal
_NUMBERS: Final = Lazy(r"\b(?:\d{2,3}(?:,| |, )){7,}\d{2,3}\b")
_MOST_NUMBER: Final = 126
_VERSION: Final = 6  # digits of a version that a comment of MySQL asks for
_CHARS: Final = Lazy(r"(?i)(?:chr|char|fromcharcode)\s*\(\s*((?:\d{2,3}\s*,?\s*)+)\)")
SPELLS: Final = r"(?:\b[A-Za-z][ .*_|-]){7,}[A-Za-z]\b"
_SPELLED: Final = Lazy(SPELLS)
# Words of letters and digits that stand for letters, one behind the other; letters that all stand apart; words that no
# blank divides.
SQUEEZES: Final = (
    r"(?:\b(?:[A-Za-z]+[013457@$]|[013457@$]+[A-Za-z])[A-Za-z0-9@$]*[ ,.;:]+){3}|(?:\b[A-Za-z0-9@$!] +){12}|"
    r"\b[a-z]{30}"
)
_DISGUISED: Final = Lazy(SQUEEZES)
_LEET: Final = str.maketrans({
    "0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s", "!": "i", "|": "i", "l": "i",
})  # fmt: skip
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
    """HTML character references decoded, but for those that make a sample of code in a page readable."""
    if "&" not in text:
        return None
    decoded = html.unescape(without_samples(text))
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


def squeezed(text: str) -> str | None:
    """The letters of a text alone, those that digits stand for among them, `l` and `i` as one.

    Rules ask it for orders that hide between blanks, digits and marks, and are written the same way.
    """
    lines = text.split("\n")
    told = {at + beside for at, line in enumerate(lines) if _DISGUISED.search(line) for beside in (-1, 0, 1)}
    near = "\n".join(line for at, line in enumerate(lines) if at in told)  # the lines of a disguise, and those beside
    letters = "".join(filter(str.isalpha, near.lower().translate(_LEET)))
    return letters if len(letters) >= _LEAST_RUN else None


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


# As the first character of base64 these make a byte that begins no character of UTF-8 (RFC 3629, 4).
_BEGIN_NO_TEXT: Final = frozenset("ghijklmnopqrstuv+/-_")


def _from_base64(run: str, least: int = _LEAST_TEXT) -> str | None:
    if run[:1] in _BEGIN_NO_TEXT:
        return None
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


MAX_VIEW_INPUT: Final = 16_384  # characters of a string that are decoded: of longer ones both ends
MAX_VIEWS: Final = 24  # views of one string: bounds what nested encodings can cost
MAX_ROUNDS: Final = 4  # decoders applied in a row
MAX_TOTAL: Final = 131_072  # characters of all views of one value
MOST_DECODED: Final = 262_144  # characters of all texts of a call that decoders are given: bounds what many cost
_AT_LEAST: Final = 128  # of them that trying every decoder on a short text costs
_DEAR: Final = 2  # of them more that a character costs the slower decoders
_LONG: Final = 4_096  # characters of a text that is a program or a page, and no value
# Of such a text, readings that only write it in another way are not written in another way once more: their
# combinations are as many as they are long, and what is encoded in them is decoded from the text itself.
_REWRITES: Final = frozenset({"form", "shell", "sql-comments", "squeezed", "spelled"})
_JSON_STRINGS: Final = 64
_LEAST_RUN: Final = 12
# What most texts have nothing of: runs that base64 or hex could be, bits and pairs of hex digits that stand
# apart, words spelled letter by letter, characters spelled by their codes, quotes that join a word.
_LONG_RUN: Final = 0
_QUICK: Final = one_of(
    r"[A-Za-z0-9+/_-]{12,}",
    r"[01]{8}[ ,][01]{8}",
    NUMBERED,
    r"(?:[0-9a-fA-F]{2}[ :]){8}",
    r"\b[A-Za-z](?:[ .*_|-][A-Za-z]){7,}\b",
    SQUEEZES,
    r"(?i)(?:chr|char|fromcharcode)\s*\(\s*\d{2}",
    r"[A-Za-z/]'[A-Za-z/._-]{1,8}'|'[A-Za-z/._-]{1,8}'[A-Za-z/]|[A-Za-z0-9/._-]``[A-Za-z0-9/._-]",
)
_RUN_CHARS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_OUTSIDE_RUNS: Final = bytes(code if code in _RUN_CHARS else 32 for code in range(256))

Reading = tuple[str, tuple[str, ...]]


def views_of(text: str, effort: Effort | None = None) -> list[Reading]:
    """Every different reading of `text`, each with the decoders that lead to it; the text itself excluded.

    `effort` is what the other texts of the same call have left: a character that is decoded costs a unit. Where it
    ends, so do the readings, and its `left` is below zero.
    """
    if len(text) > MAX_VIEW_INPUT:
        half = MAX_VIEW_INPUT // 2
        text = f"{text[:half]}\n{text[-half:]}"
    if text.isascii():
        return expanded(text, effort) if _may_differ(text) else []
    return expanded(text.encode("utf-8", "replace").decode(), effort)


def may_have_views(together: str) -> bool:
    """Whether any of the texts that are lines of `together` can have another reading. Most calls have none."""
    if not together.isascii() or "+" in together or _has_signs(together):
        return True
    found = _QUICK(together)
    return found != [] and (found != [_LONG_RUN] or _has_encoded_run(together))


def _may_differ(text: str) -> bool:
    return _has_signs(text) or ("+" in text and " " not in text) or _hides_text(text)


def _has_signs(text: str) -> bool:
    if "%" in text or "\\" in text or "&" in text or "$" in text or '"' in text or "^" in text or "{" in text:
        return True
    if "=" in text and (text[-1] == "=" or "=\n" in text):
        return True
    # Two signs in a row take ten times as long to look for as one.
    return ("*" in text and "/*" in text) or ("0" in text and "0x" in text) or ("'" in text and "''" in text)


def _hides_text(text: str) -> bool:
    """Whether something in a text of ASCII decodes to another, or looks spelled; a long path only looks encoded."""
    found = _QUICK(text)
    return found != [] and (found != [_LONG_RUN] or _has_encoded_run(text))


def _has_encoded_run(text: str) -> bool:
    """Whether one of the long words of a text looks encoded; most are paths.

    Long words are what the text was found to have.
    """
    # Bytes are translated in a fraction of the time.
    for word in set(text.encode("ascii").translate(_OUTSIDE_RUNS).split()):
        if len(word) >= _LEAST_RUN and may_be_encoded(word.decode()):
            return True
    return False


def expanded(text: str, effort: Effort | None = None) -> list[Reading]:
    """The readings of a text without asking first whether it can have any; the same as those of `views_of`."""
    effort = effort or Effort(MOST_DECODED)
    seen = {text}
    found: list[Reading] = []
    total = 0
    frontier: list[Reading] = [(text, ())]
    for _ in range(MAX_ROUNDS):
        following: list[Reading] = []
        for value, kinds in frontier:
            if not effort.take(len(value) + _AT_LEAST):
                return found
            for kind, decoded in _once(value, effort):
                if decoded in seen or not decoded:
                    continue
                seen.add(decoded)
                total += len(decoded)
                effort.left -= len(decoded)
                if len(found) >= MAX_VIEWS or total > MAX_TOTAL:
                    return found
                reading = (decoded, (*kinds, kind))
                found.append(reading)
                if len(text) <= _LONG or kind not in _REWRITES:
                    following.append(reading)
        if not following:
            break
        frontier = following
    return found


def _once(text: str, effort: Effort) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if not text.isascii():
        effort.left -= len(text) * _DEAR
        out.append(("unicode", skeleton(text)))
        hidden = tag_text(text)
        if hidden:
            out.append(("tags", hidden))
    signs = _RARE(text)
    if signs:
        effort.left -= len(text) * _DEAR + _AT_LEAST
    for sign, kind, decoder in _DECODERS:
        if sign is None or sign in signs:
            decoded = decoder(text)
            if decoded is not None:
                out.append((kind, decoded))
    if _HIDES in signs:
        out.extend(hidden_runs(text))
    if text[:1] in '{["' and text[-1:] in '}]"':
        out.extend(("json", inner) for inner in _json_strings(text))
    return out


# What the dearer decoders ask for, asked of a text in one pass.
_HIDES, _QUOTES, _CODES, _SPELLS, _SQUEEZES = range(5)
_RARE: Final = one_of(HIDES, QUOTES, r"(?i)(?:chr|char|fromcharcode)\s*\(\s*\d{2}", SPELLS, SQUEEZES)
_DECODERS: Final[tuple[tuple[int | None, str, Callable[[str], str | None]], ...]] = (
    (None, "percent", percent),
    (None, "form", form),
    (None, "entities", entities),
    (None, "escapes", escapes),
    (None, "sql-comments", sql_comments),
    (None, "base64", padded),
    (_QUOTES, "shell", unquote_shell),
    (None, "shell", uncaret),
    (_CODES, "codes", character_codes),
    (_SPELLS, "spelled", spelled_out),
    (_SQUEEZES, "squeezed", squeezed),
)


def _json_strings(text: str) -> list[str]:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    found: list[str] = []
    stack = [value]
    while stack and len(found) < _JSON_STRINGS:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found
