"""The setting on_dead for people: the guide works as written, the command line, the API and the doctor know it."""

import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.pages import blocks, check, page_environment, run, steps
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]
PAGE = (ROOT / "docs" / "guides" / "on-dead.md").read_text()


class Webhook(BaseHTTPRequestHandler):
    """Keeps the JSON of each POST."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(json.loads(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


class Mailbox(socketserver.StreamRequestHandler):
    """Keeps the text of each mail."""

    def handle(self):
        self.say("220 ready")
        while line := self.rfile.readline().decode().strip().upper():
            if line == "DATA":
                self.say("354 go on")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.got.append(text.decode())
            self.say("221 bye" if line == "QUIT" else "250 ok")
            if line == "QUIT":
                return

    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def listening(server):
    server.got = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.real_server
def test_the_guide_sends_a_message_and_a_mail(tmp_path, place, raw):
    for name, text in blocks("python", PAGE):
        (tmp_path / name).write_text(text)
    with (
        listening(ThreadingHTTPServer(("127.0.0.1", 0), Webhook)) as slack,
        listening(MailServer(("127.0.0.1", 0), Mailbox)) as mail,
    ):
        env = {
            name: value
            for name, value in page_environment(tmp_path, place).items()
            if "proxy" not in name.lower()
        }
        env |= {
            "SLACK_WEBHOOK": f"http://127.0.0.1:{slack.server_address[1]}/hook",
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(mail.server_address[1]),
        }
        commands = [*steps(*(text for _, text in blocks("console", PAGE)))]
        for step, answer in zip(commands, run(commands, tmp_path, env), strict=True):
            check(step, *answer)
    line = "Job 0-order-{} (charge) in queue {} is dead after 1 attempts: ValueError"
    assert slack.got == [{"text": line.format(8, "payments")}]
    (text,) = mail.got
    assert "Subject: Job 0-order-7 is dead: ValueError" in text
    assert line.format(7, "default") in text.replace("=\r\n", "")


def test_the_command_line_sets_shows_and_removes_the_setting(shell):
    assert shell.ok("configure", "mail", "--jobs", "5", "--on-dead", "ops/died", said=".*") == (
        "mail: 5 jobs; dead jobs are reported by ops/died"
    )
    shown = shell.json("configure", "mail", "--jobs", "none")
    assert shown == {"queue": "mail", "limits": {}, "on_dead": "ops/died"}
    assert shell.json("configure", "mail", "--on-dead", "none")["on_dead"] is None
    assert "use TASK or QUEUE/TASK" in shell.no(2, "configure", "mail", "--on-dead", "a/b/c")
    assert shell.json("configure", "--on-dead", "died") == {"queue": "*", "limits": {}, "on_dead": "died"}


def test_a_queue_of_another_partition_is_refused(shell):
    many = {"SUBLET_PARTITIONS": "4"}
    shell.ok("submit", "add", **many)
    message = shell.no(2, "configure", "--on-dead", "alerts/died", **many)
    assert "queue alerts is in another partition than the dead jobs: use on_dead died" in message
    shell.ok("configure", "--on-dead", "died", **many)


def test_the_doctor_warns_of_reports_that_no_worker_runs(shell):
    def warnings():
        checks = json.loads(shell.run("doctor", "--json").stdout)["checks"]
        return [each["found"] for each in checks if each["subject"] == "queues" and each["level"] == "warn"]

    shell.ok("configure", "mail", "--on-dead", "ops/add", said=".*")
    assert warnings() == ["dead jobs are reported by ops/add, but no worker serves its queue"]
    worker = shell.start("work", "tasks:app")
    try:
        assert json.loads(worker.stdout.readline())["event"]
        shell.ok("configure", "mail", "--on-dead", "mail/nothing")
        assert warnings() == ["dead jobs are reported by mail/nothing, but no worker has this task"]
        shell.ok("configure", "mail", "--on-dead", "add")
        assert warnings() == []
    finally:
        worker.terminate()
        worker.communicate(timeout=20)
