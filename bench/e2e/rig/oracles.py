"""A target that follows a script, and a drafter that knows it, for oracle.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native import Engine
from dsi_native.vocab import Vocabulary

_PROMPT_TOKENS = 4
_MOST_TOKENS = 120
# The oracle drafts beyond the last token that is asked for, so there has to be text.
_TAIL_BYTES = 160


@dataclass(frozen=True)
class Script:
    """ids: the target's, of the whole text; text: what they spell; new: tokens to be generated."""

    ids: np.ndarray
    text: bytes
    new: int

    @classmethod
    def of(cls, target: Vocabulary, text: bytes) -> Script:
        ids, _ = target.encode(text)
        sizes = np.cumsum([len(target.tokens[at]) for at in ids.tolist()])
        before_tail = int(np.searchsorted(sizes, max(sizes[-1] - _TAIL_BYTES, sizes[-1] * 0.7)))
        spelled = b"".join(target.tokens[at] for at in ids.tolist())
        return cls(ids, spelled, min(_MOST_TOKENS, before_tail - _PROMPT_TOKENS))

    @property
    def end(self) -> int:
        """Of the path, once the request has ended."""
        return _PROMPT_TOKENS + self.new


class Rows:
    """Rows of zeros but for a few ids; made once, so that a row costs O(1)."""

    def __init__(self, width: int) -> None:
        self._rows = np.zeros((1, width), np.float32)
        self._set: list[tuple[int, int]] = []

    def of(self, *weighted: dict[int, float]) -> np.ndarray:
        """float32 [n, width], valid until the next call."""
        for place in self._set:
            self._rows[place] = 0.0
        if len(self._rows) < len(weighted):
            self._rows = np.zeros((len(weighted), self._rows.shape[1]), np.float32)
        self._set = [(i, at) for i, row in enumerate(weighted) for at in row]
        for i, row in enumerate(weighted):
            for at, weight in row.items():
                self._rows[i, at] = weight
        return self._rows[: len(weighted)]


class ScriptedTarget:
    """Model and server in one. Says the script's ids and keeps the windows it was given."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.name, self.vocabulary = vocabulary.name, vocabulary
        self.vocab_size = len(vocabulary)
        self.windows: list[tuple[int, np.ndarray]] = []
        self.script: Script | None = None
        self._rows = Rows(self.vocab_size)

    def servers(self, n: int, threads: int | None = None) -> list[ScriptedTarget]:
        return [self] * n

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any = None) -> np.ndarray:
        assert self.script is not None
        self.windows.append((first, tokens[first:].copy()))
        wanted = self.script.ids[first : len(tokens) + 1].tolist()
        return self._rows.of(*({at: 30.0} for at in wanted))


class Oracle:
    """Model and server in one. Says the text in its own tokens, from where its context stands.

    A tokenizer that alters text can only say what it makes of it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.name, self.vocabulary = vocabulary.name, vocabulary
        self.vocab_size = len(vocabulary)
        self.forwards = 0
        self.lost = 0  # contexts that are not how the text begins
        self._rows = Rows(self.vocab_size)
        self._longest = max(map(len, vocabulary.tokens))
        self._ends = vocabulary.roles.get("eos", ())[:1]
        self._text = b""
        self._next: dict[int, int] = {}

    def reads(self, text: bytes) -> None:
        """Takes in the text to say."""
        ids = self.vocabulary.encode(text)[0].tolist()
        spelled = [self.vocabulary.tokens[at] for at in ids]
        self._text = b"".join(spelled)
        starts = np.cumsum([0, *map(len, spelled)]).tolist()
        self._next = dict(zip(starts, ids, strict=False))

    def servers(self, n: int, threads: int | None = None) -> list[Oracle]:
        return [self] * n

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any = None) -> np.ndarray:
        self.forwards += 1
        said = b"".join(self.vocabulary.tokens[at] for at in tokens.tolist())
        self.lost += not self._text.startswith(said)
        return self._rows.of(self._weights(len(said)))

    def _weights(self, offset: int) -> dict[int, float]:
        """The canonical token first; then whatever else the text could go on with."""
        rest = self._text[offset:]
        if not rest:
            return dict.fromkeys(self._ends, 30.0)
        if offset not in self._next:
            found = self.vocabulary.encode(rest)[0]
            self._next[offset] = int(found[0]) if len(found) else -1
        begin = (rest[:size] for size in range(1, min(len(rest), self._longest) + 1))
        known = [self.vocabulary.id_of[part] for part in begin if part in self.vocabulary.id_of]
        weights = {at: 10.0 + i * 0.1 for i, at in enumerate(known)}
        if self._next[offset] >= 0:
            weights[self._next[offset]] = 30.0
        return weights


def ask(
    engine: Engine,
    target: ScriptedTarget,
    drafter: Oracle,
    script: Script,
    lookahead: int,
    method: str,
) -> dict[str, Any]:
    """One request, and what became of its drafts; see oracle.py for the words."""
    target.script, target.windows = script, []
    drafter.reads(script.text)
    drafter.forwards = drafter.lost = 0
    out = engine.generate(
        script.ids[:_PROMPT_TOKENS],
        max_new_tokens=script.new,
        lookahead=lookahead,
        method=method,
        ignore_eos=True,
    )
    if out.tokens != script.ids[_PROMPT_TOKENS : script.end].tolist():
        raise RuntimeError(f"{target.name} from {drafter.name}: the text is not the target's")
    if out.statistics.drafter_error:
        raise RuntimeError(f"{target.name} from {drafter.name}: {out.statistics.drafter_error}")
    figures: dict[str, Any] = dict.fromkeys(("accepted", "coverable", "wrong", "missing"), 0)
    losses = []
    for first, window in target.windows:
        coverable = min(lookahead, script.end - 1 - first)
        wanted = script.ids[first : first + coverable]
        differs = np.flatnonzero(window != wanted[: len(window)])
        good = int(differs[0]) if len(differs) else len(window)
        figures["coverable"] += coverable
        figures["accepted"] += good
        figures["wrong"] += good < len(window)
        figures["missing"] += coverable - len(window)
        if good < coverable:
            tokens = target.vocabulary.tokens
            losses.append(
                {
                    "behind": b"".join(tokens[at] for at in script.ids[max(0, first - 3) : first]),
                    "target": [tokens[at] for at in wanted.tolist()],
                    "drafts": [tokens[at] for at in window.tolist()],
                }
            )
    if figures["accepted"] != out.statistics.accepted:
        raise RuntimeError(f"counted {figures['accepted']}, the engine {out.statistics.accepted}")
    common = engine._pair.translation.map.t2d[script.ids[_PROMPT_TOKENS : script.end]] >= 0
    return figures | {
        "tokens": script.new,
        "rounds": len(target.windows),
        "common": int(common.sum()),
        "drafter_forwards": drafter.forwards,
        "lost_contexts": drafter.lost,
        "losses": losses,
    }
