"""`dsi vocab`: how two vocabularies relate, and which method suits them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dsi_native.errors import InvalidArgument

if TYPE_CHECKING:
    from dsi_native.vocab.report import Report, Spelled
    from dsi_native.vocab.vocabulary import Vocabulary

RELATIONS = {
    "same": "the same: ids mean the same on both sides",
    "padded": "the same but for the width of the rows",
    "overlapping": "overlapping",
    "foreign": "foreign: not one token is common",
}
METHODS = {"same": "none needed", "tli": "TLI", "slem": "SLEM", "none": "no drafts possible"}


def vocab(
    target: Annotated[
        str,
        typer.Argument(
            help="The target's vocabulary: smollm2, a model folder, a tokenizer.json, a tekken.json"
            ", a .gguf, .model or .tiktoken file."
        ),
    ],
    drafter: Annotated[str, typer.Argument(help="The drafter's vocabulary.")],
    text: Annotated[
        Path | None,
        typer.Option("--text", "-t", help="Compare on this file. Default: a few lines."),
    ] = None,
    target_model: Annotated[
        str | None,
        typer.Option(help="Weigh by this model's probabilities: smollm2, a folder, a .gguf file."),
    ] = None,
    slrs: Annotated[
        bool, typer.Option("--slrs", help="Also predict the cost of string-level rejection.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare two vocabularies by the bytes of their tokens, and recommend a method.

    Example: dsi vocab smollm2 path/to/tokenizer.json --text README.md
    """
    from dsi_native.vocab.report import report

    vocabularies = []
    for side, source in (("target", target), ("drafter", drafter)):
        try:
            vocabularies.append(_open(source))
        except InvalidArgument as error:
            raise InvalidArgument(f"{side}: {error}") from None
    model = None
    if target_model is not None:
        from dsi_native.models.load import load_model

        model = load_model(target_model)
        if model.vocab_size < len(vocabularies[0]):
            raise InvalidArgument(
                f"--target-model: its rows have {model.vocab_size} ids, "
                f"the vocabulary {len(vocabularies[0])}"
            )
    found = report(*vocabularies, text.read_bytes() if text is not None else None, model)
    costs = _slrs(found) if slrs else None
    if as_json:
        typer.echo(json.dumps(_plain(found, costs)))
        return
    console = Console(highlight=False)
    _print(console, found, text)
    if costs is not None:
        _print_slrs(console, costs)


def _open(source: str) -> Vocabulary:
    from dsi_native.models.embedded import NAME, find_gguf
    from dsi_native.models.load import EMBEDDED
    from dsi_native.vocab.open import open_vocabulary

    if source == EMBEDDED and not Path(source).is_dir():
        return open_vocabulary(find_gguf(), NAME)
    return open_vocabulary(source)


def _slrs(found: Report) -> dict[str, Any]:
    from dsi_native.reference.slrs_cost import Budget, slrs_cost

    cost = slrs_cost(found.target.tokens, found.drafter.tokens)
    return {
        "budget": Budget()._asdict(),
        "within_budget": cost.within_budget,
        "by_length": {length: of._asdict() for length, of in cost.by_length.items()},
    }


def _side(vocabulary: Vocabulary, spelled: Spelled, duplicates: int) -> dict[str, Any]:
    return {
        "name": vocabulary.name,
        "kind": vocabulary.kind,
        "ids": len(vocabulary),
        "text_tokens": len(vocabulary.id_of),
        "duplicates": duplicates,
        "control": len(vocabulary.control),
        "ends": [vocabulary.control[at] for at in vocabulary.roles.get("eos", ())],
        "lossless": vocabulary.lossless,
        "bytes_without_token": len(vocabulary.unspelled_bytes),
        "encodes": spelled.exact,
        "text_in_tokens": spelled.tokens,
        "text_restored": spelled.restored,
    }


def _plain(found: Report, costs: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "target": _side(found.target, found.by_target, found.map.duplicates_target),
        "drafter": _side(found.drafter, found.by_drafter, found.map.duplicates_drafter),
        "relation": found.map.relation,
        "common": found.map.common,
        "text_bytes": found.text_bytes,
        "share_of_text": found.share,
        "target_mass": found.mass,
        "outside": [[_shown(token), count] for token, count in found.outside],
        "unspelled": found.unspelled,
        "altered": found.altered,
        "method": found.choice.method,
        "why": found.choice.why,
        "slrs": costs,
    }


def _print(console: Console, found: Report, text: Path | None) -> None:
    sides = (
        _side(found.target, found.by_target, found.map.duplicates_target),
        _side(found.drafter, found.by_drafter, found.map.duplicates_drafter),
    )
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("", "target", "drafter"):
        table.add_column(title, overflow="fold")
    rows = {
        "": lambda s: s["name"],
        "kind": lambda s: s["kind"],
        "ids": lambda s: f"{s['ids']:,}",
        "different text tokens": lambda s: f"{s['text_tokens']:,}",
        "duplicates left out": lambda s: f"{s['duplicates']:,}",
        "control tokens": lambda s: f"{s['control']:,}",
        "ends a text": lambda s: ", ".join(s["ends"][:3]) or "not known from this file",
        "alters text": lambda s: "no" if s["lossless"] else "yes (case, Unicode or spaces)",
        "bytes without a token": lambda s: f"{s['bytes_without_token']} of 256",
        "tokens of the text": _tokens,
        "text comes back": lambda s: "exactly" if s["text_restored"] else "altered",
    }
    for title, say in rows.items():
        table.add_row(title, *(say(side) for side in sides))
    console.print(table)
    for line in _sentences(found, text):
        console.print(line, markup=False)


def _tokens(side: dict[str, Any]) -> str:
    return f"{side['text_in_tokens']:,}" + ("" if side["encodes"] else " (longest match)")


def _sentences(found: Report, text: Path | None) -> list[str]:
    common = found.map.common
    where = f"{text.name}" if text is not None else "a built-in sample"
    lines = [
        f"Relation: {RELATIONS[found.map.relation]}.",
        f"Common tokens: {common:,}, {_percent(common, len(found.target.id_of))} of the target's "
        f"and {_percent(common, len(found.drafter.id_of))} of the drafter's.",
        f"On {where} ({found.text_bytes:,} bytes): {100 * found.share:.1f} % of the target's "
        "tokens are common.",
    ]
    if found.mass is not None:
        lines.append(
            f"The target gives {100 * found.mass:.2f} % of its probability to common tokens."
        )
    if found.outside:
        listed = ", ".join(f"{_shown(token)} ({count})" for token, count in found.outside)
        lines.append(f"Target tokens that the drafter lacks: {listed}.")
    for title, characters in (("cannot spell", found.unspelled), ("alters", found.altered)):
        if characters:
            more = "" if len(characters) <= 20 else f" and {len(characters) - 20} more"
            listed = " ".join(map(_visible, characters[:20]))
            lines.append(f"Characters of the text that the drafter {title}: {listed}{more}.")
    if not found.target.can_encode:
        lines.append(f"The target's file cannot encode text: {found.target.why_mute}.")
    if not found.drafter.can_encode:
        lines.append(f"The drafter's file cannot encode text: {found.drafter.why_mute}.")
    lines.append(f"\nRecommended method: {METHODS[found.choice.method]}. {found.choice.why}")
    if not found.drafter.lossless and found.choice.method in ("tli", "slem"):
        lines.append(
            "The text stays the target's own; a drafter that alters text only drafts worse."
        )
    return lines


def _print_slrs(console: Console, costs: dict[str, Any]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="SLRS: terms and forwards of one psi, at least")
    for title in ("bytes", "tokens", "spelled", "median terms", "most", "median forwards", "most"):
        table.add_column(title, justify="right")
    for length, of in costs["by_length"].items():
        if length in (1, 2, 3, 4, 6, 8, 12, 16):
            terms, forwards = of["median_terms"], of["median_forwards"]
            table.add_row(
                str(length), f"{of['tokens']:,}", f"{of['spelled']:,}", f"{terms:,.0f}",
                f"{of['max_terms']:,}", f"{forwards:,.0f}", f"{of['max_forwards']:,}",
            )  # fmt: skip
    console.print(table)
    budget = costs["budget"]
    console.print(
        f"{100 * costs['within_budget']:.1f} % of the target's tokens stay within "
        f"{budget['terms']:,} terms and {budget['forwards']:,} forwards."
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _visible(character: str) -> str:
    return character if character.isprintable() and character != " " else repr(character)


def _shown(token: bytes) -> str:
    """A token as a reader can tell it: its text in quotes, or its bytes."""
    try:
        return json.dumps(token.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return token.hex(" ")
