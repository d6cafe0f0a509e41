"""Vocabularies of the `tokenizers` library, and of transformers' tokenizers built on it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsi_native.errors import InvalidArgument
from dsi_native.vocab.names import roles_by_name
from dsi_native.vocab.pieces import PieceBytes, component_steps, described, notation_of
from dsi_native.vocab.spelling import TextSpeller
from dsi_native.vocab.vocabulary import ROLES, Vocabulary

_FAITHFUL_SPLITS = {"ByteLevel", "Metaspace", "Digits", "Punctuation", "Split", "UnicodeScripts"}


def from_transformers(tokenizer: Any, name: str) -> Vocabulary:
    """Of a transformers tokenizer that the tokenizers library backs. It stays unaltered."""
    control = {
        at: str(token) for at, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    roles = {}
    for role in ROLES:
        ids = getattr(tokenizer, f"{role}_token_id", None)
        ids = ids if isinstance(ids, (list, tuple)) else [ids]
        known = tuple(int(at) for at in ids if at is not None)
        if known:
            roles[role] = known
    # Padding may be done with a text token, which a model may also mean as such.
    edges = (*roles.get("eos", ()), *roles.get("bos", ()))
    control |= {at: tokenizer.convert_ids_to_tokens(at) for at in edges}
    return from_tokenizers(tokenizer.backend_tokenizer, name, control, roles)


def from_tokenizers(
    tokenizer: Any,
    name: str,
    control: Mapping[int, str] | None = None,
    roles: Mapping[str, tuple[int, ...]] | None = None,
) -> Vocabulary:
    """Of a tokenizers.Tokenizer, which stays unaltered: a copy made from its JSON encodes."""
    return from_state(json.loads(tokenizer.to_str()), name, control, roles)


def from_state(
    state: dict[str, Any],
    name: str,
    control: Mapping[int, str] | None = None,
    roles: Mapping[str, tuple[int, ...]] | None = None,
) -> Vocabulary:
    """Of a tokenizer.json's content.

    control: more control tokens than its own special ones. roles: win over customary names.
    Raises InvalidArgument for models whose tokens have no known bytes. The first text takes about
    a second for 150,000 tokens, in which the library makes the tokenizer.
    """
    notation = notation_of(state)
    if notation is None:
        raise InvalidArgument(f"{name}: {described(state)} has no known bytes for its tokens")
    kind, read = notation
    vocab = pieces_of(state)
    added = {
        token["id"]: token["content"]
        for token in state.get("added_tokens") or ()
        if token["special"]
    }
    unknown = _unknown(state["model"], vocab)
    control = {**unknown, **added, **(control or {})}
    tokens = [b""] * (1 + max(vocab.values(), default=-1))
    for piece, at in vocab.items():
        if at not in control:
            tokens[at] = read(piece)
    if unknown:
        roles = {"unk": tuple(unknown), **(roles or {})}
    return Vocabulary(
        name=name,
        kind=kind,
        tokens=tuple(tokens),
        control=dict(sorted(control.items())),
        roles={**roles_by_name(control), **(roles or {})},
        lossless=_is_lossless(state, kind),
        speller=when_asked(_copy, state, read),
    )


def pieces_of(state: Mapping[str, Any]) -> dict[str, int]:
    """piece -> id, added tokens included."""
    vocab = state["model"]["vocab"]
    pairs = vocab.items() if isinstance(vocab, dict) else ((p[0], at) for at, p in enumerate(vocab))
    added = ((token["content"], token["id"]) for token in state.get("added_tokens") or ())
    return dict([*pairs, *added])


def _unknown(model: Mapping[str, Any], vocab: Mapping[str, int]) -> dict[int, str]:
    """The token that stands for text which cannot be spelled. Its own text is not what it means."""
    if isinstance(model.get("vocab"), list):
        at = model.get("unk_id")
        return {} if at is None else {at: model["vocab"][at][0]}
    text = model.get("unk_token")
    return {vocab[text]: text} if text in vocab else {}


def _is_lossless(state: Mapping[str, Any], kind: str) -> bool:
    if kind == "WordPiece":
        return False
    for step in component_steps(state, "normalizer"):
        spaces = step["type"] == "Replace" and step["pattern"].get("String") == " "
        if not spaces and step["type"] not in ("Prepend", "ByteLevel"):
            return False
    for step in component_steps(state, "pre_tokenizer"):
        dropped = step.get("behavior") == "Removed" and not step.get("invert")
        if dropped or step["type"] not in _FAITHFUL_SPLITS:
            return False
    return not state["model"].get("end_of_word_suffix")


def speller_of(tokenizer: Any) -> TextSpeller:
    """Encodes with a tokenizers.Tokenizer, which is altered and now belongs to the speller."""
    # Names of control tokens are plain text here; who wants a control token has its id.
    tokenizer.encode_special_tokens = True

    def spell(text: str) -> tuple[Sequence[int], Any]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, lambda: [end for _, end in encoding.offsets]

    return spell


def when_asked(build: Callable[..., Any], *arguments: Any) -> TextSpeller:
    """Of the tokenizer that build(*arguments) makes once the first text comes.

    For vocabularies whose tokenizer takes long to make: often only the tokens are wanted.
    """
    guard = threading.Lock()  # guards made
    made: list[TextSpeller] = []

    def spell(text: str) -> tuple[Sequence[int], Any]:
        with guard:
            if not made:
                made.append(speller_of(build(*arguments)))
        return made[0](text)

    return spell


def _copy(state: dict[str, Any], read: PieceBytes) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(_for_pieces(state, read)))


def _for_pieces(state: dict[str, Any], read: PieceBytes) -> dict[str, Any]:
    """The same tokenizer for pieces from the middle of a text: nothing is added at the edges."""
    steps = [_at_no_edge(step) for step in component_steps(state, "pre_tokenizer")]
    if any(step["type"] == "Metaspace" for step in steps):
        # It would drop the spaces that Metaspace, told to add none, must find itself.
        steps = [step for step in steps if step["type"] != "WhitespaceSplit"]
    normalizers = [
        step
        for step in component_steps(state, "normalizer")
        if step["type"] not in ("Prepend", "Strip")
    ]
    kept = [
        {**token, "lstrip": False, "rstrip": False}
        for token in state.get("added_tokens") or ()
        # Some added tokens are matched by their notation, which then is not the text.
        if token["special"] or read(token["content"]) == token["content"].encode()
    ]
    return {
        **state,
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "added_tokens": kept,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if steps else None,
    }


def _at_no_edge(step: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(step)
    if step["type"] == "Metaspace":
        out |= {"prepend_scheme": "never"}
        out.pop("add_prefix_space", None)
    elif step["type"] == "ByteLevel":
        out["add_prefix_space"] = False
    return out
