"""What a pair of vocabularies has in common, on a text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native.vocab.choice import SAMPLE, Choice, choose
from dsi_native.vocab.map import VocabularyMap, vocabulary_map
from dsi_native.vocab.vocabulary import Vocabulary

_SHOWN = 12


@dataclass(frozen=True)
class Spelled:
    """A text in one vocabulary. exact: whether this vocabulary knows how to encode; else tokens
    are the longest that match. restored: whether the tokens' bytes are the text again."""

    tokens: int
    exact: bool
    restored: bool


@dataclass(frozen=True)
class Report:
    """All that `dsi vocab` says.

    share: of the text's target tokens, those that the drafter has too.
    mass: mean probability that the target gives to tokens of both, per token of the text; None
        without a model.
    outside: the text's target tokens that the drafter lacks, and how often, most frequent first.
    unspelled: characters of the text that the drafter has no token for.
    altered: characters of the text that the drafter writes differently, lower-cased for instance.
    """

    target: Vocabulary
    drafter: Vocabulary
    map: VocabularyMap
    text_bytes: int
    is_sample: bool
    by_target: Spelled
    by_drafter: Spelled
    share: float
    mass: float | None
    outside: list[tuple[bytes, int]]
    unspelled: list[str]
    altered: list[str]
    choice: Choice


def report(
    target: Vocabulary, drafter: Vocabulary, data: bytes | None = None, model: Any = None
) -> Report:
    """Compares the two on `data`, or on a few lines of English and Python.

    model: the target's, a TransformersModel, for `mass`. Costs one forward over the first 1,024
    tokens of the text with it, else about as much as encoding the text.
    """
    is_sample, data = data is None, SAMPLE if data is None else data
    made = vocabulary_map(target, drafter)
    ids, by_target = _spelled(target, data)
    _, by_drafter = _spelled(drafter, data)
    known = made.t2d[ids] >= 0
    share = float(known.mean()) if len(ids) else 1.0
    mass = None if model is None or not len(ids) else common_mass(model, ids, made.t2d >= 0)
    outside = Counter(target.tokens[at] for at in ids[~known].tolist())
    unspelled, altered = _characters(drafter, data.decode("utf-8", "ignore"))
    return Report(
        target=target,
        drafter=drafter,
        map=made,
        text_bytes=len(data),
        is_sample=is_sample,
        by_target=by_target,
        by_drafter=by_drafter,
        share=share,
        mass=mass,
        outside=outside.most_common(_SHOWN),
        unspelled=unspelled,
        altered=altered,
        choice=choose(
            made.relation,
            share if mass is None else mass,
            target.can_encode,
            drafter.can_encode,
        ),
    )


def common_mass(model: Any, ids: np.ndarray, common: np.ndarray, most: int = 1024) -> float:
    """Mean over the places of the text `ids` of the target's probability of tokens in `common`.

    model: a TransformersModel. common: bool [V]; rows may be wider, what is beyond is not common.
    most: of the text's first tokens.
    """
    import torch

    head = torch.from_numpy(ids[:most].astype(np.int64)).unsqueeze(0).to(model.device)
    with torch.inference_mode():
        law = model.model(input_ids=head).logits[0].float().softmax(-1)
    mask = torch.from_numpy(common[: law.shape[-1]]).to(law.device)
    return float(law[:, : len(mask)][:, mask].sum(-1).mean())


def _spelled(vocabulary: Vocabulary, data: bytes) -> tuple[np.ndarray, Spelled]:
    exact = vocabulary.can_encode
    ids, _ = vocabulary.encode(data) if exact else vocabulary.spell_longest(data)
    restored = b"".join(vocabulary.tokens[at] for at in ids.tolist()) == data
    return ids, Spelled(len(ids), exact, restored)


def _characters(drafter: Vocabulary, text: str) -> tuple[list[str], list[str]]:
    """Characters without a token, and characters that come back as others; most frequent first."""
    unspelled, altered = [], []
    for character, _ in Counter(text).most_common():
        source = character.encode()
        ids, _ = drafter.encode(source) if drafter.can_encode else drafter.spell_longest(source)
        spelled = b"".join(drafter.tokens[at] for at in ids.tolist())
        if drafter.kind == "WordPiece":
            # Words come with the space before them; a blank is known by what it stands between.
            if character in " \n\t\r":
                continue
            spelled = spelled.removeprefix(b" ")
        if not spelled or (drafter.lossless and spelled != source):
            unspelled.append(character)
        elif spelled != source:
            altered.append(character)
    return unspelled, altered
