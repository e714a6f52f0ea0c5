"""Write to a pipe from an event loop without blocking it."""

import os
from asyncio import AbstractEventLoop


class PipeWriter:
    """The writing end of a pipe. What does not fit into the pipe is written when the reader has made room."""

    def __init__(self, end: int, loop: AbstractEventLoop) -> None:
        self._end, self._loop, self._unsent = end, loop, b""
        os.set_blocking(end, False)

    def send(self, data: bytes) -> bool:
        """Write bytes behind the earlier ones. Returns False if the reader is gone, but True for bytes that
        must wait.
        """
        if self._unsent:
            self._unsent += data
            return True
        try:
            sent = os.write(self._end, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._end, self._send_rest)
        return True

    def _send_rest(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._end)
        self.send(data)

    def stop(self) -> None:
        """Drop what was not written; the caller then closes the pipe."""
        if self._unsent:
            self._unsent = b""
            self._loop.remove_writer(self._end)
