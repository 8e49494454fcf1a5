"""What a pattern cannot say: checksums, randomness, and that a value is a placeholder."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

import orjson
import re2

from aegis.detect.paths import is_plain_path, is_secret_file, is_settings_file
from aegis.detect.rules.mentions import chained, ordered, spoken

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


_LONGEST: Final = 4_096  # bytes of a match that are looked at
_WORD_RUN: Final = 7
_LONG_WORD_RUN: Final = 10
_PLACEHOLDERS: Final = (
    "example", "sample", "placeholder", "your", "dummy", "changeme", "change_me", "redacted", "xxxx", "****",
    "....", "fake",
    "insert", "replace", "abcdef", "123456789", "qwerty", "lorem", "secret_here", "notreal", "<", "{", "$",
)  # fmt: skip


# `io.jsonwebtoken.jjwt-0.11`, `tokenize.TokenInfo`: words with dots between them.
_DOTTED: Final = re2.compile(r"[A-Za-z_][A-Za-z_-]*(?:\.[A-Za-z_][\w-]*)+(?:[-.]\d+)*")
_NAME_TAIL: Final = 48
_HEX_LENGTHS: Final = (16, 20, 24, 32, 40, 48, 64)
_LONG_TOKEN: Final = 40
_HEX_DIGITS: Final = "0123456789abcdefABCDEF"
_LEAST_MIXED: Final = 20  # letters of one case with digits: shorter ones are often names
_LEAST_MIXED_DIGITS: Final = 4
_OTHER_NAMES: Final = (
    "public", "hash", "csrf", "xsrf", "cache", "primary", "foreign", "issuer", "partition", "keyid", "key_id",
    "checksum",
    "digest", "fingerprint", "signature", "version", "_name", "file", "path", "url", "uri", "endpoint", "length",
    "size",
    "type", "index", "sha", "rev", "commit", "guid", "uuid", "monkey", "keyboard", "keyword", "keyframe", "accessib",
    "author", "schema", "tokenize", "package", "artifact", "snapshot", "nonce", "salt", "iv_",
)  # fmt: skip
_SHOWN: Final = ("xxxx", "****", "....", "example", "placeholder", "redacted", "your_", "your-", "<", "${")


def entropy(text: str) -> float:
    """Shannon entropy of the characters of `text`, in bits a character."""
    if not text:
        return 0.0
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


def is_placeholder(text: str) -> bool:
    """Whether a value only shows where a secret would stand."""
    lowered = text[:_LONGEST].lower()
    if any(word in lowered for word in _PLACEHOLDERS):
        return True
    letters = lowered.strip("-_=.")
    return len(set(letters)) <= max(2, len(letters) // 12) or _is_run(letters)


def _is_run(text: str) -> bool:
    """Whether most characters follow their neighbour (`abcdefgh`, `01234567`)."""
    steps = sum(ord(after) - ord(before) in (0, 1) for before, after in pairwise(text))
    return len(text) >= 12 and steps * 10 > len(text) * 7


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
    return not any(word in lowered for word in _SHOWN) and len(set(lowered)) > max(4, len(lowered) // 12)


def mixed(text: str) -> bool:
    """Whether a value has at least two kinds of characters and is no placeholder."""
    kinds = sum((any(c.islower() for c in text), any(c.isupper() for c in text), any(c.isdigit() for c in text)))
    return kinds >= 2 and not is_placeholder(text)


def token(text: str) -> bool:
    """Whether a value is random enough for a machine's token: letters and digits mixed, no words, no path."""
    if is_placeholder(text) or "://" in text or text.startswith(("/", "./")) or "(" in text:
        return False
    if len(text) == 36 and text.count("-") == 4:
        return False  # a UUID names things; it seldom opens them
    digits = sum(char.isdigit() for char in text)
    letters = sum(char.isalpha() for char in text)
    if digits < 3 or letters < 3:
        return False
    return not _has_word(text, _WORD_RUN) and text.count(".") <= 2 and text.count("-") <= len(text) // 8 + 2


def assigned(text: str, whole: str) -> bool:
    """Whether what is assigned to a name is a secret by both: the name is of no other kind, the value is a token.

    `whole` is the match with the name in front of the value.
    """
    name = whole.partition(text)[0].lower()[-_NAME_TAIL:]
    if any(word in name for word in _OTHER_NAMES) or ":" in text or text.count("_") > 2:
        return False
    kinds = any(c.islower() for c in text) + any(c.isupper() for c in text) + any(c.isdigit() for c in text)
    if _mixed_hex(text) or _runs_on(text):
        return False
    hexadecimal = len(text) in _HEX_LENGTHS and all(c in "0123456789abcdefABCDEF" for c in text)
    mixed_up = kinds == 2 and len(text) >= _LEAST_MIXED and sum(c.isdigit() for c in text) >= _LEAST_MIXED_DIGITS
    random = kinds == 3 or hexadecimal or len(text) >= _LONG_TOKEN or mixed_up
    return random and token(text) and len(set(text.lower())) >= 8


def _runs_on(text: str) -> bool:
    """Whether something is glued to a checksum: what begins with so many hex digits consists of nothing else."""
    return len(text) > _LONG_TOKEN and not text[:_LONG_TOKEN].strip(_HEX_DIGITS) and bool(text.strip(_HEX_DIGITS))


def _has_word(text: str, least: int) -> bool:
    """Whether a run of `least` letters of one case stands in the value that reads as words do, and seldom tokens."""
    run = ""
    for char in text + " ":
        if char.isalpha() and run and run[-1].islower() == char.islower():
            run += char
            continue
        if len(run) >= least and _reads(run.lower()):
            return True
        run = char if char.isalpha() else ""
    return False


def _reads(letters: str) -> bool:
    """Whether a run of small letters can be read: vowels in it, and seldom two letters that no word has together."""
    if not set("aeiou") & set(letters):
        return False
    odd = sum(after in _NEVER_BEHIND.get(before, "") for before, after in pairwise(letters))
    return odd * _PAIRS_FOR_ONE_ODD < len(letters)


# Letters that hardly ever stand behind a letter in words, names made of words included.
_NEVER_BEHIND: Final = {
    "b": "cfghkmnpqwxz", "c": "bdfgjmnpqvwxz", "d": "cfhkpqtxz", "f": "bcdghjkmnpqvwxz", "g": "bcdfjkpqtvwxz",
    "h": "bcdfghjkpqsvwxz", "j": "bcdfghjklmnpqrstvwxyz", "k": "bcgjkmpqrvwxz", "l": "hjqrxz", "m": "dfghjkqrtvwxz",
    "n": "rwxz", "p": "bcdfgjkmnqvwxz", "q": "abcdefghijklmnopqrstvwxyz", "r": "hjqxz", "s": "bdgjrvxz",
    "t": "bdgjkpqvx", "v": "bcdfghjklmnpqtuvwxz", "w": "bcfgjmpqtuvwxyz", "x": "bdfgjkmnqrsvwxz", "y": "hjqvxyz",
    "z": "bcdfghjkmnpqrstvwx",
}  # fmt: skip
_PAIRS_FOR_ONE_ODD: Final = 7


_USUAL_PASSWORDS: Final = frozenset({
    "password", "pass", "passwd", "pwd", "secret", "user", "username", "token", "test", "foo", "bar", "baz", "xxx",
    "yyy",
    "pw", "p", "root", "admin", "postgres", "mysql", "guest", "changeme", "secret123", "password123", "mypassword",
    "a%20secret", "port", "redis", "rabbitmq", "pswd", "passw0rd", "s3cret", "sekret", "qwerty", "abc", "abc123",
    "1234",
    "12345", "123456", "hunter2", "letmein", "mysecretpassword", "dbpass", "dbpassword", "userpass", "key", "x",
    "admin123", "test123", "test1234", "12345678", "changeit", "elastic", "welcome1", "minioadmin",
    "my-password", "my_password", "your_password", "your-password", "yourpassword", "apikey", "api_key",
})  # fmt: skip


def userpass(text: str) -> bool:
    """Whether `user:password`, as it stands or in base64, holds a password that somebody chose."""
    user, colon, password = text.partition(":")
    if not colon:
        user, colon, password = _decoded(text).decode("utf-8", "replace").partition(":")
        if not colon:
            return len(text) >= 16 and not is_placeholder(text)
    password = password.strip("'\"")
    if not password:
        return len(user) >= 10 and mixed(user)
    return (
        len(password) >= 5
        and password.lower() not in _USUAL_PASSWORDS
        and user.lower() != "xxx"
        and not is_placeholder(password)
    )


_LEAST_DIGITS: Final = 2


def urlpass(text: str) -> bool:
    """Whether the password of a URL is one that somebody chose, and not a word that stands for one."""
    lowered = text.lower()
    return lowered not in _USUAL_PASSWORDS and "%" not in text[:1] and not is_placeholder(text)


def chosen(text: str) -> bool:
    """Whether a value is a password that somebody chose or a machine made: three kinds of characters, and no code."""
    lowered = text.lower().strip("'\"")
    kinds = sum((any(c.islower() for c in text), any(c.isupper() for c in text), any(c.isdigit() for c in text)))
    kinds += any(not char.isalnum() and char not in "_-./:" for char in text)
    if lowered in _USUAL_PASSWORDS or is_placeholder(text) or _mixed_hex(text) or _DOTTED.fullmatch(text):
        return False
    return kinds >= 3 and not _has_word(text, _WORD_RUN) and len(set(lowered)) >= 6


def header(text: str) -> bool:
    """Whether the value of a header is a credential: letters and digits mixed, no name of code or package."""
    if not mixed(text) or sum(char.isdigit() for char in text) < _LEAST_DIGITS or _mixed_hex(text):
        return False
    return not _DOTTED.fullmatch(text)


def _mixed_hex(text: str) -> bool:
    """Hex digits in both cases: encoders write one."""
    letters = [char for char in text if char.isalpha()]
    both = any(char.islower() for char in letters) and any(char.isupper() for char in letters)
    return both and len(text) >= 16 and all(char in "0123456789abcdefABCDEF" for char in text)


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
    payload = rest.partition(".")[0]
    return (
        isinstance(header, dict)
        and ("alg" in header or "typ" in header)
        and (not payload or _json(payload) is not None)
    )


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
    return changes * 3 >= len(text) and not _has_word(text, _LONG_WORD_RUN)


CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "luhn": luhn,
    "iban": iban,
    "ssn": ssn,
    "real": real,
    "mixed": mixed,
    "token": token,
    "userpass": userpass,
    "slack": slack,
    "jwt": jwt,
    "unworded": unworded,
    "urlpass": urlpass,
    "header": header,
    "chosen": chosen,
    **NUMBERS,
}


def spelled(text: str) -> bool:
    """Whether a text that names a sensitive place is more than a path of somebody who works on files.

    A path as people write it is judged by the file that it names, through whichever door it comes.
    """
    return not is_plain_path(text) or (is_secret_file(text) and not is_settings_file(text))


# Checks that read the whole text in which something was found.
TEXT_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {"spelled": spelled}

# Checks that read the whole match, name and all, beside its first group.
WHOLE_CHECKS: Final[Mapping[str, Callable[[str, str], bool]]] = {"assigned": assigned}

# Checks that read what was found where it stands: the text around it, and from where to where.
PLACE_CHECKS: Final[Mapping[str, Callable[[str, int, int], bool]]] = {
    "chained": chained,
    "ordered": ordered,
    "spoken": spoken,
}
SURROUNDING: Final = 240  # bytes on either side of what was found
