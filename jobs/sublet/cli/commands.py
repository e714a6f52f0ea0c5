"""All commands, in the order of the help."""

from sublet.cli.develop.arguments import COMMANDS as DEVELOP
from sublet.cli.jobs.arguments import COMMANDS as JOBS
from sublet.cli.operations.arguments import COMMANDS as OPERATIONS
from sublet.cli.parser import Command
from sublet.cli.schedules.arguments import COMMANDS as SCHEDULES
from sublet.cli.workers.arguments import COMMANDS as WORKERS

GROUPS = {
    "Jobs and queues": JOBS,
    "Schedules": SCHEDULES,
    "Workers and the HTTP API": WORKERS,
    "Operations": OPERATIONS,
    "Development": DEVELOP,
}
COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}
