"""Stands for `python -m sublet`: sends the command to the command server (command_server.py), and ends as it ends.

Without a server it starts Python.
"""

import array
import os
import signal
import socket
import sys


def main() -> int:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(f"\0{os.environ.get('TEST_COMMAND_SERVER', '')}")
        folder, mask = os.getcwd(), os.umask(0)
        os.umask(mask)
        words, environment = sys.argv[1:], [f"{name}={value}" for name, value in os.environ.items()]
        _send(server, [folder, str(mask), str(len(words)), *words, *environment])
    except OSError:
        os.execv(sys.executable, [sys.executable, "-m", "sublet", *sys.argv[1:]])
    replies = server.makefile("r")
    child = int(replies.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os.kill(child, number))
    code = int(replies.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _send(server, words):
    """Send the words, separated by zeros, after their size; with them go the standard streams."""
    body = os.fsencode("\0".join(words))
    data = b"%d\n%b" % (len(body), body)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    sent = server.sendmsg([data], rights)
    server.sendall(data[sent:])


if __name__ == "__main__":
    sys.exit(main())
