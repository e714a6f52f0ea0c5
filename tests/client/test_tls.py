"""TLS to a real server: its certificate is checked, unless that is disabled explicitly."""

import shutil
import subprocess
import time

import pytest

from sublet.cli.session import client_of
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, Unavailable
from tests.faults.chaos.servers import Server, free_port
from tests.faults.chaos.topologies import until
from tests.support.command_line import Shell

pytestmark = pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("redis-server")),
    reason="openssl makes certificates, for a server built with TLS",
)
LAX = ["ssl_cert_reqs=none", "ssl_cert_reqs=optional", "ssl_check_hostname=false", "ssl_check_hostname=0"]


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)


def certify(folder, name, subject):
    """Create an authority `<name>-ca.pem`, and a certificate for a server of this subject: `<name>.pem`,
    `<name>.key`.
    """
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", "-x509", *ec, "-keyout", f"{name}-ca.key", "-out", f"{name}-ca.pem", "-subj", f"/CN={name}",
            "-days", "2", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    openssl(folder, "req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=server")
    (folder / f"{name}.ext").write_text(f"subjectAltName={subject}\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{name}-ca.pem", "-CAkey", f"{name}-ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")  # fmt: skip


class Secured:
    """A server with TLS only, and its URLs."""

    def __init__(self, folder, **options):
        self.folder, self.port = folder, free_port()
        certify(folder, "ours", "IP:127.0.0.1")
        certify(folder, "theirs", "IP:127.0.0.1")
        files = {"tls_cert_file": "ours.pem", "tls_key_file": "ours.key", "tls_ca_cert_file": "ours-ca.pem"}
        options |= {name: folder / file for name, file in files.items()}
        self.server = Server(
            folder / "data", binary="redis-server", tls_port=self.port, tls_auth_clients="no", **options
        )

    def url(self, query="", host="127.0.0.1", scheme="rediss", tail=""):
        return f"{scheme}://{host}:{self.port}{tail}" + (f"?{query}" if query else "")

    def trusting(self, name="ours"):
        return f"ssl_ca_certs={self.folder / f'{name}-ca.pem'}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    try:
        server = Secured(tmp_path_factory.mktemp("tls"))
    except Unavailable as error:
        pytest.skip(f"this redis-server was built without TLS: {error}")
    yield server
    server.server.close()


async def test_jobs_are_sent_over_tls_with_a_given_ca(secured):
    settings = Settings(redis_url=secured.url(secured.trusting()), namespace="tls")
    async with Client(settings) as client:
        handle = await client.submit("t", {})
        waited = await client.store.claim(
            worker="w", queues=["none"], n=1, lease=30, wait=0.1
        )  # the blocking connection, too
        assert waited.leases == []
        with SyncClient(settings) as sync:
            assert sync.get(handle.id).state == "queued"


@pytest.mark.parametrize("query", ["", "theirs"], ids=["an unknown authority", "another authority"])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_server_with_an_untrusted_certificate_is_refused(secured, query, kind):
    settings = Settings(redis_url=secured.url(secured.trusting(query) if query else ""), patience=0.2)
    if kind == "sync":
        with (
            SyncClient(settings) as client,
            pytest.raises(Unavailable, match=r"not trusted \(.*certificate verify failed.*ssl_ca_certs="),
        ):
            client.submit("t", {})
    else:
        async with Client(settings) as client:
            with pytest.raises(
                Unavailable, match=r"not trusted \(.*certificate verify failed.*ssl_ca_certs="
            ):
                await client.submit("t", {})


def test_a_certificate_for_another_name_is_refused(secured):
    url = secured.url(secured.trusting(), host="localhost")  # the certificate is for 127.0.0.1
    with (
        SyncClient(Settings(redis_url=url, patience=0.2)) as client,
        pytest.raises(Unavailable, match=r"not trusted \(.*certificate verify failed.*ssl_ca_certs="),
    ):
        client.stats()


@pytest.mark.parametrize("lax", LAX)
def test_a_url_without_certificate_checks_is_refused_unless_allowed_explicitly(
    secured, lax, tmp_path, monkeypatch
):
    url = secured.url(lax)
    for refused in (
        lambda: Settings.read(url),
        lambda: SyncClient(Settings(redis_url=url)),
        lambda: client_of(Settings(redis_url=url)),
    ):
        with pytest.raises(Invalid, match=r"any server could answer instead.*SUBLET_ALLOW_UNVERIFIED_TLS=1"):
            refused()
    monkeypatch.setenv("SUBLET_ALLOW_UNVERIFIED_TLS", "1")
    trusting = secured.url(
        f"{lax}&{secured.trusting()}"
    )  # each of them connects with a correct name or certificate
    with SyncClient(Settings.read(trusting, "tls")) as client:
        client.stats()


def test_the_command_refuses_such_a_url(secured, tmp_path):
    shell = Shell(tmp_path, secured.url("ssl_cert_reqs=none"))
    assert "ssl_cert_reqs=none" in shell.no(2, "queues")
    assert shell.run("queues", SUBLET_ALLOW_UNVERIFIED_TLS="1").returncode == 0


def test_a_cluster_over_tls_is_checked_alike(tmp_path):
    """One node has all slots: the certificate must satisfy the same checks for each."""
    try:
        secured = Secured(
            tmp_path,
            cluster_enabled="yes",
            tls_cluster="yes",
            tls_replication="yes",
            cluster_port=free_port(),
        )
    except Unavailable as error:
        pytest.skip(f"this redis-server was built without TLS: {error}")
    try:
        secured.server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(
            lambda: "ok" in str(secured.server.client.execute_command("CLUSTER INFO")["cluster_state"]),
            "it serves",
            20,
        )
        settings = Settings(redis_url=secured.url(secured.trusting(), scheme="rediss+cluster"), partitions=2)
        with SyncClient(settings) as client:
            assert client.submit("t", {}).created
        for query in ("", secured.trusting("theirs")):
            wrong = Settings(redis_url=secured.url(query, scheme="rediss+cluster"), patience=0.2)
            began = time.monotonic()
            with (
                SyncClient(wrong) as client,
                pytest.raises(Unavailable, match=r"not trusted \(.*certificate verify failed.*ssl_ca_certs="),
            ):
                client.stats()
            assert time.monotonic() - began < 5
        with pytest.raises(Invalid, match="ssl_cert_reqs=none"):
            Settings.read(secured.url("ssl_cert_reqs=none", scheme="rediss+cluster"))
    finally:
        secured.server.close()
