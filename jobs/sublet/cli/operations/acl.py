"""`acl`: Redis users for the roles of a deployment, each with the keys and commands that it needs.

The commands of a script are read from its text.
"""

import hashlib
import os
import re
import secrets
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from sublet.cli.output import document, note, put
from sublet.cli.parser import with_help_hint
from sublet.cli.session import settings_of
from sublet.connection.settings import Settings
from sublet.errors import Invalid, JobsError
from sublet.protocol import keys
from sublet.protocol.scripts import NAMES, script
from sublet.scaling.secrets_file import SecretsFile

SUMMONS = ("summon", "complain")
MAINTENANCE = ("init", "reap", "prune", "pick", "fire", "sample", *SUMMONS)
VERBS = {
    "submit": ("init", "submit", "workflow", "signal", "watch", *SUMMONS),
    "work": (
        "claim",
        "heartbeat",
        "complete",
        "proceed",
        "fail",
        "release",
        "note",
        "emit",
        "step",
        "call",
        "suspend",
        "watch",
        "spend",
        "enlist",
        "reconcile",
        "publish",
        *MAINTENANCE,
    ),
    "read": (),
    "admin": NAMES,
    "tick": MAINTENANCE,
}
"""Role → the scripts that its Redis user may run."""

LOOK = "get getrange hget hstrlen hgetall hmget zscore zmscore hlen hexists exists hscan zrange zcard scard zcount zrank lrange llen zscan xrange xrevrange xread xinfo|stream type time"
PREPARE = "hget info|memory"
CALENDAR = "hgetall hmget zscore time zrange"
PLAIN = {
    "submit": f"{PREPARE} hgetall hmget hkeys hlen lrange zscore xrange time ping subscribe unsubscribe",
    "work": f"{PREPARE} {CALENDAR} zcount zscan hscan exists lrange blpop lpop lpush pexpire ping",
    "read": f"{LOOK} info script|exists",
    "admin": f"{PREPARE} {LOOK} info script|exists script|load scan sscan mget hkeys blpop lpop lpush pexpire ping subscribe unsubscribe",
    "tick": f"{PREPARE} {CALENDAR} zcount ping",
}
"""Role → commands that its user may send without a script (`|`: subcommand)."""

DURABLE = {"none": "", "replicated": "wait", "fsync": "waitaof config|get"}
"""Durability → the commands that it needs."""
OWNER = "default"
"""The user of connections that give no name."""
OPEN = (
    f"{OWNER}: not in this line. A client that gives no name is this user, and may do everything without a password on a "
    "server that has set none for it: run ACL SETUSER default '>PASSWORD' there"
)
LOAD_FIRST = (
    "--no-eval: load the scripts (`sublet scripts --load`) as the user with the role admin, now and whenever Redis was restarted, after a "
    "failover or SCRIPT FLUSH, and before a new version of Sublet; until then these users' calls fail"
)
FILE_MAX = 64 * 1024
SECRET = re.compile(r"[!-~]{16,512}")


class User(NamedTuple):
    """One line of the ACL file; `secret` is a generated password, None if the caller supplied it."""

    name: str
    line: str
    secret: str | None


def acl(args: Namespace) -> int:
    """Print Redis users as lines of an ACL file, or write the file (--to). New passwords are shown once, on
    stderr or in the JSON.
    """
    settings = settings_of(args)
    _check_no_eval(args, settings)
    known = _passwords(args.password_file)
    wanted = [[role] for role in VERBS] if args.role is None else [_roles(args.role)]
    users = [] if args.role else [_user(OWNER, OWNER, "~* &* +@all", known)]
    for roles in wanted:
        short, rules = "+".join(roles), rights(settings, roles, may_eval=not args.no_eval)
        users.append(_user(f"{settings.namespace}-{short}", short, rules, known))
    if known:
        raise Invalid(
            f"{args.password_file} has a password for {min(known)[:80]!r}, which is not one of the users to make: {', '.join([OWNER, *VERBS] if args.role is None else ['+'.join(wanted[0])])}; remove or rename it"
        )
    lines = [user.line for user in users]
    if args.to is not None:
        _write(args.to, lines)
    if args.json:
        document(
            {
                "written": args.to,
                "lines": lines,
                "passwords": {user.name: user.secret for user in users if user.secret},
            }
        )
        return 0
    put(*([f"wrote {args.to}"] if args.to is not None else lines))
    for user in users:
        if user.secret:
            note(f"{user.name}: {_url(settings, user.name, user.secret)}")
    if args.role:
        note(OPEN)
    if args.no_eval:
        note(LOAD_FIRST)
    return 0


def _check_no_eval(args: Namespace, settings: Settings) -> None:
    if not args.no_eval:
        return
    if "admin" in (args.role or ()):
        raise Invalid(
            "--no-eval: a user with the role admin loads scripts, which allows as much as EVAL: leave admin out"
        )
    if settings.durability != "none":
        raise Invalid(
            f"--no-eval: SUBLET_DURABILITY={settings.durability} needs EVAL, for a write before each wait: leave one of them out"
        )


def rights(settings: Settings, roles: Sequence[str], *, may_eval: bool = True) -> str:
    """Return the ACL rules for a user with these roles: keys, channels, commands. Without `may_eval`, only
    `admin` has EVAL.
    """
    bases = [keys.base(settings.namespace, p) for p in range(settings.partitions)]
    verbs = sorted({verb for role in roles for verb in VERBS[role]})
    mode, channels = (
        ("~", [f"&{name}" for base in bases for name in (keys.ended(base), keys.stream(base, "*"))])
        if verbs
        else ("%R~", [])
    )
    places = [f"{mode}{place}" for base in bases for place in (base, f"{base}:*")]
    found = {command for role in roles for command in PLAIN[role].split()}
    found |= {command for verb in verbs for command in commands(verb)} | ({"evalsha"} if verbs else set())
    if verbs and (may_eval or "admin" in roles):
        found.add("eval")
    if {"submit", "admin"} & set(roles):
        found |= set(DURABLE[settings.durability].split())
    database = _database(settings.redis_url)
    found |= {f"select|{database}"} if database else set()
    scheme = settings.redis_url.partition("://")[0]
    found |= {"cluster|slots"} if "cluster" in scheme else {"role"} if "sentinel" in scheme else set()
    if "info" in found:
        found.discard("info|memory")
    return " ".join(
        [
            "resetkeys",
            *places,
            "resetchannels",
            *channels,
            "-@all",
            *(f"+{command}" for command in sorted(found)),
        ]
    )


@cache
def commands(verb: str) -> frozenset[str]:
    """Return the commands that a verb's script can run, library functions included."""
    functions, top = _functions(script(verb).text)
    reached, texts = set[str](), [top]
    for text in texts:
        for name in functions.keys() - reached:
            if re.search(rf"\b{name}\b", text):
                reached.add(name)
                texts.append(functions[name])
    return frozenset(
        word.lower() for text in texts for word in re.findall(r"(?:call|peek)\('([A-Z]+)'", text)
    )


def _functions(text: str) -> tuple[dict[str, str], str]:
    functions: dict[str, str] = {}
    top, own = [], ""
    for line in text.splitlines():
        code = re.sub(r"\s*--.*", "", line)
        begins = re.match(r"local function (\w+)", code)
        if begins:
            own = begins[1]
            functions[own] = code[begins.end() :] + "\n"
        elif own:
            functions[own] += code + "\n"
        else:
            top.append(code)
        if own and (code == "end" or (begins and code.endswith(" end"))):
            own = ""
    return functions, "\n".join(top)


def _database(url: str) -> str:
    parts = urlsplit(url)
    named = parse_qs(parts.query).get("db") or ([] if parts.scheme == "unix" else [parts.path.strip("/")])
    return named[-1] if named and re.fullmatch(r"[1-9]\d{0,4}", named[-1]) else ""


def _roles(given: Sequence[str]) -> list[str]:
    for role in given:
        if role not in VERBS:
            raise Invalid(
                with_help_hint(f"there is no role {role[:40]!r}; there are {', '.join(VERBS)}", "acl")
            )
    return [role for role in VERBS if role in given]


def _user(name: str, short: str, rules: str, known: dict[str, str]) -> User:
    given = known.pop(short, None)
    secret = given or secrets.token_hex(24)
    return User(
        name,
        f"user {name} on #{hashlib.sha256(secret.encode()).hexdigest()} {rules}",
        None if given else secret,
    )


def _passwords(path: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in _lines(path):
        role, colon, secret = line.partition(":")
        if not colon or not SECRET.fullmatch(secret) or role in found:
            raise Invalid(
                f"line {number} of {path} is malformed: write ROLE:PASSWORD, each role once, the password of 16 to 512 visible "
                "characters (Redis keeps a plain SHA-256 of it, so let it be random: openssl rand -hex 24)"
            )
        found[role] = secret
    return found


def _lines(path: str | None) -> Iterator[tuple[int, str]]:
    text = SecretsFile(path, "passwords", FILE_MAX).text() if path is not None else ""
    for number, line in zip(count(1), text.splitlines()):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()


def _write(path: str, lines: Sequence[str]) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise JobsError(
            f"{path} exists already, and its passwords may be in use: move it away first"
        ) from None
    except OSError as error:
        raise JobsError(f"{path} cannot be written: {error.strerror}; give --to another file") from None


def _url(settings: Settings, name: str, secret: str) -> str:
    scheme, _, rest = settings.redis_url.partition("://")
    return f"{scheme}://{quote(name, safe='')}:{quote(secret, safe='')}@{rest.rpartition('@')[2]}"
