"""What expressions of SQL come to whose parts are constants: texts put together, numbers, and choices between them.

Read from tokens, since what stands around an expression may be of any dialect's procedures. What a row or a parameter
gives stands as `VALUE` in a text that has begun.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from operator import add, eq, ge, gt, le, lt, mul, ne, sub
from typing import Final, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

MOST_CHARACTERS: Final = 16_384  # of a text that is put together
_DEEPEST: Final = 6
_LONGEST_NUMBER: Final = 18  # digits
_UNKNOWN: Final = "VALUE"
_STRINGS: Final = frozenset({
    TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING,
})  # fmt: skip
_SUMS: Final = {TokenType.PLUS: add, TokenType.DASH: sub}
_PRODUCTS: Final = {TokenType.STAR: mul}
_COMPARED: Final[Mapping[TokenType, Callable[[int | str, int | str], bool]]] = {
    TokenType.EQ: eq, TokenType.NEQ: ne, TokenType.GT: gt, TokenType.GTE: ge, TokenType.LT: lt, TokenType.LTE: le,
}  # fmt: skip
_CODES: Final = frozenset({"char", "chr", "nchar"})
# Functions that give back what they are given, as far as a statement is concerned.
_QUOTING: Final = frozenset({"quote", "quote_ident", "quote_literal", "quotename"})
_SAME: Final = frozenset({
    *_QUOTING, "lower", "upper", "trim", "btrim", "ltrim", "rtrim", "to_char", "str",
    "nullif", "coalesce", "isnull", "ifnull", "nvl", "cast", "convert", "try_cast", "try_convert", "convert_from",
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


class _Reader:
    def __init__(self, tokens: Sequence[Token], variables: Variables):
        self._tokens = tokens
        self._variables = variables

    def _kind(self, at: int) -> TokenType | None:
        return self._tokens[at].token_type if at < len(self._tokens) else None

    def sum_at(self, at: int, depth: int) -> Constant | None:
        found = self._product(at, depth)
        while found is not None and (kind := self._kind(found.end)) in (*_SUMS, TokenType.DPIPE):
            following = self._product(found.end + 1, depth)
            counts = kind in _SUMS and isinstance(found.value, int)
            if counts and following is not None and isinstance(following.value, int):
                found = _number(_SUMS[kind](found.value, following.value), following.end)
                continue
            following = following or self._unknown(found.end + 1)
            if following is None or kind is TokenType.DASH:
                break
            found = Constant((found.text + following.text)[:MOST_CHARACTERS], following.end)
        return found

    def _product(self, at: int, depth: int) -> Constant | None:
        found = self._part(at, depth)
        while found is not None and isinstance(found.value, int) and self._kind(found.end) in _PRODUCTS:
            following = self._part(found.end + 1, depth)
            if following is None or not isinstance(following.value, int):
                break
            found = _number(found.value * following.value, following.end)
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
            return inner._replace(end=inner.end + 1) if inner and self._kind(inner.end) is TokenType.R_PAREN else None
        if kind is TokenType.CASE:
            return self._case(at + 1, depth + 1)
        if kind is TokenType.PARAMETER and at + 1 < len(self._tokens):
            known = self._variables.get(f"@{self._tokens[at + 1].text.lower()}")
            return None if known is None else Constant(known, at + 2)
        if self._kind(at + 1) is TokenType.L_PAREN:
            return self._function(token.text.lower(), at + 2, depth + 1)
        if kind is not TokenType.VAR:
            return None
        if self._kind(at + 1) is TokenType.DOT and at + 2 < len(self._tokens):
            known = self._variables.get(f"{token.text}.{self._tokens[at + 2].text}".lower())
            return None if known is None else Constant(known, at + 3)
        known = self._variables.get(token.text.lower())
        return None if known is None else Constant(known, at + 1)

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
        """The branch of a `CASE` that its constants choose."""
        asked = None
        if self._kind(at) is not TokenType.WHEN:
            asked = self.sum_at(at, depth)
            if asked is None:
                return None
            at = asked.end
        chosen: Constant | None = None
        while self._kind(at) is TokenType.WHEN:
            if asked is not None:
                one = self.sum_at(at + 1, depth)
                holds = None if one is None else (one.text == asked.text, one.end)
            else:
                holds = self._compared(at + 1, depth)
            if holds is None or self._kind(holds[1]) is not TokenType.THEN:
                return None
            branch = self.sum_at(holds[1] + 1, depth)
            if branch is None:
                return None
            chosen, at = chosen or (branch if holds[0] else None), branch.end
        if self._kind(at) is TokenType.ELSE:
            other = self.sum_at(at + 1, depth)
            if other is None:
                return None
            chosen, at = chosen or other, other.end
        return chosen._replace(end=at + 1) if chosen is not None and self._kind(at) is TokenType.END else None

    def _function(self, name: str, at: int, depth: int) -> Constant | None:
        """What a function of constants makes: `CONCAT`, `CHAR`, `FORMAT`, `REPLACE`, `GREATEST`, `IF`."""
        given: list[Constant] = []
        if name in ("if", "iif"):
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
            if one is not None:
                given.append(one)
                at = one.end
            elif kind is TokenType.COMMA or name in _CASTS:
                at += 1
            else:
                return None
        made = _made(name, [one.value for one in given])
        return None if made is None else Constant(made, at + 1)


_CASTS: Final = frozenset({"cast", "convert", "try_cast", "try_convert"})
_TYPES: Final = frozenset({
    TokenType.TEXT, TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR,
})  # fmt: skip
_FORMATS: Final = frozenset({"format", "printf"})
_JOINED: Final = frozenset({"concat", "concat_ws", *_FORMATS})


def _number(value: int, end: int) -> Constant | None:
    return Constant(value, end) if len(str(abs(value))) <= _LONGEST_NUMBER else None


def _bytes(digits: str) -> str:
    try:
        return binascii.unhexlify(digits).decode("latin-1").replace("\0", "")
    except (ValueError, binascii.Error):
        return ""


def _made(name: str, given: list[str | int]) -> str | int | None:
    """What a function makes of what it is given; nothing for one that is not known."""
    texts = [str(one) for one in given]
    numbers = [one for one in given if isinstance(one, int)]
    if name in ("concat", "concat_ws") and texts:
        return "".join(texts) if name == "concat" else texts[0].join(texts[1:])
    if not given:
        return None
    if name in _CODES and all(one.isdigit() and int(one[:7]) < 0x110000 for one in texts):
        return "".join(chr(int(one[:7])) for one in texts)
    if name in ("greatest", "least", "abs", "sign") and len(numbers) == len(given):
        return {"greatest": max(numbers), "least": min(numbers), "abs": abs(numbers[0])}.get(
            name, (numbers[0] > 0) - (numbers[0] < 0)
        )
    if name in ("if", "iif") and len(given) == 3:
        return given[1] if given[0] else given[2]
    if name in ("elt", "choose") and isinstance(given[0], int):
        return given[given[0]] if 0 < given[0] < len(given) else None
    if name in _SAME:
        return texts[0].upper() if name == "upper" else texts[0].lower() if name == "lower" else given[0]
    if name == "reverse":
        return texts[0][::-1]
    if name == "replace" and len(texts) == 3 and len(texts[0]) * len(texts[2]) <= MOST_CHARACTERS:
        return texts[0].replace(texts[1], texts[2])
    if name in _FORMATS:
        text = texts[0]
        for argument in texts[1:]:
            text = next((text.replace(sign, argument, 1) for sign in ("%I", "%s", "%L") if sign in text), text)
        return text[:MOST_CHARACTERS]
    if name in _TURNED and (name != "decode" or texts[-1] == "hex"):
        return _bytes(texts[0]) if name != "from_base64" else _of_base64(texts[0])
    if name in ("left", "right", "substr", "substring", "mid") and len(numbers) == len(given) - 1 and numbers:
        if name in ("left", "right"):
            return texts[0][: max(numbers[0], 0)] if name == "left" else texts[0][-max(numbers[0], 0) :]
        begin = max(numbers[0] - 1, 0)
        return texts[0][begin : begin + max(numbers[1], 0)] if len(numbers) > 1 else texts[0][begin:]
    return None


def _of_base64(text: str) -> str | None:
    try:
        return binascii.a2b_base64(text).decode("latin-1")
    except (ValueError, binascii.Error):
        return None
