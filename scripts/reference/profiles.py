"""The packaged profiles, as they are."""

from __future__ import annotations

from aegis.config.config import policies_folder
from aegis.config.settings import PROFILES
from reference.markdown import code, page


def render() -> str:
    """The page."""
    folder = policies_folder() / "profiles"
    parts = []
    for name in PROFILES:
        parts += [f"## {name}", code((folder / f"{name}.yaml").read_text(), "yaml")]
    return page(
        "Profiles",
        "A configuration names a profile and is laid over it: mappings merge, everything else replaces. "
        "`aegis config show` prints what is in force.",
        *parts,
    )
