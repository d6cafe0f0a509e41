"""`dsi` and `python -m dsi_native`: starts the command line, or says what it needs."""

from __future__ import annotations

import sys

INSTALL_CLI = 'dsi needs its command line extra: pip install "dsi-native[cli]"'


def main() -> int:
    """Runs `dsi` with the process's arguments. Returns the exit status.

    Returns 1, with one line on stderr, where typer or rich is not installed.
    """
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError:
        print(INSTALL_CLI, file=sys.stderr)
        return 1
    from dsi_native.cli import run

    return run()


if __name__ == "__main__":
    sys.exit(main())
