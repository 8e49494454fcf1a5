"""What a pattern cannot say: checksums, randomness, and that a value is a placeholder."""

from __future__ import annotations

import base64
import binascii
import hashlib
import string
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote

import orjson

from aegis.core.patterns import Lazy
from aegis.detect.markup import active
from aegis.detect.paths import (
    is_account_file,
    is_plain_path,
    is_secret_file,
    is_secret_place,
    is_settings_file,
    plain_path,
)
from aegis.detect.rules.mentions import (
    Given,
    acted,
    addressed,
    asks_innards,
    cast,
    chained,
    hands_over,
    ordered,
    poses,
    resets,
    run,
    runs_remote,
    spoken,
    takes,
    turns,
    unbinds,
)
from aegis.detect.rules.model import Rule
from aegis.detect.rules.order_scorer import find_likely, may_hold
from aegis.detect.rules.orders import Span
from aegis.detect.rules.secrets import (
    TOLD,
    assigned,
    entropy,
    guess,
    is_other,
    is_placeholder,
    is_secret,
    is_usual,
    secret_words,
    urlpass,
)

# Checksums of numbers that name people and accounts; each from the standard or office that issues them.

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_SPANISH: Final = "TRWAGMYFPDXBNJZSQVHLCKE"
_ITALIAN_ODD: Final = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
# The dihedral group of order ten (Verhoeff): products, and what a place permutes.
_PRODUCT: Final = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_PERMUTED: Final = (
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def _digits(text: str) -> list[int]:
    return [int(char) for char in text if char.isdigit()]


def _weighted(digits: list[int], weights: tuple[int, ...]) -> int:
    return sum(digit * weight for digit, weight in zip(digits, weights, strict=False))


def nhs(text: str) -> bool:
    """A patient's number of the NHS: ten digits, weights 10 to 2, modulo 11."""
    digits = _digits(text)
    rest = 11 - _weighted(digits, tuple(range(10, 1, -1))) % 11
    return len(digits) == 10 and len(set(digits)) > 2 and digits[9] == rest % 11 and rest != 10


def cpf(text: str) -> bool:
    """A Brazilian taxpayer's number (CPF): two check digits, modulo 11."""
    digits = _digits(text)
    if len(digits) != 11 or len(set(digits)) == 1:
        return False
    checks = [(_weighted(digits, tuple(range(size, 1, -1))) * 10) % 11 % 10 for size in (10, 11)]
    return digits[9:] == checks


def bsn(text: str) -> bool:
    """A Dutch citizen's number (BSN): the test of eleven with the last weight negative."""
    digits = _digits(text)
    return len(digits) == 9 and len(set(digits)) > 2 and _weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def pesel(text: str) -> bool:
    """A Polish citizen's number (PESEL): weights 1, 3, 7, 9, and a month that exists."""
    digits = _digits(text)
    check = (10 - _weighted(digits[:10], (1, 3, 7, 9) * 3) % 10) % 10
    return len(digits) == 11 and check == digits[10] and 1 <= (digits[2] * 10 + digits[3]) % 20 <= 12


def nif(text: str) -> bool:
    """A Spanish identity number (DNI, NIE): a letter by the rest of 23."""
    plain = text.upper().replace("-", "").replace(" ", "")
    number = plain[:-1].translate(str.maketrans("XYZ", "012"))
    return number.isdigit() and _SPANISH[int(number) % 23] == plain[-1]


def codice(text: str) -> bool:
    """An Italian fiscal code: sixteen characters, the last a letter by the rest of 26."""
    plain = text.upper()
    total = 0
    for place, char in enumerate(plain[:15]):
        value = int(char, 36) if char.isdigit() else ord(char) - 65
        total += _ITALIAN_ODD[value] if place % 2 == 0 else value
    return len(plain) == 16 and chr(65 + total % 26) == plain[15]


def aadhaar(text: str) -> bool:
    """An Indian resident's number (Aadhaar): twelve digits, Verhoeff's check."""
    digits = _digits(text)
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = int(_PRODUCT[check][int(_PERMUTED[place % 8][digit])])
    return len(digits) == 12 and digits[0] > 1 and len(set(digits)) > 2 and check == 0


def insee(text: str) -> bool:
    """A French social security number: thirteen digits and the rest of 97."""
    plain = "".join(text.upper().split()).replace("2A", "19").replace("2B", "18")
    return len(plain) == 15 and plain.isdigit() and 97 - int(plain[:13]) % 97 == int(plain[13:])


def bitcoin(text: str) -> bool:
    """A Bitcoin address: Base58Check, or Bech32 by its polynomial (BIP 173, BIP 350)."""
    if text.lower().startswith("bc1"):
        return _bech32(text.lower())
    number = 0
    for char in text:
        if char not in _BASE58:
            return False
        number = number * 58 + _BASE58.index(char)
    data = number.to_bytes(25, "big") if number < 1 << 200 else b""
    return bool(data) and hashlib.sha256(hashlib.sha256(data[:21]).digest()).digest()[:4] == data[21:]


def _bech32(text: str) -> bool:
    values = [ord(char) >> 5 for char in "bc"] + [0] + [ord(char) & 31 for char in "bc"]
    values += [_BECH32.find(char) for char in text[3:]]
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, factor in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            check ^= factor if top >> bit & 1 else 0
    return -1 not in values and check in {1, 0x2BC830A3}


def phone(text: str) -> bool:
    """A telephone number that a plan can hold: seven to fifteen digits (E.164), not all alike nor in a row."""
    digits = _digits(text)
    steps = {after - before for before, after in pairwise(digits)}
    return 8 <= len(digits) <= 15 and len(set(digits)) > 2 and steps != {1}


def ahv(text: str) -> bool:
    """A Swiss insurance number (AHV): thirteen digits from 756 on, with the check digit of an EAN-13."""
    digits = _digits(text)
    return len(digits) == 13 and _weighted(digits, (1, 3) * 6 + (1,)) % 10 == 0


def rrn(text: str) -> bool:
    """A Belgian national number: 97 less the rest of the first nine digits, by 97; a 2 in front from the year 2000."""
    digits = "".join(str(digit) for digit in _digits(text))
    if len(digits) != 11 or not 1 <= int(digits[4:6]) <= 31:
        return False
    return int(digits[9:]) in (97 - int(digits[:9]) % 97, 97 - int("2" + digits[:9]) % 97)


def hetu(text: str) -> bool:
    """A Finnish identity code: a letter or digit by the rest of 31 of the nine digits before."""
    digits = "".join(char for char in text[:-1] if char.isdigit())
    return len(digits) == 9 and text[-1:].upper() == "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(digits) % 31]


def sin(text: str) -> bool:
    """A Canadian insurance number (SIN): nine digits, Luhn's check digit, none of the first digits 0 and 8."""
    digits = _digits(text)
    doubled = [digit if at % 2 == 0 else digit * 2 - 9 * (digit > 4) for at, digit in enumerate(digits)]
    return len(digits) == 9 and digits[0] not in (0, 8) and len(set(digits)) > 2 and sum(doubled) % 10 == 0


NUMBERS: Final[Mapping[str, Callable[[str], bool]]] = {
    "nhs": nhs, "cpf": cpf, "bsn": bsn, "pesel": pesel, "nif": nif, "codice": codice, "aadhaar": aadhaar,
    "insee": insee, "bitcoin": bitcoin, "phone": phone,
    "ahv": ahv, "rrn": rrn, "hetu": hetu, "sin": sin,
}  # fmt: skip


_LEAST_RANDOM_DIGITS: Final = 3
_MOST_WORDED: Final = 0.5
_SHOWN: Final = ("xxxx", "****", "....", "example", "placeholder", "redacted", "your_", "your-", "<", "${")


def luhn(text: str) -> bool:
    """The Luhn checksum over the digits of `text` (ISO/IEC 7812-1), all-equal digits excluded."""
    digits = text if text.isdigit() else "".join(filter(str.isdigit, text))
    if not 12 <= len(digits) <= 19 or len(set(digits)) < 2 or not digits.isdecimal():
        return False
    doubled = digits[-2::-2]
    # Doubling adds the digit again, less nine from five on: the sum of its digits.
    total = sum(map(int, digits)) + sum(map(int, doubled)) - 9 * sum(digit > "4" for digit in doubled)
    return total % 10 == 0


_VALUES: Final = {ord("A") + place: str(10 + place) for place in range(26)}  # of letters (ISO 7064)


def iban(text: str) -> bool:
    """The ISO 7064 mod 97-10 checksum of an IBAN (ISO 13616)."""
    compact = "".join(text.split()).upper()
    if not 15 <= len(compact) <= 34 or not compact.isalnum() or not compact.isascii():
        return False
    rearranged = compact[4:] + compact[:4]
    return int(rearranged.translate(_VALUES)) % 97 == 1


# Numbers that were printed in advertisements or stand in every manual.
_SHOWN_SSN: Final = frozenset({"078051120", "219099999", "123456789", "111223333", "111111111", "123121234"})


def ssn(text: str) -> bool:
    """Whether the digits can be a United States social security number (no area 000, 666, 9xx)."""
    digits = "".join(char for char in text if char.isdigit())
    return (
        digits not in _SHOWN_SSN
        and len(digits) == 9
        and digits[:3] not in {"000", "666"}
        and digits[0] != "9"
        and digits[3:5] != "00"
        and digits[5:] != "0000"
    )


def real(text: str) -> bool:
    """Whether a value in a provider's own format is more than the format: no `xxxx`, no `EXAMPLE`."""
    lowered = text.lower()
    if text in secret_words().published:
        return False
    return not any(word in lowered for word in _SHOWN) and len(set(lowered)) > max(4, len(lowered) // 12)


def mixed(text: str) -> bool:
    """Whether a value has at least two kinds of characters and is no placeholder."""
    kinds = sum((any(c.islower() for c in text), any(c.isupper() for c in text), any(c.isdigit() for c in text)))
    return kinds >= 2 and not is_placeholder(text)


def token(text: str) -> bool:
    """Whether a value is random enough for a machine's token: letters and digits mixed, no words, no path."""
    digits = sum(char.isdigit() for char in text)
    letters = sum(char.isalpha() for char in text)
    if min(digits, letters) < _LEAST_RANDOM_DIGITS or is_placeholder(text) or is_other(text):
        return False
    return guess(text).worded <= _MOST_WORDED


def userpass(text: str) -> bool:
    """Whether `user:password`, as it stands or in base64, holds a password that somebody chose."""
    user, colon, password = text.partition(":")
    if not colon:
        user, colon, password = _decoded(text).decode("utf-8", "replace").partition(":")
        if not colon:
            return (len(text) >= 16 and not is_placeholder(text)) or is_secret("password", text)
    password = password.strip("'\"")
    if not password:
        return len(user) >= 10 and mixed(user)
    return len(password) >= 5 and not is_usual(password) and user.lower() != "xxx" and not is_placeholder(password)


_CHECKSUMMED: Final = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_")
_SUM_DIGITS: Final = 6
_BASE62: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase


def issued(text: str) -> bool:
    """Whether a token in an issuer's format is one: its checksum says so, or it is random and shows no format.

    The last six characters of a token of GitHub or npm are the CRC-32 of what stands between them and the prefix, in
    base 62 (https://github.blog/engineering/behind-githubs-new-authentication-token-formats/).
    """
    if not text.startswith(_CHECKSUMMED):
        return real(text)
    body = text.partition("_")[2]
    number = 0
    for digit in body[-_SUM_DIGITS:]:
        number = number * 62 + _BASE62.find(digit)
    return zlib.crc32(body[:-_SUM_DIGITS].encode()) == number or (real(text) and not is_placeholder(body))


def slack(text: str) -> bool:
    """Whether a Slack token has the lengths and digits of a real one."""
    if text.startswith("http"):
        return not any(is_placeholder(part) for part in text.partition("://")[2].split("/")[2:])
    return sum(char.isdigit() for char in text) >= 8 and "xxxx" not in text.lower()


def jwt(text: str) -> bool:
    """Whether a token's header, and its payload where there is one, are what a JSON web token holds (RFC 7519)."""
    head, _, rest = text.partition(".")
    header = _json(head)
    if header is None:
        return _decoded(head).startswith(b"eyJ")  # encoded twice
    payload, _, signature = rest.partition(".")
    if signature and signature in secret_words().published:
        return False
    is_header = isinstance(header, dict) and ("alg" in header or "typ" in header)
    return is_header and (not payload or _json(payload) is not None)


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (ValueError, binascii.Error):
        return b""


def _json(part: str) -> object:
    try:
        value: object = orjson.loads(_decoded(part))
    except orjson.JSONDecodeError:
        return None
    return value


def unworded(text: str) -> bool:
    """Whether a value of letters alone is random: no placeholder, and no words as names of variables have."""
    if not real(text):
        return False
    if any(char.isdigit() for char in text):
        return True
    # Letters of names change their case once or twice a word, random ones every other time.
    changes = sum(before.isupper() != after.isupper() for before, after in pairwise(text))
    return changes * 3 >= len(text) and guess(text).worded <= _MOST_WORDED


CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "poses": poses, "luhn": luhn, "iban": iban, "ssn": ssn, "real": real, "mixed": mixed, "token": token,
    "userpass": userpass, "slack": slack, "issued": issued, "jwt": jwt, "unworded": unworded, **NUMBERS, **TOLD,
}  # fmt: skip


def spelled(text: str, decoded: bool) -> bool:
    """Whether a text that names a sensitive place is more than a path of somebody who works on files.

    A path as people write it is judged by the file that it names, through whichever door it comes; so is one that
    takes a way around below the same folder, but for the list of accounts, which nobody reaches so by accident.
    """
    plain = text if is_plain_path(text) else plain_path(text)
    first, other = (one.replace("\\", "/").lstrip("/").partition("/")[0] for one in (text, plain))
    if plain != text and (first != other or is_account_file(plain.rstrip("-"))):
        return True
    return decoded or not is_plain_path(plain) or (is_secret_file(plain) and not is_settings_file(plain))


# Checks that read the whole text in which something was found, and know whether it was decoded.
TEXT_CHECKS: Final[Mapping[str, Callable[[str, bool], bool]]] = {"active": active, "spelled": spelled}


def tabled(data: bytes) -> Span | None:
    """The rows of a table whose head names a column of passwords, where one of the first says one that was chosen."""
    start = 0
    cells = _ROW_ENDS.sub(b"\n", _CELL_ENDS.sub(b"\t", data))
    lines, plain = cells.split(b"\n"), cells == data
    for number, line in enumerate(lines[:_MOST_LINES]):
        start += len(line) + 1
        sign = max((b",", b";", b"\t", b"|"), key=line.count)
        names = [name.strip(b' "!*\r').lower() for name in line.split(sign)] if len(line) <= _LONGEST_HEAD else []
        places = [place for place, name in enumerate(names) if name.rpartition(b"_")[2] in _PASSWORDS]
        if len(names) < 2 or not places:
            continue
        for row in lines[number + 1 : number + 1 + _FIRST_ROWS]:
            held = row.split(sign)
            given = [held[place].strip(b' "!*\r').decode("utf-8", "replace") for place in places if place < len(held)]
            if any(len(value) >= _LEAST_CHOSEN and mixed(value) and not is_usual(value) for value in given):
                return Span(start if plain else 0, len(data), sure=True)
    return None


_CELL_ENDS: Final = Lazy(rb"(?i)</t[hd]>\s*<t[hd][^>]{0,80}>|\s?!!\s?|\s?\|\|\s?")
_ROW_ENDS: Final = Lazy(rb"(?i)</?t(?:[rhd]|head|body|able)[^>]{0,80}>|\n\|-")
_MOST_LINES: Final = 1_024
_LONGEST_HEAD: Final = 512
_FIRST_ROWS: Final = 4
_LEAST_CHOSEN: Final = 6
_PASSWORDS: Final = frozenset({b"password", b"passwd", b"passphrase", b"passwort", b"kennwort", b"pwd", b"senha"})

# Checks that find the place themselves, as a span of bytes, in a text in which the engine reports any pattern.
SPAN_CHECKS: Final[Mapping[str, Callable[[bytes], Span | None]]] = {
    "addressed": addressed,
    "asks_innards": asks_innards,
    "hands_over": hands_over,
    "likely_order": find_likely,
    "runs_remote": runs_remote,
    "tabled": tabled,
    "takes": takes,
    "turns": turns,
    "unbinds": unbinds,
}

# Whether a check can find anything in one of many texts, each a line.
TOGETHER: Final[Mapping[str, Callable[[bytes], bool]]] = {"likely_order": may_hold}

# Checks that read the whole match, name and all, beside its first group.
WHOLE_CHECKS: Final[Mapping[str, Callable[[str, str], bool]]] = {"assigned": assigned, "urlpass": urlpass}

# A file of the folder from which a graph database loads, and none outside of it: no folder, nothing encoded.
_LOADED: Final = Lazy(
    r"(?i)\bload\s+csv\s+(?:with\s+headers\s+)?from\s+(['\"])file:///[\w-]{1,80}(?:\.[\w-]{1,20}){1,3}['\"]"
)
# A directory of people on a network of one's own, and a file below a home or a workspace, spelled out, of which no
# folder is hidden but those of a project.
_OWN_DIRECTORY: Final = Lazy(
    r"(?i)^ldaps?://(?:[\w-]{1,63}\.){1,8}(?:local|internal|lan|intra|corp|home\.arpa)(?::\d{2,5})?/?(?:$|[\s\"',])"
)
_OWN_FILE: Final = Lazy(
    r"^(?i:file)://(?:localhost)?((?:/[a-zA-Z](?::|%3[aA]))?/(?:home|Users|work|workspaces?|src|srv|repos?|projects|w)"
    r"(?:/(?:[\w@+ \x{80}-\x{ffff}-][\w.@+ \x{80}-\x{ffff}-]*|\.(?:github|vscode|idea|gitlab|storybook|husky)))+)$"
)
# A file on a server of one's own network: named by one word that is no number, by a name that no stranger can have or
# by a private address, and no share by which a machine is administrated.
_OWN_SHARE: Final = Lazy(
    r"(?i)^\\\\(?:[a-z_][\w-]*|(?:[\w-]+\.)+(?:local|internal|lan|intra|corp)|"
    r"10(?:\.\d+){3}|192\.168(?:\.\d+){2}|172\.(?:1[6-9]|2\d|3[01])(?:\.\d+){2})"
    r"(?:\\[\w@+][\w.@+,() -]*)+\\?$|^\\\\\.\\(?:COM\d{1,3}|LPT\d)$"  # or a line of the machine itself
)
_NO_SERVER: Final = ("\\\\localhost\\", "\\\\pipe\\", "\\\\tsclient\\")


def wraps(text: str, start: int, end: int) -> bool:
    """Whether a stream wrapper stands where a file name belongs, and is no file of Cypher's own folder."""
    if _OWN_SHARE.match(text) is not None and not text.lower().startswith(_NO_SERVER):
        return False
    if _OWN_DIRECTORY.match(text[start : end + SURROUNDING]) is not None:
        return False
    own = _OWN_FILE.match(unquote(text)) if start == 0 and len(text) < end + SURROUNDING else None
    if own is not None:  # as editors name the files of a person's work
        return is_secret_file(own.group(1)) or is_secret_place(own.group(1))
    return not any(one.start() <= start and end <= one.end() for one in _LOADED.finditer(text))


# Checks that read what was found where it stands: the text around it, and from where to where.
PLACE_CHECKS: Final[Mapping[str, Callable[[str, int, int], Given]]] = {
    "acted": acted,
    "cast": cast,
    "chained": chained,
    "ordered": ordered,
    "resets": resets,
    "run": run,
    "spoken": spoken,
    "wraps": wraps,
}
SURROUNDING: Final = 240  # bytes on either side of what was found
NAME_BEFORE: Final = 40  # bytes before a match that belong to the name in front of it


def passes(rule: Rule, match: Any, group: int, *, decoded: bool) -> Given:
    """Whether the check of a rule passes in a match, whose `group` holds the value; the text may be a decoded one."""
    value = (match.group(group) or match.group(0)).decode("utf-8", "replace")
    if rule.entropy and entropy(value) < rule.entropy:
        return False
    if rule.check in TEXT_CHECKS:
        return TEXT_CHECKS[rule.check](match.string.decode("utf-8", "replace"), decoded)
    if rule.check in PLACE_CHECKS:
        first, last = match.span()
        cuts = ((max(0, first - SURROUNDING), first), (first, last), (last, last + SURROUNDING))
        head, body, tail = (match.string[start:end].decode("utf-8", "replace") for start, end in cuts)
        return PLACE_CHECKS[rule.check](head + body + tail, len(head), len(head) + len(body))
    if rule.check in WHOLE_CHECKS:
        before = match.string[max(0, match.start() - NAME_BEFORE) : match.end()]
        return WHOLE_CHECKS[rule.check](value, before.decode("utf-8", "replace"))
    return not rule.check or CHECKS[rule.check](value)
