"""What code carries out: who and where it runs, secrets of its environment, to hosts that nobody answers for.

A program may ask who runs it, and may talk to hosts. What honest programs do not is to put the user's, the machine's
and the folder's name into a request, to write a secret into the labels of a host's name, or to send anything to a
public drop or to a machine that has a number and no name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import re2

from aegis.core.effects import Resource, ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.languages.aliases import Assignment, CodeCall
from aegis.detect.languages.calls import calls_of, flow
from aegis.detect.languages.followed import HOLE
from aegis.detect.languages.syntax import CodeLanguage
from aegis.detect.quick import one_of
from aegis.detect.resources import builtin_resources, host_place
from aegis.detect.shell.uses import is_broad, service_resource

# What a program learns about where it runs, by kind: two kinds of it in one request tell who was reached.
_IDENTITY: Final = {
    "user": r"getpass\.getuser|os\.getlogin|os\.userInfo\s*\(|Etc\.getlogin|get_current_user|user\.Current\s*\(|"
    r"Environment\.UserName|"
    r"getProperty\(\s*[\"']user\.name|environ(?:\.get)?\W{1,3}(?:USER|USERNAME|LOGNAME)\b|"
    r"process\.env\.(?:USER|USERNAME)\b|pwd\.getpwuid",
    "host": r"gethostname\s*\(|platform\.node\s*\(|socket\.getfqdn|\bos\.hostname\s*\(|InetAddress\.getLocalHost|"
    r"os\.Hostname\s*\(|"
    r"Environment\.MachineName|Socket\.gethostname|process\.env\.(?:HOSTNAME|COMPUTERNAME)\b|"
    r"environ(?:\.get)?\W{1,3}(?:HOSTNAME|COMPUTERNAME)\b",
    "system": r"platform\.(?:uname|platform|system|version|release)\s*\(|os\.uname\s*\(|php_uname|"
    r"os\.(?:platform|release|networkInterfaces|homedir|arch)\s*\(|"
    r"psutil\.net_if_addrs|uuid\.getnode|netifaces\.|api\.ipify|ifconfig\.me|ipinfo\.io|checkip\.amazonaws|"
    r"os\.getcwd\s*\(|process\.cwd\s*\(|__dirname",
}
# What a page learns of the person before it: cookies, what is typed, what was copied.
_PERSON: Final = (
    r"document\.cookie|chrome\.cookies\.|browser\.cookies\.|localStorage\b|sessionStorage\b|clipboard\.readText|"
    r"\b(?:e|ev|evt|event)\.(?:key|keyCode|code|which)\b|pyperclip\.paste|input\[type=.?password"
)
_OF_PERSON: Final = Lazy(flow("of-person"))
_VARIABLE: Final = (
    r"(?:environ(?:\.get)?|getenv|process\.env|ENV|Getenv|GetEnvironmentVariable)\W{1,4}[\"']?\w*"
    r"(?:SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE_KEY|ACCESS_KEY|API_KEY|APIKEY)\w*"
)
# Variables of credentials of well-known services, and the hosts that each is for: whoever else is sent one takes it.
_OWNED: Final[Mapping[str, tuple[str, ...]]] = {
    "AWS_SECRET_ACCESS_KEY": ("amazonaws.com", "aws.dev"), "AWS_SESSION_TOKEN": ("amazonaws.com", "aws.dev"),
    "AWS_ACCESS_KEY_ID": ("amazonaws.com", "aws.dev"), "GITHUB_TOKEN": ("github.com", "githubusercontent.com"),
    "GH_TOKEN": ("github.com", "githubusercontent.com"), "NPM_TOKEN": ("npmjs.org", "npmjs.com", "github.com"),
    "NODE_AUTH_TOKEN": ("npmjs.org", "npmjs.com", "github.com"), "PYPI_TOKEN": ("pypi.org",),
    "TWINE_PASSWORD": ("pypi.org",), "CI_JOB_TOKEN": ("gitlab.com",), "GITLAB_TOKEN": ("gitlab.com",),
    "AZURE_CLIENT_SECRET": ("microsoftonline.com", "azure.com", "windows.net"), "VAULT_TOKEN": (),
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": ("githubusercontent.com",), "DOCKER_PASSWORD": ("docker.com", "docker.io"),
    "STRIPE_SECRET_KEY": ("stripe.com",), "SSH_PRIVATE_KEY": (), "KUBE_TOKEN": (), "SUDO_PASSWORD": (),
}  # fmt: skip
_OF_SERVICE: Final = Lazy(
    r"(?:environ(?:\.get)?|getenv|env|ENV|Getenv|EnvironmentVariable|fetch)\W{1,4}(" + "|".join(_OWNED) + r")\b"
)
# What a store of secrets gives.
_STORES: Final = (
    r"(?i:\bvault\w*\.(?:read|kv)|read_secret|\.secrets\.kv|get_?secret_?value|access_?secret_?version|"
    r"\bget_?secret\s*\(|secretmanager)"
)
_ODD: Final[frozenset[Resource]] = frozenset({"collector", "tunnel", "address", "metadata"})
_DROPS: Final = "|".join(
    re2.escape(name) for file in builtin_resources() for one in file.hosts for name in one.names if "." in name
)
_ADDRESS: Final = rf"://(?:\d+\.\d+\.|\[?[0-9a-f]+:)|@\d+\.\d+\.\d|[/.@](?:{_DROPS})\b"
_KINDS: Final = tuple(
    (kind, Lazy(pattern))
    for kind, pattern in (*_IDENTITY.items(), ("variable", _VARIABLE), ("person", _PERSON), ("stored", _STORES))
)
# One of these stands in every text that leaks.
WORTH: Final = (*_IDENTITY.values(), _VARIABLE, _PERSON, _STORES, _ADDRESS)
_URL: Final = Lazy(
    r"[a-z+]{2,8}://[^\s\"'`<>{}()]{3,200}|(?i:\bhost(?:name)?[\"']?\s*[:=]\s*)[\"'`][\w-]{1,63}(?:\.[\w-]{1,63}){1,8}[\"'`]"
)
_OF_MEMBER: Final = Lazy(r"^\w+[\"']?\s*[:=]\s*")
_ASKS_NAME: Final = Lazy(
    r"(?:^|\.)(?:resolve\w*|query|lookup|gethostbyname\w*|getaddrinfo|dns_get_record|checkdnsrr|getbyname|getallbyname|"
    r"lookuphost|lookupip|lookuptxt|getaddresses?|gethostaddresses|gethostentry|getresources?)$"
)
_IN_NAME: Final = Lazy(r"(?:\}|^)\.[A-Za-z][\w-]*\.[A-Za-z]|^\.[A-Za-z][\w.-]+$")
_POSTS: Final = Lazy(
    r"(?:^|[.:])(?:post|put|patch|request|urlopen|send|sendbeacon|fetch|upload\w*|(?:post|put)(?:asjson)?async|post_form|postform|"
    r"curl_setopt(?:_array)?|open|http_post|axios|got|sendto|sendall|do|file_get_contents|end)$"
)
_GETS: Final = Lazy(
    r"(?:^|[.:])(?:get|urlopen|fetch|request|head|getasync|file_get_contents|open|getstring|got|axios|readtext|readbytes)$"
)
_BODY: Final = Lazy(r"(?i)\b(?:data|json|body|files|params|content|form|payload|method)\b\s*[:=]|\.post|\.put|POST|PUT")
_FETCHES_FILE: Final = Lazy(r"(?:^|\.)(?:urlretrieve|download\w*|get_file|copy_from_url)$")
_PROGRAM: Final = Lazy(r"(?i)://[^\s\"'`]{3,300}\.(?:exe|dll|scr|bat|cmd|vbs|ps1|hta|pif|elf|cpl)(?:[?#\"'`]|$)")
_STOLEN: Final = (
    ("password_value", "logins"), ("encrypted_value", "cookies"), ("card_number_encrypted", "credit_cards"),
    ("moz_cookies", "cookies.sqlite"), ("encryptedpassword", "logins.json"),
)  # fmt: skip

_BROWSER_FILES: Final = r"logins\.json|key4\.db|Login Data|Local State|cookies\.sqlite|Web Data|wallet\.dat"
may_leak: Final = one_of(
    *WORTH,
    _PROGRAM.pattern,
    "password_value|encrypted_value|card_number_encrypted|encryptedPassword",
    "resolver?\\b|gethostby",
    _BROWSER_FILES,
)


_SAID_BY_SERVICE: Final = ("_TOKEN", "_SECRET", "_ACCESS_KEY", "_PASSWORD", "_PRIVATE_KEY")


def kinds_told(text: str) -> set[str]:
    """What a piece of code tells of where it runs, and which kinds of odd hosts it names."""
    found = {kind for kind, pattern in _KINDS if pattern.search(text)}
    if "://" in text or "host" in text:
        places = {host_place(_OF_MEMBER.sub("", match.group()).strip("\"'`")) for match in _URL.finditer(text)} & _ODD
        found.update(f"to {place}" for place in places)
        found.update(f"at {match.group(1).lower()}" for match in _NAMED_HOST.finditer(text))
    if any(word in text for word in _SAID_BY_SERVICE):
        found.update(f"of {match.group(1)}" for match in _OF_SERVICE.finditer(text))
    return found


_NAMED_HOST: Final = Lazy(
    r"(?:://(?:[^\s/@\"'`]{1,80}@)?|(?i:\bhost(?:name)?[\"']?\s*[:=]\s*)[\"'`])((?:[\w-]{1,63}\.){1,8}[a-z]{2,18})\b"
)


def is_for_others(kinds: Collection[str]) -> bool:
    """Whether a credential of a service goes to a named host that is none of the service's."""
    hosts = [kind[3:] for kind in kinds if kind.startswith("at ")]
    variables = [kind[3:] for kind in kinds if kind.startswith("of ")]
    return bool(hosts) and any(not any(_is_for(name, host) for host in hosts) for name in variables)


def _is_for(variable: str, host: str) -> bool:
    """Whether a host is of the service of a variable, at the vendor or under its name in a network of one's own."""
    service = variable.partition("_")[0].lower()
    return host.partition(".")[0] == service or any(
        host == owner or host.endswith(f".{owner}") for owner in _OWNED[variable]
    )


def leaked(
    name: str, arguments: str, strings: Collection[str], given: Iterable[str], shown: str
) -> list[ResourceEffect]:
    """What one call carries out; `given` are the kinds of what it is called with."""
    kinds = frozenset(given)
    told = kinds & {"user", "host", "system"}
    person = "person" in kinds
    secret = kinds & {"variable", "secret", "environment"}
    found: list[ResourceEffect] = []
    if _ASKS_NAME.search(name) and (told or secret) and any(map(_IN_NAME.search, strings)):
        found.append(ResourceEffect("send", "environment", "one", (), "", shown))
    places = {kind[3:] for kind in kinds if kind.startswith("to ")}
    posts = _POSTS.search(name) is not None
    gets = _GETS.search(name) is not None
    carries = "post" in name or "put" in name or "beacon" in name or _BODY.search(arguments) is not None
    if (posts or gets) and is_for_others(kinds):
        found.append(ResourceEffect("send", "credential", "one", (), "", shown))
    if "stored" in kinds and posts and _ROOMS.search(arguments):
        found.append(ResourceEffect("send", "credential", "one", (), "", shown))
    named = any(kind.startswith("at ") for kind in kinds)
    if (posts or gets) and (
        (_OF_PERSON.search(arguments) and _NAMED_HOST.search(arguments)) or (person and carries and named)
    ):
        found.append(ResourceEffect("send", "browser-data", "one", (), "", shown))
    elif posts and len(told) > 1 and (carries or {"user"} < told):
        found.append(ResourceEffect("send", "environment", "one", (), "", shown))
    elif places and (
        (posts and (told or secret or person or carries))
        or (gets and (told or secret or person or "collector" in places))
    ):
        found.append(ResourceEffect("send", "collector" if "collector" in places else "address", "one", (), "", shown))
    if _FETCHES_FILE.search(name) and _PROGRAM.search(arguments):
        found.append(ResourceEffect("receive", "program", "one", (), "", shown))
    return found


def steals(text: str) -> bool:
    """Whether a program asks the tables in which browsers keep what people entrust to them, or sends the files."""
    lowered = text.lower()
    if any(one in lowered and other in lowered for one, other in _STOLEN):
        return True
    return (
        _OF_BROWSERS.search(text) is not None and _SENDS_OUT.search(text) is not None and _FAR.search(text) is not None
    )


_OF_BROWSERS: Final = Lazy(rf"[\"'/\\](?:{_BROWSER_FILES})[\"']")
_FAR: Final = Lazy(r"https?://(?:[\w-]+\.){1,6}[a-z]{2,18}\b")


# What several things say together, none of which says it alone: the files of a person are gone over and something is
# encrypted; a guard of the machine is named and processes are ended; the clipboard is read and wallets are told apart.
_SHOWN: Final = 80
_MOST_NAMES: Final = 4
_ENCRYPTS: Final = Lazy(flow("encrypts"))
_ANY_NAME: Final = Lazy(rf"[*{HOLE}]")
_KILLS: Final = Lazy(r"(?i)\bkill\w*\s*\(|\.terminate\s*\(|taskkill|\.suspend\s*\(")


# Every secret of a store, read one after another and sent to a host that is none of a store's.
_LISTS_SECRETS: Final = Lazy(flow("lists-secrets"))
_READS_SECRET: Final = Lazy(r"(?i)get_?secret|access_?secret|get_?parameter|read_secret|with_?decryption")
_OF_STORES: Final = Lazy(flow("of-stores"))
_SENDS_OUT: Final = Lazy(flow("sends-out"))
_ELSEWHERE: Final = Lazy(flow("elsewhere"))


def told_together(
    text: str, language: CodeLanguage, effects: Iterable[ResourceEffect], strings: Callable[[str], Iterable[str]]
) -> Iterator[ResourceEffect]:
    """Return what a text does beside `effects`, which its calls have by themselves; `strings` are those of a text."""
    shown = text[:_SHOWN]
    for verb, resource, scope in calls_of(language).told_together(text):
        yield ResourceEffect(verb, resource, scope, (), "", shown)
    if _ENCRYPTS.search(text) and (any(map(_overwrites_broadly, effects)) or _goes_over_all(text, strings)):
        yield ResourceEffect("encrypt", "home", "all", (), "", shown)
    if any(map(_reads_home, effects)) and _SENDS_OUT.search(text) and _ELSEWHERE.search(text):
        yield ResourceEffect("send", "home", "all", (), "", shown)
    if all(one.search(text) for one in (_LISTS_SECRETS, _READS_SECRET, _SENDS_OUT)) and any(
        _OF_STORES.search(match.group()) is None for match in _ELSEWHERE.finditer(text)
    ):
        yield ResourceEffect("send", "credential", "all", (), "", shown)
    if _KILLS.search(text):
        guards = [word for word in strings(text) if service_resource(word, "process") == "defence"]
        if guards:
            yield ResourceEffect("stop", "defence", "one", tuple(guards[:_MOST_NAMES]), "", guards[0])


def _goes_over_all(text: str, strings: Callable[[str], Iterable[str]]) -> bool:
    """Whether a text goes over a tree of folders beside the project's, and takes away what it has read there."""
    if _GOES_OVER.search(text) is None or _TAKES_AWAY.search(text) is None:
        return False
    return any(map(_OTHERS_TREE.match, strings(text)))


_GOES_OVER: Final = Lazy(flow("goes-over"))
_TAKES_AWAY: Final = Lazy(r"(?i)\b(?:remove|unlink\w*|delete\w*|rm\w*|replace|rename|move)\s*!?\(")
_OTHERS_TREE: Final = Lazy(flow("tree-of-others"))


def _reads_home(effect: ResourceEffect) -> bool:
    return (effect.verb, effect.scope) == ("read", "all") and effect.resource in ("home", "system-file")


def _overwrites_broadly(effect: ResourceEffect) -> bool:
    """Whether what is written or deleted are the files of a person, a service or a system, whichever there are."""
    return effect.verb in ("write", "delete") and any(
        effect.resource in _OF_SERVICES or is_broad(_ANY_NAME.split(value)[0].rstrip("/\\"))
        for value in effect.values
        if _ANY_NAME.search(value) is not None
    )


_OF_SERVICES: Final[frozenset[Resource]] = frozenset({"public-place", "storage", "database", "backup", "home"})


_ROOMS: Final = Lazy(flow("rooms"))
# What gives a shell to the network, leaves its sandbox, or starts itself without end.
_ESCAPES_SANDBOX: Final = Lazy(flow("leaves-sandbox"))
_DUPLICATES: Final = Lazy(flow("duplicates"))
_CONNECTS: Final = Lazy(flow("connects-out"))
_SHELL: Final = r"['\"](?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh(?:\s+-i)?['\"]|cmd\.exe|powershell"
# What another machine sends over a connection, by the names that hold it, and what runs it.
_CONNECTION: Final = Lazy(flow("sent-from-afar"))
_OF_PLACE: Final = Lazy(
    r"(?i)getsockname|fileno|local_?port|local_?addr|\.address\(|getport\(|connect_ex|\.addr\b|setsockopt"
)
_GIVES_EACH: Final = Lazy(
    r"\bfor(?:each|\s+await)?\s*\(?\s*(?:(?:const|let|var|my|auto|final|[Ss]tring)\s+)?(\$?\w+)\s+(?:in|of|:)\s+([^\n{]{1,120})|"
    r"([^\n;]{1,160})\.(?:on|once|addListener|addEventListener)\(\s*['\"](?:data|line|message)['\"]\s*,\s*(?:async\s*)?"
    r"(?:function\s*\w*\s*)?\(?\s*(\w+)|"
    r"([^\n;]{1,160})\.(?:forEachLine|forEach|each_line|each|foreach|for_each)\s*[({]\s*\|?\(?\s*(\w+)\s*(?:->|=>|\||\))|"
    r"(while\s*\(\s*<\$\w+>\s*\))"
)
_RUNS_SENT: Final = Lazy(flow("runs-sent"))
_HANDLES: Final = Lazy(flow("handles"))  # the parameters of what answers a request
_PARAMETER: Final = Lazy(r"(?:^|,)\s*(?:\w+\s+)?[*&]{0,2}(\$?\w+)\s*(?:[:=,]|$)")
_ASKED_HERE: Final = Lazy(flow("asked-here"))  # what a request says, where it stands in the call itself
_LITERALS: Final = Lazy(r"\"[^\"\n{}$\\]{0,200}\"|'[^'\n{}$\\]{0,200}'")  # with nothing put in
_HELD: Final = Lazy(r"\$?[A-Za-z_]\w*")
_SHELLS_OUT: Final = Lazy(rf"{_SHELL}|shell=True|^(?:`|%x|qx)")
_ROUNDS: Final = 3  # in which names that are given each other are followed
_MOST_TOLD: Final = 400


def runs_sent(text: str, assigned: Sequence[Assignment], calls: Sequence[CodeCall]) -> Iterator[tuple[str, str]]:
    """Return the signal of each call that runs what another machine sends over a connection of the text."""
    handled = [next(filter(None, match.groups())) for match in islice(_HANDLES.finditer(text), _MOST_TOLD)]
    if not handled and _CONNECTION.search(text) is None:
        return
    given = [(one.name, one.value) for one in assigned[:_MOST_TOLD]]
    for match in islice(_GIVES_EACH.finditer(text), _MOST_TOLD):
        loop, looped, owner, heard, lines, line, topic = match.groups()
        given.append((loop or heard or line or "$_", looped or owner or lines or topic))
    held = {match.group(1) for listed in handled for match in _PARAMETER.finditer(listed)}
    for name, value in given * _ROUNDS:
        if _OF_PLACE.search(value) is None and (_CONNECTION.search(value) or not held.isdisjoint(_names(value))):
            held.update(_names(name))
    for call in calls:
        asked = _ASKED_HERE.search(call.arguments) is not None
        if _RUNS_SENT.search(call.name) is not None and (asked or not held.isdisjoint(_names(call.arguments))):
            first = call.arguments.partition(",")[0]
            if _SHELLS_OUT.search(call.text) or _ASKED_HERE.search(first) or not held.isdisjoint(_names(first)):
                yield "code.runs-fetched", call.text[:_SHOWN]


def _names(text: str) -> set[str]:
    """The names in a piece of code, without the words of its literals."""
    return set(_HELD.findall(_LITERALS.sub("''", text)))


SHELL_NAME: Final = Lazy(_SHELL)
_FORK: Final = Lazy(
    r"while\s*(?:\(?\s*(?:True|true|1)\s*\)?)\s*[:{]?\s*(?:os\.fork|fork\s*\(|child_process\.fork|pcntl_fork)"
)


def signals_together(text: str) -> Iterator[tuple[str, str]]:
    """Return the signals of a text that no call of its gives alone, each with the piece that shows it."""
    shown = text[:_SHOWN]
    if _ESCAPES_SANDBOX.search(text):
        yield "code.escapes", shown
    if _CONNECTS.search(text) and SHELL_NAME.search(text) and (_DUPLICATES.search(text) or "spawn" in text):
        yield "code.reverse", shown
    if _FORK.search(text):
        yield "code.destroys", shown
