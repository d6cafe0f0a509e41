"""Files as the experiments read and write them: whole or not at all, errors name the file."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from dsi_native.errors import InvalidArgument


def read_text(path: str | os.PathLike[str]) -> str:
    """UTF-8. Raises InvalidArgument naming the file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{os.fspath(path)}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidArgument(f"{os.fspath(path)}: no text in UTF-8") from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """Raises InvalidArgument naming the file."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{os.fspath(path)}: no JSON ({error})") from None


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replaces the file; where that fails or is interrupted, what was there before stays.

    What is no plain file, such as a pipe, or lies in a folder where nothing new may be made, is
    written to directly. Raises InvalidArgument naming the file.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        target = Path(path).resolve()
        there = target.exists()
        if there and not (target.is_file() and os.access(target.parent, os.W_OK)):
            target.write_bytes(data)
            return
        beside = target.parent / f".{target.name[:40]}.{secrets.token_hex(4)}"
        try:
            with beside.open("xb") as file:
                file.write(data)
            if there:
                beside.chmod(target.stat().st_mode & 0o777)
            beside.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise InvalidArgument(f"{os.fspath(path)}: {error.strerror}") from error


__all__ = ["read_json", "read_text", "write"]
