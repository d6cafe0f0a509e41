"""`dsi generate`: streams one answer, then says how it went."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import dsi_native
from dsi_native.cli.outputs import check_output
from dsi_native.cli.statistics import statistics_table
from dsi_native.errors import InvalidArgument
from dsi_native.recording import save_recordings

EMBEDDED = "smollm2"

# Groups of options in --help.
MODELS, LOOP, SAMPLING = "Models", "Decode loop", "Sampling"


class Mode(str, Enum):
    NON_SI = "non-si"
    SI = "si"
    DSI = "dsi"


class Method(str, Enum):
    AUTO = "auto"
    TLI = "tli"
    SLEM = "slem"


class Verification(str, Enum):
    COUPLED = "coupled"
    REJECTION = "rejection"


def parse_lookahead(text: str) -> int | str:
    """'auto', or a number of drafts of at least 1."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither 'auto' nor a number.") from None


def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; '-' or nothing reads standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the prompt from this file.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="Use the model's chat template, or continue the text as it is. "
            "Default: chat where there is a template.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help="smollm2 (embedded), a model folder or a .gguf file.", rich_help_panel=MODELS
        ),
    ] = EMBEDDED,
    drafter: Annotated[
        str,
        typer.Option(
            help="int4, int8: a quantised copy of the target; lookup: n-grams of the text; "
            "none; or any other model, named like a target.",
            rich_help_panel=MODELS,
        ),
    ] = "int4",
    method: Annotated[
        Method,
        typer.Option(
            help="For a drafter with another vocabulary: tli drafts common tokens, slem text.",
            rich_help_panel=MODELS,
        ),
    ] = Method.AUTO,
    mode: Annotated[Mode, typer.Option(help="The decode loop.", rich_help_panel=LOOP)] = Mode.DSI,
    sp: Annotated[
        int, typer.Option("--sp", help="Target servers that may run at once.", rich_help_panel=LOOP)
    ] = 2,
    lookahead: Annotated[
        Any,
        typer.Option(
            parser=parse_lookahead,
            metavar="auto|N",
            help="Drafts per verification.",
            rich_help_panel=LOOP,
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of one forward. Default: torch's.", rich_help_panel=LOOP),
    ] = None,
    verification: Annotated[
        Verification,
        typer.Option(
            metavar="RULE",
            help="coupled or rejection; both keep the target's law.",
            rich_help_panel=LOOP,
        ),
    ] = Verification.COUPLED,
    max_new_tokens: Annotated[
        int, typer.Option(help="Stop after so many tokens.", rich_help_panel=SAMPLING)
    ] = 128,
    temperature: Annotated[
        float, typer.Option(help="0: always the most likely token.", rich_help_panel=SAMPLING)
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option(help="Keep the K most likely tokens; 0: all.", rich_help_panel=SAMPLING)
    ] = 0,
    top_p: Annotated[
        float, typer.Option(help="Keep the likeliest, P of the mass.", rich_help_panel=SAMPLING)
    ] = 1.0,
    min_p: Annotated[
        float,
        typer.Option(help="Drop below this share of the likeliest.", rich_help_panel=SAMPLING),
    ] = 0.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Same seed, same text. Default: random.", rich_help_panel=SAMPLING),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this; repeatable.", rich_help_panel=SAMPLING),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of the text.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what each server did when, as JSON for `dsi timeline --recording`.",
        ),
    ] = None,
    no_stats: Annotated[
        bool, typer.Option("--no-stats", help="Leave out the table at the end.")
    ] = False,
) -> None:
    """Generate text with a real model; it streams to standard output as it is decided.

    Examples:

      dsi generate "Why is the sky blue?"

      dsi generate --raw "def fibonacci(n):" --drafter lookup --stop $'\\n\\n'

      dsi generate -f question.txt --temperature 0.8 --seed 1 --json

      dsi generate "Why is the sky blue?" --record run.json
    """
    if record is not None:
        check_output("--record", record)
    text = read_prompt(prompt, file)
    errors = Console(stderr=True, highlight=False)
    with contextlib.ExitStack() as stack:
        with loading(errors, f"Loading {target}"):
            engine = stack.enter_context(
                open_engine(
                    target,
                    drafter,
                    mode=mode.value,
                    method=method.value,
                    sp=sp,
                    lookahead=lookahead,
                    threads=threads,
                )
            )
        stream = engine.stream(
            as_prompt(engine, text, chat),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop=stop or None,
            verification=verification.value,
            record=record is not None,
        )
        if as_json:
            for _ in stream:
                pass
        else:
            write_stream(stream)
        result = stream.result
    if record is not None:
        save_recordings(record, [result.recording])
    if as_json:
        typer.echo(json.dumps(as_object(result)))
    elif not no_stats:
        errors.print(statistics_table(as_object(result)))


def open_engine(target: str, drafter: str, **options: Any) -> Any:
    """The engine that the options name. Raises InvalidArgument, also where the model is missing."""
    require_model(target)
    quieten_transformers()
    needless = drafter == "none" or options["mode"] == Mode.NON_SI.value
    return dsi_native.Engine(target, None if needless else drafter, **options)


def require_model(target: str) -> None:
    """Raises InvalidArgument where the embedded model is asked for and not installed."""
    if target == EMBEDDED:
        from dsi_native.models.embedded import INSTALL_COMMAND, find_gguf

        try:
            find_gguf()
        except InvalidArgument:
            raise InvalidArgument(
                f"the embedded model is not installed; install it with: {INSTALL_COMMAND}"
            ) from None


def quieten_transformers() -> None:
    """Its progress bars and advice would end up between our lines on standard error."""
    with contextlib.suppress(ImportError):
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt's text, from exactly one place. Raises InvalidArgument where there is none."""
    if prompt not in (None, "-") and file is not None:
        raise InvalidArgument("give either a prompt or --file, not both")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot read {file}: {error}") from error
    elif prompt in (None, "-"):
        if prompt is None and sys.stdin.isatty():
            raise InvalidArgument('no prompt; try: dsi generate "Why is the sky blue?"')
        text = sys.stdin.read()
    else:
        text = prompt or ""
    if not text:
        raise InvalidArgument("the prompt is empty")
    return text


def as_prompt(engine: Any, text: str, chat: bool | None) -> str | list[dict[str, str]]:
    """Chat messages where the model has a template, unless `chat` says otherwise."""
    if chat is None:
        chat = bool(getattr(engine.tokenizer, "chat_template", None))
    return [{"role": "user", "content": text}] if chat else text


def as_object(result: Any) -> dict[str, Any]:
    """What --json prints, as plain JSON types."""
    return {
        "tokens": [int(token) for token in result.tokens],
        "text": result.text,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "statistics": result.statistics.to_dict(),
    }


def write_stream(stream: Iterator[str]) -> None:
    """Pieces go out as they come; the line ends in any case, also after an error."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        for piece in stream:
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write("\n")
            sys.stdout.flush()


@contextlib.contextmanager
def loading(console: Console, message: str) -> Iterator[None]:
    """A spinner on a terminal's standard error, nothing elsewhere."""
    if console.is_terminal:
        with console.status(message):
            yield
    else:
        yield
