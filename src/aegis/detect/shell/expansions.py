"""What a shell makes of a variable where it is used: parts taken off or replaced, a piece of it, items, numbers.

Patterns become expressions of RE2, whose time is that of the text; arithmetic is that of whole numbers.
"""

from __future__ import annotations

import ast
import operator as operators
from collections.abc import Callable, Sequence
from typing import Any, Final

import re2

from aegis.core.patterns import Lazy, foreign
from aegis.detect.paths import fits
from aegis.detect.shell.heredocs import literal

# A use of a variable: its name, or in braces `#` or `!`, name, index and what is done with the value.
USED: Final = Lazy(
    r"\$(?:([A-Za-z_]\w*|[@*0-9])|\{([#!]?)([A-Za-z_]\w*|[@*]|[0-9]{1,3})(?:\[([^\]{}]{1,64})\])?"
    r"([-%#/:^,+=?][^{}]{0,256})?\})"
)
ARITHMETIC: Final = Lazy(r"\$\(\(([^()]{1,128}(?:\([^()]{1,64}\)[^()]{0,64}){0,8})\)\)")
# A word that stands for the items of an array, or for what a function is called with, each a word of its own.
SPREADS: Final = Lazy(r"\[@\]|\$\{?@")
_MAY: Final = Lazy(
    r"\$\{!|\bprintf\s+-v|\b(?:getopts|read|readarray|mapfile|trap|case)\s|"
    r"\$\{[#!]?\w+(?:\[[^\]]*\])?[%#/:^,]|\$\{[#@]|\bset\s+--|\bfor\s+\w+|=\"?(?:\$\{?HOME\b|~)|\)\s*\{"
)
_NAME: Final = Lazy(r"\b0[xX][0-9a-fA-F]+|\$?\b([A-Za-z_]\w*)")
_CHOICE: Final = Lazy(r"^([^?:]+)\?([^?:]+):([^?:]+)$")
_OCTAL: Final = Lazy(r"\b0([0-7]+)\b")
_LONGEST_SUM: Final = 128
_BITS: Final = 64
_LARGEST: Final = 1 << 63
_SIGNS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: int(one / other),
    ast.Mod: lambda one, other: one - other * int(one / other),
    ast.LShift: lambda one, other: one << other % _BITS,
    ast.RShift: lambda one, other: one >> other % _BITS,
    ast.BitAnd: operators.and_,
    ast.BitOr: operators.or_,
    ast.BitXor: operators.xor,
}
_SIGNED: Final[dict[type[ast.unaryop], Callable[[int], int]]] = {
    ast.USub: operators.neg, ast.UAdd: operators.pos, ast.Invert: operators.invert, ast.Not: operators.not_,
}  # fmt: skip
_COMPARED: Final[dict[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Eq: operators.eq, ast.NotEq: operators.ne, ast.Lt: operators.lt, ast.LtE: operators.le, ast.Gt: operators.gt,
    ast.GtE: operators.ge,
}  # fmt: skip


def may_compute(text: str) -> bool:
    """Whether a text may hold what a shell works out before it runs a command: most hold nothing of it."""
    return ("$" in text or "set " in text) and _MAY.search(text) is not None


def number(text: str, value: Callable[[str], str]) -> int | None:
    """Return what a sum of whole numbers comes to, the `value` of each name put in; `None` where it is no such sum."""
    text = str(_NAME.sub(lambda match: (value(match.group(1)) or "0") if match.group(1) else match.group(), text))
    if len(text) > _LONGEST_SUM:
        return None
    text = str(_OCTAL.sub(r"0o\1", text)).replace("&&", " and ").replace("||", " or ")
    text = _CHOICE.sub(r"(\2) if (\1) else (\3)", text.replace("!=", "\0").replace("!", " not ").replace("\0", "!="))
    try:
        found = _worked_out(ast.parse(text.strip(), mode="eval").body)
        return found if abs(found) < _LARGEST else None
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return None


def _worked_out(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp):
        return int(_SIGNED[type(node.op)](_worked_out(node.operand)))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return int(_COMPARED[type(node.ops[0])](_worked_out(node.left), _worked_out(node.comparators[0])))
    if isinstance(node, ast.BoolOp):
        sides = [_worked_out(one) != 0 for one in node.values]
        return int(all(sides) if isinstance(node.op, ast.And) else any(sides))
    if isinstance(node, ast.IfExp):
        return _worked_out(node.body if _worked_out(node.test) else node.orelse)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return _SIGNS[type(node.op)](_worked_out(node.left), _worked_out(node.right))
    raise ValueError


def branches_taken(subject: str, patterns: Sequence[str]) -> Sequence[int]:
    """Return which branches of a `case` may be taken, counted from one behind what stands before them."""
    known = subject and "$" not in subject and "`" not in subject
    meant = [at for at, given in enumerate(patterns, 1) if any(fits(literal(one), subject) for one in given.split())]
    return (0, meant[0]) if known and meant else range(len(patterns) + 1)


def piece(operator: str, length: int, value: Callable[[str], str]) -> slice | None:
    """Return which part `:offset:length` means of a value or a list so long; `None` where that is not known."""
    first, _, second = operator[1:].partition(":")
    at = number(first, value)
    many = number(second, value) if second else length
    if at is None or many is None:
        return None
    at = max(length + at, 0) if at < 0 else min(at, length)
    return slice(at, length + many if many < 0 else at + many)


def changed(text: str, operator: str, value: Callable[[str], str]) -> str | None:
    """Return what a variable with a value stands for where `operator` is behind its name; `None` where nobody knows."""
    sign, given = operator[:1], literal(operator.lstrip(operator[:1]))
    if sign == ":" and operator[1:2] not in ("-", "=", "?", "+"):
        part = piece(operator, len(text), value)
        return None if part is None else text[part]
    if sign in ":-=?+":
        instead = given[1:] if sign == ":" else given
        return instead if ("+" in operator[:2]) == bool(text) and "?" not in operator[:2] else text
    if sign in "^,":
        turn = str.upper if sign == "^" else str.lower
        return turn(text) if operator[1:2] == sign else turn(text[:1]) + text[1:]
    if sign == "/":
        return _replaced(text, operator)
    whole = operator[1:2] == sign
    if sign == "%":
        found = _compiled(rf"(?s)^(.*{'?' if whole else ''}){_pattern(given)}$", text)
    else:
        found = _compiled(rf"(?s)^{_pattern(given, lazy=not whole)}(.*)$", text)
    return text if found is None else str(found.group(1))


def _replaced(text: str, operator: str) -> str:
    every = operator[1:2] == "/"
    pattern, _, instead = operator[2 if every else 1 :].replace("\\/", "\0").partition("/")
    lead, end = ("^", "") if pattern[:1] == "#" else ("", "$") if pattern[:1] == "%" else ("", "")
    pattern = literal((pattern[1:] if lead or end else pattern).replace("\0", "/"))
    found = foreign(f"(?s){lead}{_pattern(pattern)}{end}") if pattern else None
    instead = literal(instead.replace("\0", "/")).replace("\\", "\\\\")
    return text if found is None else str(found.sub(instead, text, 0 if every else 1))


def _pattern(written: str, *, lazy: bool = False) -> str:
    """A pattern of the shell as an expression."""
    out: list[str] = []
    at = 0
    while at < len(written):
        char = written[at]
        end = written.find("]", at + 2) if char == "[" else -1
        if end > 0:
            inner = written[at + 1 : end].replace("\\", "\\\\")
            out.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
            at = end
        elif char in "*?":
            out.append("." if char == "?" else ".*?" if lazy else ".*")
        else:
            out.append(re2.escape(char))
        at += 1
    return "".join(out)


def _compiled(pattern: str, text: str) -> Any:
    """The match of a pattern with a text, `None` where there is none."""
    compiled = foreign(pattern)
    return None if compiled is None else compiled.match(text)
