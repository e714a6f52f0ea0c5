"""Arguments of the commands for operators."""

from sublet.cli import argument_types as types
from sublet.cli.parser import Command, CommandParser


def _doctor(parser: CommandParser) -> None:
    parser.option(
        "--repair",
        action="store_true",
        default=False,
        help="repair inconsistent data, while workers continue",
    )


def _acl(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--role",
        metavar="A,B",
        type=types.names,
        default=None,
        help="one user with these: submit, work, read, admin, tick",
    )
    option("--to", metavar="FILE", default=None, help="write them to a new file that only you can read")
    option("--password-file", metavar="FILE", default=None, help="lines ROLE:PASSWORD; others are generated")


def _scripts(parser: CommandParser) -> None:
    parser.option(
        "--load",
        action="store_true",
        default=False,
        help="load them into the server now, not at first use",
    )


def _drop(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAMESPACE", help="the namespace")
    parser.option("--yes", action="store_true", default=False, help="do not ask for confirmation")
    parser.option("--force", action="store_true", default=False, help="even if workers are alive there")


COMMANDS = (
    Command(
        "doctor",
        "[--repair]",
        "Check whether the server and the namespace are fit to keep jobs.\nExit 1 if a check is bad.",
        "operations.doctor:doctor",
        _doctor,
        details="With --repair: after an eviction, a bad restore or a DEL, make the stored data\n"
        "consistent again. Exit 1 if something cannot be repaired.",
    ),
    Command(
        "acl",
        "[--role ROLES] [--to FILE]",
        "Print users for Redis's ACL file: for each role its keys and commands, no more.",
        "operations.acl:acl",
        _acl,
        details="A user is named by namespace and role: `sublet-submit`, `sublet-work` and so on.\n"
        "`--role` prints one line, for a server that has an ACL file already; it leaves\n"
        "the user `default` (connections without a name) as it is.",
    ),
    Command(
        "scripts",
        "[--load]",
        "List the Lua scripts with their SHA-1, and whether the server has them.",
        "operations.scripts:scripts",
        _scripts,
    ),
    Command(
        "drop",
        "NAMESPACE [--yes] [--force]",
        "Delete a namespace: all its jobs, queues and settings. Asks first.",
        "operations.drop:drop",
        _drop,
    ),
)
