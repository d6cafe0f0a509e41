"""Drafts of a drafter that knows the text, in another vocabulary: how many of them stand.

The target is scripted: it says its own tokenizer's ids of a text, whatever is drafted. The drafter
is an oracle: it says the same text token by token, as its own tokenizer spells what is left from
where its context stands. Both sit in a real engine (SI), so what is lost is lost in translation.

    coverable: in a round with lookahead k the next k target tokens; fewer only where the request
        ends before. An oracle can always go on drafting, so each of them could have been drafted.
    accepted: leading drafts of the round that are the target's tokens.

Wrong drafts, drafts behind a wrong one and drafts that were not made all lower accepted per
coverable. "held back" is how engines work: a token that more text may still change waits for it;
beside it the same where it is proposed at once. TLI can draft no token outside the intersection.
Exits with 1 where a lossless drafter is below 0.98 in any kind of text. Shown, not judged: drafters
that alter text and so cannot say it, and XLM-R as a target on the text of longest runs. Which of
Unigram's equally likely spellings of a run of zeros is taken is known only behind its end, and a
drafter that says digits one by one is not waited for over 200 of them.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from rig import report
from rig.oracles import Oracle, Script, ScriptedTarget, ask
from rig.texts import texts

import dsi_native
from dsi_native import _core
from dsi_native.pair import Pair
from dsi_native.translation import Translation
from dsi_native.vocab import Vocabulary

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))

from vocab_files import FILES, FOLDER, real

AT_LEAST = 0.98
WAYS = ("slem", "slem at once", "tli")
NOT_JUDGED = {("xlm-r", "runs")}


class AtOnce:
    """A Translation whose SLEM proposes tokens that may still grow."""

    def __init__(self, of: Translation) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def server(self, server: Any, context: int | None) -> Any:
        pair, target, drafter = self._of._native, self._of.target, self._of.drafter
        return _core.TranslatedDrafter(
            server,
            pair,
            target.encode,
            drafter.encode,
            context or -1,
            lead_bytes=self._of.lead_bytes,
            hold_back=False,
        )


def engines_of(target: ScriptedTarget, drafter: Oracle) -> dict[str, dsi_native.Engine]:
    """An engine for each of WAYS."""
    translation = Translation(
        target.vocabulary,
        drafter.vocabulary,
        target_width=target.vocab_size,
        drafter_width=drafter.vocab_size,
    )

    def engine(translation: Any) -> dsi_native.Engine:
        pair = Pair(target, drafter, None, translation)
        with mock.patch("dsi_native.engine.open_pair", return_value=pair):
            return dsi_native.Engine(target, drafter, sp=1, mode="si", break_even=False)

    held, at_once = engine(translation), engine(AtOnce(translation))
    return dict(zip(WAYS, (held, at_once, held), strict=True))


def measure(
    target: Vocabulary, drafter: Vocabulary, kinds: list[str], lookaheads: list[int]
) -> list[dict[str, Any]]:
    """A figure for each kind of text, way and lookahead."""
    scripted, oracle = ScriptedTarget(target), Oracle(drafter)
    engines = engines_of(scripted, oracle)
    figures = []
    for kind, (way, engine) in itertools.product(kinds, engines.items()):
        script = Script.of(target, texts()[kind])
        for lookahead in lookaheads if way == "slem" else lookaheads[-1:]:
            found = ask(engine, scripted, oracle, script, lookahead, way.split()[0])
            figures.append(
                {"target": target.name, "drafter": drafter.name}
                | {"lossless": drafter.lossless}
                | {"text": kind, "way": way, "lookahead": lookahead}
                | found
            )
    for engine in engines.values():
        engine.close()
    return figures


def ratio(figures: list[dict[str, Any]], key: str = "accepted", of: str = "coverable") -> float:
    whole = sum(f[of] for f in figures)
    return sum(f[key] for f in figures) / whole if whole else 1.0


def where(figures: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [f for f in figures if all(f[k] == v for k, v in wanted.items())]


def show(figures: list[dict[str, Any]], kinds: list[str]) -> None:
    shown = report.table(
        "accepted per coverable (* the drafter's tokenizer alters text)",
        *("target", "drafter", *kinds, "at once", "fwd", "at once", "TLI", "common"),
        left=2,
    )
    pairs = dict.fromkeys((f["target"], f["drafter"], f["lossless"]) for f in figures)
    for target, drafter, lossless in pairs:
        mine = where(figures, target=target, drafter=drafter)
        held, tli = where(mine, way="slem"), where(mine, way="tli")
        most = max(f["lookahead"] for f in held)
        at_once = where(mine, way="slem at once")
        shown.add_row(
            target,
            drafter + ("" if lossless else "*"),
            *(f"{ratio(where(held, text=kind)):.3f}" for kind in kinds),
            f"{ratio(at_once):.3f}",
            f"{ratio(where(held, lookahead=most), 'drafter_forwards', 'tokens'):.2f}",
            f"{ratio(at_once, 'drafter_forwards', 'tokens'):.2f}",
            f"{ratio(tli):.3f}",
            f"{ratio(tli, 'common', 'tokens'):.3f}",
        )
    report.console.print(shown)
    report.console.print(
        "at once: without holding back; fwd: forwards of the drafter per token of the text; "
        "common: share of the text's tokens in the intersection"
    )


def show_losses(figures: list[dict[str, Any]], most: int) -> None:
    """What was lost where a pair is below the claim."""
    for f in figures:
        if f["way"] == "slem" and f["lossless"] and ratio([f]) < AT_LEAST:
            report.console.print(
                f"{f['target']} from {f['drafter']}, {f['text']}, lookahead {f['lookahead']}: "
                f"{f['accepted']} of {f['coverable']}, {f['wrong']} wrong, {f['missing']} missing",
                markup=False,
            )
            for loss in f["losses"][:most]:
                report.console.print(f"   {loss}", markup=False)


def verdicts(figures: list[dict[str, Any]], kinds: list[str]) -> bool:
    held = where(figures, way="slem", lossless=True)
    each = {
        (f["target"], f["drafter"], f["text"]): ratio(
            where(held, target=f["target"], drafter=f["drafter"], text=f["text"])
        )
        for f in held
        if (f["target"], f["text"]) not in NOT_JUDGED
    }
    if not each:
        report.console.print("no lossless drafter: nothing to judge")
        return True
    lowest = min(each, key=lambda key: each[key])
    ok = report.verdict(
        each[lowest] >= AT_LEAST,
        f"at least {AT_LEAST} of what can be covered is accepted, {len(each)} pairs and texts with "
        f"a lossless drafter; the lowest {each[lowest]:.3f}: {lowest[0]} from {lowest[1]}, "
        f"{lowest[2]}",
    )
    most = max(f["lookahead"] for f in held)
    held, at_once = where(held, lookahead=most), where(figures, way="slem at once", lossless=True)
    ok &= report.verdict(
        ratio(held) >= ratio(at_once),
        f"holding back accepts more: {ratio(held):.3f} against {ratio(at_once):.3f}, for "
        f"{ratio(held, 'drafter_forwards', 'tokens'):.2f} against "
        f"{ratio(at_once, 'drafter_forwards', 'tokens'):.2f} forwards of the drafter per token",
    )
    report.console.print(
        f"as it is, also lossless: TLI {ratio(where(figures, way='tli', lossless=True)):.3f}"
    )
    return ok


def main() -> int:
    parser = report.options(__doc__)
    parser.add_argument("--targets", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--drafters", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--texts", nargs="+", choices=texts(), default=list(texts()))
    parser.add_argument("--lookaheads", type=int, nargs="+", help="default 2 8, --full 1 2 4 8 16")
    parser.add_argument("--losses", type=int, default=2, help="shown for each that is too low")
    arguments = parser.parse_args()
    if not FOLDER.is_dir():
        raise SystemExit("needs the tokenizers: .ci/vocabularies PYTHON")
    lookaheads = arguments.lookaheads or ([1, 2, 4, 8, 16] if arguments.full else [2, 8])
    facts = report.begin("oracle drafters")
    pairs = [
        (target, drafter)
        for target, drafter in itertools.product(arguments.targets, arguments.drafters)
        if target != drafter
    ]
    figures: list[dict[str, Any]] = []
    with report.progress(len(pairs)) as step:
        for target, drafter in pairs:
            step(f"{target} from {drafter}")
            figures += measure(real(target), real(drafter), arguments.texts, lookaheads)
    show(figures, arguments.texts)
    show_losses(figures, arguments.losses)
    ok = verdicts(figures, arguments.texts)
    report.end(facts, arguments, rows=figures)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
