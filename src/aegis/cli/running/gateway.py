"""The gateway of one `aegis run`, in a process of its own: `python -m aegis.cli.running`.

(1) standard input says what is wanted, as one line of JSON (`RunWanted`), and then stays open while the command runs
(2) standard output says where the gateway is, one line (`RunGateway`): the agent's key comes this way and no other
(3) standard input ends: what is under way ends, the key is revoked, the calls are counted and the log is verified
(4) standard output says that, one line (`RunCount`)
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aegis.bootstrap import open_deployment, open_state
from aegis.bootstrap.credentials import create_key, revoke_key
from aegis.bootstrap.state import config_file, home_dir
from aegis.cli.output import say, say_problems
from aegis.cli.running.relay import Relay
from aegis.cli.verifying import verify_log
from aegis.config.config import Config, load_config
from aegis.config.document import dump, plain
from aegis.config.trusted import rule_folders
from aegis.core.canonical import call_digest, canonical
from aegis.core.outcome import Outcome
from aegis.core.ports import Entry, Reader, Store
from aegis.errors import AegisError, ConfigError
from aegis.keys.keyring import Keyring
from aegis.proxies.hooks.door import SOCKET as HOOK_SOCKET

if TYPE_CHECKING:
    from aegis.server.serve import GatewayServer

MAX_VERIFIED: Final = 20_000  # receipts: verifying more would keep a person waiting after the command has ended
DRAIN_S: Final = 2
_NAMES: Final = ("mcp_{server}_{tool}", "mcp__{server}__{tool}", "{server}_{tool}", "{server}__{tool}")
_OWN: Final = "aegis:proxies"  # what a request brings along is judged as a call of our own, and is no call of a model


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWanted:
    """What is wanted: the gateway of this home and configuration, with its sockets and files in `folder`.

    `by` is whom the log names for the agent's key. `providers` are those of the environment, for vendors that the
    configuration does not name. `found` is the socket of a gateway that runs already.
    """

    home: str
    folder: str
    agent: str
    by: str
    config: str | None = None
    observe: bool = False
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    found: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGateway:
    """Where the gateway is. `hooks` and `config` are what a hook needs; `dialects` are the APIs of models it serves."""

    port: int
    socket: str
    hooks: str
    config: str | None
    key: str
    dialects: list[str]
    first: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCount:
    """What became of the calls. `would` is what would have become of them, where nothing was enforced.

    `log` is `verifies`, or what is wrong with it, or why nobody looked.
    """

    decisions: dict[str, int]
    would: dict[str, int]
    log: str


def main() -> None:
    """Serve one run; every failure is one line on standard error and exit code 1."""
    wanted = RunWanted(**json.loads(sys.stdin.readline()))
    try:
        home = home_dir(Path(wanted.home))
        path = config_file(None if wanted.config is None else Path(wanted.config), home)
        composed = compose(load_config(path), observe=wanted.observe, providers=wanted.providers)
        if composed is None and wanted.found:
            counted = _join(wanted, home, path)
        else:
            counted = _serve(wanted, home, path, composed)
    except ConfigError as error:
        say_problems(error.problems)
        sys.exit(1)
    except AegisError as error:
        say(str(error), code="refused")
        sys.exit(1)
    _say(counted)


def _say(value: RunGateway | RunCount) -> None:
    sys.stdout.write(json.dumps(asdict(value)) + "\n")
    sys.stdout.flush()


def _join(wanted: RunWanted, home: Path, path: Path | None) -> RunCount:
    """Stand beside a gateway that runs already: programs that only know TCP reach its socket by a relay."""
    state = open_state(path, home)
    try:
        issued = create_key(state, roles=("agent",), agent=wanted.agent, by=wanted.by)
        relay = Relay(wanted.found)
        relay.start()
        gc.enable()
        opened = RunGateway(
            port=relay.port,
            socket=wanted.found,
            hooks=str(home / HOOK_SOCKET),
            config=_named(path),
            key=issued.text,
            dialects=_dialects(state.config),
            first=_size(state.store),
        )
        _say(opened)
        sys.stdin.read()
        relay.close()
        revoke_key(state, issued.key.id, by=wanted.by)
        return count(state.store, state.keyring, wanted.agent, opened.first, observe=wanted.observe)
    finally:
        state.close()


def _serve(wanted: RunWanted, home: Path, path: Path | None, composed: str | None) -> RunCount:
    """Be a gateway over the home, on sockets that nobody else looks for, until standard input ends."""
    from aegis.server.app import create_app
    from aegis.server.serve import SOCKET_NAME, ServeSettings, serve
    from aegis.server.telemetry import configure_logs

    configure_logs("warning")
    folder = Path(wanted.folder)
    if composed is not None:
        path = folder / "aegis.yaml"
        path.write_text(composed, encoding="utf-8")
    deployment = open_deployment(path, home, protected=(folder,))
    try:
        issued = create_key(deployment, roles=("agent",), agent=wanted.agent, by=wanted.by)
        app = create_app(deployment)
        app.models.providers()  # a key that cannot be had is an error now, not at the first request
        app.mcp.upstreams()
        first = _size(deployment.store)

        def ready(server: GatewayServer) -> None:
            threading.Thread(target=_stop_at_end, args=(server,), daemon=True).start()
            _say(
                RunGateway(
                    port=server.port,
                    socket=str(folder / SOCKET_NAME),
                    hooks=str(folder / HOOK_SOCKET),
                    config=_named(path),
                    key=issued.text,
                    dialects=_dialects(deployment.config),
                    first=first,
                )
            )
            app.services.workers.start()

        settings = ServeSettings(port=0, unix=folder / SOCKET_NAME, hooks=folder / HOOK_SOCKET, drain_seconds=DRAIN_S)
        serve(app, settings, ready=ready)
        revoke_key(deployment, issued.key.id, by=wanted.by)
        return count(deployment.store, deployment.keyring, wanted.agent, first, observe=wanted.observe)
    finally:
        deployment.close()


def _stop_at_end(server: GatewayServer) -> None:
    sys.stdin.read()
    server.stop()


def _named(path: Path | None) -> str | None:
    return None if path is None else str(path.expanduser().resolve())


def _size(store: Store) -> int:
    with store.reader() as reader:
        return reader.head().size


def _dialects(config: Config) -> list[str]:
    return sorted({one.dialect for one in config.settings.proxies.providers.values()})


def compose(config: Config, *, observe: bool, providers: dict[str, dict[str, Any]]) -> str | None:
    """The text of the configuration of one run, or `None` where the operator's own serves as it is.

    Providers of the environment are added for vendors that the configuration does not name. With `observe` whatever can
    change or refuse a call only records; the guard of Aegis's own files stays as it is.
    """
    served = set(_dialects(config))
    added = {name: one for name, one in providers.items() if one["dialect"] not in served}
    if not observe and not added:
        return None
    document = plain(config.node)
    document["rules"] = [str(folder) for folder in rule_folders(config)]  # a relative one lies beside the other file
    document["proxies"]["providers"] |= added
    if observe:
        guards = document["guards"]
        for name, guard in [*guards.items(), *guards.get("outside", {}).items()]:
            if name not in ("protected", "outside") and guard.get("mode", "enforce") != "off":
                guard["mode"] = "observe"
        document["judging"]["mode"] = "observe"
        document["containment"] = []
        document["missions"]["required"] = False
        document["proxies"] |= {"history": "judge", "documents": "observe", "texts": "observe"}
    return dump(document)


def count(store: Store, keyring: Keyring, agent: str, first: int, *, observe: bool) -> RunCount:
    """What became of the calls that `agent` made since the receipt `first`, each counted as it was decided first.

    What a host's hook decided is the call that its model's proxy decided before, and what the proxy of a server of
    MCP decided is the call that the hook decided before; the strictest counts.
    """
    proposed: list[Entry] = []
    hooked: list[Entry] = []
    relayed: list[Entry] = []
    seen: set[tuple[str, str, str]] = set()
    with store.reader() as reader:
        size = reader.head().size
        for entry in reader.entries(first, size):
            call = (entry.principal, entry.session, entry.call_id)
            if entry.kind != "decision" or entry.agent != agent or call in seen:
                continue
            server = json.loads(entry.body).get("server") or ""
            if server == _OWN:
                continue
            seen.add(call)
            if entry.principal == f"local:{agent}":
                hooked.append(entry)
            else:
                (relayed if server.startswith("mcp:") else proposed).append(entry)
        decisions = dict.fromkeys((one.word for one in Outcome), 0)
        would = dict(decisions)
        for group in _calls(reader, keyring, proposed, hooked, relayed):
            decisions[max(Outcome[one.decision.upper()] for one in group).word] += 1
            if observe:
                would[max(_would(reader, keyring, one) for one in group).word] += 1
        if size > MAX_VERIFIED:
            return RunCount(decisions=decisions, would=would, log="too long to be verified here")
        verified, broken = verify_log(reader, keyring)
    return RunCount(decisions=decisions, would=would, log="verifies" if verified is not None else str(broken[0].detail))


def _calls(
    reader: Reader, keyring: Keyring, proposed: Sequence[Entry], hooked: Sequence[Entry], relayed: list[Entry]
) -> Iterable[Sequence[Entry]]:
    """The decisions on each call: those of a hook belong to the proposal of their id, else to one of the same call.

    Those of a server's proxy belong to a hook's of the same call, or to the proposal.
    """
    groups = [[one] for one in proposed]
    named = {name: group for group in groups for name in (group[0].call_id, group[0].call_id.rpartition(".")[0])}
    nameless: list[Entry] = []
    for one in hooked:
        group = named.get(one.call_id)
        if group is None:
            nameless.append(one)
        else:
            group.append(one)
    for later, earlier in ((nameless, "agent:"), (relayed, "local:"), (relayed, "agent:")):
        alike: defaultdict[str, deque[list[Entry]]] = defaultdict(deque)
        for group in groups if later else ():
            if group[-1].principal.startswith(earlier) and (later is relayed or len(group) == 1):
                alike[_digest(reader, keyring, group[-1])].append(group)
        for one in list(later):
            same = next((alike[name] for name in _spellings(reader, keyring, one) if alike[name]), None)
            if same:
                same.popleft().append(one)
                later.remove(one)
    return [*groups, *([one] for one in (*nameless, *relayed))]


def _spellings(reader: Reader, keyring: Keyring, entry: Entry) -> Iterator[str]:
    """By what a call may be known elsewhere: its digest, and for a server's tool the names that hosts give models."""
    yield _digest(reader, keyring, entry)
    server = (json.loads(entry.body).get("server") or "").removeprefix("mcp:")
    arguments = _payload(reader, keyring, entry).get("arguments")
    if server and isinstance(arguments, dict):
        for name in _NAMES:
            tool = name.format(server=server, tool=entry.tool)
            yield call_digest(server=None, tool=tool, arguments=canonical(arguments))


def _digest(reader: Reader, keyring: Keyring, entry: Entry) -> str:
    """By what a call is known whatever its id: its digest, or its receipt where nothing of it was recorded."""
    return str(_payload(reader, keyring, entry).get("call_digest", entry.receipt_id))


def _payload(reader: Reader, keyring: Keyring, entry: Entry) -> dict[str, Any]:
    stored = reader.payload(entry.index)
    found: dict[str, Any] = {} if stored is None else json.loads(keyring.open_payload(stored.key, stored.body))
    return found


def _would(reader: Reader, keyring: Keyring, entry: Entry) -> Outcome:
    """The outcome that the guards would have demanded, by the notes that observed ones leave with the payload."""
    outcome = Outcome[entry.decision.upper()]
    for finding in _payload(reader, keyring, entry).get("findings", ()):
        if finding["rule"] == "observed":
            quoted = finding["message"].split("`")
            outcome = max(outcome, Outcome[quoted[1].upper()] if len(quoted) > 1 else Outcome.BLOCK)
    return outcome
