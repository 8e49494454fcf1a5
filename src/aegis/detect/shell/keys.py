"""Keys of the registry of Windows as places: their spellings, and what a value of one says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aegis.core.effects import EffectScope, Resource
from aegis.detect.resources import place_of


def key_place(key: str) -> str:
    r"""Return a key of the registry as a path: `hklm/software/x` of `HKEY_LOCAL_MACHINE\Software\Wow6432Node\x`."""
    lowered = key.lower().replace("\\", "/").strip("\"' ")
    if lowered.startswith("//"):
        lowered = lowered[2:].partition("/")[2]
    for prefix in ("microsoft.powershell.core/registry::", "registry::", "registry."):
        lowered = lowered.removeprefix(prefix)
    hive, colon, rest = lowered.partition(":")
    lowered = f"{hive}/{rest}" if colon and "/" not in hive else lowered  # `HKLM:Software` as `HKLM:\Software`
    parts = [part for part in lowered.split("/") if part]
    if not parts:
        return ""
    parts[0] = _HIVES.get(parts[0].rstrip(":"), parts[0].rstrip(":"))
    if parts[0] == "hku" and len(parts) > 1:
        parts[:2] = ["hkcu"]
    parts = [part for part in parts if part != "wow6432node"]
    return "/".join("currentcontrolset" if part.startswith("controlset0") else part for part in parts[:32])


_HIVES: Final = {
    "hkey_local_machine": "hklm", "hkey_current_user": "hkcu", "hkey_classes_root": "hkcr", "hkey_users": "hku",
    "hkey_current_config": "hkcc", "localmachine": "hklm", "currentuser": "hkcu", "classesroot": "hkcr",
}  # fmt: skip
HIVES: Final = frozenset({*_HIVES.values(), *_HIVES})


def is_key(word: str) -> bool:
    """Whether a word is the path of a registry key."""
    head = word.lower().replace("\\", "/").lstrip("/")
    head = head.removeprefix("microsoft.powershell.core/").removeprefix("registry::").removeprefix("registry.")
    return head.partition("/")[0].partition(":")[0] in HIVES


# Hives by the numbers that Windows and the registry's provider of WMI know them by (winreg.h).
_NUMBERED: Final = {
    "80000000": "hkcr", "80000001": "hkcu", "80000002": "hklm", "80000003": "hku", "80000005": "hkcc",
    "2147483648": "hkcr", "2147483649": "hkcu", "2147483650": "hklm", "2147483651": "hku", "2147483653": "hkcc",
}  # fmt: skip


def numbered_hive(word: str) -> str:
    """Return the hive of which a word is the number; empty for every other word."""
    return _NUMBERED.get(word.strip().lower().removeprefix("0x").removeprefix("&h").removeprefix("&").rstrip("l"), "")


def value_place(place: str, names: Sequence[str], data: str) -> tuple[Resource, EffectScope, str]:
    """Return what a key is where a value of it is set, by the value's name and data."""
    whole = key_at(place)  # what is said of every value of the key, which need not hold for this one
    for name in names:
        found = key_at(f"{place}/{name.replace('/', ' ')}={plain_number(data)}")
        if _switches_on(name.lower(), plain_number(data)) and (found and found[0]) == (whole and whole[0]):
            return "setting", "one", place
        if found is not None:
            return found
    return whole or ("setting", "one", place)


def _switches_on(name: str, data: str) -> bool:
    """Whether a value of a key switches on what it is called after, or no longer switches it off."""
    if "insecure" in name or "guest" in name:
        return False
    return (name.startswith("enable") and data == "1") or (name.startswith(("disable", "no")) and data == "0")


def plain_number(text: str) -> str:
    """Return the data of a value in one spelling, with no sign that divides a path."""
    lowered = text.lower().removeprefix("0x").lstrip("0")
    return lowered.replace("/", " ").replace("\\", " ") if lowered else "0" if text else ""


def key_at(place: str) -> tuple[Resource, EffectScope, str] | None:
    """Return what stands at the path of a key, or of a value behind it; `None` for nothing in particular."""
    found = place_of(place)
    if found is None:
        return None
    return found.resource, "all" if found.whole and "=" not in place else "one", place


def written_value(place: str, name: str, data: str) -> tuple[Resource, EffectScope, str] | None:
    """Return what a value of a key is that is written; `None` where the key is of no particular kind."""
    whole = key_at(key_place(place))
    found = key_at(f"{key_place(place)}/{name.lower()}={plain_number(data)}")
    switches = _switches_on(name.lower(), plain_number(data)) and (found and found[0]) == (whole and whole[0])
    return None if switches else found or whole
