"""A text for `cmd.exe` as its simple commands, by a bounded reader of our own.

Carets are undone, variables that the text sets or that every Windows has are put in (`%VAR:~n,m%`, `%VAR:a=b%`, delayed
expansion), `for` and `if` give the command that they start. What is not known keeps its spelling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ntpath import split, splitdrive, splitext
from typing import Any, Final

from aegis.core.patterns import Lazy
from aegis.detect.facts import Effort
from aegis.detect.shell.handed import base_name
from aegis.detect.shell.tree import Command
from aegis.detect.shell.words import divided, program_name, replaced_any_case

MAX_BATCH: Final = 16_384  # characters; a line of cmd.exe ends after 8,191 of them
_LONGEST_VALUE: Final = 8_191  # of a variable: what cmd.exe holds
_MOST_EXPANDED: Final = 65_536  # characters that variables may add to one text: `set a=%a%%a%` doubles
_MOST_COMMANDS: Final = 2_000
_MOST_LOOPED: Final = 64  # words that the variable of a `for` stands for
_MOST_DIGITS: Final = 4  # of the number of a token
_MOST_VARIABLES: Final = 26  # that one loop may set
_SEAM: Final = "\x1f"
_SPECIAL: Final = '"^&|()<> \t'
_DIGITS: Final = 10
_MOST_CALLED: Final = 256
_MODIFIED: Final = Lazy(r"%{1,2}~([dpnxfDPNXF]{1,5})([a-zA-Z])")
_BLANK: Final = frozenset(" \t")
_WINDOWS: Final = {
    "comspec": "C:\\WINDOWS\\system32\\cmd.exe", "systemroot": "C:\\Windows", "windir": "C:\\Windows",
    "systemdrive": "C:", "programdata": "C:\\ProgramData", "allusersprofile": "C:\\ProgramData",
    "public": "C:\\Users\\Public", "programfiles": "C:\\Program Files", "programfiles(x86)": "C:\\Program Files (x86)",
    "commonprogramfiles": "C:\\Program Files\\Common Files", "os": "Windows_NT", "homedrive": "C:",
    "homepath": "\\Users\\%username%",
    "pathext": ".COM;.EXE;.BAT;.CMD;.VBS;.VBE;.JS;.JSE;.WSF;.WSH;.MSC",
}  # fmt: skip
_FOR_OPTIONS: Final = frozenset({"/f", "/r", "/d", "/l"})
_COMPARES: Final = frozenset({"equ", "neq", "lss", "leq", "gtr", "geq"})


class BatchScript:
    """What was read: commands in their order, the files that redirections write or read, whether anything was left out.

    `texts` are commands that `for /f` runs, which are scripts of their own; `answered` are the places of commands that
    are whatever such a one prints. `printed` are lines that `echo` prints for the command at a place, and `files` those
    that it writes to files.
    """

    __slots__ = ("answered", "commands", "cut", "files", "printed", "reads", "texts", "writes")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.writes: list[tuple[str, int]] = []
        self.reads: list[tuple[str, int]] = []
        self.texts: list[str] = []
        self.answered: list[int] = []
        self.printed: dict[int, list[str]] = {}
        self.files: dict[str, list[str]] = {}
        self.cut = False


def parse_batch(text: str, effort: Effort) -> BatchScript:
    """Read a text of at most `MAX_BATCH` characters, as far as `effort` goes; never raises."""
    script = BatchScript()
    if len(text) > MAX_BATCH or not effort.take(len(text)):
        script.cut = True
        return script
    reader = _BatchReader(script, "enabledelayedexpansion" in text.lower() or "/v" in text.lower())
    text = text.replace("\r\n", "\n").replace("^\n", "")
    reader.lines = text.replace("\r", " ").replace(_SEAM, " ").split("\n")
    for line in reader.lines:
        reader.line(line)
    return script


class _BatchReader:
    """The lines of a text, one after the other, with the variables that they set."""

    def __init__(self, script: BatchScript, delayed: bool):
        self._script = script
        self._delayed = delayed
        self._known: dict[str, str] = {}
        self._seen: dict[str, str] = self._known  # what `%NAME%` stands for: inside of brackets what it was before them
        self._expanded = 0
        self._pipes = 0
        self._loops: dict[str, str] = {}
        self._answers: set[str] = set()  # variables of loops over what a command prints
        self._open = 0
        self._group = 0  # where the commands of the bracket begin that was opened last
        self._closed = 0  # where those of the one begin that was closed last
        self.lines: list[str] = []
        self._called = 0  # lines that were read once more for a `call`
        self._asked: bool | None = None  # what the last `if` asked, where that is known

    def _call(self, words: Sequence[str]) -> None:
        """Read the lines behind a label once more, with what they are called with."""
        label = words[0].lower()
        start = next((at for at, line in enumerate(self.lines) if line.strip().lower() == label), len(self.lines))
        held, self.lines = self.lines, []  # what is called calls nothing in turn
        for line in held[start + 1 :]:
            if self._called >= _MOST_CALLED or line.strip(" @").lower().startswith(("exit", "goto :eof")):
                break
            self._called += 1
            for at in range(min(len(words), _DIGITS)):
                line = line.replace(f"%~{at}", words[at].strip('"')).replace(f"%{at}", words[at])
            self.line(line.replace("%*", " ".join(words[1:]))[:MAX_BATCH])
        self.lines = held

    def line(self, line: str) -> None:
        stripped = line.lstrip(" \t@")
        if not stripped or stripped.startswith(":"):
            return
        if stripped[:4].lower() in {"rem ", "rem\t"} or stripped.lower() == "rem":
            return
        text = self._percent(line) if "%" in line else line
        before = self._seen if self._open or "(" not in line else dict(self._known)
        self._read(text)
        self._seen = before if self._open else self._known

    # Variables

    def _value(self, name: str, known: Mapping[str, str]) -> str | None:
        lowered = name.lower()
        value = known.get(lowered)
        return _WINDOWS.get(lowered) if value is None else value

    def _changed(self, inside: str, mark: str) -> str | None:
        """What `%inside%` stands for; `None` where that is not known."""
        name, colon, change = inside.partition(":")
        value = self._value(name, self._known if mark == "!" else self._seen)
        if value is None:
            return None
        if colon and change.startswith("~"):
            first, _, count = change[1:].partition(",")
            try:
                start = int(first or 0)
                end = int(count) if count.strip() else None
            except ValueError:
                return None
            value = value[start:] if start >= 0 else value[max(0, len(value) + start) :]
            return value if end is None else value[:end]
        if colon and "=" in change:
            old, _, new = change.partition("=")
            if not old or len(value) * (len(new) + 1) > _MOST_EXPANDED:
                return None
            if old[:1] == "*" and len(old) > 1:  # everything up to its first place
                before, found, rest = divided(value, old[1:])
                return new + rest if found else before
            return replaced_any_case(value, old, new)
        return f"{mark}{inside}{mark}" if colon else value

    def _percent(self, line: str, mark: str = "%") -> str:
        out: list[str] = []
        at = 0
        while True:
            start = line.find(mark, at)
            if start < 0:
                break
            end = line.find(mark, start + 1)
            if end < 0:
                break
            inside = line[start + 1 : end]
            value = self._changed(inside, mark) if inside and len(inside) < 256 else None
            if value is None:  # `%%i`, an argument, or a name that nobody knows
                out.append(line[at:end])
                at = end
                if not inside:
                    out.append(mark)
                    at = end + 1
                continue
            self._expanded += len(value)
            if self._expanded > _MOST_EXPANDED:
                self._script.cut = True
                break
            out.append(line[at:start])
            out.append(value)
            at = end + 1
        out.append(line[at:])
        return "".join(out)

    def _word(self, word: str) -> str:
        if self._delayed and "!" in word:
            word = self._percent(word, "!")
        if "%" in word and self._loops:
            word = _MODIFIED.sub(self._part, word) if "%~" in word else word
            for name, value in self._loops.items():
                if name in word:
                    self._expanded += len(value) * word.count(name)
                    if self._expanded > _MOST_EXPANDED:
                        self._script.cut = True
                        break
                    word = word.replace(f"%~{name[1:]}", value).replace(name, value)
        return word

    def _part(self, found: Any) -> str:
        """The part of a path that `%~dpi` is of the path that `%i` is."""
        path = self._loops.get(f"%{found[2]}", "")
        drive, folder = splitdrive(path)
        folder, name = split(folder)
        parts = {"d": drive, "p": folder.rstrip("\\") + "\\", "n": splitext(name)[0], "x": splitext(name)[1], "f": path}
        return "".join([parts.get(sign, "") for sign in found[1].lower()]) if path and " " not in path else found[0]

    def _each(self, spelled: Sequence[str]) -> list[list[str]]:
        """A command of a loop for each value of its variable, where that is only a part of a word: `HKLM\\%h`."""
        name = next(
            (one for one in self._loops if any(one in word and word not in self._loops for word in spelled)), ""
        )
        values = self._loops[name].split()[:_MOST_LOOPED] if name else []
        if len(values) < 2:
            return []
        held, found = self._loops, []
        for value in values:
            self._loops = {**held, **{one: value for one in held if one.lstrip("%") == name.lstrip("%")}}
            found.append([self._word(word) for word in spelled])
        self._loops = held
        return found

    # Commands

    def _read(self, line: str) -> None:
        """Read one line; what stands between `&`, `|` and brackets is a command."""
        for sign in _SPECIAL:
            if sign in line:
                line = line.replace(sign, f"{_SEAM}{sign}{_SEAM}")
        atoms = [atom for atom in line.split(_SEAM) if atom]
        at, most = 0, len(atoms)
        words: list[str] = []
        spelled: list[str] = []  # the same as they are written
        parts: list[str] = []
        writes: list[str] = []
        reads: list[str] = []
        redirects: list[str] | None = None
        quoted = False
        stage = 0
        self._pipes += 1

        def end_word() -> None:
            nonlocal redirects
            if parts:
                written = "".join(parts)
                word = self._word(written)
                parts.clear()
                if redirects is None:
                    spelled.append(written)
                if redirects is None and written in self._loops:
                    words.extend(word.split()[:_MOST_LOOPED])
                elif redirects is not None:
                    redirects.append(word.strip('"'))
                    redirects = None
                elif self._delayed and written[:1] == "!":
                    words.extend(word.split())
                else:
                    words.append(word)

        def end_command() -> None:
            end_word()
            if words or writes:
                for each in self._each(spelled) or [list(words)]:
                    self._command(each, stage, writes, reads)
            words.clear()
            spelled.clear()
            writes.clear()
            reads.clear()

        while at < most:
            atom = atoms[at]
            at += 1
            if quoted:
                parts.append(atom)
                quoted = atom != '"'
            elif atom == '"':
                parts.append(atom)
                quoted = True
            elif atom == "^":
                if at < most:
                    parts.append(atoms[at])
                    at += 1
            elif atom in _BLANK:
                end_word()
            elif atom == "|":
                end_command()
                if at < most and atoms[at] == "|":
                    at += 1
                    self._pipes += 1
                    stage = 0
                else:
                    stage += 1
                    self._script.printed[len(self._script.commands)] = self._echoed()
            elif atom == "&":
                if redirects is not None and not parts:  # `2>&1`
                    redirects = None
                    at += 1
                    continue
                end_command()
                self._pipes += 1
                stage = 0
            elif atom == "(":
                if parts or (words and not _opens(words)):
                    parts.append(atom)
                else:
                    self._open += 1
                    self._group = len(self._script.commands)
                    if words:
                        parts.append(atom)
            elif atom == ")":
                if self._open and "(" not in parts[1:]:
                    self._open -= 1
                    end_command()
                    self._closed = self._group
                else:
                    parts.append(atom)
            elif atom in "<>":
                if parts and parts[-1] in {"1", "2", "0"}:
                    parts.clear()
                end_word()
                if at < most and atoms[at] == ">":
                    at += 1
                redirects = writes if atom == ">" else reads
            else:
                parts.append(atom)
        end_command()

    def _command(self, words: list[str], stage: int, writes: list[str], reads: list[str]) -> None:
        place = len(self._script.commands)
        if place >= _MOST_COMMANDS:
            self._script.cut = True
            return
        for target in writes:
            self._script.writes.append((target, place))
        for source in reads:
            self._script.reads.append((source, place))
        if words and words[0].lower().lstrip("@(") == "call":  # which puts variables in once more
            words = [self._percent(word) if "%" in word else word for word in words]
            if len(words) > 1 and words[1][:1] == ":" and self.lines:
                self._call(words[1:])
                return
        self._refused = False
        words = self._started(words)
        if not words:
            self._filed(writes)
            return
        if words[0] in self._answers:
            self._script.answered.append(place)
        program = words[0].lstrip("@(").strip('"')
        cut = program.find("/", 1)
        rest = words[1:]
        if cut > 0 and "\\" not in program and not program.startswith(("/", ".")):  # `del/f/s/q`
            rest = [*[f"/{part}" for part in program[cut + 1 :].split("/")], *rest]
            program = program[:cut]
        name = program_name(program.replace('"', ""))
        if name == "set" and rest and rest[0].lower() not in {"/a", "/p"} and not self._refused:
            self._set(" ".join(rest))
        if name == "set" and reads and " ".join(rest[:1]).lower() == "/p":  # the first line of a file
            lines = self._script.files.get(base_name(reads[-1]), [])[:1]
            self._known.update((" ".join(rest[1:]).strip('"').partition("=")[0].lower(), line) for line in lines)
        args = tuple([_unquoted(word) for word in rest])
        text = " ".join(words)[:400]
        fed = bool(reads)
        self._script.commands.append(
            Command(name, args, text, self._pipes, stage, False, words=tuple(words[:64]), program=program, fed=fed)
        )
        if not self._open:
            self._closed = place
        self._filed(writes)

    def _echoed(self) -> list[str]:
        """The lines that the command, or the bracket of commands, before this place prints."""
        before = self._script.commands[self._closed :][-_MOST_LOOPED:]
        return [" ".join(command.args) for command in before if command.name == "echo"]

    def _filed(self, targets: list[str]) -> None:
        if targets:
            lines = self._echoed()
            for target in targets[:4]:
                if len(self._script.files) < _MOST_LOOPED:
                    self._script.files.setdefault(base_name(target), []).extend(lines)

    def _started(self, words: list[str]) -> list[str]:
        """The command that `if`, `for`, `else`, `call` and `do` start, with what they ask or name taken in."""
        at = 0
        for _ in range(8):
            word = words[at].lower().lstrip("@(") if at < len(words) else ""
            if word in {"else", "do", "call", ""} and at < len(words):
                at += 1
                self._refused |= word == "else" and self._asked is True
            elif word == "if":
                start, at = at + 1, _behind_condition(words, at + 1)
                self._asked = _answer(words[start:at])
                self._refused |= self._asked is False
            elif word == "for":
                at = self._loop(words, at + 1)
            else:
                break
        return words[at:]

    def _loop(self, words: list[str], at: int) -> int:
        reads = at < len(words) and words[at].lower() == "/f"
        if at < len(words) and words[at].lower() in _FOR_OPTIONS:
            at += 1
        told, folder = at, ""
        if at and words[at - 1].lower() == "/r" and words[at + 1 : at + 2] and words[at + 1].startswith("%"):
            folder, at = words[at].strip('"').rstrip("\\") + "\\", at + 1
        while at < len(words) and not words[at].startswith("%"):
            at += 1
        if at >= len(words):
            return at
        options = " ".join(words[told:at]).strip("\"'")
        name = words[at]
        name = "%" + name.lstrip("%")[:1]
        at += 1
        if at < len(words) and words[at].lower() == "in":
            at += 1
        start = at
        while at < len(words) and words[at].lower() != "do" and not words[at].lower().startswith(")do"):
            at += 1
        inside = " ".join(words[start:at]).strip("() ")
        if reads and inside[:1] == ("'" if "usebackq" in options.lower() else '"'):  # a text that stands here
            for step, token in enumerate(_tokens(options, inside.strip(inside[:1]))):
                letter = chr(ord(name[1:2] or "a") + step)
                self._loops[f"%%{letter}"] = self._loops[f"%{letter}"] = token
        elif inside[:1] in {"'", "`"} and len(self._script.texts) < 64:
            self._script.texts.append(inside.strip("'`"))
            self._answers |= {name, f"%{name}"}
        elif len(inside) < 1_024 and len(self._loops) < 64:
            self._loops[f"%{name}"] = self._loops[name] = folder + inside.strip('"')
        return at

    def _set(self, given: str) -> None:
        given = given.strip()
        if given.startswith('"'):
            given = given[1:].rpartition('"')[0] or given[1:]
        name, sign, value = given.partition("=")
        if sign and len(name) < 256 and len(self._known) < 1_024:
            value = self._word(value)
            if len(value) > _LONGEST_VALUE:
                self._script.cut = True
                value = value[:_LONGEST_VALUE]
            self._known[name.strip().lower()] = value


def _tokens(options: str, text: str) -> list[str]:
    """The pieces of a text that `for /f` gives its variables one after the other, by its options."""
    _, has, rest = options.partition("delims=")
    signs = rest.split(" ", 1)[0] + " " * rest.endswith(" ") if has else "\t "  # a blank is the last one or none
    for sign in signs[:_MOST_LOOPED]:
        text = text.replace(sign, _SEAM)
    pieces = [piece for piece in text.split(_SEAM) if piece]
    wanted = options.lower().partition("tokens=")[2].split(" ", 1)[0] or "1"
    found: list[str] = []
    last = 0
    for part in wanted.rstrip("*").split(",")[:_MOST_LOOPED]:
        first, _, end = part.partition("-")
        if first.isdecimal() and len(first) < _MOST_DIGITS and len(end) < _MOST_DIGITS:
            last = int(end) if end.isdecimal() else int(first)
            found += pieces[int(first) - 1 : last] if int(first) else []
    if wanted.endswith("*"):
        found.append(" ".join(pieces[last:]))
    return found[:_MOST_VARIABLES]


def _opens(words: list[str]) -> bool:
    """Whether a bracket behind these words begins a block: behind a condition, `else`, `do` or the `in` of a loop."""
    return words[0].lower().lstrip("@(") in {"if", "else", "for", "do", "in"} or words[-1].lower() in {"do", "else"}


def _behind_condition(words: list[str], at: int) -> int:
    """Where the command behind the condition of an `if` begins."""
    while at < len(words) and words[at].lower() in {"/i", "not"}:
        at += 1
    word = words[at].lower() if at < len(words) else ""
    if word in {"exist", "defined", "errorlevel", "cmdextversion"}:
        return at + 2
    if at + 1 < len(words) and words[at + 1].lower() in _COMPARES:
        return at + 3
    if "==" in word:
        return at + 1 + word.endswith("==")
    if at + 1 < len(words) and words[at + 1].startswith("=="):
        return at + 2 + (words[at + 1] == "==")
    return at + 1


def _answer(asked: Sequence[str]) -> bool | None:
    """Whether two texts that an `if` compares are the same; `None` where that is not known."""
    text = " ".join(word for word in asked if word.lower() not in {"/i", "not"})
    left, _, right = text.partition("==")
    if not right or "%" in text or "!" in text:
        return None
    same = left.strip().lower() == right.strip().lower()
    return same != any(word.lower() == "not" for word in asked[:2])


def _unquoted(word: str) -> str:
    return word.replace('"', "") if '"' in word else word
