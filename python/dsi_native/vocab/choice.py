"""Which method suits a pair of vocabularies."""

from __future__ import annotations

from typing import NamedTuple

# The least share of a text in the intersection for which TLI is worth it: what is outside can never
# be drafted.
ENOUGH = 0.9
SAMPLE = (
    b"The committee met on Tuesday to discuss next year's budget. Nobody expected the meeting to "
    b'last until midnight, but it did.\n\ndef total(rows):\n    return sum(row["price"] * 1.19 '
    b"for row in rows)\n"
)


class Choice(NamedTuple):
    """method: "same" (no translation), "tli", "slem", or "none" where no draft is possible."""

    method: str
    why: str


def choose(relation: str, share: float, target_encodes: bool, drafter_encodes: bool) -> Choice:
    """The method for a pair, and one sentence why.

    relation: of VocabularyMap. share: of the text, by tokens or by the target's probability, that
    is in the intersection.
    """
    if relation in ("same", "padded"):
        return Choice("same", "Ids mean the same on both sides: drafts need no translation.")
    if not drafter_encodes:
        return Choice("none", "The drafter's file does not say how text becomes its tokens.")
    percent = f"{100 * share:.1f} %"
    if share >= ENOUGH:
        return Choice(
            "tli", f"{percent} of the text is tokens of both: drafts are drawn from these alone."
        )
    if target_encodes:
        return Choice(
            "slem",
            f"Only {percent} of the text is tokens of both; by its text, the drafter can propose "
            "the rest too.",
        )
    if relation == "overlapping":
        return Choice(
            "tli",
            f"Only {percent} of the text is tokens of both, but the target's file does not say how "
            "text becomes its tokens, which SLEM needs.",
        )
    return Choice("none", "No token is common, and the target's file does not say how it encodes.")
