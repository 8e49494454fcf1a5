"""What expressions of SQL come to whose parts are constants: texts put together, numbers, and choices between them.

Read from tokens, since what stands around an expression may be of any dialect's procedures. What a row or a parameter
gives stands as `VALUE` in a text that has begun.
"""

from __future__ import annotations

import binascii
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Network
from math import ceil, floor
from operator import add, and_, eq, floordiv, ge, gt, le, lt, mod, mul, ne, or_, sub, xor
from typing import Any, Final, NamedTuple

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from aegis.core.patterns import Lazy, foreign

MOST_CHARACTERS: Final = 16_384  # of a text that is put together
_DEEPEST: Final = 6
_LONGEST_NUMBER: Final = 18  # digits
_SMALL: Final = 16
_UNKNOWN: Final = "VALUE"
_STRINGS: Final = frozenset({
    TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING,
})  # fmt: skip
_SUMS: Final = {TokenType.PLUS: add, TokenType.DASH: sub}
_BITS: Final = {TokenType.AMP: and_, TokenType.PIPE: or_, TokenType.CARET: xor}
_PRODUCTS: Final[Mapping[TokenType, Callable[[int, int], float]]] = {
    TokenType.STAR: mul, TokenType.MOD: mod, TokenType.DIV: floordiv, TokenType.SLASH: lambda left, right: left / right,
}  # fmt: skip
_COMPARED: Final[Mapping[TokenType, Callable[[int | str, int | str], bool]]] = {
    TokenType.EQ: eq, TokenType.NEQ: ne, TokenType.GT: gt, TokenType.GTE: ge, TokenType.LT: lt, TokenType.LTE: le,
}  # fmt: skip
_CODES: Final = frozenset({"char", "chr", "nchar"})
# Functions that give back what they are given, as far as a statement is concerned.
_QUOTING: Final = frozenset({"quote", "quote_ident", "quote_literal", "quotename"})
_SAME: Final = frozenset({
    *_QUOTING, "trim", "btrim", "ltrim", "rtrim", "str", "to_char", "to_varchar",
    "string_agg", "group_concat", "listagg", "tolist", "toset", "tostring", "compact", "flatten", "distinct",
    "nullif", "coalesce", "isnull", "ifnull", "nvl", "cast", "convert", "try_cast", "try_convert", "convert_from",
    "cast_to_varchar2",
})  # fmt: skip
_TURNED: Final = frozenset({"unhex", "hextoraw", "from_base64", "decode"})

Variables = Mapping[str, "str | int"]


class Constant(NamedTuple):
    """What stands at a place among the tokens, and where it ends."""

    value: str | int
    end: int

    @property
    def text(self) -> str:
        return str(self.value)


def constant_at(tokens: Sequence[Token], at: int, variables: Variables) -> Constant | None:
    """The constant that begins at a place, with all that is put behind it; nothing where something else begins."""
    return _Reader(tokens, variables).sum_at(at, 0)


def constant_of(text: str) -> str | int | None:
    """What a text of SQL comes to that is one constant expression."""
    try:
        tokens = Dialect.get_or_raise(None).tokenize(text)
    except (SqlglotError, ValueError, IndexError):
        return None
    found = constant_at(tokens, 0, {})
    return found.value if found is not None and found.end == len(tokens) else None


def hcl_constant(text: str, known: Variables) -> str | int | None:
    """What an expression of Terraform comes to, in which lists begin at zero; nothing for one that is not known."""
    plain = _INTERPOLATED.sub(r'" || (\1) || "', text[:_LONGEST_EXPRESSION])
    try:
        tokens = Dialect.get_or_raise("mysql").tokenize(plain)
    except (SqlglotError, ValueError, IndexError):
        return None
    reader = _Reader(tokens, known, 0)
    found = reader.chosen_at(0, 0)
    return found.value if found is not None and found.end >= len(tokens) else None


_INTERPOLATED: Final = Lazy(r"\$\{([^{}]*)\}")
_LONGEST_EXPRESSION: Final = 1_000  # characters


class _Reader:
    def __init__(self, tokens: Sequence[Token], variables: Variables, first: int = 1):
        self._tokens = tokens
        self._variables = variables
        self._first = first  # the number of the first item of a list

    def chosen_at(self, at: int, depth: int) -> Constant | None:
        """A value, or one of two by a condition: `1 > 2 ? "a" : "b"`."""
        asked = None if self._first else self._compared(at, depth)
        if asked is None or self._kind(asked[1]) is not TokenType.PLACEHOLDER:
            return self.sum_at(at, depth)
        one = self.sum_at(asked[1] + 1, depth)
        other = self.sum_at(one.end + 1, depth) if one is not None and self._kind(one.end) is TokenType.COLON else None
        return None if one is None or other is None else Constant((one if asked[0] else other).value, other.end)

    def _kind(self, at: int) -> TokenType | None:
        return self._tokens[at].token_type if at < len(self._tokens) else None

    def sum_at(self, at: int, depth: int) -> Constant | None:
        found = self._product(at, depth)
        while found is not None and (kind := self._kind(found.end)) in (*_SUMS, *_BITS, TokenType.DPIPE):
            following = self._product(found.end + 1, depth)
            counts = kind is not TokenType.DPIPE and isinstance(found.value, int)
            if counts and following is not None and isinstance(following.value, int):
                found = _number({**_SUMS, **_BITS}[kind](found.value, following.value), following.end)
                continue
            if kind in _BITS:
                break
            following = following or self._unknown(found.end + 1)
            if following is None or kind is TokenType.DASH:
                break
            found = Constant((found.text + following.text)[:MOST_CHARACTERS], following.end)
        return found

    def _product(self, at: int, depth: int) -> Constant | None:
        found = self._part(at, depth)
        while found is not None and self._kind(found.end) is TokenType.DCOLON:  # `'a'::varchar(9)`
            found = found._replace(end=found.end + (5 if self._kind(found.end + 2) is TokenType.L_PAREN else 2))
        while found is not None and isinstance(found.value, int) and found.end < len(self._tokens):
            token = self._tokens[found.end]
            sign = mod if token.text.lower() == "mod" else _PRODUCTS.get(token.token_type)
            following = None if sign is None else self._part(found.end + 1, depth)
            if sign is None or following is None or not isinstance(following.value, int):
                break
            if not following.value and sign is not mul:
                return None
            found = _number(sign(found.value, following.value), following.end)
        return found

    def _part(self, at: int, depth: int) -> Constant | None:
        kind = self._kind(at)
        if kind is None or depth > _DEEPEST:
            return None
        token = self._tokens[at]
        if kind in _STRINGS or (kind is TokenType.IDENTIFIER and " " in token.text):
            return Constant(token.text, at + 1)
        if kind is TokenType.NUMBER:
            return self._number(at)
        if kind is TokenType.HEX_STRING:
            return Constant(_bytes(token.text), at + 1)
        if kind is TokenType.DASH:
            inner = self._part(at + 1, depth + 1)
            return _number(-inner.value, inner.end) if inner is not None and isinstance(inner.value, int) else None
        if kind is TokenType.L_PAREN:
            inner = self.sum_at(at + 1, depth + 1)
            closed = inner is not None and self._kind(inner.end) is TokenType.R_PAREN
            return self._item(inner._replace(end=inner.end + 1), depth) if inner is not None and closed else None
        if kind is TokenType.L_BRACKET or (kind is TokenType.ARRAY and self._kind(at + 1) is TokenType.L_BRACKET):
            return self._array(at + 1 + (kind is TokenType.ARRAY), depth + 1)
        if kind is TokenType.DATE and self._kind(at + 1) in _STRINGS:
            return Constant(self._tokens[at + 1].text, at + 2)
        if kind is TokenType.CASE:
            return self._case(at + 1, depth + 1)
        if kind is TokenType.PARAMETER and at + 1 < len(self._tokens):
            known = self._variables.get(f"@{self._tokens[at + 1].text.lower()}")
            return None if known is None else Constant(known, at + 2)
        if self._kind(at + 1) is TokenType.L_PAREN:
            made = self._function(token.text.lower(), at + 2, depth + 1)
            return self._item(made, depth) if made is not None and not self._first else made
        if kind is not TokenType.VAR:
            return None
        if token.text in ("e", "E") and self._kind(at + 1) in _STRINGS:  # with escapes (PostgreSQL, 4.1.2.2)
            return Constant(_unescaped(self._tokens[at + 1].text), at + 2)
        if self._kind(at + 1) is TokenType.DOT and at + 2 < len(self._tokens):
            known = self._variables.get(f"{token.text}.{self._tokens[at + 2].text}".lower())
            return None if known is None else Constant(known, at + 3)
        known = self._variables.get(token.text.lower())
        return None if known is None else Constant(known, at + 1)

    def _array(self, at: int, depth: int) -> Constant | None:
        """The items of an array, and the one of them that is asked for behind it."""
        items: list[str] = []
        while (one := self.chosen_at(at, depth)) is not None:
            items.append(one.text)
            if self._kind(one.end) is TokenType.R_BRACKET:
                return self._item(Constant(ITEMS.join(items)[:MOST_CHARACTERS], one.end + 1), depth)
            if self._kind(one.end) is not TokenType.COMMA:
                break
            at = one.end + 1
        return None

    def _item(self, found: Constant, depth: int) -> Constant:
        number = self.sum_at(found.end + 1, depth + 1) if self._kind(found.end) is TokenType.L_BRACKET else None
        items = found.text.split(ITEMS)
        if number is None or not isinstance(number.value, int) or not 0 <= number.value - self._first < len(items):
            return found
        return Constant(items[number.value - self._first], number.end + 1)

    def _number(self, at: int) -> Constant | None:
        text = self._tokens[at].text
        behind = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        if text == "0" and behind is not None and behind.token_type is TokenType.VAR and behind.text[:1] in "xX":
            return Constant(_bytes(behind.text[1:]), at + 2)
        if not text.isdigit():
            return Constant(text, at + 1)
        return _number(int(text[: _LONGEST_NUMBER + 1]), at + 1)

    def _unknown(self, at: int) -> Constant | None:
        """What a row or a parameter gives: a name, with those that it belongs to."""
        if self._kind(at) is not TokenType.VAR or self._kind(at + 1) is TokenType.L_PAREN:
            return None
        while self._kind(at + 1) is TokenType.DOT and self._kind(at + 2) is TokenType.VAR:
            at += 2
        return Constant(_UNKNOWN, at + 1)

    def _compared(self, at: int, depth: int) -> tuple[bool, int] | None:
        left = self.sum_at(at, depth)
        sign = _COMPARED.get(self._tokens[left.end].token_type) if left and left.end < len(self._tokens) else None
        right = self.sum_at(left.end + 1, depth) if left is not None and sign is not None else None
        if left is None or sign is None or right is None or type(left.value) is not type(right.value):
            return None
        return sign(left.value, right.value), right.end

    def _case(self, at: int, depth: int) -> Constant | None:
        """The branch of a `CASE` that its constants choose, or the gravest of those that may be taken."""
        asked = None
        if self._kind(at) is not TokenType.WHEN:
            asked = self.sum_at(at, depth)
            if asked is None:
                return None
            at = asked.end
        possible: list[Constant] = []
        is_sure = False
        while self._kind(at) in (TokenType.WHEN, TokenType.ELSE):
            holds: tuple[bool | None, int] | None = (True, at)
            if self._kind(at) is TokenType.WHEN and asked is not None:
                one = self.sum_at(at + 1, depth)
                holds = None if one is None else (one.text == asked.text, one.end)
            elif self._kind(at) is TokenType.WHEN:
                holds = self._compared(at + 1, depth)
                if holds is None or self._kind(holds[1]) is not TokenType.THEN:
                    holds = (None, self._then(at + 1))
            branch = None if holds is None else self.sum_at(holds[1] + 1, depth)
            if holds is None or branch is None:
                return None
            if holds[0] is not False and not is_sure:
                possible.append(branch)
            is_sure, at = is_sure or holds[0] is True, branch.end
        if not possible or self._kind(at) is not TokenType.END:
            return None
        return next((one for one in possible if _GRAVE.match(one.text)), possible[-1])._replace(end=at + 1)

    def _then(self, at: int) -> int:
        """Where the branch of a condition begins that is not followed."""
        last = min(at + _LONGEST_CONDITION, len(self._tokens))
        return next((one for one in range(at, last) if self._kind(one) is TokenType.THEN), len(self._tokens))

    def _function(self, name: str, at: int, depth: int) -> Constant | None:
        """What a function of constants makes: `CONCAT`, `CHAR`, `FORMAT`, `REPLACE`, `GREATEST`, `IF`."""
        given: list[Constant] = []
        if name in ("if", "iif", "iff"):
            compared = self._compared(at, depth)
            if compared is None:
                return None
            given.append(Constant(int(compared[0]), compared[1]))
            at = compared[1]
        while (kind := self._kind(at)) is not None and kind is not TokenType.R_PAREN:
            if name in _CASTS and kind in _TYPES:
                at += 4 if self._kind(at + 1) is TokenType.L_PAREN else 1  # `varchar(200)`
                continue
            one = self.sum_at(at, depth)
            if one is None and ((given and name in _JOINED) or name in _QUOTING):
                one = self._unknown(at)
            if one is None and name == "extract" and not given:  # `EXTRACT(DAY FROM DATE '2024-02-29')`
                one = Constant(self._tokens[at].text.lower(), at + 1)
            if one is not None:
                given.append(one)
                at = one.end
            elif kind in _BETWEEN or name in _CASTS or self._tokens[at].text.lower() == "placing":
                at += 1
            else:
                return None
        if name in _ASKED and given:  # for a variable by its name
            made: str | int | None = self._variables.get(given[0].text.lower())
        else:
            made = _made(name, [one.value for one in given])
        return None if made is None else Constant(made, at + 1)


_GRAVE: Final = Lazy(r"(?i)^\s*(?:drop|truncate|delete|alter|grant|revoke|noaudit|update|shutdown)\b")
_LONGEST_CONDITION: Final = 48  # tokens
_BETWEEN: Final = frozenset({TokenType.COMMA, TokenType.FROM, TokenType.FOR, TokenType.NULL})
_CASTS: Final = frozenset({"cast", "convert", "try_cast", "try_convert"})
_TYPES: Final = frozenset({
    TokenType.TEXT, TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR,
})  # fmt: skip
_FORMATS: Final = frozenset({"format", "printf", "formatmessage"})
_ASKED: Final = frozenset({"getvariable", "current_setting"})
_JOINED: Final = frozenset({"concat", "concat_ws", *_FORMATS})


def _number(value: float, end: int) -> Constant | None:
    if len(str(abs(value))) > _LONGEST_NUMBER + 2:
        return None
    return Constant(int(value) if value == int(value) else str(value), end)  # a text stands for what is no whole number


def _bytes(digits: str) -> str:
    try:
        return binascii.unhexlify(digits).decode("latin-1").replace("\0", "")
    except (ValueError, binascii.Error):
        return ""


def _made(name: str, given: list[str | int]) -> str | int | None:
    """What a function makes of what it is given; nothing for one that is not known."""
    texts = [str(one) for one in given]
    numbers = [one for one in given if isinstance(one, int)]
    if name in _CODES and given and all(one.isdigit() and int(one[:7]) < _FIRST_HALF for one in texts):
        return "".join(chr(int(one[:7])) for one in texts)
    if name in ("if", "iif", "iff") and len(given) == 3:
        return given[1] if given[0] else given[2]
    if name in ("to_char", "date_format") and len(given) == 2 and _DAY.match(texts[0]):
        name = "dated"
    if name in _TRIMS and len(given) == 2:
        return _TRIMS[name](texts[0], texts[1])
    if name == "decode" and len(given) > 2:  # of Oracle: a value, each with what stands for it, and the rest
        pairs = dict(zip(reversed(given[1:-1:2]), reversed(given[2::2]), strict=False))
        return pairs.get(given[0], given[-1] if len(given) % 2 == 0 else None)
    if name in _SAME and given:
        return _bytes(texts[0][2:]) if name == "convert_from" and texts[0][:2] == "\\x" else given[0]
    if name in _TURNED and given:
        return _of_base64(texts[0]) if "base64" in (name.removeprefix("from_"), texts[-1]) else _bytes(texts[0])
    made = _FUNCTIONS.get(_OTHER_NAMES.get(name, name))
    if made is None or max(map(len, texts), default=0) > MOST_CHARACTERS:
        return None
    try:
        found = made(texts, numbers)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return found[:MOST_CHARACTERS] if isinstance(found, str) else found


_DAY: Final = Lazy(r"^\d{4}-\d\d-\d\d$")


def _dated(day: str, written: str) -> str:
    """A date in the way in which it is to be written: `DDD` for its day of the year."""
    year, month, number = map(int, day.split("-"))
    if not 0 < number <= monthrange(year, month)[1]:
        raise ValueError(day)
    of_year = f"{sum(monthrange(year, one)[1] for one in range(1, month)) + number:03}"
    parts = {"YYYY": f"{year:04}", "YEAR": f"{year:04}", "DDD": of_year, "DOY": of_year, "MONTH": f"{month:02}",
             "MM": f"{month:02}", "DAY": f"{number:02}", "DD": f"{number:02}"}  # fmt: skip
    signs = {"%Y": "YYYY", "%J": "DDD", "%M": "MM", "%D": "DD"}
    written = written.upper()
    for sign, part in (*signs.items(), *parts.items()):
        written = written.replace(sign, part)
    return written


_TRIMS: Final = {"ltrim": str.lstrip, "rtrim": str.rstrip, "btrim": str.strip}
_FIRST_HALF: Final = 0xD800  # of a character in two halves, which no text of a database holds alone
ITEMS: Final = "\x1f"  # between the items of an array
_DIRECTIVE: Final = Lazy(r"%(?:(\d{1,2})\$)?[IsLd]")


def _formatted(texts: list[str], numbers: list[int]) -> str:
    following = iter(texts[1:])

    def put(match: Any) -> str:
        number = int(match.group(1) or 0)
        return texts[number] if 0 < number < len(texts) else next(following, match.group())

    return str(_DIRECTIVE.sub(put, texts[0]))


def _part_of(texts: list[str], numbers: list[int]) -> str:
    begin = numbers[0] - 1 if numbers[0] > 0 else max(len(texts[0]) + numbers[0], 0) if numbers[0] else 0
    return texts[0][begin : begin + max(numbers[1], 0)] if len(numbers) > 1 else texts[0][begin:]


def _replaced(texts: list[str], begin: int, count: int, put: str) -> str:
    return f"{texts[0][: max(begin - 1, 0)]}{put}{texts[0][max(begin - 1, 0) + max(count, 0) :]}"


def _filled(texts: list[str], count: int) -> str:
    return (texts[2] * min(max(count, 0), MOST_CHARACTERS // len(texts[2])))[: max(count, 0)]


def _swapped(pattern: Any, texts: list[str]) -> str | None:
    return None if pattern is None else str(pattern.sub(texts[2] if len(texts) > 2 else "", texts[0]))


def _unescaped(text: str) -> str:
    """A text of PostgreSQL without its escapes: `\\x44`, `\\104`, `\\u0044`."""
    try:
        found = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        return found.encode(errors="ignore").decode()  # without half characters, which no pattern takes
    except ValueError:
        return text


def _subnet(network: IPv4Network, bits: int, number: int) -> str:
    prefix = min(network.prefixlen + max(bits, 0), network.max_prefixlen)
    return f"{network.network_address + (number << (network.max_prefixlen - prefix))}/{prefix}"


def _up_to(texts: list[str], numbers: list[int]) -> str:
    parts = texts[0].split(texts[1])
    return texts[1].join(parts[: numbers[-1]] if numbers[-1] > 0 else parts[numbers[-1] :] if numbers[-1] else [])


_FUNCTIONS: Final[Mapping[str, Callable[[list[str], list[int]], str | int | None]]] = {
    "concat": lambda texts, _: "".join(texts),
    "concat_ws": lambda texts, _: texts[0].join(texts[1:]),
    "array_to_string": lambda texts, _: texts[0].replace(ITEMS, texts[1]),
    "join": lambda texts, _: texts[ITEMS in texts[0]].join(texts[ITEMS not in texts[0]].split(ITEMS)),
    "split": lambda texts, _: ITEMS.join(texts[1].split(texts[0])),
    "element": lambda texts, numbers: (items := texts[0].split(ITEMS))[numbers[-1] % len(items)],
    "trimprefix": lambda texts, _: texts[0].removeprefix(texts[1]),
    "trimsuffix": lambda texts, _: texts[0].removesuffix(texts[1]),
    "cidrsubnet": lambda texts, numbers: _subnet(IPv4Network(texts[0], strict=False), *numbers[-2:]),
    "base64decode": lambda texts, _: _of_base64(texts[0]),
    "upper": lambda texts, _: texts[0].upper(),
    "lower": lambda texts, _: texts[0].lower(),
    "reverse": lambda texts, _: texts[0][::-1],
    "replace": lambda texts, _: texts[0].replace(texts[1], texts[2][: MOST_CHARACTERS // (len(texts[0]) or 1)]),
    "translate": lambda texts, _: texts[0].translate(dict(zip(map(ord, texts[1]), f"{texts[2]:\0<{len(texts[1])}}",
                                                               strict=False))).replace("\0", ""),
    "left": lambda texts, numbers: texts[0][: numbers[0]],
    "right": lambda texts, numbers: texts[0][-numbers[0] :] if numbers[0] else "",
    "stuff": lambda texts, numbers: _replaced(texts, numbers[0], numbers[1], texts[3]),
    "overlay": lambda texts, numbers: _replaced(texts, numbers[0], (*numbers[1:], len(texts[1]))[0], texts[1]),
    "split_part": lambda texts, numbers: texts[0].split(texts[1])[numbers[-1] - (numbers[-1] > 0)],
    "substring_index": _up_to,
    "repeat": lambda texts, numbers: texts[0] * min(numbers[-1], MOST_CHARACTERS // (len(texts[0]) or 1)),
    "space": lambda _, numbers: " " * min(numbers[0], MOST_CHARACTERS),
    "length": lambda texts, _: len(texts[0]),
    "instr": lambda texts, _: texts[0].find(texts[1]) + 1,
    "dated": lambda texts, _: _dated(texts[0], texts[1]),
    "extract": lambda texts, _: int(_dated(texts[1], texts[0])),
    "regexp_replace": lambda texts, _: _swapped(foreign(texts[1]), texts),
    "lpad": lambda texts, numbers: f"{_filled(texts, numbers[0] - len(texts[0]))}{texts[0]}"[: numbers[0]],
    "rpad": lambda texts, numbers: f"{texts[0]}{_filled(texts, numbers[0] - len(texts[0]))}"[: numbers[0]],
    "floor": lambda texts, _: floor(float(texts[0])),
    "ceil": lambda texts, _: ceil(float(texts[0])),
    "round": lambda texts, _: round(float(texts[0])),
    "power": lambda _, numbers: numbers[0] ** numbers[1] if max(map(abs, numbers)) < _SMALL else None,
    "mod": lambda _, numbers: numbers[0] % numbers[1],
    "abs": lambda _, numbers: abs(numbers[0]),
    "sign": lambda _, numbers: (numbers[0] > 0) - (numbers[0] < 0),
    "greatest": lambda texts, numbers: max(numbers) if len(numbers) == len(texts) else None,
    "least": lambda texts, numbers: min(numbers) if len(numbers) == len(texts) else None,
    "elt": lambda texts, numbers: texts[numbers[0]] if 0 < numbers[0] < len(texts) else None,
    **dict.fromkeys(_FORMATS, _formatted), **dict.fromkeys(("substr", "substring", "mid"), _part_of),
}  # fmt: skip
_OTHER_NAMES: Final = {
    "choose": "elt", "insert": "stuff", "replicate": "repeat", "len": "length", "char_length": "length",
    "strpos": "instr", "ceiling": "ceil", "trunc": "floor", "pow": "power",
    "initcap": "upper", "toupper": "upper", "tolower": "lower", "strrev": "reverse",
}  # fmt: skip


def _of_base64(text: str) -> str | None:
    try:
        return binascii.a2b_base64(text).decode("latin-1")
    except (ValueError, binascii.Error):
        return None
