"""Signed requests according to Standard Webhooks, with secrets that can be rotated and are never shown."""

import base64
import os
import shutil
import subprocess
import time

import pytest

from sublet.errors import Invalid
from sublet.scaling import secrets_file
from sublet.scaling import signing as module
from sublet.scaling.signing import Secrets, Unsigned

ONE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another-secret-of-32-characters!").decode()
PLAIN = "a-plain-secret-of-ours"
PUBLISHED = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""With ONE and BODY, a test vector of Standard Webhooks' reference libraries."""
BODY = b'{"test": 2432232314}'
AT = 1614265330


@pytest.fixture
def checked_at_once(monkeypatch):
    monkeypatch.setattr(secrets_file, "CHECK_EVERY", 0.0)


def test_a_signature_is_that_of_the_published_vector():
    assert Secrets(ONE).sign(PUBLISHED["webhook-id"], BODY, at=AT) == PUBLISHED
    assert Secrets(ONE).verify(PUBLISHED, BODY, at=AT) == PUBLISHED["webhook-id"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl computes the expected signature")
@pytest.mark.parametrize(
    ("secret", "key"), [(ONE, base64.b64decode(ONE[6:])), (PLAIN, PLAIN.encode())], ids=["coded", "plain"]
)
def test_openssl_makes_the_same_signature(secret, key):
    signed = Secrets(secret).sign("an-id", BODY, at=AT)
    words = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key.hex()}", "-binary"]
    made = subprocess.run(
        words, input=b"an-id.%d." % AT + BODY, capture_output=True, check=True, timeout=30
    ).stdout
    assert signed["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"


def test_our_signatures_and_those_of_the_reference_library_are_compatible():
    reference = pytest.importorskip("standardwebhooks")
    ours = Secrets(f"{ONE} {OTHER}").sign("an-id", BODY)
    for secret in (ONE, OTHER):
        reference.Webhook(secret).verify(BODY, ours)
    from datetime import UTC, datetime

    moment = datetime.now(UTC)
    theirs = {"webhook-id": "an-id", "webhook-timestamp": str(int(moment.timestamp()))}
    theirs["webhook-signature"] = reference.Webhook(OTHER).sign("an-id", moment, BODY.decode())
    assert Secrets(f"{ONE} {OTHER}").verify(theirs, BODY) == "an-id"


def test_during_a_rotation_old_and_new_secrets_are_compatible():
    old, both, new = Secrets(ONE), Secrets(f"{OTHER}\n{ONE}"), Secrets(OTHER)
    for sender, receiver in [(old, both), (both, old), (both, new), (new, both)]:
        assert receiver.verify(sender.sign("an-id", BODY), BODY) == "an-id"
    with pytest.raises(Unsigned, match="the signature does not match"):
        new.verify(old.sign("an-id", BODY), BODY)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "another"},
        {"webhook-timestamp": str(AT + 1)},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1," + "A" * 43 + "="},
        {"webhook-signature": PUBLISHED["webhook-signature"].replace("v1", "v2")},
        {"webhook-signature": PUBLISHED["webhook-signature"][3:]},
        {"webhook-signature": "v1,\udcff\u0131"},
        {"webhook-signature": " ".join(["v1,AAAA"] * 40 + [PUBLISHED["webhook-signature"]])},
    ],
)
def test_a_changed_request_is_refused(change):
    with pytest.raises(Unsigned, match="the signature does not match"):
        Secrets(ONE).verify(PUBLISHED | change, BODY, at=AT)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": ""},
        {"webhook-id": "x" * 300},
        {"webhook-id": "a b"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1614265330.5"},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "١٦١٤٢٦٥٣٣٠"},
    ],
)
def test_invalid_headers_are_refused(change):
    with pytest.raises(Unsigned, match="needs valid headers webhook-id"):
        Secrets(ONE).verify(PUBLISHED | change, BODY, at=AT)


def test_another_body_is_refused():
    with pytest.raises(Unsigned, match="the signature does not match"):
        Secrets(ONE).verify(PUBLISHED, BODY + b" ", at=AT)


@pytest.mark.parametrize(("apart", "why"), [(301, "is 301 s old"), (-301, "is 301 s in the future")])
def test_the_clocks_may_differ_by_five_minutes_at_most(apart, why):
    secrets = Secrets(ONE)
    secrets.verify(PUBLISHED, BODY, at=AT + apart + (1 if apart < 0 else -1))
    with pytest.raises(Unsigned, match=why):
        secrets.verify(PUBLISHED, BODY, at=AT + apart)


def test_a_wrong_signature_is_reported_before_a_wrong_time():
    with pytest.raises(Unsigned, match="the signature does not match"):
        Secrets(OTHER).verify(PUBLISHED, BODY, at=time.time())


def test_every_signature_is_compared_with_every_secret(monkeypatch):
    seen, real = [], module.hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or real(a, b))
    signed = Secrets(f"{ONE} {OTHER}").sign("an-id", BODY)
    Secrets(f"{ONE} {OTHER} {PLAIN}").verify(signed, BODY)
    assert len(seen) == 6


def test_without_a_secret_requests_are_neither_signed_nor_accepted():
    assert not Secrets()
    with pytest.raises(Invalid, match="no signing secret is configured: set SUBLET_SIGNING_SECRETS"):
        Secrets().sign("an-id", BODY)
    with pytest.raises(Unsigned):
        Secrets().verify(PUBLISHED, BODY, at=AT)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("short", "word 1: a secret must have 16 to 512 bytes:"),
        (f"{ONE} x", "word 2: a secret must have 16 to 512 bytes:"),
        ("whsec_", "word 1: a secret must have 16 to 512 bytes when decoded"),
        ("whsec_c2hvcnQ=", "bytes when decoded"),
        ("whsec_not*base64*at*all", "must be base64"),
        ("x" * 513, "16 to 512 bytes:"),
        (" ".join(f"{PLAIN}-{n}" for n in range(9)), "9 signing secrets: at most 8"),
    ],
)
def test_an_invalid_secret_is_refused_without_being_shown(words, why):
    with pytest.raises(Invalid, match=why) as refused:
        Secrets(words)
    assert not any(word in str(refused.value) for word in words.split() if len(word) > 6)


def test_representations_contain_no_secret():
    secrets = Secrets(f"{ONE} {PLAIN}")
    assert repr(secrets) == str(secrets) == "<2 signing secrets>"
    assert (len(secrets), len(Secrets(f"{ONE} {ONE}"))) == (2, 1)


def test_base64_may_be_without_its_padding():
    padded = base64.b64encode(b"x" * 17).decode()
    assert padded.endswith("=")
    signed = Secrets(f"whsec_{padded}").sign("an-id", BODY)
    assert Secrets(f"whsec_{padded.rstrip('=')}").verify(signed, BODY) == "an-id"


# the file


def test_secrets_come_from_the_environment_and_from_a_file(tmp_path):
    file = tmp_path / "secrets"
    file.write_text(f"\ufeff# the new one\n{OTHER}   # since May\n\n{PLAIN}#1\n")
    found = Secrets.read({"SUBLET_SIGNING_SECRETS": ONE, "SUBLET_SIGNING_SECRETS_FILE": str(file)})
    assert len(found) == 3
    assert found.verify(Secrets(f"{PLAIN}#1").sign("an-id", BODY), BODY) == "an-id"
    assert not Secrets.read({})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "contains no secret"),
        ("# only a comment\n", "contains no secret"),
        ("short\n", "line 1: word 1"),
        ("x" * 70_000, "more than"),
    ],
)
def test_an_invalid_file_is_refused_at_the_start(tmp_path, text, why):
    file = tmp_path / "secrets"
    file.write_text(text)
    with pytest.raises(Invalid, match=why):
        Secrets("", file)


def test_a_path_that_is_not_a_regular_file_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="not a regular file"):
        Secrets("", tmp_path / "pipe")
    with pytest.raises(Invalid, match="nowhere cannot be read: No such file"):
        Secrets("", tmp_path / "nowhere")


def test_a_changed_file_is_read_again_and_an_invalid_one_revokes_nothing(tmp_path, checked_at_once, caplog):
    file = tmp_path / "secrets"
    file.write_text(f"{ONE}\n")
    secrets = Secrets("", file)
    signed = Secrets(OTHER).sign("an-id", BODY)
    (tmp_path / "new").write_text(f"{OTHER}\n")
    os.replace(tmp_path / "new", file)
    assert secrets.verify(signed, BODY) == "an-id"
    assert "has changed: 1 signing secrets are valid now" in caplog.text
    for spoil in (lambda: file.write_text("short\n"), file.unlink):
        spoil()
        assert secrets.verify(signed, BODY) == "an-id"
    assert "previous secrets stay valid" in caplog.text
    assert secrets.sign("an-id", BODY, at=AT) == Secrets(OTHER).sign("an-id", BODY, at=AT)
    assert OTHER not in caplog.text


def test_a_file_is_not_checked_for_every_request(tmp_path):
    file = tmp_path / "secrets"
    file.write_text(f"{ONE}\n")
    secrets = Secrets("", file)
    file.write_text(f"{OTHER}\n")
    assert secrets.sign("an-id", BODY, at=AT) == Secrets(ONE).sign("an-id", BODY, at=AT)
