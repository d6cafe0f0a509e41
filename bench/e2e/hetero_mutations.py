"""Known mistakes of drafting between two vocabularies, and how far each moves the text's law.

The total variation of the joint law is by enumeration over all drafts, coins and clocks. Mistakes
with tokens are also drawn through the C++ kernels, those with strings through the reference. Needs
no model. Exits with 1 where a right method moves the law, or a mistake does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rig import report

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

from hetero_law import Tli, counted, target_law
from hetero_models import total_variation
from hetero_mutations import MUTATIONS, Union, toy
from slrs_toy import STRING_MUTATIONS, TOYS, StringPair, drawn, mistaken_law, two_tokens

TOKENS = 3
RIGHT_AT_MOST = 1e-12
SEEN_FROM = 0.02


def token_level(requests: int) -> list[dict[str, Any]]:
    """Joint law of three tokens, rounds of two drafts."""
    wanted = target_law(toy().target, TOKENS)
    kinds: dict[str, tuple[type[Tli], bool]] = {
        "intersection (no mistake)": (Tli, True),
        "union (no mistake, the baseline)": (Union, False),
        **{name: (kind, True) for name, kind in MUTATIONS.items()},
    }
    rows = []
    for name, (kind, through_kernels) in kinds.items():
        pair = toy(kind)
        row = {"name": name, "tv": total_variation(pair.law(TOKENS), wanted)}
        if through_kernels:
            texts = pair.texts(TOKENS, requests).tokens
            shares = counted(texts, pair.target.model.width) / requests
            row["drawn"] = total_variation(shares, wanted)
        rows.append(row | {"acceptance": pair.acceptance(), "mistake": kind not in (Tli, Union)})
    return rows


def string_level(requests: int) -> list[dict[str, Any]]:
    """Law of one token, or of two where text is reused."""
    pair, by_text = TOYS["subwords"], TOYS["bytes"]
    rows = [
        {
            "name": "string-level rejection (no mistake)",
            "tv": total_variation(pair.law(), pair.p()),
            "drawn": _drawn_variation(pair, requests),
            "acceptance": pair.acceptance(),
            "mistake": False,
        }
    ]
    for name, kind in STRING_MUTATIONS.items():
        law = mistaken_law(pair, kind)
        row = {"name": f"psi: {name}", "tv": total_variation(law, pair.p()), "mistake": True}
        rows.append(row | {"drawn": _drawn_variation(pair, requests, kind)})
    wanted = np.array([p * by_text.p((t,)) for t, p in enumerate(by_text.p())])
    for name, reuse in (("text left over thrown away (no mistake)", False), ("reused", True)):
        tv = total_variation(two_tokens(by_text, reuse), wanted)
        rows.append({"name": name.replace("reused", "text left over reused"), "tv": tv})
        rows[-1]["mistake"] = reuse
    return rows


def _drawn_variation(pair: StringPair, requests: int, *kind: Any) -> float:
    tokens = np.array([x.token for x in drawn(pair, requests, *kind)])
    return total_variation(np.bincount(tokens, minlength=len(pair.p())) / requests, pair.p())


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = report.table(title, "", "TV, enumerated", "TV, drawn", "first draft stands")
    for row in rows:
        cells = [row.get(key) for key in ("tv", "drawn", "acceptance")]
        table.add_row(row["name"], *("" if x is None else f"{x:.3f}" for x in cells))
    report.console.print(table)


def main() -> int:
    parser = report.options(__doc__)
    arguments = parser.parse_args()
    facts = report.begin("mistakes of drafting between vocabularies")
    requests = 1_000_000 if arguments.full else 100_000
    tables: dict[str, Callable[[], list[dict[str, Any]]]] = {
        f"tokens: joint law of {TOKENS}, {requests:,} texts": lambda: token_level(requests),
        f"strings: {requests // 50:,} draws": lambda: string_level(requests // 50),
    }
    found = {title: made() for title, made in tables.items()}
    for title, rows in found.items():
        show(title, rows)
    report.end(facts, arguments, tables=found)
    rows = [row for of in found.values() for row in of]
    right = max(row["tv"] for row in rows if not row["mistake"])
    least = min(row["tv"] for row in rows if row["mistake"])
    claims = [
        report.verdict(right < RIGHT_AT_MOST, f"right methods keep the law (TV {right:.1e})"),
        report.verdict(least > SEEN_FROM, f"every mistake is seen (TV from {least:.3f})"),
    ]
    return 0 if all(claims) else 1


if __name__ == "__main__":
    sys.exit(main())
