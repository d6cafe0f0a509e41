"""Texts that tokenizers cut in different ways, written for this purpose."""

from __future__ import annotations

from pathlib import Path

_TEXTS = Path(__file__).resolve().parents[2] / "texts"


def texts() -> dict[str, bytes]:
    """Name -> UTF-8 text: prose, code, many languages and signs, and what repeats itself."""
    found = {name: (_TEXTS / f"{name}.txt").read_text() for name in ("prose", "code", "many")}
    found["ha ha"] = "ha ha ha " * 90
    found["blanks"] = "".join(f"line {i}" + "\n" * (1 + i * 7 % 23) for i in range(45))
    found["spaces"] = "".join(f"{chr(97 + i % 26)}" + " " * (1 + i * 11 % 37) for i in range(60))
    found["zeros"] = "".join("0" * (1 + i * 13 % 41) + " 1, " for i in range(30))
    found["runs"] = "\n" * 500 + "x" + " " * 900 + "y" + "0" * 200 + "z" + "=" * 900 + "\n"
    return {name: text.encode() for name, text in found.items()}


_OPENINGS = (
    "The lighthouse had been dark for eleven years when",
    "def fibonacci(n: int) -> int:\n    ",
    "Dear Mrs. Alvarez,\n\nThank you for your letter of 3 March about",
    "The three states of matter are",
    "Shopping list:\n- flour\n- eggs\n- ",
    "SELECT name, COUNT(*) AS orders\nFROM customers\n",
    "Q: Why is the sky blue?\nA:",
    "1, 2, 4, 8, 16, 32, ",
    "Once upon a time, in a village by the sea, there lived a baker who",
    "#include <vector>\n\nint sum(const std::vector<int> &values) {\n  ",
    "To make a good cup of tea, first",
    "Die Hauptstadt von Frankreich ist",
    "January has 31 days. February has 28 days. March has",
    "import csv\n\nwith open('prices.csv') as file:\n    ",
    "The ferry left at six, and everyone on board",
    "| month | days |\n|---|---|\n| January | 31 |\n| February | 28 |\n",
    "Bread rises because the yeast",
    "<ul>\n  <li>Monday</li>\n  <li>Tuesday</li>\n",
    "In physics, the word energy means",
    "Le chat dort sur la chaise, et le chien",
)


def openings(count: int) -> list[str]:
    """The first `count` of twenty beginnings of texts, for models that just go on."""
    if not 1 <= count <= len(_OPENINGS):
        raise SystemExit(f"--prompts: there are 1 to {len(_OPENINGS)}, not {count}")
    return list(_OPENINGS[:count])
