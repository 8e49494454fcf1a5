"""The scripts that a command line hands to a shell: of `powershell` and `cmd`, and lines among a program's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aegis.detect.shell.catalogue import command_lines
from aegis.detect.shell.powershell_values import decoded_base64

POWERSHELLS: Final = frozenset({"powershell", "pwsh", "powershell_ise", "sqlps", "sqltoolsps"})


def powershell_script(args: Sequence[str]) -> tuple[str, bool]:
    """Return the script on the command line of `powershell`, empty where there is none; and whether it was encoded."""
    at = 0
    while at < len(args):
        word = args[at].lower()
        body = word.lstrip("-/") if word[:1] in "-/" else ""
        if body and ("encodedcommand".startswith(body) or body == "ec"):
            text = decoded_base64(args[at + 1]) if at + 1 < len(args) else None
            return text or "", True
        if body and ("command".startswith(body) or body in {"commandwithargs", "cwa"}):
            return " ".join(args[at + 1 :]), False
        if body and "file".startswith(body):
            return ("& " + " ".join(args[at + 1 :])) if at + 1 < len(args) else "", False
        if word == "-":
            return "", False
        if body:
            takes = any(option.startswith(body) for option in _VALUED) and body not in {"noprofile", "nop"}
            at += 2 if takes and not any(switch.startswith(body) for switch in _POWERSHELL_SWITCHES) else 1
            continue
        return " ".join(args[at:]), False
    return "", False


_VALUED: Final = (
    "executionpolicy", "ep", "windowstyle", "version", "psconsolefile", "inputformat", "outputformat",
    "configurationname", "settingsfile", "workingdirectory", "custompipename", "exec",
)  # fmt: skip
_POWERSHELL_SWITCHES: Final = (
    "noprofile",
    "noninteractive",
    "nologo",
    "noexit",
    "sta",
    "mta",
    "interactive",
    "login",
    "help",
)


def cmd_script(args: Sequence[str]) -> str:
    """Return the command line that `cmd` runs; empty where it waits for one."""
    for at, arg in enumerate(args):
        lowered = arg.lower()
        if lowered in {"/c", "/k", "/r", "-c", "//c"}:
            return " ".join(args[at + 1 :])
        if lowered[:2] in {"/c", "/k"} and len(lowered) > 2:
            return " ".join([arg[2:], *args[at + 1 :]])
        if not lowered.startswith("/"):
            return ""
    return ""


def inner_lines(name: str, args: Sequence[str]) -> list[tuple[str, str]]:
    """Return the command lines that stand among the words of a program, each with the shell that reads it."""
    found: list[tuple[str, str]] = []
    lowered = [arg.lower() for arg in args]
    for entry in (*command_lines().get(name, ()), *command_lines().get("any", ())):
        if any(word in lowered for word in entry.unless):
            continue
        for at, arg in enumerate(lowered):
            if arg in entry.rest:
                found.append((entry.shell, " ".join(args[at + 1 :])))
                break
            for option in entry.after:
                if arg == option and at + 1 < len(args):
                    found.append((entry.shell, args[at + 1]))
                elif arg.startswith(option) and arg[len(option) : len(option) + 1] in {":", "="}:
                    found.append((entry.shell, args[at][len(option) + 1 :]))
                elif option.endswith("=") and arg.startswith(option) and len(arg) > len(option):
                    found.append((entry.shell, args[at][len(option) :]))
        if entry.start:
            plain = [arg for arg in args if arg[:1] not in "-/"]
            if len(plain) >= entry.start:
                found.append((entry.shell, " ".join(args[list(args).index(plain[entry.start - 1]) :])))
    return [(shell, line) for shell, line in found[:16] if line.strip()]
