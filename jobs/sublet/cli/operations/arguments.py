"""Arguments of the commands for operators."""

from sublet.cli import argument_types as types
from sublet.cli.parser import CommandParser


def _doctor(parser: CommandParser) -> None:
    parser.switch("--repair", "repair inconsistent data, while workers continue")


def _audit(parser: CommandParser) -> None:
    parser.option(
        "--limit", metavar="N", type=types.positive_integer, default=20, help="orders per page (20)"
    )
    parser.option("--cursor", metavar="CURSOR", default=None, help="continue after the previous page")


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
    parser.switch("--no-eval", "users that run only loaded scripts (`scripts --load`)")
    option("--password-file", metavar="FILE", default=None, help="lines ROLE:PASSWORD; others are generated")


def _scripts(parser: CommandParser) -> None:
    parser.switch("--load", "load them into the server now, not at first use")
    parser.switch("--text", "with --json: all texts and golden exchanges, for other languages")


def _drop(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAMESPACE", help="the namespace")
    parser.switch("--yes", "do not ask for confirmation")
    parser.switch("--force", "even if workers are alive there")


ARGUMENTS = {"doctor": _doctor, "audit": _audit, "acl": _acl, "scripts": _scripts, "drop": _drop}
