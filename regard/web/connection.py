"""A connection that is hung up on where it keeps the server waiting for a question, and where too many wait.

Whoever can reach the port can open connections, with the token or without. What holds each of them is a limit on time
from its first byte to the end of a question's headers, and for all of them a limit on how many may be idle.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE = 256  # connections on which nothing is asked; the oldest goes first


class Patient(H11Protocol):
    """HTTP as uvicorn speaks it, with an end to its patience."""

    # Seconds until the headers of a question are there, the rest of a body that was refused, and what waits to be read.
    arrival = 20.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_question()
        idle = [each for each in self.connections if isinstance(each, Patient) and each.is_idle]
        if len(idle) > IDLE:
            min(idle, key=lambda each: each.since).hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Answers are not read: whoever asks and asks and never reads would keep a connection for ever."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.arrival, self.hang_up)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self._await_question()  # also of a connection that was kept, whose timer uvicorn stops at the first byte
        super().data_received(data)
        if not self.is_idle:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_question()  # a refusal came before the end of what it refuses

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked here that is still to be answered."""
        return self.cycle is None or self.cycle.response_complete

    def hang_up(self) -> None:
        """Close, whatever was begun."""
        self._stop_waiting()
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait until the other side reads
        else:
            self.transport.close()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _await_question(self) -> None:
        if self._deadline is None:
            self.since = self.loop.time()
            self._deadline = self.loop.call_later(self.arrival, self.hang_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def patient(seconds: float) -> type[Patient]:
    """Connections with so much patience."""
    return type("Patient", (Patient,), {"arrival": seconds})
