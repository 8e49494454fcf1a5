"""`aegis init`: everything that a first start needs, once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from support.shell import aegis, gateway, read_json


def test_a_fresh_home_serves_and_its_keys_have_their_roles(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = read_json(aegis("init", "--home", home, "--agent", "bot", "--json"))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "aegis.yaml").stat().st_mode) == 0o600
    assert aegis("config", "check", home / "aegis.yaml").returncode == 0
    assert aegis("doctor", "--home", home).returncode == 0
    call = json.dumps({"tool": "read_file", "arguments": {"path": "a"}})
    with gateway(home) as running:
        env = {"AEGIS_URL": running.url, "AEGIS_API_KEY": made["keys"]["bot"]}
        assert aegis("decide", "-", stdin=call, env=env).returncode == 0
        env["AEGIS_API_KEY"] = made["keys"]["operator"]
        assert aegis("approvals", "list", env=env).returncode == 0
        assert aegis("agents", "list", env=env).returncode == 0
        assert aegis("decide", "-", stdin=call, env=env).returncode == 2


def test_doing_it_again_changes_nothing_and_shows_no_key(tmp_path: Path) -> None:
    home = tmp_path / "home"
    aegis("init", "--home", home)
    (home / "aegis.yaml").write_text("version: 1\nprofile: strict\n")
    before = read_json(aegis("keys", "list", "--home", home, "--json"))
    again = read_json(aegis("init", "--home", home, "--json"))
    assert again["keys"] == {}
    assert {step["state"] for step in again["steps"]} == {"kept"}
    assert (home / "aegis.yaml").read_text() == "version: 1\nprofile: strict\n"
    assert read_json(aegis("keys", "list", "--home", home, "--json")) == before


def test_the_configuration_can_lie_elsewhere(tmp_path: Path) -> None:
    config = tmp_path / "etc" / "aegis.yaml"
    assert aegis("init", "--home", tmp_path / "home", "--config", config).returncode == 0
    assert config.exists()
    assert not (tmp_path / "home" / "aegis.yaml").exists()


def test_a_home_that_others_can_write_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    finished = aegis("init", "--home", home)
    assert finished.returncode == 2
    assert "chmod 700" in finished.stderr


def test_a_template_with_a_typo_is_told_the_one_that_was_meant(tmp_path: Path) -> None:
    finished = aegis("init", "--home", tmp_path / "home", "--template", "cofing")
    assert finished.returncode == 2
    assert "did you mean `coding`?" in finished.stderr
    assert not (tmp_path / "home").exists()
