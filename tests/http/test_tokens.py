"""Bearer tokens: names, roles, changes, and no secret in any output."""

import logging
import os

import pytest

from sublet.errors import Invalid
from sublet.scaling import secrets_file
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES
from sublet_functions.http import auth as module
from sublet_functions.http.auth import LOCAL, Principal, Role, Tokens, is_loopback
from sublet_functions.http.request import Request

ONE, TWO, THREE = "a1a1a1a1a1a1a1a1", "b2b2b2b2b2b2b2b2._~+/=-", "c3c3c3c3c3c3c3c3"


def principal(name, *roles):
    return Principal(name, frozenset(roles))


@pytest.fixture
def checked_at_once(monkeypatch):
    monkeypatch.setattr(secrets_file, "CHECK_EVERY", 0.0)


def test_a_token_names_its_principal_and_roles():
    tokens = Tokens(f"ci:submit,read:{ONE}\n boss:admin:{TWO}")
    assert tokens.principal(f"Bearer {ONE}") == principal("ci", Role.SUBMIT, Role.READ)
    assert tokens.principal(f"bearer   {TWO} ") == principal("boss", Role.ADMIN)
    assert (tokens.needed, len(tokens)) == (True, 2)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer ", ONE, f"Basic {ONE}", f"Bearer {ONE}x", f"Bearer {ONE[:-1]}", f"Bearer {ONE} {ONE}",
        f"Bearer{ONE}", f"Bearer ci:submit,read:{ONE}", f"Bearer \u00e4{ONE}", f"Bearer \udcff{ONE}", f"Bearer\t{ONE}",
        "Bearer " + "x" * 100_000,
    ],
)  # fmt: skip
def test_an_unknown_token_is_refused(header):
    assert Tokens(f"ci:submit,read:{ONE}").principal(header) is None


def test_several_tokens_may_have_one_name():
    tokens = Tokens(f"ci:submit:{ONE} ci:submit:{TWO} ci:read:{THREE}")
    assert (
        tokens.principal(f"Bearer {ONE}") == tokens.principal(f"Bearer {TWO}") == principal("ci", Role.SUBMIT)
    )
    assert tokens.principal(f"Bearer {THREE}") == principal("ci", Role.READ)


def test_a_token_is_compared_as_a_digest_with_all_tokens(monkeypatch):
    seen = []
    real = module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or real(a, b))
    tokens = Tokens(f"a:work:{ONE} b:work:{TWO} c:work:{THREE}")
    assert tokens.principal(f"Bearer {ONE}") == principal("a", Role.WORK)
    assert len(seen) == 3
    assert {len(one) for pair in seen for one in pair} == {32}


def test_submit_and_tick_may_be_open_without_a_token():
    """A request without a token may use these roles, and no others."""
    tokens = Tokens(f"boss:admin:{ONE}", open_for="tick, submit")
    assert (
        tokens.open_principal(frozenset({Role.TICK}))
        == tokens.open_principal(frozenset(Role))
        == principal("open", Role.TICK, Role.SUBMIT)
    )
    assert tokens.open_principal(frozenset({Role.READ, Role.WORK, Role.ADMIN})) is None
    assert tokens.principal(None) is tokens.principal(f"Bearer {TWO}") is None
    assert tokens.principal(f"Bearer {ONE}") == principal("boss", Role.ADMIN)
    alone = Tokens(open_for="tick")
    assert (alone.needed, len(alone), alone.principal(None)) == (True, 0, None)
    assert alone, "otherwise `tokens or Tokens()` would open every route"
    assert not Tokens(open_for=" , ").needed
    assert Tokens(f"boss:admin:{ONE}").open_principal(frozenset(Role)) is None


async def test_only_the_routes_of_events_can_be_open():
    api = Api(None, Tokens(open_for="tick,submit"))
    for route in ROUTES:
        for headers in ({}, {"authorization": f"Bearer {ONE}"}, {"authorization": ""}):
            path = route.path.replace("{id}", "0-no").replace("{", "").replace("}", "")
            answer = await api.answer(Request(route.method, path, "no=no", {"host": "localhost", **headers}))
            open_to_all = not route.roles or (
                (route.method, path) in (("POST", "/tick"), ("POST", "/jobs")) and not headers
            )
            assert (answer.status != 401) == open_to_all, (route.method, path, headers)


@pytest.mark.parametrize("roles", ["admin", "read", "work", "tick,admin", "everything"])
def test_no_other_role_can_be_open(roles):
    with pytest.raises(Invalid, match="SUBLET_OPEN: use tick or submit"):
        Tokens(open_for=roles)


def test_without_tokens_all_roles_are_granted():
    tokens = Tokens()
    assert not tokens.needed
    assert tokens.principal(None) is tokens.principal(f"Bearer {ONE}") is LOCAL


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("hunter2hunter2hunter2", "word 2 is not NAME:ROLES:SECRET"),
        ("ci:hunter2hunter2hunter2", "word 2 is not NAME:ROLES:SECRET"),
        ("hunter2hunter2hunter2:submit:ci", "16 to 512"),
        (":submit:hunter2hunter2hunter2", "word 2: name: use"),
        ("hunter2hunter2hunter2!:submit:ci", "word 2: name: use"),
        ("ci:hunter2hunter2hunter2:submit", "word 2: roles: use"),
        (
            "ci:submit,root:hunter2hunter2hunter2",
            "use one or more of submit, work, read, payloads, metrics, admin, tick",
        ),
        ("ci::hunter2hunter2hunter2", "roles: use"),
        ("ci:submit,:hunter2hunter2hunter2", "roles: use"),
        ("ci:submit:hunter2", "16 to 512"),
        ("ci:submit:hunter2hunter2hunter2:", "16 to 512"),
        ("ci:submit:hunter2hunter2h\u00fcnter2", "openssl rand"),
        ("ci:submit:hunter2" + "x" * 600, "16 to 512"),
    ],
)
def test_an_invalid_token_is_named_by_its_position_and_not_shown(word, why):
    with pytest.raises(Invalid) as error:
        Tokens(f"ok:work:{ONE} {word}")
    assert why in str(error.value)
    assert "hunter2" not in str(error.value)
    assert ONE not in str(error.value)


def test_two_principals_cannot_share_a_secret():
    with pytest.raises(Invalid, match="same secret") as error:
        Tokens(f"a:work:{ONE} b:work:{ONE}")
    assert ONE not in str(error.value)
    with pytest.raises(Invalid, match="same secret"):
        Tokens(f"a:work:{ONE} a:read:{ONE}")
    assert len(Tokens(f"a:work:{ONE} a:work:{ONE}")) == 1


def test_tokens_keep_no_secret_in_memory():
    tokens = Tokens(f"a:work:{ONE}")
    assert repr(tokens) == "<1 tokens>"
    assert ONE not in repr(vars(tokens))


def test_tokens_come_from_the_environment_and_from_a_file(monkeypatch, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"\ufeff# the roles\n\nci:submit:{TWO}   # the pipeline\n")
    monkeypatch.setenv("SUBLET_TOKENS", f"boss:admin:{ONE}")
    monkeypatch.setenv("SUBLET_TOKENS_FILE", str(file))
    assert len(Tokens.read()) == 2
    other = tmp_path / "other"
    other.write_text(f"cron:tick:{THREE}")
    tokens = Tokens.read(str(other))
    assert tokens.principal(f"Bearer {THREE}") == principal("cron", Role.TICK)
    assert tokens.principal(f"Bearer {TWO}") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no tokens"),
        ("# none yet\n", "has no tokens"),
        (f"a:work:{ONE}\nhunter2hunter2\n", "line 2 is not NAME"),
        (f"boss:work:{ONE}", "same secret"),
        ("#" * (1024 * 1024 + 1), "more than 1,048,576"),
    ],
)
def test_an_invalid_file_is_refused_at_the_start(tmp_path, text, why):
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(Invalid, match=why) as error:
        Tokens(f"boss:admin:{ONE}", tmp_path / "tokens")
    assert "hunter2" not in str(error.value)


def test_a_missing_file_is_refused_at_the_start(tmp_path):
    with pytest.raises(Invalid, match=r"nowhere cannot be read: No such file"):
        Tokens("", tmp_path / "nowhere")
    with pytest.raises(Invalid, match="cannot be read"):
        Tokens("", tmp_path)


def test_a_changed_file_is_read_again(tmp_path, checked_at_once, caplog):
    file = tmp_path / "tokens"
    file.write_text(f"ci:submit:{ONE}\n")
    tokens = Tokens("", file)
    file.write_text(f"ci:submit:{ONE}\nci:submit:{TWO}\n")
    assert tokens.principal(f"Bearer {TWO}") == principal("ci", Role.SUBMIT)
    assert tokens.principal(f"Bearer {ONE}") is not None
    (tmp_path / "new").write_text(f"ci:submit:{TWO}\n")
    os.replace(tmp_path / "new", file)
    assert tokens.principal(f"Bearer {ONE}") is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert not {ONE, TWO} & set(caplog.text.split())


def test_a_file_is_not_checked_for_every_request(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ci:submit:{ONE}\n")
    tokens = Tokens("", file)
    file.write_text(f"ci:submit:{ONE}\nci:submit:{TWO}\n")
    assert tokens.principal(f"Bearer {TWO}") is None


@pytest.mark.parametrize("text", [None, "", "hunter2hunter2", f"ci:submit:{ONE}\nci:root:{THREE}"])
def test_an_invalid_change_of_the_file_keeps_the_previous_tokens(tmp_path, checked_at_once, caplog, text):
    file = tmp_path / "tokens"
    file.write_text(f"ci:submit:{ONE}\n# more to come\n")
    tokens = Tokens("", file)
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    for _ in range(3):
        assert tokens.principal(f"Bearer {ONE}") == principal("ci", Role.SUBMIT)
        assert tokens.principal(None) is None
        assert tokens.principal(f"Bearer {THREE}") is None
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "1 tokens read before stay valid" in record.message
    assert "hunter2" not in caplog.text
    file.write_text(f"ci:submit:{TWO}\n")
    assert tokens.principal(f"Bearer {TWO}") is not None


def test_a_path_that_is_not_a_regular_file_is_never_opened(tmp_path, checked_at_once, caplog, monkeypatch):
    """Opening a pipe blocks until a writer comes, and a device may be endless."""
    file, pipe = tmp_path / "tokens", tmp_path / "pipe"
    file.write_text(f"ci:submit:{ONE}\n")
    os.mkfifo(pipe)
    tokens = Tokens("", file)
    monkeypatch.setattr(module.Path, "open", lambda *a, **k: pytest.fail("opened"))
    for odd in (pipe, "/dev/zero", tmp_path):
        with pytest.raises(Invalid, match="cannot be read: it is not a regular file"):
            Tokens("", odd)
    os.replace(pipe, file)
    for _ in range(2):
        assert tokens.principal(f"Bearer {ONE}") is not None
    (record,) = caplog.records
    assert "not a regular file; the 1 tokens read before stay valid" in record.message


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8377", "LOCALHOST", "127.0.0.1:80", "127.9.9.9", "[::1]:8377", "[::1]"]
)
def test_without_tokens_loopback_host_names_are_accepted(host):
    assert Tokens().untrusted_reason({"host": host}) == ""


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8377", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]",
     "localhost:port", "evil@localhost", "localhost/x", "localhost#", "[::1", "0.0.0.0",
     "localhost:99999", "127.0.0.1, evil.example", "127.0.0.1%evil.example", "[::1%lo]", "[::1%25evil.example]"],
)  # fmt: skip
def test_without_tokens_other_host_names_are_refused(host):
    assert "localhost" in Tokens().untrusted_reason({"host": host})
    assert Tokens(f"a:work:{ONE}").untrusted_reason({"host": host}) == ""


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:8377"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"x-forwarded-for": "203.0.113.7"}, True),
        ({"forwarded": "for=203.0.113.7"}, True),
        ({"via": "1.1 proxy"}, True),
        ({"x-real-ip": "203.0.113.7"}, True),
        ({"x-forwarded-host": "jobs.example"}, True),
        ({"x-forwarded-proto": "https"}, True),
    ],
)
def test_without_tokens_cross_site_requests_and_proxies_are_refused(headers, refused):
    assert bool(Tokens().untrusted_reason({"host": "localhost:8377"} | headers)) is refused


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", False), ("::1%lo", True),
     ("0.0.0.0", False), ("::", False), ("localhost", True), ("example.org", False), ("", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_loopback(host, answer):
    assert is_loopback(host) is answer
