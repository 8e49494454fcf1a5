"""The languages that are read: how each is told, its grammar, and what a call, an assignment and a loop is in it."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from tree_sitter import Language, Node, Query

from aegis.core.patterns import Lazy
from aegis.detect.grammar import Grammar
from aegis.detect.languages.followed import ENUMERATION, PLAINLY_CALLED, closed, constants_of, folded, object_with

CodeLanguage = Literal[
    "python", "javascript", "typescript", "php", "ruby", "perl", "java", "go", "csharp",
    "rust", "kotlin", "swift", "scala", "lua", "r", "julia", "groovy", "elixir", "dart",
    "nim",
]  # fmt: skip
# Those without a grammar here: their signs are read (`languages/plain.py`).
PLAIN: Final[frozenset[CodeLanguage]] = frozenset(
    {"rust", "kotlin", "swift", "scala", "lua", "r", "julia", "groovy", "elixir", "dart", "nim"}
)


class _Spoken(NamedTuple):
    """A language's grammar, what is captured in it, and how many times more a step costs in a broken text."""

    module: str
    function: str
    query: str
    repair: int


_SPOKEN: Final[dict[CodeLanguage, _Spoken]] = {
    "python": _Spoken(
        "tree_sitter_python", "language",
        "(call) @call [(assignment) (augmented_assignment) (named_expression)] @assign [(import_statement)"
        " (import_from_statement)] @import [(for_statement) (for_in_clause)] @loop (function_definition) @function"
        " (class_definition) @class (as_pattern) @alias [(if_statement) (elif_clause) (match_statement)] @branch",
        6,
    ),
    "javascript": _Spoken(
        "tree_sitter_javascript", "language",
        "[(call_expression) (new_expression)] @call [(variable_declarator) (assignment_expression)"
        " (augmented_assignment_expression) (field_definition)] @assign (import_statement) @import"
        " (for_in_statement) @loop"
        " [(function_declaration) (generator_function_declaration) (arrow_function) (method_definition)] @function"
        " (class_declaration) @class [(if_statement) (switch_statement)] @branch",
        6,
    ),
    "typescript": _Spoken(
        "tree_sitter_typescript", "language_typescript",
        "[(call_expression) (new_expression)] @call [(variable_declarator) (assignment_expression)"
        " (augmented_assignment_expression) (public_field_definition)] @assign (import_statement) @import"
        " (for_in_statement) @loop"
        " [(function_declaration) (generator_function_declaration) (arrow_function) (method_definition)] @function"
        " (class_declaration) @class [(if_statement) (switch_statement)] @branch",
        24,
    ),
    "php": _Spoken(
        "tree_sitter_php", "language_php",
        "[(function_call_expression) (member_call_expression) (scoped_call_expression) (object_creation_expression)"
        " (include_expression) (include_once_expression) (require_expression) (require_once_expression)"
        " (shell_command_expression)] @call [(assignment_expression) (augmented_assignment_expression) (const_element)"
        " (property_element) (static_variable_declaration)] @assign (foreach_statement) @loop"
        " [(function_definition) (method_declaration)] @function (class_declaration) @class"
        " [(if_statement) (else_if_clause) (switch_statement)] @branch",
        48,
    ),
    "ruby": _Spoken(
        "tree_sitter_ruby", "language",
        "[(call) (subshell)] @call [(assignment) (operator_assignment) (binary operator: \"<<\")] @assign (for) @loop"
        " [(method) (singleton_method)] @function"
        " [(class) (module)] @class [(if) (elsif) (unless) (if_modifier) (unless_modifier) (case)] @branch",
        96,
    ),
    "perl": _Spoken(
        "tree_sitter_perl", "language",
        "[(function_call_expression) (ambiguous_function_call_expression) (method_call_expression)"
        " (func1op_call_expression) (command_string) (eval_expression) (require_expression)] @call"
        " [(assignment_expression) (use_statement)] @assign (for_statement) @loop"
        " (subroutine_declaration_statement) @function"
        " [(conditional_statement) (postfix_conditional_expression)] @branch",
        48,
    ),
    "go": _Spoken(
        "tree_sitter_go", "language",
        "(call_expression) @call [(short_var_declaration) (assignment_statement) (var_spec) (const_spec)] @assign"
        " (range_clause) @loop [(function_declaration) (method_declaration)] @function (type_spec) @class"
        " [(if_statement) (expression_switch_statement)] @branch",
        96,
    ),
    "csharp": _Spoken(
        "tree_sitter_c_sharp", "language",
        "[(invocation_expression) (object_creation_expression)] @call [(variable_declarator) (assignment_expression)"
        " (property_declaration)] @assign (foreach_statement) @loop [(method_declaration) (local_function_statement)"
        " (constructor_declaration)] @function [(class_declaration) (record_declaration)] @class"
        " [(if_statement) (switch_statement)] @branch",
        96,
    ),
}  # fmt: skip
# Java is read by the grammar of C#, of which its statements are nearly all: its own takes its parser seconds for
# kilobytes of broken text, without a step that shows it.
_SPOKEN["java"] = _SPOKEN["csharp"]
LANGUAGES: Final[tuple[CodeLanguage, ...]] = (*_SPOKEN, *sorted(PLAIN))
_JAVA: Final = (
    (Lazy(r"\btry\s*\(([^{}]{1,800}?)\)\s*\{"), closed),
    (Lazy(ENUMERATION), constants_of),
    (Lazy(r"(^|[\s(,;=!])(base|params|ref|event|lock|object)([\s.,;)=])"), r"\1\2_\3"),  # words of C#
    (Lazy(r"\bfor\s*\(\s*(?:final\s+)?[\w<>\[\], ?]{1,80}\s+(\w+)\s*:"), r"foreach (var \1 in "),
    (Lazy(r"\bfinal\s+"), ""),
    (Lazy(r"(?m)^(\s*)import\s+(?:static\s+)?([\w.]+)(?:\.\*)?;"), r"\1using \2;"),
    (Lazy(r"\bthrows\s+[\w., ]{1,200}\{"), "{"),
    (Lazy(r"([\w)])\s*->"), r"\1 =>"),
    (Lazy(r"(\w)::([a-z]\w*)"), r"\1.\2"),
    (Lazy(r"\b([A-Z]\w*)\s*\.\.\.\s*(\w+)\s*\)"), r"params \1[] \2)"),
)
_RESPELLED: Final[Mapping[str, Sequence[tuple[Lazy, Any]]]] = {
    "java": _JAVA,
    "typescript": ((Lazy(r"\b(?:const\s+)?enum\s+(\w+)\s*\{([^{}]*)\}"), object_with), *PLAINLY_CALLED),
    "javascript": PLAINLY_CALLED,
    "csharp": (  # and F#, whose statements end with their lines
        (Lazy(r"(?m)^(\s*)open\s+([A-Z][\w.]*)\s*$"), r"\1using \2;"),
        (Lazy(r"(\.[A-Z]\w*)\s+(@?\"[^\"\n]*\")"), r"\1(\2)"),
        (Lazy(r"(?m)^(\s*)(?:let|use)!?\s+(?:mutable\s+)?(\w+)\s*=\s*([^\n;]+)$"), r"\1var \2 = \3;"),
        (Lazy(r"(?m)^(\s*[A-Z]\w*\.[^\n;{}]*\))\s*(?:\|>\s*ignore)?$"), r"\1;"),
    ),
    "php": ((Lazy(r"\benum\s+(\w+)(?:\s*:\s*\w+)?"), r"class \1"), (Lazy(r"\bcase\s+(\w+)\s*="), r"const \1 =")),
}

# How each language is told where nothing names it: what its programs begin with, the most telling first.
_SHOWN: Final[tuple[tuple[CodeLanguage, str], ...]] = (
    ("rust",
     r"(?m)\bfn\s+main\s*\(\s*\)\s*(?:->|\{)|^\s*use\s+std::|\blet\s+mut\s|\bprintln!\(|\bstd::(?:fs|process|env|path|net)::"),
    ("kotlin",
     r"(?m)\bfun\s+\w+\s*\([^)]*\)\s*(?:[:={]|$)|^\s*import\s+(?:java|kotlin|okhttp3|io\.ktor|android)[\w.]*(?:\.\*)?\s*$|\b(?:mutable)?(?:[lL]ist|[mM]ap|[sS]et)Of\("),
    ("scala", r"(?m)\bobject\s+\w+\s+extends\s+App\b|^\s*import\s+(?:scala|sys)\.[\w.{}, ]*_?\s*$|\bdef\s+main\(args:"),
    ("swift",
     r"(?m)^\s*import\s+(?:Foundation|UIKit|AppKit|SwiftUI|Dispatch|Security)\s*$|\bFileManager\.default\b|\bguard\s+let\b"),
    ("dart", r"(?m)^\s*import\s+['\"](?:dart|package):|^\s*(?:Future<void>|void)\s+main\("),
    ("nim", r"(?m)^\s*(?:import|from)\s+std/|^when isMainModule|^import\s+os(?:proc|, )"),
    ("lua", r"(?m)^\s*local\s+(?:function\s+)?\w+\s*(?:=|\()|\b(?:os\.execute|io\.popen|redis\.p?call)\s*\("),
    ("elixir",
     r"(?m)^\s*defmodule\s|^\s*(?:alias|import|require)\s+[A-Z][\w.]*\s*$|\b(?:File|System|Enum|IO|Code|Path|Repo|Req|Application|HTTPoison)\.[a-z]\w*!?\([^\n]*\|>|\b(?:File|Req)\.[a-z_]+!\(|\bIO\.(?:puts|inspect)\b|\bSystem\.(?:cmd|shell|get_env)\(|\bCode\.eval_string\(|\bRepo\.delete_all\("),
    ("julia",
     r"(?m)^\s*using\s+[A-Z]\w*(?:\s*[,:][^;]*)?$|\bjoinpath\s*\(|\(homedir\(\),\s*\"[^)]*\);\s*recursive|\bccall\(:|\brun\(`"),
    ("go", r"(?m)^\s*package\s+\w+\s*$|\bfunc\s+main\(\)|^\s*\w+(?:,\s*\w+)*\s*:=\s*\w+\.\w+\("),
    ("csharp",
     r"(?m)^\s*using\s+(?:static\s+)?[A-Za-z][\w.]*;|\bConsole\.Write|\bnamespace\s+[A-Z][\w.]*\s*[{;]|\bstring\[\]\s+\w+\s*="),
    ("java",
     r"(?m)^\s*import\s+(?:static\s+)?java[x]?\.|\bpublic\s+(?:static\s+|final\s+)*(?:class|void)\s|System\.out\.print|"
     r"\bRuntime\.getRuntime\(\)|\bFiles\.\w+\(\s*Paths?\."),
    ("perl",
     r"(?m)^#!.*\bperl\b|^\s*use\s+(?:strict|warnings|File::\w+)\b|\bmy\s+[$@%]\w+|\bunlink\s+[\"'$]|^\s*use\s+[A-Z]\w*(?:::\w+)*(?:\s+qw\b|\s*;)|^\s*sub\s+\w+\s*\{"),
    ("python",
     r"(?m)^\s*(?:import\s+\w[\w., ]*$|from\s+[\w.]+\s+import\b|def\s+\w+\(|class\s+\w+[(:]|print\(|with\s+open)"),
    ("php", r"<\?|\$\w+->\w|\bforeach\s*\([^()]{1,80}\s+as\s+\$|\w::class\b"),
    ("r",
     r"(?m)\w\s*<-\s*(?:function\s*\(|c\(|[\w.\"'])|^\s*library\([\w.\"']+\)|\b(?:file\.path|Sys\.getenv|file\.remove|paste0|system2|download\.file)\("),
    ("ruby",
     r"(?m)^#!.*\bruby\b|^\s*require\s+['\"]|^\s*def\s+\w+[?!]?\s*(?:\(|$)|\bFileUtils\.|\bputs\s|\bdo\s*\|\w+\||[({]\s*\|\w+(?:,\s*\w+)*\||\(&:\w|"
     r"\bend\s*$|\bFile\.(?:delete|write|read|open|unlink|join)\b"),
    ("php", r"(?m)^\s*\$\w+\s*=\s*[^=~\s]"),
    ("typescript",
     r"(?m)\b(?:const|let|var)\s+\w+\s*:\s*[A-Za-z]|^\s*(?:export\s+)?(?:interface|type|enum)\s+[A-Z]\w*|"
     r"\bimport\s+type\b|\)\s*:\s*(?:Promise<|void\b|string\b)"),
    ("javascript",
     r"\b(?:const|let|var)\s+[\w{\[]|=>|\brequire\s*\(|\bfunction\s*\*?\s*\w*\s*\(|\bconsole\.log|\bprocess\.|===|"
     r"\bnew\s+[A-Z]|\bawait\s+fetch|\bdocument\.|\bimport\s+[\w{*][^\n]{0,80}\s+from\s+['\"]"),
    ("php", r"(?i)\$_(?:GET|POST|REQUEST|SERVER|COOKIE)\b|\$\w+\s*=[^=]|\$\w+->|\becho\s+[\"'$]"),
)  # fmt: skip
_TOLD: Final = tuple((language, Lazy(pattern)) for language, pattern in _SHOWN)
_OF_SHELLS: Final = [pattern for language, pattern in _TOLD if language == "php"][1:]  # that scripts of shells hold too
_HINTS: Final[Mapping[str, CodeLanguage]] = {
    "python": "python", "jupyter": "python", "notebook": "python", "ipython": "python", "node": "javascript",
    "javascript": "javascript", "typescript": "typescript", "deno": "typescript", "bun": "typescript",
    "tsx": "typescript", "ts-node": "typescript", "php": "php", "ruby": "ruby", "irb": "ruby", "perl": "perl",
    "tinker": "php", "laravel": "php", "rails": "ruby", "django": "python",
    "mongo": "javascript", "redis-cli": "lua", "valkey-cli": "lua", "keydb-cli": "lua",
    "kotlin": "kotlin", "jshell": "java", "java": "java", "golang": "go", "csharp": "csharp", "dotnet": "csharp",
    "flutter": "dart",
}  # fmt: skip
# Names that stand in other words as well (`trust`, `evaluate`, `escalate`): they count as words of their own.
_WORDS: Final[Mapping[str, CodeLanguage]] = {
    "rust": "rust", "cargo": "rust", "rustc": "rust", "swift": "swift", "scala": "scala", "ammonite": "scala",
    "lua": "lua", "luajit": "lua", "r": "r", "rscript": "r", "rlang": "r", "julia": "julia", "kt": "kotlin",
    "elixir": "elixir", "iex": "elixir", "exs": "elixir", "mix": "elixir", "fsi": "csharp", "fsharp": "csharp",
    "groovy": "groovy", "jenkins": "groovy", "wp": "php", "js": "javascript", "mjs": "javascript", "zx": "javascript",
    "ts": "typescript", "py": "python", "rb": "ruby", "cs": "csharp", "jl": "julia", "dart": "dart", "nim": "nim",
    "go": "go",
}  # fmt: skip
_DIVIDES: Final = Lazy(r"[^a-z0-9]+")
_TYPED: Final = next(pattern for language, pattern in _TOLD if language == "typescript")
# What no text in Python can hold at the beginning of a statement, whatever the name of what runs it says.
_DECLARES: Final = Lazy(r"(?m)(?:^|;)\s*(?:const|let|var)\s+[\w${\[]")


def language_of(text: str, hint: str = "") -> CodeLanguage:
    """The language of a piece of code: by its opening tag, the name of what runs it, then how it is written."""
    if text.lstrip().startswith("<?"):
        return "php"
    for word, language in _HINTS.items():
        if word in hint:
            if language == "python" and _DECLARES.search(text):
                return "javascript"
            return "typescript" if language == "javascript" and _TYPED.search(text) else language
    spoken = next((_WORDS[word] for word in _DIVIDES.split(hint) if word in _WORDS), None) if hint else None
    if spoken is not None:
        return spoken
    return next((language for language, pattern in _TOLD if pattern.search(text)), "python")


# How a script for a shell begins, whatever stands in its here-documents.
_SHELL_HEAD: Final = Lazy(r"(?i)^\s*(?:#!\S*/(?:env\s+)?(?:ba|da|k|z)?sh\b|@echo\s+off\b)")


def is_told(text: str, hint: str = "") -> bool:
    """Whether anything says which language a text is in that is no shell's: a tag, what runs it, or how it is written.

    Of what PHP is written with, `$x = 1` and `echo "x"` stand in scripts of shells as well.
    """
    if _SHELL_HEAD.match(text):
        return False
    if text.lstrip().startswith("<?") or any(word in hint for word in _HINTS):
        return True
    if not _WORDS.keys().isdisjoint(_DIVIDES.split(hint)):
        return True
    return any(pattern.search(text) for _, pattern in _TOLD if pattern not in _OF_SHELLS)


def _capsule(address: int) -> object:
    """The address of a grammar in the form that its parser takes; grammars that were built earlier give it bare."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule: object = make(address, b"tree_sitter.Language", None)
    return capsule


_SPAN: Final = Lazy(r"([\[(]\d{1,4})\.\.")  # that the grammar of Perl reads as a number with a point: `@parts[0..2]`


def spelled(text: str, language: CodeLanguage) -> str:
    """The text as the grammar of its language reads it, with literals that are joined as one."""
    text = folded(text, language)
    for pattern, other in _RESPELLED.get(language, ()):
        text = str(pattern.sub(other, text))
    if language == "php" and "<?" not in text:
        return f"<?php {text}"
    if language == "go" and "func " not in text:  # statements alone, of which the grammar takes some for types
        return f"func main() {{{text}\n}}" if "package " not in text and "import " not in text else text
    if language == "perl":
        return str(_SPAN.sub(r"\1 ..", text))
    if language == "csharp":
        return text.replace("?.", ".")  # what is done where there is something to do it to
    return text


# A here-document of Perl: the parser of its grammar never comes back from one with a variable in it that does not end.
_HEREDOC: Final = Lazy(rb"<<(?:~?(?:(\w+)|\"(\w+)\"|'(\w+)'|`(\w+)`|\\(\w+))|[ \t]*[~\"'`\\])")


def _ended(data: bytes) -> bytes:
    """A text in Perl with the end of every here-document behind it; one whose end is not plain begins none."""
    if b"<<" not in data:
        return data
    ends: list[bytes] = []
    pieces: list[bytes] = []
    at = 0
    for match in _HEREDOC.finditer(data):
        name = next((group for group in match.groups() if group), None)
        if name is not None:
            ends.append(name)
        else:
            pieces += [data[at : match.start()], b"< "]
            at = match.start() + 2
    return b"\n".join([b"".join([*pieces, data[at:]]), *ends, b""])


@cache
def grammar_of(language: CodeLanguage) -> Grammar:
    """The grammar of a language, loaded when the first text of it is read."""
    spoken = _SPOKEN[language]
    given = getattr(importlib.import_module(spoken.module), spoken.function)()
    grammar = Language(_capsule(given) if isinstance(given, int) else given)
    return Grammar(grammar, Query(grammar, spoken.query), spoken.repair, _ended if language == "perl" else None)


def text_of(node: Node | None) -> str:
    """What a node is written with; empty for none."""
    raw = b"" if node is None else node.text or b""
    return raw.decode("utf-8", "replace")


# Kinds of nodes that are texts: as they are written, what stands in them, and what is filled in.
STRINGS: Final = frozenset({
    "string", "string_literal", "interpreted_string_literal", "raw_string_literal", "template_string",
    "encapsed_string", "verbatim_string_literal", "interpolated_string_expression", "interpolated_string_literal",
    "heredoc", "nowdoc", "fileglob_expression", "character_literal", "bare_string", "heredoc_body",
    "shell_command_expression", "subshell", "command_string",
})  # fmt: skip
CONTENT: Final = frozenset({
    "string_content", "string_fragment", "interpreted_string_literal_content", "raw_string_literal_content",
    "string_literal_content", "heredoc_content", "multiline_string_fragment", "character_literal_content",
})  # fmt: skip
SKIPPED: Final = frozenset({
    "string_start", "string_end", "interpolation_start", "interpolation_brace", "interpolation_quote", "heredoc_start",
    "heredoc_end", "heredoc_beginning", "format_specifier", "type_conversion", "string_literal_encoding",
})  # fmt: skip
FILLED: Final = frozenset({
    "interpolation", "template_substitution", "variable_name", "scalar", "array", "hash", "dynamic_variable_name",
    "hash_element_expression", "array_element_expression", "subscript_expression", "member_access_expression",
})  # fmt: skip


_APART: Final = str.maketrans(dict.fromkeys("!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~\t\n\r", " "))


def code_words(text: str) -> list[str]:
    """The names and words of a piece of code."""
    return text.translate(_APART).split()


# One shape for all languages


def canonical(name: str) -> str:
    """A name whose parts are joined by dots, whichever way its language joins them."""
    return name.replace("?.", ".").replace("::", ".").replace("->", ".") if not name.isidentifier() else name


class Called(NamedTuple):
    """A call by its parts: what it is called on, the name of what is called, the arguments, and a block behind them.

    `is_name` says that it is a name alone, which calls in some languages; `function` is what is called.
    """

    receiver: Node | None
    name: str
    arguments: tuple[Node, ...]
    created: bool = False
    block: Node | None = None
    is_name: bool = False
    function: Node | None = None


_FUNCTIONS: Final = ("function", "constructor", "method", "name", "type")
_RECEIVERS: Final = ("receiver", "object", "scope", "invocant", "operand", "expression", "value")
_MEMBERS: Final = frozenset({
    "attribute", "member_expression", "selector_expression", "member_access_expression", "field_access",
    "scoped_identifier", "class_constant_access_expression", "scope_resolution", "member_call_expression",
})  # fmt: skip
_CREATED: Final = frozenset({"new_expression", "object_creation_expression"})
_WRAPPED: Final = frozenset({"argument", "literal_element", "expression_list", "array_element_initializer"})
_LISTED: Final = frozenset({"list_expression", "parenthesized_expression"})
_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment"})
BY_WORD: Final = frozenset({
    "func1op_call_expression", "eval_expression", "include_expression", "include_once_expression",
    "require_expression", "require_once_expression",
})  # fmt: skip
SHELLS_OUT: Final = frozenset({"subshell", "shell_command_expression", "command_string"})


def called(node: Node) -> Called:
    """The parts of a call, whichever language it is of."""
    function = next((found for field in _FUNCTIONS if (found := node.child_by_field_name(field)) is not None), None)
    receiver = next(
        (found for field in _RECEIVERS if (found := node.child_by_field_name(field)) is not None and found != function),
        None,
    )
    created = node.type in _CREATED
    if node.type in BY_WORD:
        return Called(None, text_of(node.children[0]), arguments_of(node))
    if function is None and created and node.named_child_count:
        function = node.named_children[0]
    name = text_of(function)
    if function is not None and function.type in _MEMBERS and receiver is None:
        receiver, last = member_parts(function)
        name = name if last is None else text_of(last)
    return Called(receiver, name, arguments_of(node), created, function=function)


def root_of(node: Node | None) -> Node | None:
    """The node of the whole text that a node belongs to."""
    while node is not None and node.parent is not None:
        node = node.parent
    return node


_LONGEST_HEREDOC: Final = 8_192


def behind_line(node: Node) -> str:
    """The text of a here-document of Ruby, which stands behind the line that it begins in."""
    end = text_of(node).lstrip("<~-").strip("'\"`")
    whole = root_of(node)
    after = (b"" if whole is None else whole.text or b"")[node.end_byte : node.end_byte + _LONGEST_HEREDOC]
    lines = [line.strip() for line in after.decode("utf-8", "replace").split("\n")[1:]]
    return "\n".join(lines[: lines.index(end)] if end in lines else lines)


def member_parts(node: Node) -> tuple[Node | None, Node | None]:
    """What a member belongs to, and the node of its name."""
    children = node.named_children
    return (children[0], children[-1]) if len(children) > 1 else (None, None)


def sign_between(node: Node, left: Node, right: Node) -> str:
    """What stands between two parts of a node: the sign of an operation."""
    raw = node.text or b""
    return raw[left.end_byte - node.start_byte : right.start_byte - node.start_byte].decode("utf-8", "replace").strip()


def arguments_of(node: Node) -> tuple[Node, ...]:
    """The arguments of a call, each without what only wraps it; those that are named stay as they are."""
    listed = node.child_by_field_name("arguments")
    if node.type in BY_WORD:
        return tuple(node.named_children)
    if listed is None:
        listed = next((child for child in node.named_children if child.type in ("argument_list", "arguments")), None)
    if listed is None:
        listed = node.child_by_field_name("initializer")  # of an object that is made with its members
    if listed is None:
        return ()
    plain = listed.type in ("argument_list", "arguments", "initializer_expression") or listed.type in _LISTED
    return tuple(unwrapped(one) for one in (listed.named_children if plain else (listed,)) if one.type not in _COMMENTS)


def unwrapped(node: Node) -> Node:
    """A node without the wrappers of its grammar."""
    for _ in range(4):
        if node.type not in _WRAPPED or node.named_child_count != 1:
            break
        node = node.named_children[0]
    return node


def catches_errors(node: Node) -> bool:
    """Whether Perl's `eval` holds statements of the program, whose errors it catches, and no text."""
    return node.type == "eval_expression" and bool(node.named_children) and node.named_children[0].type == "block"


# Nodes of languages without a grammar

NodeParts = tuple[dict[str, "SignNode"], Sequence["SignNode"]]  # the children that have names, and the others


class SignNode:
    """A node of the shape of a grammar's; its children are read when they are asked for."""

    __slots__ = ("_fields", "_own", "_read", "end_byte", "is_named", "parent", "start_byte", "text", "type")

    def __init__(self, kind: str, text: str, start: int, read: Callable[[], NodeParts] | None = None):
        self.type = kind
        self.text = text.encode("utf-8", "replace")
        self.start_byte, self.end_byte = start, start + len(text)
        self.parent: SignNode | None = None
        self.is_named = True
        self._read = read
        self._own: list[SignNode] | None = None
        self._fields: dict[str, SignNode] = {}

    @property
    def id(self) -> int:
        return id(self)

    def _look(self) -> list[SignNode]:
        if self._own is None:
            self._own = []
            if self._read is not None:
                self._fields, rest = self._read()
                self._own = [*self._fields.values(), *rest]
        return self._own

    @property
    def children(self) -> list[SignNode]:
        return self._look()

    named_children = children

    @property
    def named_child_count(self) -> int:
        return len(self._look())

    child_count = named_child_count

    def child_by_field_name(self, name: str) -> SignNode | None:
        self._look()
        return self._fields.get(name)

    def fill(self, fields: dict[str, SignNode], rest: Sequence[SignNode]) -> None:
        """Say what the children are."""
        self._fields, self._own = fields, [*fields.values(), *rest]
