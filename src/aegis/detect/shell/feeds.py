"""What reaches interpreters by another way than an argument: by pipes, redirections, substitutions and files.

A shell text is gone through in the order in which it runs. Each command gets what it reads, so far as that is known,
and says what it prints and writes; a text that reaches an interpreter is a program of its language and is read as if
it had been given by `-c`.

    (1) substitutions in a command's words are worked out, and variables that hold what was worked out
    (2) what the command runs: a program that it is given, a file, what it reads; or another command elsewhere
    (3) what it prints, for whatever stands behind it, and the files that it writes
"""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.files import EMPTY, LOCAL, MAX_FLOW, UNKNOWN, UNKNOWN_GAP, FileFlow, Files, Written, local, normal
from aegis.detect.shell.catalogue import ProgramLanguage, of_kind
from aegis.detect.shell.expansions import branches_taken
from aegis.detect.shell.handed import MOST_ORDERS, ordered, read_applescript
from aegis.detect.shell.heredocs import Given, given_by, literal
from aegis.detect.shell.outputs import descriptor, printed, repeated, repetitions
from aegis.detect.shell.programs import (
    AWKS,
    STDIN,
    Fed,
    Program,
    commands_in_code,
    commands_in_sql,
    files_made,
    interpreter,
    language_of_file,
    lines_of_awk,
    programs,
    recipes,
    started,
    started_file,
    strings_in_code,
    with_arguments,
)
from aegis.detect.shell.starts import unwrapped
from aegis.detect.shell.tree import Command, ShellUnit
from aegis.detect.shell.variables import Variables, Word
from aegis.detect.shell.words import is_spared
from aegis.detect.structured import structured_effects

_DEEPEST: Final = 32  # units inside one another that are gone through; what lies deeper counts as unread
_MOST_ROUNDS: Final = 32  # commands that loops are unrolled to
_UNITS_A_CHARACTER: Final = 8  # characters of a flow that cost a unit of effort
_REDIRECT: Final = Lazy(r"^(\d*|&)(<>|<&|<|>>|>\||>&|>)\s*(.*)$")
_FUNCTION: Final = Lazy(r"^\s*(?:function\s+)?([\w.-]+)")
_OWN_DESCRIPTORS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})

_DUMPERS: Final = of_kind("dumper")
_PRINTS_ITSELF: Final = frozenset({"orders", "manifest"})  # languages of programs that are no interpreters
_SHOWN: Final = 80

RunScript = Callable[[str, "FileFlow | None"], FileFlow]


class Feeds:
    """One text on its way. `run` reads a shell text that is run, with what it reads itself, and says what it prints."""

    def __init__(self, given: Sequence[Given], files: Files, effort: Effort, run: RunScript):
        self._given = given
        self._files = files
        self._effort = effort
        self._run_script = run
        self._special: dict[str, FileFlow] = {}  # process substitutions and descriptors, by their names
        self._variables = Variables()
        self._functions: dict[str, ShellUnit] = {}
        self._traps: list[str] = []  # what runs at the end, by what is known then
        self._depth, self._rounds = 0, _MOST_ROUNDS
        self.fed = Fed()

    def units(self, units: Sequence[ShellUnit], stdin: FileFlow | None) -> None:
        """Go through a text."""
        self.fed.output = self._inner(units, stdin)
        for handler in self._traps:
            self._run_script(self._variables.expand(handler), None)

    def commands(self, commands: Sequence[Command], stdin: FileFlow | None) -> None:
        """Go through a text of plain commands, through which no data goes."""
        out = EMPTY
        for command in commands:
            out = out.then(self._command(command, (), stdin))
        self.fed.output = out

    # Units

    def _inner(
        self, units: Sequence[ShellUnit], stdin: FileFlow | None, tail: int = -1, fed: FileFlow | None = None
    ) -> FileFlow:
        """What units print one after the other; those from `tail` on read `fed`."""
        if self._depth >= _DEEPEST:
            self.fed.unread = True
            return UNKNOWN
        self._depth += 1
        out = EMPTY
        for unit in units:
            here = fed if 0 <= tail <= unit.start else stdin
            if unit.kind == "pipeline":
                out = out.then(self._pipeline(unit, here, tail, fed))
            elif unit.kind == "redirected":
                out = out.then(self._redirected(unit, here))
            elif unit.kind == "command" and unit.command is not None:
                out = out.then(self._command(unit.command, unit.inner, here))
            elif unit.kind == "function":
                match = _FUNCTION.match(unit.source)
                if match is not None:
                    self._functions[match.group(1)] = unit
            elif unit.kind == "assignment":
                self._assign(unit, here)
            elif unit.kind == "case" and unit.command is not None:
                out = out.then(self._case(unit, unit.command, here))
            elif unit.kind == "loop" and unit.command is not None:
                out = out.then(self._loop(unit, unit.command, here))
            elif unit.kind != "redirect":
                self._inner(unit.inner, here)
        self._depth -= 1
        return out

    def _pipeline(self, unit: ShellUnit, stdin: FileFlow | None, tail: int, fed: FileFlow | None) -> FileFlow:
        stages: dict[int, list[ShellUnit]] = {}
        for inner in unit.inner:
            stages.setdefault(bisect_right(unit.stages, inner.start), []).append(inner)
        flow = stdin
        for _, stage in sorted(stages.items()):
            flow = self._inner(stage, flow, tail, fed)
        return flow or EMPTY

    def _case(self, unit: ShellUnit, over: Command, stdin: FileFlow | None) -> FileFlow:
        """What the first of its branches prints that is meant, where that is known, else all of them."""
        branches = branches_taken(self._variables.word(over.name, {}).text, over.words)
        known, before = self._variables.known, dict(self._variables.known)
        out = self._inner([one for one in unit.inner if bisect_right(unit.stages, one.start) in branches], stdin)
        known.update((name, word._replace(computed=True)) for name, word in known.items() if before.get(name) != word)
        return out

    def _loop(self, unit: ShellUnit, over: Command, stdin: FileFlow | None) -> FileFlow:
        """What a loop prints that goes over words, or over lines, as far as they are known and its commands are few."""
        if not over.name:  # `while`
            reads = any(one.command is not None and one.command.name == "read" for one in unit.inner)
            lines = stdin.text.splitlines() if stdin is not None and reads else []
            rounds = self._rounds // max(1, len(unit.inner))
            lines = [*lines[:rounds], *filter(None, (" ".join(lines[rounds:]),))]
            self._rounds -= min(len(lines), rounds) * len(unit.inner)
            out = EMPTY
            for flow in [(stdin or EMPTY)._replace(text=line) for line in lines] or (stdin,):
                out = out.then(self._inner(unit.inner, flow))
            return out
        body = [inner for inner in unit.inner if inner.start >= unit.tail]
        substitutes = self._substitutes([inner for inner in unit.inner if inner.start < unit.tail], stdin)
        items = self._variables.words(over, substitutes)[0]
        if any(item[:2] in ("$(", "<(") or "`" in item for item in items):  # which only another program knows
            items = []
        rounds = min(len(items), self._rounds // max(1, len(body)))
        self._rounds -= rounds * len(body)
        out = EMPTY
        for item in items[:rounds]:
            self._variables.known[over.name] = Word(item, computed=True)
            out = out.then(self._inner(body, stdin))
        if rounds == len(items) > 0:
            return out
        self._variables.known.pop(over.name, None)
        return out.then(self._inner(body, stdin))

    def _redirected(self, unit: ShellUnit, stdin: FileFlow | None) -> FileFlow:
        redirects = [inner for inner in unit.inner if inner.kind == "redirect" and inner.start >= unit.tail]
        body = [inner for inner in unit.inner if inner not in redirects]
        fed = stdin
        for redirect in redirects:
            fed = self._input(redirect, fed, stdin)
        tail = unit.tail if fed is not stdin else -1
        return self._outputs(redirects, self._inner(body, stdin, tail, fed), sure=unit.first)

    def _input(self, redirect: ShellUnit, fed: FileFlow | None, stdin: FileFlow | None) -> FileFlow | None:
        """What a redirection gives to read; `fed` where it is none of input."""
        match = _REDIRECT.match(redirect.source)
        if match is None or match.group(2) not in {"<", "<>", "<&"}:
            return fed
        descriptor, sign = match.group(1), match.group(2)
        target = self._target(match.group(3))
        if sign == "<&":
            flow = self._special.get(f"/dev/fd/{target}")
            return fed if flow is None else flow
        substitution = next((inner for inner in redirect.inner if inner.kind == "substitution"), None)
        if substitution is not None and target.startswith("<("):
            flow = self._inner(substitution.inner, stdin)
        else:
            flow = self._read(target, stdin)
        if descriptor not in {"", "0"}:
            self._special[f"/dev/fd/{descriptor}"] = flow
            return fed
        return flow

    def _outputs(self, redirects: Sequence[ShellUnit], out: FileFlow, *, sure: bool) -> FileFlow:
        """Where output goes: what is left of it for whatever stands behind."""
        left = out
        for redirect in redirects:
            match = _REDIRECT.match(redirect.source)
            if match is None or match.group(2) not in {">", ">>", ">|", ">&"}:
                continue
            descriptor, sign = match.group(1), match.group(2)
            target = self._target(match.group(3))
            if target in _OWN_DESCRIPTORS or target.isdecimal() or target == "-" or not target:
                continue
            if descriptor in {"", "1", "&"}:
                left = EMPTY
            sink = next((inner for inner in redirect.inner if inner.kind == "substitution"), None)
            if sink is not None and target.startswith(">("):
                self._inner(sink.inner, out)
            else:
                # A relative name may be one in another folder than it was before.
                self._write(Written(target, out, append=sign == ">>", sure=sure and target[:1] in {"/", "~"}))
        return left

    def _target(self, raw: str) -> str:
        """The file of a redirection, which ends where its word does."""
        if raw.startswith(("<(", ">(")):
            return raw
        end = next((at for at, char in enumerate(raw) if char in " \t\n" and raw[:at].count('"') % 2 == 0
                    and raw[:at].count("'") % 2 == 0), len(raw)) if len(raw) < 1_024 else len(raw)  # fmt: skip
        return self._variables.expand(literal(raw[:end]))

    def _assign(self, unit: ShellUnit, stdin: FileFlow | None) -> None:
        name, _, raw = unit.source.partition("=")
        self._variables.assign(name, raw, self._substitutes(unit.inner, stdin))
        if name[-1:] == "+":  # what grows is copied again
            self._effort.left -= len(self._variables.known[name.partition("[")[0].rstrip("+")].text)

    # Commands

    def _command(self, command: Command, inner: Sequence[ShellUnit], stdin: FileFlow | None) -> FileFlow:
        # (1)
        redirects = [unit for unit in inner if unit.kind == "redirect"]
        fed = stdin
        for redirect in redirects:
            fed = self._input(redirect, fed, stdin)
        for unit in inner:
            if unit.kind == "assignment":
                self._assign(unit, stdin)
        substitutes = self._substitutes(inner, stdin)
        words, computed, files = self._variables.words(command, substitutes)
        if not words:
            return UNKNOWN
        name, program = words[0].rsplit("/", 1)[-1], words[0]
        actual = unwrapped(command._replace(name=name, args=tuple(words[1:]), program=program))
        is_script = (computed or files != []) and (
            actual.name == "eval" or any(one.text is not None for one in programs(actual, actual.args))
        )
        if computed and not is_script:
            self._run_script(shlex.join(words), fed)
            head = command.words[0] if command.words else ""
            if words[0] != head and head[:1] in {"$", "`"}:  # a whole line may have come out of it
                value = self._variables.word(head, substitutes).text
                self._run_script(f"{value} {shlex.join(words[len(value.split()) :])}", fed)
        # (2)
        out = self._runs(actual, fed)
        if is_script or not words[0]:
            for file in files:
                self._file("sh", "shell", file, (), fed)
        # (3)
        for unit in inner:
            if unit.kind == "substitution" and unit.source.startswith(">("):
                self._inner(unit.inner, (fed or EMPTY) if actual.name in {"tee", "pv"} else (fed or EMPTY).then(out))
        return self._outputs(redirects, out, sure=False)

    def _substitutes(self, inner: Sequence[ShellUnit], stdin: FileFlow | None) -> dict[str, FileFlow]:
        """What the substitutions among the words of a command print, by how they are written."""
        found: dict[str, FileFlow] = {}
        for unit in inner:
            if unit.kind == "substitution" and not unit.source.startswith(">("):
                flow = self._inner(unit.inner, stdin)
                if unit.source.startswith("<("):
                    self._special[unit.source] = flow
                elif flow.text or flow.files:
                    found[unit.source] = flow
        return found

    def _runs(self, command: Command, stdin: FileFlow | None) -> FileFlow:
        """Run a command as far as it is known; what it prints."""
        name, words = command.name.lower(), command.args
        function = self._functions.get(command.name)
        if function is not None:
            return self._call(function, words, stdin)
        if name == "eval":
            return self._run_script(" ".join(words), stdin)
        if name in {"xargs", "parallel"}:
            return self._line_by_line(name, words, stdin)
        if self._variables.moves(name, words):
            return EMPTY
        if name in {"read", "mapfile", "readarray"}:
            self._variables.reads(name, words, stdin or EMPTY, dict(command.variables).get("IFS"))
            return EMPTY
        self._traps += words[:1] if name == "trap" and len(words) > 1 else ()
        elsewhere = started(command, words)
        if elsewhere is not None:
            if elsewhere.shell:
                return self._program(elsewhere.shell, Program("shell"), stdin)
            return self._run_script(elsewhere.line, stdin)
        found = programs(command, words)
        if found:
            out = EMPTY
            for program in found:
                if program.language == "sql" and program.text is not None and is_spared(command, program.text):
                    continue
                out = out.then(self._program(command.name, program, stdin, words))
            return self._prints(command, stdin) if found[0].language in _PRINTS_ITSELF else out
        file = started_file(command)
        if file:
            self._file("", None, file, words, stdin)
        return self._prints(command, stdin)

    def _prints(self, command: Command, stdin: FileFlow | None) -> FileFlow:
        name, words = command.name.lower(), command.args
        flow = stdin or EMPTY
        if name == "tee":
            append = "-a" in words or "--append" in words
            for word in words:
                if not word.startswith(("-", ">(")):
                    self._write(Written(word, flow, append=append))
        elif name == "sponge" and words:
            self._write(Written(words[-1], flow))
        elif name == "sed" and any(word.startswith(("-i", "--in-place")) for word in words) and words:
            self._write(Written(words[-1], printed(name, words, EMPTY, lambda target: self._read(target, stdin))))
        for target, source in files_made(command, words):
            self._write(Written(target, self._read(source, stdin) if source else UNKNOWN))
        if name == "printf" and words[:1] == ("-v",) and len(words) > 1:
            self._variables.known[words[1]] = Word(printed(name, words, flow, lambda _: UNKNOWN).text, True)
            return EMPTY
        if name in _DUMPERS:  # what was there before, in a database and not in a file
            return FileFlow("", LOCAL)
        out = printed(name, words, flow, lambda target: self._read(target, stdin))
        self._effort.left -= len(out.text) // _UNITS_A_CHARACTER
        if self._effort.left < 0:
            self.fed.unread = True
            return UNKNOWN
        return out

    def _call(self, function: ShellUnit, words: Sequence[str], stdin: FileFlow | None) -> FileFlow:
        """What a function prints that the text defines, called with `words`."""
        if not self._effort.take(len(function.source)):
            self.fed.unread = True
            return UNKNOWN
        before = self._variables.known
        self._variables.known = dict(before)
        self._variables.place(words)
        # A function that calls itself stays known as what it is only outside of itself.
        names = [name for name, unit in self._functions.items() if unit is function]
        for name in names:
            del self._functions[name]
        out = self._inner(function.inner, stdin)
        self._functions.update(dict.fromkeys(names, function))
        self._variables.known = before
        return out

    def _line_by_line(self, name: str, words: Sequence[str], stdin: FileFlow | None) -> FileFlow:
        """`xargs` and `parallel`: a command for what is read."""
        rest, placeholder, given = repeated(name, words)
        stdin = stdin if given is None else FileFlow(given)
        text = "" if stdin is None else stdin.text
        if not text.strip():
            return UNKNOWN
        script, more = repetitions(name, words, rest, placeholder, text)
        self.fed.unread |= more and interpreter(rest[0].rsplit("/", 1)[-1] if rest else "sh") != ""
        return self._run_script(script, None) if script else FileFlow(" ".join(text.split()) + "\n")

    # Programs

    def _program(self, name: str, program: Program, stdin: FileFlow | None, words: Sequence[str] = ()) -> FileFlow:
        if program.language in _PRINTS_ITSELF:
            self._orders(name, program, stdin, words)
            return UNKNOWN
        if program.text is not None:
            given = program.arguments if program.language == "shell" else ()
            text = with_arguments(program.text, given) if given else program.text
            return self._text(program.language, name, text, stdin)
        if program.file is not None:
            return self._file(name, program.language, program.file, program.arguments, stdin)
        if stdin is None:
            return UNKNOWN
        out = UNKNOWN
        if stdin.text.strip():
            self.fed.read.append(stdin.text)
            text = with_arguments(stdin.text, ("", *program.arguments)) if program.arguments else stdin.text
            out = self._text(program.language, name, text, None)
        for file in stdin.files:
            self._file(name, program.language, file, (), None)
        return out

    def _file(
        self, name: str, language: ProgramLanguage | None, file: str, arguments: Sequence[str], stdin: FileFlow | None
    ) -> FileFlow:
        """Run a file: every text that it may hold."""
        if file in STDIN:
            return self._program(name, Program(language or "shell"), stdin)
        given = self._special.get(descriptor(file)) or self._here(file)
        flows = [given] if given is not None else self._files.find(file)
        if given is None and file not in self.fed.runs:
            self.fed.runs.append(file)
        out = EMPTY
        if (normal(file), given) in self._files.running:  # a program that starts itself
            return UNKNOWN
        self._files.running.add((normal(file), given))
        for flow in flows:
            if flow.gap == UNKNOWN_GAP and given is None:
                self.fed.unread = True
            own = language_of_file(flow.text) if language is None else (name, language)
            if flow.text.strip():
                self.fed.read.append(flow.text)
                text = with_arguments(flow.text, ("", *arguments)) if arguments and own[1] == "shell" else flow.text
                out = out.then(self._text(own[1], own[0], text, stdin))
            for further in flow.files:
                if normal(further) != normal(file) and further not in self.fed.runs and self._depth < _DEEPEST:
                    self._depth += 1
                    self._file(own[0], own[1], further, (), stdin)
                    self._depth -= 1
        self._files.running.discard((normal(file), given))
        return out if flows else UNKNOWN

    def _orders(self, name: str, program: Program, stdin: FileFlow | None, words: Sequence[str]) -> None:
        """What a program is told by what it reads: lines that could stand behind its name, or what is to be there."""
        flows = [] if stdin is None else [stdin]
        if program.file is not None:
            here = self._special.get(descriptor(program.file)) or self._here(program.file)
            flows = self._files.find(program.file) if here is None else [here]
        for text in [flow.text for flow in flows] if program.text is None else [program.text]:
            if program.language == "manifest":
                shown = structured_effects(f"{name} {' '.join(words[:1])}", {"manifest": text}, text, to_files=False)
                self.fed.effects.extend(one.effect for one in shown)
            self.fed.unread = self.fed.unread or text.count("\n") > MOST_ORDERS
            script = ordered(name, words, program, text)
            if script:
                self._run_script("\n".join(script)[:MAX_FLOW], None)

    def _text(self, language: ProgramLanguage, name: str, text: str, stdin: FileFlow | None) -> FileFlow:
        """Run a text in its language."""
        fed = self.fed
        if language == "shell":
            return self._run_script(text, stdin)
        if language == "sql":
            fed.statements.append(text)
            lines, includes = commands_in_sql(text)
            for line, rows in lines:
                self._run_script(line, FileFlow(rows, UNKNOWN_GAP) if rows else None)
            for file in includes:
                self._file(name, "sql", file, (), None)
            return UNKNOWN
        if language == "make":
            self._run_script(recipes(text), None)
            return UNKNOWN
        if language == "cron":
            fed.tables.append(text)
            return UNKNOWN
        if language == "applescript":
            commands, effects = read_applescript(text)
            fed.effects.extend(ResourceEffect(*did, "", text[:_SHOWN]) for did in effects)
            for command in (*commands, *commands_in_code(text)):
                self._run_script(command, None)
            return UNKNOWN
        if (name, text) not in fed.programs:
            fed.programs.append((interpreter(name), text))
            if language == "other":
                for command in (*commands_in_code(text), *(lines_of_awk(text) if name in AWKS else ())):
                    self._run_script(command, None)
        return FileFlow(strings_in_code(text)[:MAX_FLOW], UNKNOWN_GAP)

    # Files

    def _here(self, name: str) -> FileFlow | None:
        given = given_by(name, self._given)
        if given is None:
            return None
        text = given.text if given.plain else self._variables.expand(given.text)
        return FileFlow(f"{text}\n"[:MAX_FLOW], UNKNOWN_GAP if len(text) >= MAX_FLOW else 0)

    def _read(self, name: str, stdin: FileFlow | None) -> FileFlow:
        """What a file holds: the text that it was written with last, else what was there before."""
        if name in STDIN:
            return stdin or EMPTY
        known = self._special.get(descriptor(name)) or self._here(name)
        if known is not None:
            return known
        flows = self._files.find(name)
        if not flows:
            return local(name)
        return flows[-1]._replace(files=tuple(dict.fromkeys((*flows[-1].files, name))))

    def _write(self, written: Written) -> None:
        if not written.path.startswith(("/dev/", "/proc/", ">(", "<(")) and written.path:
            self._files.write(written)
            self.fed.written.append(written)
