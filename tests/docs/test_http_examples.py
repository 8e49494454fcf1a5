"""Every operation of the HTTP API has an example, and its curl and its Python do what the page says."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import orjson
import pytest
from reference.http_examples import Example, examples

from aegis.server.table import ENDPOINTS
from support.served import Served, served

HOLDERS = {"agent": "bot", "approver": "ann", "auditor": "auditor", "admin": "root", "": ""}
Ask = Callable[[Example, dict[str, str]], tuple[int, bytes]]


def by_curl(example: Example, variables: dict[str, str]) -> tuple[int, bytes]:
    done = subprocess.run(
        ["sh", "-euc", example.curl], env={"PATH": os.environ["PATH"], **variables}, capture_output=True, check=False
    )
    assert done.returncode in ((0, 28) if example.stream else (0,)), done.stderr
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), body


def by_python(example: Example, variables: dict[str, str]) -> tuple[int, bytes]:
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            exec(compile(example.python, example.endpoint.operation, "exec"), {})
        except HTTPError as error:
            with error:
                return error.code, error.read()
    return example.status, printed.getvalue().encode()


def run_all(gateway: Served, ask: Ask, place: Path) -> dict[str, tuple[int, bytes]]:
    """Every example in its order, with the variables that a reader would have set."""
    place.mkdir()
    (place / ".curlrc").write_text('write-out = "\\n%{http_code}"\n')
    held = gateway.decide("send_email", arguments={"to": f"{place.name}@example.com", "body": "hi"}).json
    kept = {
        "HOME": str(place),
        "AEGIS_URL": f"http://127.0.0.1:{gateway.port}",
        "APPROVAL": held["approval"]["id"],
        "NONE": "0" * 32,
        "NEW": f"new-{place.name}",
        "EXPIRES": str(int(time.time()) + 3_600),
        "CONFIG": (gateway.deployment.home / "aegis.yaml").read_text(),
    }
    wrong = {}
    for operation, example in examples().items():
        key = {"AEGIS_API_KEY": gateway.credentials.text(HOLDERS[example.role])} if example.role else {}
        status, body = ask(example, {**kept, **key})
        if status != example.status:
            wrong[operation] = (status, body[:200])
            continue
        for name, path in example.save.items():
            value = orjson.loads(body)
            for member in path.split("."):
                value = value[int(member) if member.isdigit() else member]
            kept[name] = value
    return wrong


def test_every_operation_has_one_example() -> None:
    assert sorted(examples()) == sorted(endpoint.operation for endpoint in ENDPOINTS)


def test_examples_of_the_http_api_do_what_the_page_says(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        wrong = {
            (ask.__name__, operation): answer
            for ask in (by_curl, by_python)
            for operation, answer in run_all(gateway, ask, tmp_path / ask.__name__).items()
        }
    assert not wrong, "\n".join(map(str, wrong.items()))
