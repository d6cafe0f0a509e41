"""Exceptions of dsi_native. Everything a caller may catch derives from Error."""

from __future__ import annotations

__all__ = [
    "Cancelled",
    "Closed",
    "CudaError",
    "EngineFailed",
    "Error",
    "InvalidArgument",
    "RequestFailed",
    "Stopped",
]


class Error(RuntimeError):
    """Base of all errors that dsi_native raises on purpose."""


class InvalidArgument(Error, ValueError):
    """The caller's mistake. Raised at the call, before anything has changed."""


class Closed(Error):
    """The object was used after close(), in a forked child, or while the interpreter exits."""


class RequestFailed(Error):
    """One request failed: a target server raised twice, or a timeout passed.

    ``__cause__`` is the first error where there was one. Other requests of the engine go on.
    """


class Cancelled(RequestFailed):
    """The request was cancelled by its owner before it finished."""


class EngineFailed(Error):
    """No target server works any more. Raised in every open request and from then on."""


class CudaError(Error):
    """No usable CUDA driver, or a driver call failed.

    code: the driver's integer result, None when the driver itself is missing.
    name: the driver's name of that result, such as ``CUDA_ERROR_OUT_OF_MEMORY``, or None.
    """

    def __init__(self, message: str, code: int | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.name = name


class Stopped(Exception):
    """A forward ended early because nobody will read its result.

    A signal between a server and its worker, not a failure: raised inside ``forward`` or
    ``prefill`` after ``job.stopped`` turned True, never seen by users.
    """
