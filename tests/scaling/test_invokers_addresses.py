"""Allowed targets: https on the public internet, unless configured otherwise; in every spelling, and again
when connecting."""

import asyncio
import ipaddress
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sublet.errors import Invalid
from sublet.scaling.invokers import KINDS, allowed_reach, check_target, invokers_of
from sublet.scaling.invokers.addresses import (
    LOOKUPS,
    AddressGuard,
    NotAllowed,
    Reach,
    check_url,
    is_public,
    reach_of,
)
from tests.support.program_runs import soon

INTERNAL = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    *(
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "192.88.99.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
    ),
    *(
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "100::1",
        "5f00::1",
    ),
    *(
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "2002:7f00:1::",
        "2002:808:808::1",
    ),
    *("2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "64:ff9b::127.0.0.1"),
    *("64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "fe80::1%1", "2600::1%1"),
]
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "172.32.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "64:ff9b::8.8.8.8",
]
UNUSUAL = [
    *(
        "127.1",
        "127.0.1",
        "0x7f000001",
        "0x7f.0.0.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "127.0.0.01",
    ),
    *("0", "0x", "1.2.3", "1.2.3.4.5", "256.1.1.1", "example.1", "8.8.8.8.", "0x08080808", "a.0x7f"),
]


@pytest.mark.parametrize("address", INTERNAL)
def test_an_internal_address_is_not_public(address):
    assert not is_public(address)
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(Invalid):
        check_target("http", f"https://{host}/work", reach=Reach.PUBLIC)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_called(address):
    assert is_public(address)
    check_target(
        "http",
        f"https://{f'[{address}]' if ':' in address else address}:8443/work?for=50",
        reach=Reach.PUBLIC,
    )


def test_every_address_that_python_calls_private_is_internal():
    """For every 12-bit prefix of IPv4 and every 16-bit prefix of IPv6."""
    for block in range(1 << 12):
        address = ipaddress.IPv4Address((block << 20) + 1)
        assert address.is_global or not is_public(str(address))
    for block in range(1 << 16):
        address = ipaddress.IPv6Address((block << 112) + 1)
        assert not is_public(str(address)) or (address.is_global and 0x2000 <= block < 0x4000)


@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize("host", UNUSUAL)
def test_an_address_in_an_unusual_spelling_is_refused(host, reach):
    with pytest.raises(Invalid, match="not an address in canonical form"):
        check_url(f"https://{host}/", reach=reach)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://localhost/", "is this machine"),
        ("https://LOCALHOST./", "is this machine"),
        ("https://a.localhost/", "is this machine"),
        ("https://[::1]/", "is this machine"),
        ("https://[::]/", "is this machine"),
        ("https://0.0.0.0/", "is this machine"),
        ("https://[::ffff:127.0.0.1]/", "is this machine"),
        ("https://[::ffff:7f00:1]/", "is this machine"),
        ("https://[64:ff9b::7f00:1]/", "is this machine"),
        ("https://[2002:7f00:1::]/", "is this machine"),
        ("https://127.0.0.1:8377/work", "is this machine"),
        ("https://169.254.1.1/", "is this machine, link-local"),
        ("https://[fe80::1]/", "is this machine, link-local"),
    ],
)
def test_this_machine_and_link_local_addresses_need_a_word_of_their_own(url, why):
    for reach in (Reach.PUBLIC, Reach.PRIVATE):
        with pytest.raises(Invalid, match=f"{why}.*SUBLET_INVOKE_PRIVATE=local"):
            check_url(url, reach=reach)
    check_url(url, reach=Reach.LOCAL)


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://10.1.2.3/", "https://172.31.0.1/", "http://192.168.1.1/", "https://100.64.0.1/",
     "https://[fd12::1]/", "https://[::ffff:10.1.2.3]/", "https://[64:ff9b::10.1.2.3]/"],
)  # fmt: skip
def test_private_networks_may_be_called_if_allowed(url):
    with pytest.raises(Invalid, match="SUBLET_INVOKE_PRIVATE=1 allows it"):
        check_url(url, reach=Reach.PUBLIC)
    check_url(url, reach=Reach.PRIVATE)


METADATA = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192",
            "169.254.42.42", "169.254.0.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42",
            "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::169.254.169.254", "::ffff:0:a9fe:a9fe", "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:5601:5601", "fe80::5efe:a9fe:a9fe",
            "fe80::5efe:a9fe:a9fe%1", "0xa9fea9fe", "2852039166", "169.254.43518", "0251.0376.0251.0376"]  # fmt: skip


@pytest.mark.parametrize("address", METADATA)
def test_metadata_services_of_clouds_are_never_called(address):
    assert reach_of(address) is None
    guard = AddressGuard(Reach.LOCAL)
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
    with pytest.raises(NotAllowed, match="never called"):
        guard.open(info)
    with pytest.raises(Invalid):
        check_url(f"http://{f'[{address}]' if ':' in address else address}/latest/", reach=Reach.LOCAL)


async def test_a_name_of_a_metadata_service_is_not_called():
    guard = AddressGuard(Reach.LOCAL, answering(["169.254.169.254"]))
    with pytest.raises(NotAllowed, match=r"resolves to 169\.254\.169\.254, which is never called"):
        await guard.resolve("metadata.google.internal", 80)


@pytest.mark.parametrize("reach", Reach)
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "visible ASCII"),
        ("https://" + "a" * 2048, "visible ASCII"),
        ("https://exa mple.com/", "visible ASCII"),
        ("https://example.com/\r\nX: y", "visible ASCII"),
        ("https://\uff11\uff12\uff17.0.0.1/", "visible ASCII"),
        ("https://example.com\\@127.0.0.1/", "without a backslash"),
        ("ftp://example.com/", "must begin with https://"),
        ("example.com/work", "must begin with https://"),
        ("https:example.com", "must begin with https://"),
        ("//example.com/", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
        ("https://", "host must be a name"),
        ("https://:443/", "host must be a name"),
        ("https:///work", "host must be a name"),
        ("https://a@example.com/", "must not contain a user"),
        ("https://a:s3cret@example.com/", "must not contain a user"),
        ("https://example.com@127.0.0.1/", "must not contain a user"),
        ("https://example.com/#fragment", "must not have a fragment"),
        ("https://example.com/#", "must not have a fragment"),
        ("https://example.com:0/", "port must be"),
        ("https://example.com:65536/", "is not a valid URL"),
        ("https://example.com:x/", "is not a valid URL"),
        ("https://[::1/", "is not a valid URL"),
        ("https://[fe80::1%25eth0]/", "has a zone"),
        ("https://[1.2.3.4]/", "not an address|not a valid URL"),
        ("https://[v1.x]/", "not an address|not a valid URL"),
        ("https://%31%32%37.0.0.1/", "host must be a name|canonical form"),
        ("https://ex%61mple.com/", "host must be a name"),
        ("https://-a.com/", "host must be a name"),
        ("https://a..com/", "host must be a name"),
        ("https://a.com../", "host must be a name"),
        ("https://exa+mple.com/", "host must be a name"),
    ],
)
def test_an_invalid_url_is_refused_with_the_reason(url, why, reach):
    with pytest.raises(Invalid, match=why) as refused:
        check_url(url, reach=reach)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "https://Example.COM./work?for=50", "HTTPS://xn--bcher-kva.example:443/a%20b"],
)
def test_a_name_is_not_resolved_when_the_pool_is_set(url):
    check_url(url, reach=Reach.PUBLIC)


@pytest.mark.parametrize(
    ("kind", "target", "why"),
    [
        ("ftp", "", "use one of http, lambda, process, none"),
        ("http", "", "must be a URL"),
        ("lambda", "", "the name or ARN of a Lambda function"),
        ("lambda", "https://example.com", "the name or ARN of a Lambda function"),
        ("lambda", "a/../b", "the name or ARN of a Lambda function"),
        ("lambda", "x" * 200, "the name or ARN of a Lambda function"),
        ("process", "tasks:app", "takes no target: it runs the app that is configured"),
        ("none", "https://example.com", "takes no target: it invokes nothing"),
    ],
)
def test_an_invalid_target_of_an_invoker_is_refused(kind, target, why):
    with pytest.raises(Invalid, match=why):
        check_target(kind, target)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("http", "https://example.com/work"),
        ("lambda", "resize"),
        ("lambda", "resize:live"),
        ("lambda", "resize:$LATEST"),
        ("lambda", "123456789012:function:resize"),
        ("lambda", "arn:aws:lambda:eu-central-1:123456789012:function:resize:live"),
        ("lambda", "arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:resize"),
        ("process", ""),
        ("none", ""),
    ],
)
def test_a_valid_target_is_accepted(kind, target):
    assert kind in KINDS
    check_target(kind, target)


def test_the_environment_allows_private_addresses(monkeypatch):
    words = dict.fromkeys(("1", "true", "YES", "On", " 1 "), Reach.PRIVATE)
    words |= dict.fromkeys(("0", "", " ", "false", "No", "OFF"), Reach.PUBLIC)
    words |= dict.fromkeys(("local", " LOCAL"), Reach.LOCAL)
    for value, reach in words.items():
        monkeypatch.setenv("SUBLET_INVOKE_PRIVATE", value)
        assert allowed_reach() is reach
        for needed, host in ((Reach.PRIVATE, "10.0.0.1"), (Reach.LOCAL, "127.0.0.1")):
            if reach >= needed:
                check_target("http", f"http://{host}:8377/work")
            else:
                with pytest.raises(Invalid):
                    check_target("http", f"http://{host}:8377/work")


@pytest.mark.parametrize("value", ["2", "ja", "false, really", "10.0.0.0/8"])
def test_an_unknown_value_does_not_allow_private_addresses(value):
    environment = {"SUBLET_INVOKE_PRIVATE": value, "SUBLET_SIGNING_SECRETS": "k" * 32}
    for ask in (allowed_reach, invokers_of):
        with pytest.raises(
            Invalid, match=f"SUBLET_INVOKE_PRIVATE='{value}': use 1 to allow private networks, local to"
        ):
            ask(environment)


# when connecting


def answering(*answers):
    """A resolver that returns the given answers one by one."""
    left = list(answers)

    async def resolve(host, port, family):
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))
            for one in left.pop(0)
        ]

    return resolve


async def test_a_name_with_any_internal_address_is_refused():
    guard = AddressGuard(Reach.PUBLIC, answering(["8.8.8.8"], ["8.8.8.8", "10.0.0.1"], ["::1"]))
    (found,) = await guard.resolve("example.com", 443)
    assert (found["host"], found["port"], found["flags"]) == (
        "8.8.8.8",
        443,
        socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
    for address in ("10.0.0.1", "::1"):
        with pytest.raises(NotAllowed, match=f"example.com resolves to {address}, which is .*not public"):
            await guard.resolve("example.com", 443)


@pytest.mark.parametrize(
    "address",
    [("127.0.0.1", 80), ("127.1", 80), ("0x7f000001", 80), ("2600::1", 80, 0, 3), ("localhost", 80)],
)
def test_no_socket_is_opened_for_an_internal_address(address):
    guard = AddressGuard(Reach.PUBLIC)
    with pytest.raises(NotAllowed):
        guard.open((socket.AF_INET, socket.SOCK_STREAM, 6, "", address))
    guard.open((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 443))).close()
    if reach_of(address[0]) is not None:
        AddressGuard(Reach.LOCAL).open((socket.AF_INET, socket.SOCK_STREAM, 6, "", address)).close()


async def test_a_name_is_resolved_by_the_system():
    with pytest.raises(NotAllowed, match="localhost resolves to"):
        await AddressGuard(Reach.PUBLIC).resolve("localhost", 443, socket.AF_UNSPEC)
    assert {one["host"] for one in await AddressGuard(Reach.LOCAL).resolve("localhost", 443)} == {"127.0.0.1"}
    with pytest.raises(NotAllowed):
        await AddressGuard(Reach.PUBLIC).resolve("0x7f000001", 443)


@pytest.fixture
def hanging(monkeypatch):
    """Names that begin with `slow` get no answer before the test ends; yields the names that were resolved."""
    real, over, asked = socket.getaddrinfo, threading.Event(), []

    def resolve(host, *args, **how):
        if str(host).startswith("slow"):
            asked.append(host)
            over.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *args, **how)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield asked
    over.set()


async def test_a_hanging_resolver_delays_only_lookups_of_the_same_name(hanging):
    loop, guard = asyncio.get_running_loop(), AddressGuard(Reach.LOCAL)
    loop.set_default_executor(ThreadPoolExecutor(1))
    waiting = [
        asyncio.create_task(guard.resolve(f"slow{i % LOOKUPS}.example", 443)) for i in range(2 * LOOKUPS)
    ]
    await soon(lambda: len(hanging) == LOOKUPS)
    with pytest.raises(socket.gaierror, match="16 other lookups are still under way"):
        await guard.resolve("localhost", 443)
    async with asyncio.timeout(20):
        assert await loop.getaddrinfo("localhost", 443), "other code resolves names with the loop"
        assert await AddressGuard(Reach.LOCAL).resolve("localhost", 443)
        await guard.close()
        assert {type(end) for end in await asyncio.gather(*waiting, return_exceptions=True)} == {
            asyncio.CancelledError
        }
    assert len(hanging) == LOOKUPS


async def test_a_cancelled_lookup_continues_for_other_callers(hanging):
    guard = AddressGuard(Reach.LOCAL)
    first, other = (asyncio.create_task(guard.resolve("slow.example", 443)) for _ in range(2))
    await soon(lambda: hanging)
    first.cancel()
    await asyncio.wait([first], timeout=20)
    assert (first.cancelled(), other.done(), hanging) == (True, False, ["slow.example"])
    await guard.close()
    await asyncio.wait([other], timeout=20)
