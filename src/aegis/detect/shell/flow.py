"""Where data goes between the commands of one text: from network to interpreter, from secret to network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from aegis.core.effects import ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.hosts import read_target
from aegis.detect.paths import is_secret_file, is_secret_place, names_secrets
from aegis.detect.resources import host_place
from aegis.detect.shell.catalogue import builtin_programs, of_kind
from aegis.detect.shell.programs import started
from aegis.detect.shell.tree import MAX_SHELL, Command
from aegis.detect.shell.uses import is_broad
from aegis.detect.shell.words import FED, FETCHERS, INTERPRETERS, LOOSE_PLACES, SENDERS, SHELLS

Signalled = tuple[str, str]
_CONNECTS: Final = of_kind("connects")
_BRINGS: Final = FETCHERS | _CONNECTS
_RUNS_LINES: Final = of_kind("runs-input")
# Commands that print what a secret store holds: words that must all stand in the command.
_STORES: Final = {
    name: tuple(frozenset(words.split()) for words in program.secrets)
    for name, program in builtin_programs().items()
    if program.secrets
}
# Commands that print what anybody may have written who can: a message, an issue, a record of a name, a row.
_FOREIGN: Final = {
    name: tuple(frozenset(words.split()) for words in program.foreign)
    for name, program in builtin_programs().items()
    if program.foreign
}
_EVALUATES: Final = of_kind("evaluates")
_RUNS_FILE: Final = of_kind("runs-file")
_DUMPERS: Final = of_kind("dumper")
_RESOLVERS: Final = of_kind("resolver")
_SCRIPT_OPTIONS: Final = frozenset({"-c", "-e", "-m", "-n", "-pe", "-ne", "-r", "-E", "-lne", "-i", "--eval", "-p"})


_TALKS: Final = frozenset({"cmp", "ocsp", "s_client", "s_time"})  # of OpenSSL, what reaches another machine


def pipeline(stages: list[Command]) -> list[Signalled]:
    """The signals of one pipeline, its commands in order."""
    found: list[Signalled] = []
    fetched = decoded = secret = False
    fetchers: list[Command] = []
    for command in sorted(stages, key=lambda stage: stage.stage):
        name, shown = command.name.lower(), command.text[:80]
        elsewhere = started(command, command.args) if fetched or decoded else None
        reads = (name in INTERPRETERS or name in _RUNS_LINES) and not has_script(command)
        if reads or (elsewhere is not None and elsewhere.shell):
            if fetched:
                found.append((_installs(fetchers), shown))
            if decoded:
                found.append(("shell.encoded", shown))
        sends = name in SENDERS and (name != "openssl" or not _TALKS.isdisjoint(command.args))
        if secret and ((sends and name != "ssh") or (command.stage and _TELLS.search(command.text) is not None)):
            found.append(("shell.sends-secret", shown))
        fetchers += [command] if name in FETCHERS else []
        fetched = fetched or name in _BRINGS or "s_client" in command.args
        decoded = decoded or decodes(command)
        secret = secret or prints_secret(command) or name in _DUMPERS
    return found


def carried(stages: Sequence[Command]) -> ResourceEffect | None:
    """What a pipeline carries away: all that a person or machine has, or anything to a host without a name."""
    broad, captured = "", False
    for place, command in enumerate(sorted(stages, key=lambda stage: stage.stage)):
        name = command.name.lower()
        captured = captured or name in _CAPTURES
        if captured and (name in SENDERS or name in _CONNECTS):
            return ResourceEffect("send", "address", "one", command.args[:1], "", command.text[:80])
        if place and name in SENDERS:
            if broad and name != "ssh":
                return ResourceEffect("send", "home", "one", (broad,), "", command.text[:80])
            if name in _CONNECTS and any(host_place(arg) in _ODD for arg in command.args[:8]):
                return ResourceEffect("send", "address", "one", command.args[:1], "", command.text[:80])
        if name in _TAKES:
            broad = broad or next(filter(is_broad, _packed(command.args)), "")
    return None


def _packed(args: Sequence[str]) -> Iterator[str]:
    """What a program packs, from the folder on that it goes to before."""
    folder = ""
    for before, arg in pairwise(("", *args)):
        if before in ("-C", "--directory"):
            folder = arg.rstrip("/")
        elif arg[:1] != "-":
            yield arg if not folder or arg[:1] in "/~$" else folder if arg in (".", "./", "*") else f"{folder}/{arg}"


def staged(commands: Sequence[Command], writes: Sequence[tuple[str, str]]) -> Iterator[list[Command]]:
    """Yield the pipelines that go by way of a file: what makes it, and what sends it: `env > e; curl -T e ...`.

    `writes` are files that redirections write, each with the text of its statement.
    """
    senders = [(at, one) for at, one in enumerate(commands[:_MOST_STAGED]) if at and one.name.lower() in SENDERS]
    for at, sender in senders[:_MOST_SENDERS]:
        files = {arg.rpartition("@")[2] for arg in sender.args if arg[:1] != "-"}
        made = [text for target, text in writes if target in files][:1]
        before = [
            one
            for one in commands[:at]
            if (one.name in _PACKS and not files.isdisjoint(one.args)) or any(one.text in text for text in made)
        ]
        piped = {one.pipe for one in before if one.pipe}
        before += [one for one in commands[:at] if one.pipe in piped and one not in before]
        if before:
            yield [*before, sender._replace(stage=_MOST_STAGED)]


_PACKS: Final = frozenset({
    "tar", "bsdtar", "zip", "7z", "7za", "cpio", "pax", "rar", "compress-archive", "ditto", "hdiutil",
    "[io.compression.zipfile]::createfromdirectory", "copy-item", "robocopy", "xcopy",
})  # fmt: skip
_MOST_STAGED: Final = 256  # commands of a text that are looked at for files that go on
_MOST_SENDERS: Final = 8


def heeded(commands: Sequence[Command]) -> Iterator[ResourceEffect]:
    """What runs the words of whoever wrote a message, a row or a record: `git log --format=%b | sh`."""
    told = {command.pipe for command in commands if command.pipe and not command.inside and _is_foreign(command)}
    inside = any(command.inside and _is_foreign(command) for command in commands)
    for command in commands if told or inside else ():
        name = command.name.lower()
        if command.pipe in told and not command.inside:
            starts_shell = name in FED and not SHELLS.isdisjoint(command.args)
            if starts_shell or ((name in INTERPRETERS or name in _RUNS_LINES) and not has_script(command)):
                yield ResourceEffect("execute", "code", "all", (), "", command.text[:80])
        given = ("<(", "$(", "`")
        runs = name in INTERPRETERS or name in _EVALUATES
        if inside and ((runs and any(arg.startswith(given) for arg in command.args)) or name.startswith(given[1:])):
            yield ResourceEffect("execute", "code", "all", (), "", command.text[:80])


def _is_foreign(command: Command) -> bool:
    words = frozenset(command.args)
    return any(needs <= words for needs in _FOREIGN.get(command.name, ()))


_TAKES: Final = of_kind("takes-folders") | {
    "tar", "zip", "cat", "gzip", "cpio", "pax", "bsdtar", "7z", "dump", "compress-archive", "ditto", "hdiutil",
    "[io.compression.zipfile]::createfromdirectory",
}  # fmt: skip
_CAPTURES: Final = of_kind("captures")  # what a network says is nobody's to hand on
_ODD: Final = frozenset({"address", "collector", "tunnel"})
_LABELLED: Final = Lazy(r"\$\{?\w{1,40}\}?\.[A-Za-z$]")
_ENCODES: Final = frozenset({"xxd", "base64", "base32", "od", "hexdump", "gzip", "openssl", "split", "fold"})
_KEY_ENDINGS: Final = Lazy(
    r"(?i)\.(key|pgp|gpg|ppk|p12|pem|pfx|cer|p7b|asc|crt|kdbx?|jks|keystore|ovpn|rdp|kwallet|wallet|psafe3|agilekeychain)\b"
)
_FINDERS: Final = frozenset({"find", "fd", "locate", "get-childitem", "gci", "dir", "ls", "where", "forfiles", "grep"})
_LEAST_ENDINGS: Final = 4  # of files of keys, named together, are a search for keys


def searches_keys(text: str, commands: Sequence[Command]) -> bool:
    """Whether a text looks for files of keys and certificates of several kinds (ATT&CK T1552.004)."""
    if not any(command.name.lower() in _FINDERS for command in commands):
        return False
    return len({match.lower() for match in _KEY_ENDINGS.findall(text[:MAX_SHELL])}) >= _LEAST_ENDINGS


def labels(commands: Sequence[Command]) -> list[Signalled]:
    """Look-ups of names, or pings, that carry what a loop reads of an encoded file (ATT&CK T1048.003)."""
    if not any(command.name in _ENCODES for command in commands):
        return []
    for command in commands:
        if command.name in _RESOLVERS and any(map(_LABELLED.search, command.args)):
            return [("shell.sends-secret", command.text[:80])]
        if command.name == "ping" and any(one == "-p" and other[:1] == "$" for one, other in pairwise(command.args)):
            return [("shell.sends-secret", command.text[:80])]
    return []


def uploaded(commands: Sequence[Command]) -> Iterator[ResourceEffect]:
    """What sends the files that a search for names of secrets finds: `find . -name '*.env' -exec curl -T {} ...`."""
    searches = [command for command in commands if _seeks_secrets(command)]
    piped = {command.pipe for command in searches if command.pipe and not command.inside}
    handed = any(command.inside for command in searches)
    # Of these not the names go on, but what the files hold: `xargs tar c`, `find -exec cat {} +`.
    read = {one.pipe for one in commands if one.pipe in piped and not _TAKES.isdisjoint(one.args)}
    for command in commands if searches else ():
        follows = command.pipe in piped or (handed and not command.inside)
        starts = command in searches or (follows and command.name in FED)
        words = " ".join(command.args).split() if starts else [command.name, *command.args] if follows else []
        sends = any(word in _SENDS_FILES or (word in FETCHERS and _UPLOADS.search(command.text)) for word in words)
        placed = starts or any("$" in arg for arg in command.args)
        if (sends and placed) or (command.pipe in read and command.name in SENDERS):
            yield ResourceEffect("send", "credential", "many", (), "", command.text[:80])


_SENDS_FILES: Final = frozenset(
    {"scp", "rsync", "rclone", "sftp", "ftp", "tftp", "nc", "ncat", "netcat", "socat", "mail"}
)
_UPLOADS: Final = Lazy(
    r"\s-[A-Za-z]*[TFd](?:\s|[{$@\"'])|\s--(?:upload-file|form|data|json|post-file|body-file)|@[\"']?[{$]"
)
_SEARCHES: Final = frozenset({"find", "fd", "fdfind", "locate", "plocate", "ls", "git", "rg"})
_NAMES: Final = frozenset({"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex"})


def _seeks_secrets(command: Command) -> bool:
    """Whether a command prints the names of the files of secrets that a pattern stands for."""
    args = command.args
    if command.name not in _SEARCHES or (command.name == "git" and "ls-files" not in args):
        return False
    if command.name != "find":
        return any(names_secrets(arg) for arg in args if arg[:1] != "-")
    named = [at for at, arg in enumerate(args[:-1]) if arg in _NAMES and args[at - 1] not in {"!", "-not"}]
    return any(names_secrets(args[at + 1]) for at in named)


# Where the makers of well-known tools keep their installers: a host, or a host and where its paths begin.
_INSTALLERS: Final = tuple(
    (place.partition("/")[0], f"/{place.partition('/')[2]}")
    for program in builtin_programs().values()
    for place in program.installers
)


def _installs(fetchers: Sequence[Command]) -> str:
    """The signal of running what `fetchers` fetch: an installer from its makers' place, or anything."""
    addresses = [[word for word in command.args if "://" in word] for command in fetchers]
    known = bool(addresses) and all(words and all(map(_is_installer, words)) for words in addresses)
    return "shell.installs" if known else "shell.network-to-interpreter"


def _is_installer(address: str) -> bool:
    target = read_target(address)
    if target is None or target.scheme != "https" or target.userinfo or target.odd_spelling or ".." in address:
        return False
    path = "/" + address.partition("://")[2].partition("/")[2]
    return any(
        target.host == host and (path.startswith(place) if place.endswith("/") else path.partition("?")[0] == place)
        for host, place in _INSTALLERS
    )


def prints_secret(command: Command) -> bool:
    """Whether a command's output holds credentials: files of them, the whole environment, a secret store."""
    name, words = command.name, frozenset(command.args)
    if _prints_environment(command):
        return True
    if any(is_secret_file(arg) or is_secret_place(arg) or arg == "/etc/passwd" for arg in command.args):
        return name not in {"echo", "printf", "ls", "find"}
    return any(needs <= words for needs in _STORES.get(name, ()))


_SET_BEFORE: Final = Lazy(r"(\w{1,64})=[\"']?$")
_PRINTS_ALL: Final = {
    **dict.fromkeys(("env", "printenv"), frozenset({"-0", "--null"})), "set": frozenset[str](),
    **dict.fromkeys(("export", "declare", "typeset"), frozenset({"-p", "-x", "-px", "-xp"})),
}  # fmt: skip


def _prints_environment(command: Command) -> bool:
    """Whether a command prints every variable of its environment."""
    options = _PRINTS_ALL.get(command.name)
    return options is not None and options.issuperset(command.args) and not (command.variables and command.args)


def environment_sent(text: str, commands: Sequence[Command]) -> list[Signalled]:
    """A request that carries the whole environment, put in where it stands or by a variable: `curl -d "$(env)" ...`."""
    printed = {one.pipeline or one.text for one in commands if one.inside and _prints_environment(one)}
    given = [lead + one for one in printed for lead in ("$(", "`", "<(")]
    found = [_SET_BEFORE.search(text[max(0, text.find(one) - 80) : text.find(one)]) for one in given if one in text]
    named = [f"{lead}{match.group(1)}" for match in found if match is not None for lead in ("$", "${")]
    carried_by = [*given, *named]
    return [
        ("shell.sends-secret", command.text[:80])
        for command in (commands if printed else ())
        if command.name in SENDERS and any(one in arg for arg in command.args for one in carried_by)
    ]


def asks_with_output(command: Command) -> bool:
    """Whether a look-up of a name carries the output of another command as a label of it (ATT&CK T1048.003)."""
    name = command.name
    carries = any(("$(" in arg or "`" in arg) and ("@" in arg or name == "whois") for arg in command.args)
    if carries and (name == "finger" or (name == "whois" and "-h" in command.args)):
        return True
    return command.name in _RESOLVERS and any(
        (")." in arg and "$(" in arg) or (arg.count("`") > 1 and "`." in arg) for arg in command.args
    )


def has_script(command: Command) -> bool:
    """Whether an interpreter in a pipeline has its program already and reads data from the pipe."""
    args = command.args
    if any(arg in _SCRIPT_OPTIONS or arg.startswith(("-c", "-e")) for arg in args):
        return True
    plain = [arg for arg in args if not arg.startswith("-")]
    return bool(plain) and plain[0] not in {"/dev/stdin", "-"} and "-s" not in args


def decodes(command: Command) -> bool:
    """Whether a command turns encoded text back."""
    name, args = command.name, command.args
    if name in {"base64", "base32", "gbase64"}:
        return any(arg in {"-d", "-D", "--decode", "-di"} for arg in args)
    if name == "xxd":
        return any(arg.startswith("-") and "r" in arg for arg in args)
    if name == "openssl":
        return "-d" in args
    return name in {"rev", "uudecode", "b64decode"} or (name == "printf" and "\\x" in command.text)


def substitutions(commands: list[Command]) -> list[Signalled]:
    """What runs what a command inside of it fetched or decoded, and what tells others the secrets that one printed."""
    return [*_runs_inserted(commands), *_tells_inserted(commands)]


def _runs_inserted(commands: list[Command]) -> list[Signalled]:
    """`bash <(curl ...)`, `sh -c "$(curl ...)"`, `eval "$(... | base64 -d)"`."""
    fetches = any(command.inside and command.name.lower() in _BRINGS for command in commands)
    decoded = any(command.inside and decodes(command) for command in commands)
    if not fetches and not decoded:
        return []
    within = [command for command in commands if command.inside and command.name.lower() in _BRINGS]
    for command in commands:
        if command.words and _RUNS_FETCHED.match(command.words[0]):
            return [(_installs(within), command.text[:80])]
        if command.name in INTERPRETERS or command.name in _EVALUATES:
            told = [value for name, value in command.variables if name in _READ_FIRST]
            given = [arg for arg in (*command.args, *told) if arg.startswith(("<(", "$(", "`", '"$('))]
            if given:
                return [(_installs(within) if fetches else "shell.encoded", command.text[:80])]
    return []


def _tells_inserted(commands: list[Command]) -> list[Signalled]:
    """`gh issue create --body "$(env)"`, `curl -d "$(cat ~/.aws/credentials)"`."""
    secrets = [one.text for one in commands if one.inside and prints_secret(one)]
    for command in commands if secrets else ():
        if (command.name in SENDERS and command.name not in _CLOSED) or _TELLS.search(command.text) is not None:
            for before, arg in pairwise(("", *command.args)):
                held = next((one for one in secrets if any(f"{sign}{one}" in arg for sign in "(`")), "")
                proves = held not in ("env", "printenv") and _PROVES.search(f"{before} {arg}") is not None
                if held and not proves and _PICKED.search(arg.partition(held)[2]) is None:
                    return [("shell.sends-secret", command.text[:80])]
    return []


_CLOSED: Final = frozenset({"openssl", "ssh"})  # which are given what proves who calls
_PROVES: Final = Lazy(
    r"(?i)^(?:-H|-u|-p|--header|--user|--oauth2-bearer|--cert|--key|--password)\s|^\S*\s(?:--?(?:header|user|password|token)\b|authorization\b|x-[\w-]+|private-token\b)"
)
# What picks some of what was printed, or counts it.
_PICKED: Final = Lazy(
    r"^\s*\|\s*(?:e?grep\s+(?:-[oE]+\s+)?-?[\"']?\^?[A-Za-z_]*(?:VERSION|NODE|CI|LANG|PATH|RUNNER|GITHUB_S|OS)|wc|cut\s+-d=\s+-f\s*1|\w*sum)\b"
)
# What puts a text where others read it: a forge, a log of versions, a tracker, a chat, a queue.
_TELLS: Final = Lazy(
    r"^(?:gh|glab|hub|tea)\s(?:.*\s)?(?:issue|pr|mr|gist|release|discussion|snippet|note|api)\s|^(?:git|hg|svn|jj)\s(?:.*\s)?(?:commit|tag|notes)\s|"
    r"^(?:jira|acli|linear|slack\w*|discord\w*|telegram\w*|ntfy|toot|twurl|confluence|notion|matrix-commander|signal-cli)\s|"
    r"^aws\s+(?:sns|ses\w*|sqs)\s|^gcloud\s+pubsub\s"
)


_READ_FIRST: Final = frozenset({"BASH_ENV", "ENV", "PYTHONSTARTUP", "PERL5DB"})
# A substitution in the place of a command: what was fetched is the command.
_RUNS_FETCHED: Final = Lazy(r"^\"?(?:\$\(|`)\s*(?:sudo\s+)?(?:curl|wget|fetch|aria2c|lynx|lwp-request)\s")


def dropped(commands: list[Command]) -> list[Signalled]:
    """A file fetched from an odd place, or put into one, and started by a later command of the same text."""
    fetched: dict[str, str] = {}
    for command in commands:
        name = command.name.lower()
        for target in fetched:
            path = command.text.split(None, 1)[0] if command.text else ""
            folder, _, last = target.rpartition("/")
            named = path in {target, f"./{target}"} or (folder in _SEARCHED and path == last)
            runs = named or (
                name in INTERPRETERS and target in command.args and not (name in SHELLS and command.args[:1] == ("-n",))
            )  # a shell that only checks what it would run
            if runs or (name in _RUNS_FILE and target in command.args):
                return [("shell.drops-program", command.text[:80])]
        if name in FETCHERS:
            fetched.update(_downloads(command))
    return []


def _downloads(command: Command) -> dict[str, str]:
    """The files that a command fetches from an address without name or TLS, or to a place that anyone can write."""
    args = command.args
    address = next((arg for arg in args if "://" in arg or (arg[:1].isdigit() and "/" in arg)), "")
    target = ""
    for at, arg in enumerate(args):
        joined = arg[:1] == "-" and arg[1:2] != "-" and arg[-1:] in {"o", "O"} and len(arg) < 6  # `-qO`, `-sSLo`
        if (joined or arg in {"--output", "--output-document", "-OutFile"}) and at + 1 < len(args):
            following = args[at + 1]
            target = following if "://" not in following else following.rsplit("/", 1)[-1]
        elif arg.startswith(("-o/", "-O/")):
            target = arg[2:]
    if not target and (command.name.lower() == "wget" or "-O" in args or "-LO" in args):
        target = address.rstrip("/").rsplit("/", 1)[-1]
    if not target or not address:
        return {}
    host = read_target(address)
    unsure = not _UNSURE.isdisjoint(args) or any(arg[:1] == "-" and arg[1:].isalpha() and "k" in arg for arg in args)
    odd = unsure or not address.startswith("https://") or (host is not None and bool(host.address))
    return {target: address} if odd or target.startswith(LOOSE_PLACES) else {}


_SEARCHED: Final = frozenset({"/bin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "~/bin", "~/.local/bin"})
_UNSURE: Final = frozenset({"--insecure", "--no-check-certificate"})  # who answers is not asked


# Services that programs call with a secret of their environment, and names that only begin as theirs do.
_SERVICES: Final = (
    "amazonaws.com", "amazonaws.com.cn", "anthropic.com", "atlassian.net", "azure.com", "cloudflare.com",
    "digitalocean.com", "docker.com", "github.com", "gitlab.com", "googleapis.com", "huggingface.co", "microsoft.com",
    "npmjs.org", "openai.com", "pypi.org", "sendgrid.com", "slack.com", "stripe.com", "twilio.com",
)  # fmt: skip
_OF_SERVICES: Final = tuple(f".{one}" for one in _SERVICES)
_CALLED: Final = Lazy(r"(?i)\bhttps?://(?:[^\s/@\"'`]{1,80}@)?((?:[\w-]{1,63}\.){1,8}[a-z]{2,18})\b")
_OF_ENVIRONMENT: Final = Lazy(
    r"(?i)[$%]\{?(?:env:)?\w*(?:TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE_KEY|ACCESS_KEY|API_?KEY)"
)


def imitator(text: str) -> str:
    """The host that a text calls beside a secret of its environment, whose name only begins as a service's does."""
    if "://" not in text or _OF_ENVIRONMENT.search(text) is None:
        return ""
    hosts = [match.group(1).lower() for match in _CALLED.finditer(text)]
    return next(
        (
            host
            for host in hosts
            if any(f".{one}." in f".{host}" for one in _SERVICES) and not host.endswith(_OF_SERVICES)
        ),
        "",
    )


FETCHING: Final = of_kind("fetcher") | of_kind("downloader") | {"invoke-webrequest", "invoke-restmethod"}
_TO_FILE: Final = frozenset({"-outfile", "-destination", "-o", "--output", "-of", "-out", "-outf"})


def fetched_file(command: Command, kinds: frozenset[str]) -> str:
    """Return the file that a command writes what it fetches to; empty for every other command."""
    name, args = command.name, command.args
    if name in {".downloadfile", ".downloadfileasync"}:
        return args[1] if len(args) > 1 else ""
    if name.startswith(("[io.file]::writeall", "[file]::writeall")) or name in {"set-content", "out-file"}:
        return args[0] if "fetched" in kinds and args else ""
    if name in FETCHING or name in {"start-bitstransfer", "certutil", "bitsadmin"}:
        for at, arg in enumerate(args[:-1]):
            joined = (
                name in {"curl", "wget"} and arg[:1] == "-" and arg[1:2] != "-" and arg[-1:] in {"o", "O"}
            )  # `-sSLo`
            if joined or arg.lower() in _TO_FILE:
                return args[at + 1]
        plain = [arg for arg in args if arg[:1] not in "-/"]
        if name in {"certutil", "bitsadmin", "start-bitstransfer"} and len(plain) > 1:
            return plain[-1]
    return ""


_PUTS_OUT: Final = of_kind("writer") | {
    "out-default", "write-output", "write-host", "echo", "write", "out-string", "set-clipboard",
}  # fmt: skip
_POSTS: Final = FETCHING | {
    "send-mailmessage", ".uploadstring", ".uploaddata", ".uploadvalues", ".postasync", ".putasync", ".send",
}  # fmt: skip


def gives_away(name: str, kinds: frozenset[str]) -> Verb | None:
    """Return what a command of PowerShell does with a password, or with the environment, that it is given."""
    if name in _POSTS and kinds & {"secret", "environment"}:
        return "send"
    return "read" if "secret" in kinds and name in _PUTS_OUT else None
