"""What string-level drafting costs in a round, and that it does not grow with the context.

Alignment: the native text in two vocabularies on its own, with two real tokenizers. In each round
the target has kept some drafts and corrected one token, the drafter's ids follow, the drafter
draws a few more, and the target's tokenizer makes candidates of them.
Engine: whole SI rounds with models that answer at once and are wrong all the time, so that each
round has a correction, with another vocabulary (SLEM) and with the target's own. The difference is
what translation costs.
Exits with 1 where a round at the longest context costs more than at the shortest, noise aside, or
where the bytes that reach a tokenizer grow with the context.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

from rig import report
from rig.oracles import Rows
from rig.texts import texts

import dsi_native
from dsi_native import _core
from dsi_native.translation import Translation
from dsi_native.vocab import Vocabulary
from vocab_files import FOLDER, real

LOOKAHEAD = 4
# Of times: what else runs here makes some of them longer, and none shorter.
QUARTILE = 0.25
# A round may vary by so much between contexts; what grows with 100k tokens is far above it.
NOISE_RATIO, NOISE_US = 1.3, 5.0


class Counted:
    """An encoder that counts the bytes it is given."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode
        self.bytes = 0
        self.calls = 0

    def __call__(self, data: bytes) -> Any:
        self.bytes += len(data)
        self.calls += 1
        return self._encode(data)


class Instant:
    """Model and server in one: says `ids` in turn, whatever it is asked; O(1) for each row."""

    def __init__(self, vocabulary: Vocabulary, ids: np.ndarray) -> None:
        self.name, self.vocabulary = vocabulary.name, vocabulary
        self.vocab_size = len(vocabulary)
        self.forwards = 0
        self._ids = itertools.cycle(ids.tolist())
        self._rows = Rows(self.vocab_size)

    def servers(self, n: int, threads: int | None = None) -> list[Instant]:
        return [self] * n

    def forward(self, request: int, tokens: np.ndarray, first: int, job: Any = None) -> np.ndarray:
        self.forwards += 1
        return self._rows.of(*({next(self._ids): 30.0} for _ in range(len(tokens) - first + 1)))


def long_path(vocabulary: Vocabulary, tokens: int) -> np.ndarray:
    """int32 [tokens] of prose, code and many languages."""
    some = [texts()[kind] for kind in ("prose", "code", "many")]
    ids = np.concatenate([vocabulary.encode(text)[0] for text in some])
    return np.resize(ids, tokens).astype(np.int32)


def alignment_round(
    translation: Translation, context: int, rounds: int, seed: int = 3
) -> dict[str, Any]:
    """Microseconds of a round's parts, and what reaches the tokenizers in one."""
    draw = np.random.default_rng(seed)
    target, drafter = Counted(translation.target), Counted(translation.drafter)
    aligned = _core.Alignment(translation._native, drafter)
    path = np.empty(context + rounds * (LOOKAHEAD + 1), np.int32)
    path[:context] = long_path(translation.target, context)
    some = long_path(translation.target, 1000)
    drawn = long_path(translation.drafter, 1000)
    start = time.perf_counter()
    aligned.follow(path[:context], context, True)
    first_s = time.perf_counter() - start
    drafter.bytes = drafter.calls = 0
    length, parts = context, np.zeros((rounds, 3))
    for turn in range(rounds):
        begin = int(draw.integers(len(drawn) - LOOKAHEAD))
        at = [time.perf_counter_ns()]
        for token in drawn[begin : begin + LOOKAHEAD].tolist():
            aligned.push(token)
        at.append(time.perf_counter_ns())
        ids = target(aligned.ahead)[0]
        at.append(time.perf_counter_ns())
        kept = int(draw.integers(min(len(ids), LOOKAHEAD) + 1))
        path[length : length + kept] = ids[:kept]
        path[length + kept] = some[int(draw.integers(len(some)))]
        length += kept + 1
        at.append(time.perf_counter_ns())
        aligned.follow(path[:length], length, True)
        at.append(time.perf_counter_ns())
        parts[turn] = at[1] - at[0], at[2] - at[1], at[4] - at[3]
    push_us, encode_us, follow_us = np.quantile(parts, QUARTILE, axis=0) / 1e3
    return {
        "context": context,
        "push_us": push_us,
        "encode_us": encode_us,
        "follow_us": follow_us,
        "round_us": float(np.quantile(parts.sum(axis=1), QUARTILE)) / 1e3,
        "bytes": (target.bytes + drafter.bytes) / rounds,
        "first_ms": first_s * 1e3,
    }


class EngineRounds:
    """Rounds through an engine at any context."""

    def __init__(self, target: Vocabulary, drafter: Vocabulary) -> None:
        self.target = Instant(target, long_path(target, 1000))
        self.drafter = Instant(drafter, long_path(drafter, 997)[::-1])
        self.engine = dsi_native.Engine(
            self.target, self.drafter, sp=1, mode="si", lookahead=LOOKAHEAD, break_even=False
        )

    def measure(self, context: int, tokens: int) -> dict[str, float]:
        """Microseconds of a round behind the first token, and forwards of the drafter in one."""
        prompt = long_path(self.target.vocabulary, context)
        self.drafter.forwards = self.target.forwards = 0
        options = {} if self.engine._pair.translation is None else {"method": "slem"}
        out = self.engine.generate(prompt, max_new_tokens=tokens, ignore_eos=True, **options)
        stats = out.statistics
        if stats.drafter_error:
            raise RuntimeError(stats.drafter_error)
        seconds = stats.total_s - stats.time_to_first_token_s
        rounds = self.target.forwards - 1
        return {"round_us": seconds / rounds * 1e6, "forwards": self.drafter.forwards / rounds}


def engine_rounds(
    target: Vocabulary, drafter: Vocabulary, contexts: list[int], tokens: int, repetitions: int
) -> list[dict[str, Any]]:
    ways = {"slem": EngineRounds(target, drafter), "own": EngineRounds(target, target)}
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _, context, (way, rounds) in itertools.product(range(repetitions), contexts, ways.items()):
        found.setdefault((way, context), []).append(rounds.measure(context, tokens))
    rows = []
    for context in contexts:
        row: dict[str, Any] = {"context": context}
        for way in ways:
            for name in ("round_us", "forwards"):
                values = [one[name] for one in found[way, context]]
                row[f"{way}_{name}"] = float(np.quantile(values, QUARTILE))
        rows.append(row | {"ours_us": row["slem_round_us"] - row["own_round_us"]})
    for way in ways.values():
        way.engine.close()
    return rows


def slope(rows: list[dict[str, Any]], key: str) -> float:
    """Nanoseconds for each further token of context, from the shortest to the longest."""
    return (rows[-1][key] - rows[0][key]) / (rows[-1]["context"] - rows[0]["context"]) * 1e3


def flat(rows: list[dict[str, Any]], key: str, what: str) -> bool:
    least, most = rows[0][key], max(row[key] for row in rows)
    return report.verdict(
        most <= NOISE_RATIO * least + NOISE_US,
        f"{what}: {least:.1f} us at {rows[0]['context']} tokens, at most {most:.1f} us up to "
        f"{rows[-1]['context']} ({slope(rows, key):.3f} ns for a token of context)",
    )


def show(title: str, rows: list[dict[str, Any]], **columns: str) -> None:
    shown = report.table(title, "context", *columns.values(), left=0)
    for row in rows:
        shown.add_row(f"{row['context']:,}", *(f"{row[key]:.1f}" for key in columns))
    report.console.print(shown)


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--contexts", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--target", default="qwen")
    parser.add_argument("--drafter", default="smollm2")
    parser.add_argument("--rounds", type=int, help="default 300, --full 2000")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        raise SystemExit("needs the tokenizers: .ci/vocabularies PYTHON")
    rounds = arguments.rounds or (2000 if arguments.full else 300)
    facts = report.begin("rounds of string-level drafting")
    target, drafter = real(arguments.target), real(arguments.drafter)
    translation = Translation(
        target, drafter, target_width=len(target), drafter_width=len(drafter), method="slem"
    )
    alignment_round(translation, arguments.contexts[0], 50)
    alone = [alignment_round(translation, context, rounds) for context in arguments.contexts]
    show(
        f"alignment alone: {target.name} from {drafter.name}, {LOOKAHEAD} ids drawn (us)",
        alone,
        push_us="push",
        encode_us="encode candidates",
        follow_us="follow a correction",
        round_us="round",
        bytes="bytes to tokenizers",
        first_ms="first, ms",
    )
    whole = engine_rounds(target, drafter, arguments.contexts, rounds // 3, 5)
    show(
        f"engine: SI, lookahead {LOOKAHEAD}, models that answer at once (us)",
        whole,
        slem_round_us="round",
        own_round_us="own vocabulary",
        ours_us="translation",
        slem_forwards="drafter forwards",
        own_forwards="own vocabulary",
    )
    least, most = alone[0]["bytes"], max(row["bytes"] for row in alone)
    claims = [
        report.verdict(
            most <= 1.1 * least,
            f"{least:.0f} bytes reach a tokenizer in a round, at most {most:.0f}: no text is "
            "decoded or encoded again",
        ),
        flat(alone, "round_us", "alignment"),
        flat(whole, "slem_round_us", "a round through the engine"),
    ]
    report.end(facts, arguments, alignment=alone, engine=whole)
    return 0 if all(claims) else 1


if __name__ == "__main__":
    sys.exit(main())
