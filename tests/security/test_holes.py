"""Vulnerabilities of Redis: the first release that fixes each, according to its maintainers."""

import pytest

from sublet.operations.diagnosis.server_checks import VULNERABILITIES, first_fixed

LUA, BLOCKED, TLS = VULNERABILITIES


@pytest.mark.parametrize(
    ("vulnerability", "name", "version", "fix"),
    [
        (LUA, "redis", "7.0.15", "7.2.11"), (LUA, "redis", "8.2.2", ""), (LUA, "valkey", "8.1.3", "8.1.4"),
        (BLOCKED, "redis", "6.2.20", ""), (BLOCKED, "redis", "7.0.15", ""), (BLOCKED, "redis", "7.2.13", "7.2.14"),
        (BLOCKED, "redis", "7.2.14", ""), (BLOCKED, "redis", "7.4.8", "7.4.9"), (BLOCKED, "redis", "7.4.9", ""),
        (BLOCKED, "redis", "8.0.4", "8.2.6"), (BLOCKED, "redis", "8.2.5", "8.2.6"), (BLOCKED, "redis", "8.2.6", ""),
        (BLOCKED, "redis", "8.4.2", "8.4.3"), (BLOCKED, "redis", "8.4.3", ""), (BLOCKED, "redis", "8.6.2", "8.6.3"),
        (BLOCKED, "redis", "8.6.3", ""), (BLOCKED, "redis", "8.8.0", ""),
        (BLOCKED, "valkey", "7.2.12", "7.2.13"), (BLOCKED, "valkey", "8.0.8", "8.0.9"), (BLOCKED, "valkey", "8.1.6", "8.1.7"),
        (BLOCKED, "valkey", "8.1.7", ""), (BLOCKED, "valkey", "9.0.3", "9.0.4"), (BLOCKED, "valkey", "9.0.4", ""),
        (BLOCKED, "valkey", "9.1.0", ""),
        (TLS, "redis", "8.2.8", "8.2.9"), (TLS, "redis", "8.2.9", ""), (TLS, "redis", "8.4.5", "8.4.6"),
        (TLS, "redis", "8.8.1", "8.8.2"), (TLS, "redis", "8.10.0", "8.10.1"), (TLS, "redis", "8.10.1", ""),
        (TLS, "redis", "7.4.9", ""), (TLS, "valkey", "9.1.2", ""),
    ],
)  # fmt: skip
def test_a_vulnerable_version_is_reported_with_the_first_fixed_release(vulnerability, name, version, fix):
    assert first_fixed(name, tuple(map(int, version.split("."))), vulnerability) == fix
