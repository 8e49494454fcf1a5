"""Paths: where they really lead, in whichever spelling, and which files hold secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final, Literal

from aegis.core.patterns import Lazy
from aegis.detect.quick import one_of, remembered

_FILES_OF_SECRETS: Final = (
    r"(?i)(?:^|[/\\])(?:"
    r"etc[/\\]kubernetes[/\\](?:[\w.-]+\.conf$|pki[/\\].*\.key$)|etc[/\\]rancher[/\\]\w+[/\\](?:k3s|rke2)\.yaml$|etc[/\\](?:ssl|pki[/\\]tls)[/\\]private[/\\]"
    r"|letsencrypt[/\\](?:live|archive)[/\\].*privkey|etc[/\\](?:wireguard|openvpn|ipsec\.d)[/\\].*(?:\.conf|\.key|secrets)$"
    r"|var[/\\]lib[/\\]jenkins[/\\]secrets[/\\]|(?:recentservers|sitemanager|confcons)\.xml$|winscp\.ini$"
    r"|consolehost_history\.txt$|etc[/\\]ssh[/\\]ssh_host_\w+_key$|(?:^|[/\\])dev[/\\]k?mem$"
    r"|\.ssh[/\\](?:id_[a-z0-9]+|identity|.*\.pem|.*_rsa|.*_ed25519)$"
    r"|\.aws[/\\](?:credentials|config)$|\.azure[/\\].*(?:token|profile)|\.config[/\\]gcloud[/\\].*(?:credential|\.db|token)"
    r"|\.kube[/\\]config$|\.docker[/\\]config\.json$|\.netrc$|_netrc$|\.pgpass$|\.my\.cnf$|\.npmrc$|\.pypirc$|\.git-credentials$"
    r"|\.gnupg[/\\](?:private|secring)|\.vault-token$|\.htpasswd$|\.bash_history$|\.zsh_history$|\.mysql_history$"
    r"|etc[/\\](?:g?shadow[-~]?|sudoers|master\.passwd|security[/\\]passwd|krb5\.keytab)$|proc[/\\](?:self|\d+|\$[^/]+|\*|\x1a)[/\\](?:environ|mem|maps)$"
    r"|windows[/\\](?:system32[/\\]config|repair)[/\\](?:sam|system|security)|ntds\.dit$"
    r"|Login Data$|(?:chrom|brave|edge|opera|vivaldi|user data).*[/\\](?:cookies|web data|login data for account)$"
    r"|cookies\.(?:sqlite|binarycookies)$|Library[/\\]Messages[/\\]chat\.db$|Signal[/\\]sql[/\\]db\.sqlite$|logins\.json$|key[34]\.db$|wallet\.dat$|service[_-]account.*\.json$"
    r"|\.env(?:\.(?:local|production|prod|staging|development))?$|id_(?:rsa|dsa|ecdsa|ed25519)$|[^/\\]*(?:key|priv|secret|ec2|aws|prod|root|server)[^/\\]*\.pem$|.*\.(?:p12|pfx|keystore|jks|ppk|kdbx)$"
    r"|run[/\\]secrets[/\\][^/\\]+$|serviceaccount[/\\](?:token$|[^/\\]*\*)|\.terraform\.d[/\\]credentials|\.config[/\\](?:gh[/\\]hosts\.yml|op[/\\]|rclone[/\\]rclone\.conf)"
    r"|\.cargo[/\\]credentials|\.gem[/\\]credentials|\.composer[/\\]auth\.json|\.m2[/\\]settings-security\.xml|\.claude[/\\]\.credentials"
    r"|\.local[/\\]share[/\\]keyrings[/\\]|Library[/\\]Keychains[/\\]|ansible[_-]vault[_-]pass\w*$|\.vault_pass\w*$|\.s3cfg$|\.boto$"
    r"|passwords?\.(?:txt|csv|xlsx?|kdbx?)$|\.aws[/\\]sso[/\\]cache[/\\]|\.rhosts$|\.kaggle[/\\]kaggle\.json$|huggingface[/\\](?:token|stored_tokens)$|\.smbcredentials$|\.cifs-credentials$"
    r")"
)
_SECRET: Final = one_of(_FILES_OF_SECRETS)
# Settings that usually hold secrets beside much else, and that people open every day: reading one is a question.
_FILES_OF_SETTINGS: Final = (
    r"(?i)(?:^|[/\\])(?:\.env(?:\.\w+)?|\.npmrc|\.pypirc|\.yarnrc(?:\.yml)?|\.aws[/\\]config|\.docker[/\\]config\.json|"
    r"\.my\.cnf|\.s3cfg|\.boto|wp-config\.php|config[/\\]master\.key|[\w-]{1,80}\.tfstate(?:\.backup)?|tomcat-users\.xml|unattend\.xml)$"
)
_SETTINGS: Final = one_of(_FILES_OF_SETTINGS)
_TEMPLATES: Final = one_of(
    r"(?i)\.env\.(?:example|sample|template|dist|defaults?|tpl|test|ci|schema)$"
    r"|(?:^|[/\\])(?:__fixtures__|testdata|(?:tests?|specs?)[/\\](?:[\w.-]+[/\\])*fixtures)[/\\]"
)
# What editors and people call a copy that they keep beside a file, or that an editor left there.
_COPY: Final = r"(?i)(?:~|\.(?:sw[op]|bak|old|orig|save|backup|copy))$"
_ORIGINAL: Final = Lazy(r"(?i)^(.*[/\\])?(\.)?([^/\\]+?)(?:~|\.(?:sw[op]|bak|old|orig|save|backup|copy))$")


_SECRET_PLACE: Final = one_of(
    r"(?i)(?:^|[/\\])(?:\.ssh|\.aws|\.gnupg|\.kube|\.azure|\.password-store|\.mozilla|\.config[/\\]gcloud|\.docker|\.thunderbird|etc[/\\]kubernetes[/\\]?(?:pki)?|etc[/\\]ssl[/\\]private|etc[/\\]letsencrypt|\.local[/\\]share[/\\]keyrings|Library[/\\]Keychains|\.config[/\\]google-chrome|\.electrum|\.bitcoin|\.config[/\\]solana)[/\\]?\*?$"
)


_SYSTEM_SECRETS: Final = frozenset({
    "/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/master.passwd", "/etc/security/passwd",
})  # fmt: skip


_ACCOUNTS: Final = frozenset({"/etc/passwd", "/etc/group"})
# Files that patterns with wildcards are compared with: one of each kind that `_SECRET` knows, from the last folder on.
KNOWN_SECRETS: Final = (
    *sorted(_SYSTEM_SECRETS), "/etc/sudoers", "/etc/krb5.keytab", "/proc/self/environ", "/proc/self/mem",
    ".ssh/id_rsa", ".ssh/id_dsa", ".ssh/id_ecdsa", ".ssh/id_ed25519", ".ssh/identity", ".aws/credentials",
    ".kube/config", ".docker/config.json", ".netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".git-credentials",
    ".gnupg/private-keys-v1.d", ".gnupg/secring.gpg", ".vault-token", ".htpasswd", ".bash_history", ".zsh_history",
    ".config/gh/hosts.yml", ".cargo/credentials", ".env", "windows/system32/config/sam", "ntds.dit",
)  # fmt: skip
LONGEST: Final = 4_096  # PATH_MAX of Linux: longer text names no file
_MOST_BRACED: Final = 64  # words that one word with braces stands for; of more the first ones are read
_WILDCARD: Final = r"[*?\[]|[@+!]\("
_WILD: Final = one_of(_WILDCARD)
_MOST_STARS: Final = 16  # wildcards of a pattern that is compared; one with more names nothing in particular
_BRACKETS: Final = Lazy(r"\[[!^]?\]?(?:\[:\w+:\]|[^\]/])*\]")
_GROUPS: Final = Lazy(r"[?@+!*]\([^()/]*\)")  # of the extended patterns of bash
_RANGE: Final = Lazy(r"^(?:([A-Za-z])\.\.([A-Za-z])|(-?\d{1,4})\.\.(-?\d{1,4}))$")
_ODDITY: Final = r"^/dev/fd/|//|/\.{1,2}(?:/|$)|^\.{1,2}/\.|^file:|^/proc/|::\$|\\|^~root(?:/|$)"
_ODD: Final = one_of(_ODDITY)
# All that a path of ASCII needs to be looked at closely: the name of a secret, or a way to spell another path.
_NOTABLE: Final = one_of(_FILES_OF_SECRETS, _WILDCARD, _ODDITY, r"\{", _FILES_OF_SETTINGS, _COPY)


@remembered
def told_by(path: str) -> Literal["secret", "settings", ""]:
    """What a path names that people look for: a file of settings, a file of secrets, or neither, as most do."""
    if path.isascii() and not _NOTABLE(path):
        return ""
    if is_settings_file(path):
        return "settings"
    return "secret" if is_secret_file(path) else ""


@remembered
def is_account_file(path: str) -> bool:
    """Whether the path names the list of a system's accounts."""
    return _names(path, _ACCOUNTS)


@remembered
def is_system_secret(path: str) -> bool:
    """Whether the path names the file in which a system keeps the passwords of its accounts."""
    return _names(path, _SYSTEM_SECRETS)


def is_secret_place(path: str) -> bool:
    """Whether the path names a folder that holds credentials or keys."""
    return len(path) <= LONGEST and any(map(_SECRET_PLACE, {path, plain_path(path)}))


@remembered
def is_secret_file(path: str) -> bool:
    """Whether the path names a file whose purpose is to hold credentials or keys."""
    if len(path) > LONGEST:
        return False
    notable = _NOTABLE(path)
    if not notable and path.isascii():
        return False
    up = ".." in path  # where a folder is left again, only what is reached counts
    if 0 in notable and not up and not _SETTINGS(path):
        return True
    names = respelled(path) if up else (path, *respelled(path))
    return any(_SECRET(name) and not (_SETTINGS(name) and _TEMPLATES(name)) for name in names or (path,))


_NAMES_OF_SECRETS: Final = Lazy(
    r"(?i)(?:^|[./*])(?:env|pem|p12|pfx|key|ppk|kdbx?|jks|keystore|ovpn)$|(?:^|[/*])\.?(?:netrc|pgpass|pypirc|htpasswd|credentials)$"
)


def names_secrets(pattern: str) -> bool:
    """Whether a pattern of names, with wildcards or as a regular expression, stands for files of secrets."""
    plain = pattern.replace("\\", "").replace(".*/", "").strip("^$").rpartition("/")[2]
    return is_secret_file(plain.strip("*").rstrip(".")) or _NAMES_OF_SECRETS.search(plain) is not None


@remembered
def is_settings_file(path: str) -> bool:
    """Whether the path names settings that usually hold secrets, and hold other things that people look for as well.

    Such a file can be one of secrets too; where both are asked, what is done with it decides: what only reads it is a
    question to a person, and what sends it away sends a secret.
    """
    if len(path) > LONGEST or "." not in path or is_wild(path):
        return False
    names = [path, *respelled(path)] if _NOTABLE(path) or not path.isascii() else [path]
    return any(_SETTINGS(name) and not _TEMPLATES(name) for name in names)


# A path as people write it: from a root, a home or a folder on, with nothing in it that another reader would undo.
_PLAIN_PATH: Final = Lazy(r"^(?:~|[A-Za-z]:)?[/\\]?[\w.@+,=()~#-][\w.@+,=()~# /\\-]*$")


_DEVICE: Final = "\\\\?\\"  # before a path of Windows that nothing else is to be made of


@remembered
def is_plain_path(text: str) -> bool:
    """Whether a text is nothing but a path, written as people write paths, that climbs nowhere."""
    text = text.removeprefix(_DEVICE)
    if len(text) > LONGEST or "//" in text or "\\\\" in text or text != text.strip():
        return False
    parts = text.replace("\\", "/").split("/")
    return all(part.strip(".") or not part for part in parts) and _PLAIN_PATH.match(text) is not None


def respelled(path: str) -> list[str]:
    """The plain spellings of a path that is written in another one; empty for a path that is plain itself.

    Braces are spread, empty and `.` segments left out, `..` carried out, another name of the root taken off; of a
    pattern with wildcards the files among `KNOWN_SECRETS` that it matches, and of a copy what it is a copy of.
    """
    if len(path) > LONGEST:
        return []
    found: dict[str, None] = {}
    for word in spread(path):
        plain = plain_path(word)
        found[plain] = None
        found.update(dict.fromkeys(matched(plain, KNOWN_SECRETS)))
        if (copy := _ORIGINAL.match(plain)) is not None:  # an editor hides what it keeps
            folder, dot, name = (part or "" for part in copy.groups())
            found.update({folder + name: None, folder + dot + name: None})
    found.pop(path, None)
    return list(found)


def _names(path: str, known: Collection[str]) -> bool:
    if path in known:
        return True
    if "/" not in path or len(path) > LONGEST:
        return False
    return any(word in known or any(matched(word, known)) for word in map(plain_path, spread(path)))


def plain_path(path: str) -> str:
    """The path as most people would write it; a text that is none, a URL among them, as it stands.

    `..` is carried out by the names alone: a link in the place of a folder is not followed.
    """
    given = path
    if not path.isascii():
        path = path.encode("utf-8", "replace").decode()  # half of a pair of characters is none
    if not _ODD(path):
        return path
    lowered = path[:17].lower()
    if lowered.startswith("file:"):
        path = path[5:].partition("?")[0]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            path = f"/{rest}" if slash and host.lower() in ("", "localhost", "127.0.0.1") else path
    elif "://" in path:
        return path
    if "\\" in path and (path[1:2] == ":" or "/" not in path):
        path = path.replace("\\", "/").removeprefix("//?/").removeprefix("//./").removesuffix("::$DATA").rstrip(". ")
    if path.startswith("~root") and path[5:6] in ("", "/"):
        path = f"/root{path[5:]}"
    path = f"/proc/self{path[4:]}" if path.startswith("/dev/fd/") else path  # a link to a folder of the process
    absolute, ends = path.startswith("/"), path.endswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if absolute and parts == ["dev", "fd"]:  # a link to the open files of whoever asks (proc(5))
                parts = ["proc", "self"]
            elif parts and parts[-1] not in _STAYS and not parts[-1].startswith("$"):
                parts.pop()
            elif not absolute:
                parts.append(part)
        elif part and part != ".":
            parts.append(part)
    while absolute and len(parts) > 2 and parts[0] == "proc" and parts[2] == "root":  # proc(5): the root once more
        del parts[:3]
    if len(parts) == 3 and absolute and parts[0] == "proc" and parts[2] == "root":
        parts.clear()
    if absolute:
        plain = "/" + "/".join(parts)
    else:
        plain = ("./" if path.startswith("./") and parts else "") + "/".join(parts) or "."
    if "\\" in plain and "/" not in plain:
        return plain_path(plain)  # with nothing else to divide its parts they are those of Windows
    plain = f"{plain}/" if ends and plain != "/" else plain
    came = "\\" in plain and plain[1:2] == ":" and plain != given  # a drive came to the front, and is read as one
    return plain_path(plain) if came else plain


_STAYS: Final = frozenset({"..", "~"})


def spread(word: str) -> list[str]:
    """The words that a shell makes of one with braces (`/etc/{a,b}`, `{1..3}`); at most 128."""
    if "{" not in word:
        return [word]
    waiting = [word]
    done: list[str] = []
    for _ in range(_MOST_BRACED * 4):
        if not waiting:
            break
        text = waiting.pop()
        group = _group(text)
        if group is None or len(waiting) + len(done) >= _MOST_BRACED:
            done.append(text)
            continue
        start, end, members = group
        waiting.extend(text[:start] + member + text[end:] for member in reversed(members))
    return list(dict.fromkeys((*done, *waiting)))


def _group(text: str) -> tuple[int, int, list[str]] | None:
    """The first braces of a word that a shell spreads: where they begin and end, and what stands in them."""
    opened: list[tuple[int, list[int]]] = []
    for at in _signs(text):
        char = text[at]
        if char == "{" and text[at - 1 : at] != "$":
            opened.append((at, []))
        elif char == "," and opened:
            opened[-1][1].append(at)
        elif char == "}" and opened:
            start, commas = opened.pop()
            if commas:
                ends = [start, *commas, at]
                return start, at + 1, [text[a + 1 : b] for a, b in pairwise(ends)]
            members = _sequence(text[start + 1 : at])
            if members:
                return start, at + 1, members
    return None


def _signs(text: str) -> Iterator[int]:
    """Where the signs of braces stand in a text, in their order."""
    following = [(at, sign) for sign in "{,}" if (at := text.find(sign)) >= 0]
    while following:
        at, sign = first = min(following)
        yield at
        following.remove(first)
        if (after := text.find(sign, at + 1)) >= 0:
            following.append((after, sign))


def _sequence(inner: str) -> list[str]:
    match = _RANGE.match(inner)
    if match is None:
        return []
    first, last, low, high = match.groups()
    if first is not None:
        return [chr(code) for code in _steps(ord(first), ord(last))]
    return [str(number) for number in _steps(int(low), int(high))]


def _steps(first: int, last: int) -> Iterator[int]:
    step = 1 if last >= first else -1
    return iter(range(first, last + step, step)[:_MOST_BRACED])


def is_wild(path: str) -> bool:
    """Whether a shell would look for files that match the path."""
    return bool(_WILD(path))


def matched(pattern: str, known: Collection[str]) -> Iterator[str]:
    """The names among `known` that a pattern with wildcards stands for, absolute or by their last segments.

    A last segment with `*` in which no letter is written stands for all of a folder, and for no name in particular.
    """
    if len(pattern) > LONGEST or not is_wild(pattern):
        return
    plain = _BRACKETS.sub("?", _GROUPS.sub("?*", pattern.strip("/").lower()))  # neither reaches beyond a segment
    parts = [part for part in plain.split("/") if part != "**"]
    # `*`, `.*`, `[^a]*` are any name at all; `@(a|b)` is not.
    nameless = bool(parts) and "*" in parts[-1] and not parts[-1].strip("*?.") and "(" not in pattern
    if not parts or nameless or sum(part.count("*") for part in parts) > _MOST_STARS:
        return
    for name in known:
        names = name.strip("/").split("/")
        whole = name.startswith("/")
        if len(parts) < len(names) or (whole and len(parts) != len(names)) or (whole and pattern[:1] not in "/*?["):
            continue
        if all(map(fits, parts[len(parts) - len(names) :], names)):
            yield name


def fits(pattern: str, name: str) -> bool:
    """Whether a segment with `*` and `?` matches a name; neither stands for a leading dot (POSIX.1-2017, 2.13.3)."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    at = text_at = 0
    star, mark = -1, 0
    while text_at < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, mark, at = at, text_at, at + 1
        elif at < len(pattern) and pattern[at] in ("?", name[text_at]):
            at, text_at = at + 1, text_at + 1
        elif star >= 0:
            mark += 1
            at, text_at = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")


def climbs(path: str, folders: int) -> bool:
    """Whether a path leads at least so many folders above its start.

    Both slashes separate, and repeated ones count once. An absolute path that climbs above the root
    counts the climbs that have nothing to leave.
    """
    left = folders
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            left -= 1
            if not left:
                return True
        elif part and part != ".":
            left += 1
    return False
