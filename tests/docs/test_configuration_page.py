"""The page about the configuration is what the model says, and its examples compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aegis.config.compile import compile_policy
from aegis.config.config import parse_config
from aegis.config.settings import PROFILES
from aegis.detect.rules.cache import default_cache_folder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = [part.partition("```")[0] for part in PAGE.split("```yaml\n")[1:]]


def test_the_page_is_what_would_be_written() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "configuration_page.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_example_compiles_under_every_profile(example: str, profile: str) -> None:
    config = parse_config(f"profile: {profile}\n{example}")
    assert (
        compile_policy(config, cache=default_cache_folder()).digest
        == compile_policy(config, cache=default_cache_folder()).digest
    )
