"""What a program does by several things together, none of which says it alone.

The files of a person are gone over and something is encrypted; a guard of the machine is named and processes are
ended; the clipboard is read and addresses of wallets are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.languages.values import HOLE
from aegis.detect.shell.uses import is_broad, service_resource

_SHOWN: Final = 80
_MOST_NAMES: Final = 4
_ENCRYPTS: Final = Lazy(
    r"(?i)fernet|\.encrypt\w*\s*\(|createcipher|aes\.new|encryptor\s*\(|openssl_encrypt|cryptostream|cipher\.getinstance|"
    r"new(?:gcm|cbcencrypter|ctr|cfbencrypter)\s*\(|secretbox|crypto_secretbox|chacha20"
)
_ANY_NAME: Final = Lazy(rf"[*{HOLE}]")
# Addresses of wallets told apart in what was copied: somebody's is put in the place of another.
_CLIPBOARD: Final = Lazy(r"(?i)clipboard|pyperclip|clipboardy|win32clip")
_WALLET: Final = Lazy(
    r"0x\[(?:a-f|A-F|0-9){2,3}\]|\[13\]\[|bc1\[|\(bc1\||\[a-km-zA-HJ-NP-Z|"
    r"(?i:\b(?:btc|eth|xmr|trx|wallet)_?(?:addr|regex|pattern|wallet))"
)
_KILLS: Final = Lazy(r"(?i)\bkill\w*\s*\(|\.terminate\s*\(|taskkill|\.suspend\s*\(")


def told_together(
    text: str, effects: Iterable[ResourceEffect], strings: Callable[[str], Iterable[str]]
) -> Iterator[ResourceEffect]:
    """Return what a text does beside `effects`, which its calls have by themselves; `strings` are those of a text."""
    found: list[ResourceEffect] = []
    if _ENCRYPTS.search(text) and any(map(_overwrites_broadly, effects)):
        found.append(ResourceEffect("encrypt", "home", "all", (), "", text[:_SHOWN]))
    if "clip" in text and _CLIPBOARD.search(text) and _WALLET.search(text):
        found.append(ResourceEffect("read", "clipboard", "one", (), "", text[:_SHOWN]))
    if _KILLS.search(text):
        guards = [word for word in strings(text) if service_resource(word, "process") == "defence"]
        if guards:
            found.append(ResourceEffect("stop", "defence", "one", tuple(guards[:_MOST_NAMES]), "", guards[0]))
    return iter(found)


def _overwrites_broadly(effect: ResourceEffect) -> bool:
    """Whether what is written or deleted are the files of a person or of a whole system, whichever there are."""
    return effect.verb in ("write", "delete") and any(
        is_broad(_ANY_NAME.split(value)[0].rstrip("/\\"))
        for value in effect.values
        if _ANY_NAME.search(value) is not None
    )
