"""The table and the chart that `docs` show of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

Results = Mapping[str, Mapping[str, Any]]

_HEAD: Final = """# Benchmarks

Written by `make bench`. Every figure stands beside a baseline that was measured in the same run on the
same machine: quote the ratios, not the absolute times.

![Cost of one decision](benchmarks.svg)

How the costs developed, as processor time over that of a bare signed append (JSON, hash, signature, row, commit) in
the same moment; each run is a line of `benchmarks/history.jsonl`. `make trend` measures three times and fails where
all three are worse by a fifth than the last line of the same processor.

![Processor time of a decision over that of a bare signed append, by commit](benchmarks-trend.svg)

"""


def table(results: Results) -> str:
    """The results as a page of Markdown."""
    machine = results["machine"]
    lines = [
        _HEAD,
        f"Measured with Aegis {machine['aegis']}, Python {machine['python']}, {machine['system']} "
        f"{machine['machine']}, {machine['cores']} cores.\n",
        "| what | measured | asked | baseline of the same run |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows(results)),
    ]
    return "\n".join(lines) + "\n"


def rows(results: Results) -> Iterator[tuple[str, str, str, str]]:
    """One row a figure: what, measured, asked, baseline."""
    inside = results.get("in_process")
    if inside:
        raw, bare = inside["raw_fdatasync"]["p50"], inside["bare_sqlite_commit"]["p50"]
        place = inside.get("raw_in_place")
        in_place = f" (in place {place['p50']:.0f})" if place else ""
        yield (
            "decision in process, signed, `durability: fsync`, median",
            f"{inside['decide_fsync']['p50']:.0f} us, {inside['fsync_beyond_raw_us']:.0f} us beyond the raw disk",
            "at most 100 us beyond",
            f"raw write and flush {raw:.0f} us{in_place}, bare SQLite commit {bare:.0f} us",
        )
        yield (
            "decision in process, signed, `durability: os`, median",
            f"{inside['decide_os']['p50']:.0f} us (p95 {inside['decide_os']['p95']:.0f})",
            "at most 100 us",
            f"Ed25519 signature alone {inside['sign']['p50']:.0f} us",
        )
    http = results.get("http")
    if http:
        yield (
            "HTTP, one connection, signed and durable, median",
            f"{http['sequential']['p50_ms']:.2f} ms",
            "at most 0.5 ms",
            f"bare server {http['bare_server_sequential']['p50_ms']:.2f} ms",
        )
        yield (
            "HTTP, 32 connections, decisions a second",
            f"{http['connections_32']['per_second']:,.0f} (median {http['connections_32']['p50_ms']:.1f} ms)",
            "at least 6,000, aim 10,000",
            f"bare server {http['bare_server_32']['per_second']:,.0f}",
        )
        wrk = http.get("wrk_32")
        if wrk:
            yield "the same with `wrk`", f"{wrk['per_second']:,}, median {wrk['p50']}", "", ""
        memory = http["gateway_resident_mib"]
        yield "memory of the gateway before and after the load", f"{memory['before']} and {memory['after']} MiB", "", ""
    for store, cost in (results.get("processes") or {}).items():
        yield from process_rows(store, cost)
    size = results.get("argument_size")
    if size:
        for name, cost in size.items():
            if isinstance(cost, dict):
                yield f"decision on {int(name):,} bytes of prose, median", f"{cost['p50'] / 1_000:.2f} ms", "", ""
        yield "cost of 1 MB over cost of 100 kB", f"{size['ratio_1MB_over_100kB']}", "linear: about 10", ""
    length = results.get("log_length")
    if length:
        for name, cost in length.items():
            if isinstance(cost, dict):
                yield f"decision on a log of {int(name):,} receipts, median", f"{cost['p50']:.0f} us", "flat", ""
        yield "longest log over shortest", f"{length['last_over_first']}", "about 1", ""
        yield "offline verification, receipts a second", f"{length['verify_per_second']:,}", "at least 30,000", ""
        yield "export, receipts a second", f"{length['export_per_second']:,}", "", ""
    start = results.get("start_up")
    if start:
        yield "`import aegis`, median", f"{start['import_ms']} ms", "under 150 ms", ""
        yield (
            "opening an embedded gate, first and again",
            f"{start['open_gate_ms'][0]} and {start['open_gate_ms'][-1]} ms",
            "",
            "",
        )
        yield "a key and a gateway, from nothing to ready", f"{start['key_and_gateway_ready_ms']:.0f} ms", "", ""
    for attack, row in (results.get("fairness") or {}).items():
        yield (
            f"another agent's decision while one sends {attack}, median",
            f"{row['decide_ms']:.1f} ms, {row['decide_ratio']:.1f} times its quiet one",
            "under twice",
            f"`/healthz` {row['healthz_ms']:.1f} ms (p99 {row['healthz_p99_ms']:.0f})",
        )
    pages = results.get("cockpit")
    if pages:
        yield from cockpit_rows(pages)
    proxied = results.get("proxies")
    if proxied:
        yield from proxy_rows(proxied)
    hooked = results.get("adapters")
    if hooked:
        for name, cost in hooked.items():
            yield (
                f"adapter of `{name}`, one call beyond the decision, processor time, median",
                f"{cost['beyond_us']:.0f} us",
                "at most 30 us",
                f"the same call without hooks {cost['unhooked_us']:.0f} us",
            )


def process_rows(store: str, cost: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """One process of a gateway and two, over one kind of store."""
    alone, one, two = cost["sequential"], cost["1"], cost["2"]
    yield (
        f"over `{store}`, one connection, durable, median",
        f"{alone['p50_ms']:.2f} ms (p99 {alone['p99_ms']:.1f})",
        "",
        "",
    )
    yield (
        f"over `{store}`, 32 connections, `--workers 2`, decisions a second",
        f"{two['per_second']:,.0f} (median {two['p50_ms']:.1f} ms, p99 {two['p99_ms']:.1f}), "
        f"{cost['two_over_one']:.2f} times one process, {two['processor_us']} us of processor time each",
        "1.6 times one where two cores are free",
        f"one process {one['per_second']:,.0f} (median {one['p50_ms']:.1f} ms, p99 {one['p99_ms']:.1f}), "
        f"{one['processor_us']} us",
    )


def proxy_rows(proxies: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The proxy of a model API, beside the same provider asked directly."""
    first, call, streams = proxies["first_token_ms"], proxies["tool_call_ms"], proxies["streams"]
    yield (
        "model proxy, first token later than directly, median",
        f"{first['later']['median']:.2f} ms (least {first['later']['least']:.2f})",
        "at most 3 ms",
        f"directly {first['direct']['median']:.2f} ms",
    )
    for name, said in (
        ("paced", "a token every 5 ms"),
        ("full_speed", "as fast as they go"),
        ("official", "as fast as the official client reads"),
    ):
        tokens = proxies["tokens"].get(name)
        if tokens is None:  # results of a run that did not measure it
            continue
        share = tokens["share_of_direct"]
        yield (
            f"model proxy, streamed tokens, {said}, share of direct",
            f"{share['median']:.2f} (best of both {share['least']:.2f}), {tokens['proxied_per_second']:,} a second",
            "at least 0.95",
            f"directly {tokens['direct_per_second']:,} a second",
        )
    yield (
        "model proxy, a call of a tool beyond its decision, median",
        f"{call['beyond_the_decision']['median']:.2f} ms (least {call['beyond_the_decision']['least']:.2f})",
        "at most 2 ms",
        f"answer without a call {call['proxied_text']['median']:.2f} ms, decision {call['decision']['median']:.2f} ms",
    )
    yield (
        f"model proxy, {streams['at_once']} streams at once, memory of the gateway",
        f"{streams['resident_most_mib']} MiB, {streams['whole']} whole",
        "under 600 MB",
        f"before {streams['resident_before_mib']} MiB",
    )


def cockpit_rows(cockpit: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The pages of the cockpit over a long log, beside the same pages over a short one."""
    for name, times in cockpit["pages"].items():
        yield (
            f"cockpit, page `{name}`, {cockpit['receipts']:,} receipts, on the server, median",
            f"{times['p50_ms']:.1f} ms (p95 {times['p95_ms']:.1f})",
            "at most 100 ms",
            f"over 1,000 receipts {times['short_p50_ms']:.1f} ms",
        )
    slowest, least = max(cockpit["interactive_ms"].items(), key=itemgetter(1)), min(cockpit["interactive_ms"].values())
    yield (
        "cockpit, from navigation to a page that can be used, Chromium, the slowest page",
        f"{slowest[1]:.0f} ms (`{slowest[0]}`)",
        "at most 1 s",
        f"the fastest of {len(cockpit['interactive_ms'])} pages {least:.0f} ms",
    )
    feed = cockpit.get("live_feed")
    if feed:
        yield (
            f"cockpit, live feed in Chromium, {feed['per_second']} events a second: heap of the page, gateway's memory",
            f"{feed['heap_mib_before']} to {feed['heap_mib_after']} MiB, "
            f"{feed['gateway_mib_before']} to {feed['gateway_mib_after']} MiB",
            "500 a second without growing",
            f"{feed['rows']} rows, {feed['nodes_before']:.0f} to {feed['nodes_after']:.0f} nodes, the last event shown "
            f"after {feed['behind_ms']:.0f} ms",
        )
    yield (
        f"cockpit, counting {cockpit['receipts']:,} receipts once, beside the pages",
        f"{cockpit['counted_s']:.0f} s",
        "",
        f"first visit {cockpit['first_visit_ms']:.0f} ms",
    )


_WIDTH: Final = 720
_BAR: Final = 26
_LEFT: Final = 300


def chart(results: Results) -> str:
    """Medians of one decision beside their baselines, as an SVG bar chart."""
    bars: list[tuple[str, float, str]] = []
    inside, http = results.get("in_process"), results.get("http")
    if inside:
        bars += [
            ("raw write and flush", inside["raw_fdatasync"]["p50"], "base"),
            ("bare SQLite commit", inside["bare_sqlite_commit"]["p50"], "base"),
            ("decision, durability os", inside["decide_os"]["p50"], "ours"),
            ("decision, durability fsync", inside["decide_fsync"]["p50"], "ours"),
        ]
    if http:
        bars += [
            ("bare HTTP server", http["bare_server_sequential"]["p50_ms"] * 1_000, "base"),
            ("decision over HTTP, durable", http["sequential"]["p50_ms"] * 1_000, "ours"),
        ]
    longest = max((value for _, value, _ in bars), default=1.0)
    height = 40 + len(bars) * (_BAR + 10)
    body: list[str] = []
    for position, (name, value, kind) in enumerate(bars):
        y = 30 + position * (_BAR + 10)
        width = max(1.0, (value / longest) * (_WIDTH - _LEFT - 90))
        body.append(f'<text x="{_LEFT - 10}" y="{y + 18}" text-anchor="end">{name}</text>')
        body.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR}" rx="3"/>')
        body.append(f'<text x="{_LEFT + width + 8:.0f}" y="{y + 18}">{value:,.0f} us</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="median cost of one decision beside its baselines">\n'
        "<style>text{font:14px system-ui,sans-serif;fill:#57606a}.base{fill:#afb8c1}.ours{fill:#2f6feb}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )
