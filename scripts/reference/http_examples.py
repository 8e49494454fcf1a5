"""One example of each operation of the HTTP API, for curl and for Python: what the page shows and the tests run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml

from aegis.server.endpoint import ApiEndpoint
from aegis.server.table import ENDPOINTS

_TABLE: Final = Path(__file__).with_name("http_examples.yaml")
_BY_OPERATION: Final = {endpoint.operation: endpoint for endpoint in ENDPOINTS}
_VARIABLE: Final = re.compile(r"'\$([A-Z]+)'")
_SECONDS: Final = "$EXPIRES"  # the one variable that is a number: seconds since 1970, in the year that lies ahead
_STREAM_S: Final = 3  # seconds after which an example of an endless stream stops


@dataclass(frozen=True, kw_only=True)
class Example:
    """One request: who asks, where, with what, and what is expected."""

    endpoint: ApiEndpoint
    role: str
    target: str
    media: str
    body: Any
    status: int
    needs: str
    stream: bool
    save: dict[str, str]

    @property
    def curl(self) -> str:
        """The request as a command of the shell; variables are those of the environment."""
        words = ["curl -sS"]
        words += [f"-X {self.endpoint.method}"] if self.endpoint.method not in ("GET", "POST") else []
        words += ["-X POST"] if self.endpoint.method == "POST" and self.body is None else []
        words += [f"-N --max-time {_STREAM_S}"] if self.stream else []
        words += [f'"$AEGIS_URL{self.target}"']
        words += ['-H "Authorization: Bearer $AEGIS_API_KEY"'] if self.role else []
        if self.body is None:
            return " ".join(words)
        words += [f"-H 'Content-Type: {self.media}'", "--data-binary @- <<BODY"]
        text = self.body if isinstance(self.body, str) else json.dumps(self.body, ensure_ascii=False)
        text = text.replace(f'"{_SECONDS}"', _SECONDS)
        return " ".join(words) + "\n" + text.rstrip("\n") + "\nBODY"

    @property
    def python(self) -> str:
        """The request as a program of the standard library."""
        target = re.sub(r"\$([A-Z]+)", r"{os.environ['\1']}", self.target)
        lines = [
            f"import {name}" for name in (["json"] if isinstance(self.body, dict) else []) + ["os", "urllib.request"]
        ]
        lines += ["", "request = urllib.request.Request(", f"    f\"{{os.environ['AEGIS_URL']}}{target}\","]
        lines += [f'    method="{self.endpoint.method}",']
        headers = []
        if self.role:
            headers.append('"Authorization": f"Bearer {os.environ[\'AEGIS_API_KEY\']}"')
        if self.body is not None:
            headers.append(f'"Content-Type": "{self.media}"')
            shown = repr(self.body).replace(f"'{_SECONDS}'", f'int(os.environ["{_SECONDS[1:]}"])')
            shown = _VARIABLE.sub(r'os.environ["\1"]', shown)
            data = f"json.dumps({shown})" if isinstance(self.body, dict) else shown
            lines += [f"    data={data}.encode(),"]
        lines += [f"    headers={{{', '.join(headers)}}},", ")"]
        lines += [f"with urllib.request.urlopen(request, timeout={_STREAM_S if self.stream else 60}) as answer:"]
        lines += [f"    print(answer.{'readline' if self.stream else 'read'}().decode())"]
        return "\n".join(lines)


def examples() -> dict[str, Example]:
    """Every example by its operation, in the order in which they can be run."""
    table: dict[str, dict[str, Any]] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return {operation: _example(_BY_OPERATION[operation], entry or {}) for operation, entry in table.items()}


def shown(example: Example) -> str:
    """The example as the page has it."""
    needs = f" Without {example.needs} the answer is {example.status}." if example.needs else ""
    return f"Example.{needs}\n\n```sh\n{example.curl}\n```\n\n```python\n{example.python}\n```"


def _example(endpoint: ApiEndpoint, entry: dict[str, Any]) -> Example:
    target = endpoint.path.replace(":path}", "}")
    for name, value in entry.get("path", {}).items():
        target = target.replace(f"{{{name}}}", value)
    if "query" in entry:
        target += "?" + urlencode(entry["query"])
    body = entry.get("body", entry.get("text"))
    if "lines" in entry:
        body = "".join(json.dumps(line) + "\n" for line in entry["lines"])
    return Example(
        endpoint=endpoint,
        role=entry.get("as", ""),
        target=target,
        media="" if endpoint.body is None else endpoint.body.media.partition(";")[0],
        body=body,
        status=entry.get("status", 200),
        needs=entry.get("needs", ""),
        stream=entry.get("stream", False),
        save=entry.get("save", {}),
    )
