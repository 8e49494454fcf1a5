"""Values among the signs of a program, as nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.languages.signs import CLOSES, LONGEST_FILLED, NAME, NUMBER, STRING, Signs
from aegis.detect.languages.syntax import NodeParts, SignNode

_DEEPEST: Final = 24  # expressions inside each other that are read
MOST_PARTS: Final = 64  # of one chain of members, calls and operators
AFTER: Final = frozenset({"!!", "?", "!"})
_BEFORE: Final = frozenset({"&", "*", "-", "!", "&&", "..."})
_WORDS_BEFORE: Final = frozenset({"await", "try", "new", "mut", "ref", "move", "async", "const", "return", "throw"})
_ENDS: Final = frozenset({
    "in", "do", "then", "as", "is", "else", "if", "for", "while", "until", "let", "val", "var", "local", "case", "end",
})  # fmt: skip
DEFINES: Final = frozenset({"fn", "fun", "func", "def", "function", "defp", "sub", "macro"})
_JOINS: Final[Mapping[str, str]] = {
    "?:": "??", "??": "??", "or": "||", "||": "||", "/": "/", "%": "%", "&&": "&&", "and": "&&", "==": "==", "!=": "!=",
    "~=": "!=",
}  # fmt: skip
# Operations of numbers, by how tightly they bind; of what is none they leave the first side as it is.
_BINDS: Final[Mapping[str, int]] = {
    "|": 0, "^": 1, "xor": 1, "&": 2, "and": 2, "<<": 3, "shl": 3, "shr": 3, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_TIGHTEST: Final = 9
_PLACES: Final = frozenset("0123")  # of members that have no names
CHOICES: Final = frozenset({"if", "when", "match", "switch"})
FAR: Final = 200  # signs of a function's body, or of a choice, that are looked at
MOST_NAMES: Final = 8  # that the parts of one value get, and values that one is chosen of
_ARROWS: Final = frozenset({"->", "=>"})
_ESCAPED: Final = Lazy(r"\\(.)")
_LONGEST_PREFIX: Final = 3
PIPES: Final = frozenset({"|>", "%>%"})
_PAIRS: Final = frozenset({"to", "->", "=>"})
_FILLED_NAME: Final = Lazy(r"\{([A-Za-z_]\w*)(?::[^{}]{0,20})?\}|\$([A-Za-z_]\w*)")


class Expressions(Signs):
    """The values among the signs of one text; each is read from where it begins."""

    def _generic(self, at: int) -> int:
        """Where the types end that stand between a name and its parentheses; where they begin if they are none."""
        start = at + 1 if self._word(at) == "::" else at
        if self._word(start) != "<":
            return at
        for one in range(start + 1, min(start + 12, len(self.words))):
            if self.words[one] == ">":
                return one + 1
            if self._kinds[one] == STRING or self.words[one] in ("(", ";", "="):
                break
        return at

    def _parameters(self, opens: int) -> SignNode:
        names: list[SignNode] = []
        for start, end in self._parts(opens + 1, self._pair[opens]):
            cut = next((one for one in range(start, end) if self._word(one) in (":", "::", "=")), end)
            named = [one for one in range(start, cut) if self._is_name(one)]
            if self._word(start) == "..." or "vararg" in self.words[start:cut]:  # of Lua and Kotlin
                rest = self._make("identifier", named[-1] if named else start, (named[-1] if named else start) + 1)
                names.append(self._filled(SignNode("list_splat_pattern", "", rest.start_byte), {}, (rest,)))
                continue
            if not named:
                continue
            name = self._make("identifier", named[-1], named[-1] + 1)
            given = next((one for one in range(cut, end) if self._word(one) == "="), None)
            value = None if given is None else self._expression(given + 1, end, 1)[0]
            names.append(
                name
                if value is None
                else self._filled(SignNode("default_parameter", "", name.start_byte), {"name": name, "value": value})
            )
        return self._filled(SignNode("parameters", "", 0), {}, names)

    def _filled(self, node: SignNode, fields: dict[str, SignNode], rest: Sequence[SignNode] = ()) -> SignNode:
        node.fill(fields, rest)
        return node

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts between commas, each from its first sign to before its last."""
        at = begins = start
        count = 0
        while at < end and count < MOST_PARTS:
            word = self._word(at)
            if word in (",", ";"):
                if at > begins:
                    yield begins, at
                    count += 1
                begins = at + 1
            elif word in ("(", "[", "{"):
                at = self._pair[at]
            at += 1
        if begins < end and count < MOST_PARTS:
            yield begins, min(end, len(self.words))

    def _is_number(self, sign: int) -> bool:
        """Whether a number stands beside a sign, so that its operations bind as tightly as those of numbers."""
        return any(0 <= one < len(self.words) and self._kinds[one] == NUMBER for one in (sign - 1, sign + 1))

    def _expression(self, at: int, end: int, depth: int, least: int = -1) -> tuple[SignNode | None, int]:
        """The expression that begins at a sign, and the sign behind it; of operations those that bind so tightly."""
        if depth > _DEEPEST:
            return None, end
        found, after = self._chain(at, end, depth)
        for _ in range(MOST_PARTS):
            sign = self._word(after)
            if found is None or after >= end or (self._breaks[after] and sign not in PIPES):
                break
            if sign in PIPES:
                found, after = self._pipe_into(found, after, end, depth)
                continue
            joined = "+" if sign in self._written.joins else _JOINS.get(sign, sign if sign in _BINDS else None)
            pairs = sign in _PAIRS
            if (joined is None and not pairs) or _BINDS.get(sign, _TIGHTEST) < least:
                break
            other, behind = (
                self._expression(after + 1, end, depth + 1, _BINDS[sign] + 1)
                if sign in _BINDS and self._is_number(after)
                else self._chain(after + 1, end, depth)
            )
            if other is None:
                break
            node = SignNode("list" if pairs else "binary_expression", self._slice(at, behind), self._at[at])
            if pairs:
                found = self._filled(node, {}, (found, other))
            else:
                operator = SignNode("operator", joined or "", self._at[after])
                found = self._filled(node, {"left": found, "operator": operator, "right": other})
            after = behind
        return found, after

    def _pipe_into(self, left: SignNode, at: int, end: int, depth: int) -> tuple[SignNode, int]:
        right, after = self._chain(at + 1, end, depth)
        if right is None:
            return left, end
        function, given = right, []
        if right.type == "call_expression":
            function = right.child_by_field_name("function") or right
            given = list((right.child_by_field_name("arguments") or right).named_children)
        node = SignNode("call_expression", self._slice(at + 1, after), self._at[at])
        arguments = self._filled(SignNode("arguments", "", self._at[at]), {}, (left, *given))
        return self._filled(node, {"function": function, "arguments": arguments}), after

    def _chain(self, at: int, end: int, depth: int) -> tuple[SignNode | None, int]:
        """A value, and the members, calls and items behind it."""
        if self._word(at) == "..." and self._word(at + 1) in (")", ",", "}"):  # of Lua
            rest = self._make("identifier", at, at + 1)
            return self._filled(SignNode("list_splat", "...", self._at[at]), {}, (rest,)), at + 1
        if self._word(at) == "-" and at + 1 < end and self._kinds[at + 1] == NUMBER:
            return self._make("integer", at, at + 2), at + 2
        if self._word(at) == "#":  # of Lua
            value, after = self._chain(at + 1, end, depth + 1)
            node = SignNode("call_expression", self._slice(at, after), self._at[at])
            given = self._filled(SignNode("arguments", "", self._at[at]), {}, () if value is None else (value,))
            return self._filled(node, {"function": self._make("identifier", at, at + 1), "arguments": given}), after
        while at < end and (self._word(at) in _BEFORE or self._word(at) in _WORDS_BEFORE):
            at += 1 + (self._word(at) == "try" and self._word(at + 1) in ("?", "!"))
        start = at
        named = at
        found, at = self._first(at, end, depth)
        for _ in range(MOST_PARTS):
            if found is None or at >= end:
                break
            sign = self._word(at)
            if sign in self._members and at + 1 < end and (self._is_name(at + 1) or self.words[at + 1] in _PLACES):
                last = self._make("property_identifier", at + 1, at + 2)
                node = SignNode("member_expression", self._slice(start, at + 2), self._at[start])
                found, named, at = self._filled(node, {}, (found, last)), at + 1, at + 2
            elif sign == "." and self._word(at + 1) == "(" and found.type == "identifier":  # of Julia: for each item
                found, at = self._called(start, named, at + 1, found, depth, is_macro=False)
            elif sign in AFTER and not (sign == "!" and self._word(at + 1) in ("(", "[", "{")):
                at += 1
            elif (
                sign in ("(", "{")
                or (sign == "!" and found.type != "call_expression")
                or (sign in ("<", "::") and self._word(self._generic(at)) == "(")
            ):
                fills = sign == "{" and self._is_filled(named, at)  # `Config { root: path }` of Rust
                if (self._breaks[at] and sign != "!") or (sign == "{" and not self._written.blocks and not fills):
                    break
                opens = at + 1 if sign == "!" else self._generic(at) if sign in ("<", "::") else at
                if self._word(opens) not in ("(", "[", "{"):
                    break
                found, at = self._called(start, named, opens, found, depth, is_macro=sign == "!" or fills)
            elif sign == "[" and not self._breaks[at]:
                closes = self._pair[at]
                if self._word(at + 1) == "[" and self._pair[at + 1] == closes - 1:  # `config[["root"]]` of R
                    at += 1
                items = [self._expression(one, last, depth + 1)[0] for one, last in self._parts(at + 1, self._pair[at])]
                node = SignNode("subscript_expression", self._slice(start, closes + 1), self._at[start])
                found, at = self._filled(node, {}, (found, *[one for one in items if one is not None])), closes + 1
            else:
                break
        return found, at

    def _is_filled(self, named: int, opens: int) -> bool:
        """Whether braces behind a name hold members of an object of the class of that name."""
        within = self._is_name(opens + 1) and self._word(opens + 2) in (":", ",", "}")
        return not self._written.blocks and self.words[named][:1].isupper() and within

    def _called(
        self, start: int, named: int, opens: int, function: SignNode, depth: int, *, is_macro: bool
    ) -> tuple[SignNode, int]:
        closes = self._pair[opens] if self._word(opens) != "{" or is_macro else opens - 1
        after = closes + 1
        block = None
        if self._written.blocks and self._word(after) == "{" and not (after < len(self.words) and self._breaks[after]):
            block, after = after, self._pair[after] + 1

        def read() -> NodeParts:
            given = [
                self._argument(one, last, depth + 1, is_macro=is_macro) for one, last in self._parts(opens + 1, closes)
            ]
            if block is not None:
                given.append(self._lambda(block, depth + 1))
            return {}, [one for one in given if one is not None]

        node = SignNode("call_expression", self._slice(start, after), self._at[start])
        arguments = SignNode("arguments", self._slice(opens, after), self._at[opens], read)
        self._filled(node, {"function": function, "arguments": arguments})
        self._calls[named] = node
        return node, after

    def _argument(self, at: int, end: int, depth: int, *, is_macro: bool) -> SignNode | None:
        if self._is_name(at) and self._word(at + 1) in ("=", ":") and at + 2 < end:
            name, value = self._make("identifier", at, at + 1), self._argument(at + 2, end, depth, is_macro=is_macro)
            node = SignNode("keyword_argument", self._slice(at, end), self._at[at])
            if value is None or (self._word(at + 1) == ":" and not self._written.named):
                return value
            return self._filled(node, {"name": name, "value": value})
        if is_macro and self._kinds[at] == STRING:
            return self._string(at, "string", is_macro=True)
        found = self._expression(at, end, depth)[0]
        if found is not None and self.words[at] == "_":  # of Scala: a function of one parameter
            return self._of_lambda(found, [SignNode("identifier", "_", self._at[at])], self._at[at])
        return found

    def _first(self, at: int, end: int, depth: int) -> tuple[SignNode | None, int]:
        if at >= end or at >= len(self.words) or depth > _DEEPEST:
            return None, end
        word, kind = self.words[at], self._kinds[at]
        if kind == STRING:
            return self._string(at, "string"), at + 1
        if kind == NUMBER:
            return self._make("integer", at, at + 1), at + 1
        if kind == NAME:
            return self._first_name(at, depth)
        if word in ("(", "[", "{"):
            closes = self._pair[at]
            if word == "(" and self._word(closes + 1) in _ARROWS:
                return self._lambda(at, depth), self._pair.get(closes + 2, closes + 2) + 1
            if word == "{" and self._written.blocks:
                return self._lambda(at, depth), closes + 1
            return self._listed(at, closes, depth), closes + 1
        if word in ("|", "||"):  # a function of Rust
            closes = (
                at
                if word == "||"
                else next((one for one in range(at + 1, min(at + 12, end)) if self._word(one) == "|"), at)
            )
            names = [self._make("identifier", one, one + 1) for one in range(at + 1, closes) if self._is_name(one)][:1]
            body, after = self._body(closes + 1, end, depth)
            return self._of_lambda(body, names, self._at[at]), after
        if word == ":" and self._written.commands and self._is_name(at + 1):  # of Julia
            return self._make("simple_symbol", at, at + 2), at + 2
        if word == "." and self._is_name(at + 1):
            return self._make("identifier", at + 1, at + 2), at + 2
        if word == "\\" and self._word(at + 1) == "(":  # a function of R
            return self._lambda(at + 1, depth), self._pair[at + 1] + 1
        return None, end

    def _first_name(self, at: int, depth: int) -> tuple[SignNode | None, int]:
        word, after = self.words[at], self._word(at + 1)
        if (
            at + 1 < len(self.words)
            and self._kinds[at + 1] == STRING
            and len(word) <= _LONGEST_PREFIX
            and self._at[at] + len(word) == self._at[at + 1]
        ):
            return self._string(at + 1, "string", is_raw="r" in word.lower()), at + 2
        if word.lower() in DEFINES and after == "(":
            return self._lambda(at + 1, depth), self._pair[at + 1] + 1
        if after in _ARROWS and after not in self._members:
            body, behind = self._body(at + 2, len(self.words), depth)
            return self._of_lambda(body, [self._make("identifier", at, at + 1)], self._at[at]), behind
        if word in CHOICES and depth < _DEEPEST:
            return self._chosen(at, depth + 1)
        if word in _ENDS:
            return None, at
        return self._make("identifier", at, at + 1), at + 1

    def _chosen(self, at: int, depth: int) -> tuple[SignNode | None, int]:
        """What a choice between values may be: `if (x) "a" else "b"`, `when (x) { 1 -> "a" }`, `match x { 1 => 2 }`."""
        is_if = self._word(at) == "if"
        opens = at + 1
        while opens < min(at + FAR, len(self.words)) and self._word(opens) != "{":
            if self._word(opens) == "(":
                opens = self._pair[opens]
                if is_if and self._word(opens + 1) != "{":
                    break
            opens += 1
        arms: list[SignNode | None] = []
        after = at
        if is_if:
            value, after = self._body(opens + (self._word(opens) == ")"), len(self.words), depth)
            arms.append(value)
            if self._word(after) == "else":
                value, after = self._body(after + 1, len(self.words), depth)
                arms.append(value)
        elif self._word(opens) == "{":
            one, closes, after = opens + 1, min(self._pair[opens], opens + FAR), self._pair[opens] + 1
            while one < min(closes, len(self.words)) and len(arms) < MOST_NAMES:
                if self._word(one) in _ARROWS:
                    arms.append(self._body(one + 1, len(self.words), depth)[0])
                one = self._pair[one] + 1 if self._word(one) in ("(", "[", "{") else one + 1
        told = [self._filled(SignNode("else", "", self._at[at]), {}, (arm,)) for arm in arms if arm is not None]
        return (self._filled(SignNode("case", "", self._at[at]), {}, told), after) if told else (None, at)

    def _body(self, at: int, end: int, depth: int) -> tuple[SignNode | None, int]:
        if self._word(at) == "{":
            return self._expression(at + 1, self._pair[at], depth + 1)[0], self._pair[at] + 1
        return self._expression(at, end, depth + 1)

    def _lambda(self, opens: int, depth: int) -> SignNode:
        """A function without a name: parameters before an arrow, or a block that has them at its beginning."""
        closes, at = self._pair[opens], opens + 1
        names: list[SignNode] = []
        if self._word(opens) == "(":
            names = list(self._parameters(opens).named_children)
            at = closes + 1 + (self._word(closes + 1) in _ARROWS)
            body = self._body(at, len(self.words), depth)[0]
            return self._of_lambda(body, names, self._at[opens])
        arrow = next((one for one in range(at, min(at + 10, closes)) if self._word(one) in ("->", "=>", "in")), None)
        if arrow is not None:
            names = [self._make("identifier", one, one + 1) for one in range(at, arrow) if self._is_name(one)]
            is_pattern = self._word(at) == "("  # `{ (folder, name) -> ... }`
            names = [self._filled(SignNode("array_pattern", "", self._at[at]), {}, names)] if is_pattern else names[:1]
            at = arrow + 1
        body = self._expression(at, closes, depth + 1)[0]
        return self._of_lambda(body, names, self._at[opens], self._slice(opens, closes + 1))

    def _of_lambda(self, body: SignNode | None, names: list[SignNode], start: int, text: str = "") -> SignNode:
        implied = names or [SignNode("identifier", self._written.implied or "it", start)]
        fields = {"parameters": self._filled(SignNode("parameters", "", start), {}, implied)}
        if body is not None:
            fields["body"] = body
        return self._filled(SignNode("lambda", text, start), fields)

    def _listed(self, opens: int, closes: int, depth: int) -> SignNode:
        """What stands between brackets: a value, values or pairs."""

        def read() -> NodeParts:
            items: list[SignNode] = []
            for start, end in self._parts(opens + 1, closes):
                cut = next(
                    (one for one in range(start + 1, min(start + 4, end)) if self._word(one) in self._keyed), None
                )
                if cut is None:
                    item = self._expression(start, end, depth + 1)[0]
                    if item is not None:
                        items.append(item)
                    continue
                key = start + (self._word(start) == "[")
                value = self._expression(cut + 1, end, depth + 1)[0]
                name = self._first(key, cut, depth + 1)[0]
                if value is not None and name is not None:
                    pair = SignNode("pair", self._slice(start, end), self._at[start])
                    items.append(self._filled(pair, {"key": name, "value": value}))
            return {}, items

        parts = list(self._parts(opens + 1, closes))[:2]
        if self._word(opens) == "(" and len(parts) == 1:
            return self._expression(parts[0][0], parts[0][1], depth + 1)[0] or self._make(
                "parenthesized", opens, closes
            )
        keyed = parts and any(
            self._word(one) in self._keyed for one in range(parts[0][0] + 1, min(parts[0][0] + 4, parts[0][1]))
        )
        return self._make("object" if keyed else "list", opens, closes + 1, read)

    def _string(self, at: int, kind: str, *, is_raw: bool = False, is_macro: bool = False) -> SignNode:
        word, start = self.words[at], self._at[at]
        is_raw = is_raw or word[0] in "#[" or (word[0] == "'" and not self._written.quotes)
        text = word.strip("#") if word[0] == "#" else word
        quotes = 3 if text[:3] == '"""' else text.index("[", 1) + 1 if text[0] == "[" else 1
        text = text[quotes : -quotes if len(text) >= 2 * quotes else None]

        def read() -> NodeParts:
            return {}, list(self._pieces(text, start, is_raw=is_raw, is_macro=is_macro))

        return SignNode(kind, word, start, read)

    def _pieces(self, text: str, start: int, *, is_raw: bool, is_macro: bool) -> Iterator[SignNode]:
        """What a string is made of: its text, and what is put into it."""
        fills = self._written.fills
        at = 0
        while at < len(text):
            cuts = [cut for begins in fills if (cut := text.find(begins, at)) >= 0]
            cut = min(cuts, default=len(text))
            yield from self._names_in(text[at:cut], start, is_raw=is_raw, is_macro=is_macro)
            if cut == len(text):
                return
            begins = next(one for one in fills if text.startswith(one, cut))
            inside = cut + len(begins)
            level, at = 1, inside
            while at < len(text) and level:
                level += (text[at] == begins[-1]) - (text[at] == CLOSES[begins[-1]])
                at += 1
            inner = Expressions(text[inside : at - 1][:LONGEST_FILLED], self._written)
            value = inner._expression(0, len(inner.words), _DEEPEST // 2)[0]
            yield self._filled(SignNode("interpolation", "", start), {}, () if value is None else (value,))

    def _names_in(self, text: str, start: int, *, is_raw: bool, is_macro: bool) -> Iterator[SignNode]:
        at = 0
        text = str(_ESCAPED.sub(r"\1", text)) if "\\" in text and not is_raw else text
        if (self._written.dollar and "$" in text) or (is_macro and "{" in text):
            for match in _FILLED_NAME.finditer(text):
                if (match.group(1) is None) != self._written.dollar:
                    continue
                yield SignNode("string_content", text[at : match.start()], start)
                name = SignNode("identifier", match.group(1) or match.group(2), start)
                yield self._filled(SignNode("interpolation", "", start), {}, (name,))
                at = match.end()
        yield SignNode("string_content", text[at:], start)
