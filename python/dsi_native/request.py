"""A submitted request: wait for it, read it while it runs, cancel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from dsi_native import _core
from dsi_native.errors import Error
from dsi_native.recording import Recording
from dsi_native.results import FINISH_REASONS, Output, Statistics, TokenLogprob, statistics_of
from dsi_native.text import IncrementalText

_POLL_S = 0.005


class Request:
    """One prompt on its way through an Engine. Made by Engine.submit; one reader at a time.

    Keeps the engine alive. A request that is dropped before its end is cancelled.
    """

    def __init__(
        self,
        engine: Any,
        ticket: _core.Ticket,
        text: IncrementalText | None,
        *,
        seed: int,
        prompt_tokens: int,
        mode: str,
        method: str | None,
        sp: int,
        forwards_compete: bool,
        logprobs: bool,
        deadline: float | None,
    ) -> None:
        self.seed = seed
        self.prompt_tokens = prompt_tokens
        self._engine = engine
        self._ticket = ticket
        self._text = text
        self._mode = mode
        self._method = method
        self._sp = sp
        self._forwards_compete = forwards_compete
        self._logprobs: list[TokenLogprob] | None = [] if logprobs else None
        self._deadline = deadline
        self._tokens: list[int] = []
        self._pieces: list[str] = []
        self._all: list[str] = []  # every piece so far
        self._output: Output | None = None

    def cancel(self) -> None:
        """Ends it as soon as possible; reading it then raises Cancelled. Does not block."""
        self._ticket.cancel()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not. Does not block."""
        return self._ticket.ended

    @property
    def statistics(self) -> Statistics | None:
        """The statistics of a request that has ended, also of a failed one; None before."""
        ending = self.native_ending()
        return None if ending is None else self._statistics_of(ending)

    def native_ending(self) -> dict[str, Any] | None:
        """What the scheduler counted, by the virtual clock's names; None before its end."""
        return self._ticket.ending()

    def _statistics_of(self, ending: dict[str, Any]) -> Statistics:
        return statistics_of(
            ending,
            mode=self._mode,
            method=self._method,
            sp=self._sp,
            prompt_tokens=self.prompt_tokens,
            forwards_compete=self._forwards_compete,
        )

    def _recording_of(self, ending: dict[str, Any]) -> Recording | None:
        if "spans" not in ending:
            return None
        return Recording.of(ending, self._mode, self._sp, ending["lookahead"], self.prompt_tokens)

    def result(self, timeout: float | None = None) -> Output:
        """Waits for the end. Raises what the request failed with; TimeoutError after `timeout` s.

        TimeoutError leaves the request running. On the main thread Ctrl-C is heard within 50 ms.
        """
        limit = None if timeout is None else time.monotonic() + timeout
        while self._output is None:
            left = -1.0 if limit is None else max(0.0, limit - time.monotonic())
            if not self._read(self._ticket.take(left)) and not self._ticket.ended:
                raise TimeoutError(f"no result within {timeout} s; the request is still running")
        return self._output

    def pieces(self) -> Iterator[str]:
        """The text as it is decided: whole characters, held back while it may be a stop string."""
        while self._output is None:
            self._read(self._ticket.take())
            yield from self._new_pieces()
        yield from self._new_pieces()

    async def apieces(self) -> AsyncIterator[str]:
        """pieces() without blocking the event loop. A cancelled task cancels the request."""
        try:
            while self._output is None:
                if not self._read(self._ticket.take(0)) and not self._ticket.ended:
                    await self._news()
                for piece in self._new_pieces():
                    yield piece
            for piece in self._new_pieces():
                yield piece
        except (asyncio.CancelledError, GeneratorExit):
            self.cancel()
            raise

    async def aresult(self) -> Output:
        """result() without blocking the event loop. A cancelled task cancels the request."""
        async for _ in self.apieces():
            pass
        assert self._output is not None
        return self._output

    def tokens(self) -> Iterator[int]:
        """The new ids as they are decided."""
        sent = 0
        while True:
            yield from self._tokens[sent:]
            sent = len(self._tokens)
            if self._output is not None:
                return
            self._read(self._ticket.take())

    def __del__(self) -> None:
        ticket = getattr(self, "_ticket", None)
        if ticket is not None and not ticket.ended:
            ticket.cancel()

    def _new_pieces(self) -> list[str]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _read(self, rows: list[tuple[int, float, list[tuple[int, float]]]]) -> bool:
        """Takes tokens in; at their end makes the output, or raises. False: there was nothing."""
        for token, logprob, top in rows:
            self._tokens.append(token)
            if self._logprobs is not None:
                self._logprobs.append(TokenLogprob(token, logprob, tuple(top)))
            if self._text is not None and (piece := self._text.push(token)):
                self._pieces.append(piece)
                self._all.append(piece)
        if rows or not self._ticket.drained:  # not `ended`: tokens may have come since
            return bool(rows)
        self._ticket.raise_trouble()
        ending = self._ticket.ending()
        reason = FINISH_REASONS[ending["reason"]]
        if self._text is not None:
            stop_bytes = ending["stop_bytes"] if reason == "stop_string" else None
            if piece := self._text.finish(stop_bytes):
                self._pieces.append(piece)
                self._all.append(piece)
        self._output = Output(
            tokens=list(self._tokens),
            text="".join(self._all),
            finish_reason=reason,
            seed=self.seed,
            statistics=self._statistics_of(ending),
            logprobs=self._logprobs,
            recording=self._recording_of(ending),
        )
        return True

    async def _news(self) -> None:
        """Waits until the native side has something to read, or the deadline has passed."""
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        descriptor = self._ticket.event_fd
        if descriptor < 0:  # the process has no file descriptor left
            await asyncio.sleep(_POLL_S)
            return
        loop.add_reader(descriptor, lambda: came.done() or came.set_result(None))
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            await asyncio.wait_for(came, left)
        except (asyncio.TimeoutError, TimeoutError):
            self._ticket.take(0)  # past the deadline this fails the request
        finally:
            loop.remove_reader(descriptor)


class Stream:
    """The text of one request, piece by piece: for and async for. Closing it early cancels it.

    `result` is the Output once the stream has ended. Usable as a context manager.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._pieces: Iterator[str] | None = None
        self._apieces: AsyncIterator[str] | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        if self._pieces is None:
            self._pieces = self.request.pieces()
        try:
            return next(self._pieces)
        except KeyboardInterrupt:
            self.request.cancel()
            raise

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        if self._apieces is None:
            self._apieces = self.request.apieces()
        return await self._apieces.__anext__()

    @property
    def result(self) -> Output:
        """The Output. Raises Error while the stream has not been read to its end."""
        if self.request._output is None:
            raise Error("the stream has not ended yet: read it to its end first")
        return self.request._output

    def cancel(self) -> None:
        """Ends the request; reading on raises Cancelled."""
        self.request.cancel()

    def close(self) -> None:
        """Cancels the request unless it has ended."""
        if not self.request.done:
            self.request.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
