"""How byte-level vocabularies of GGUF files cut text before they merge: `tokenizer.ggml.pre`."""

from __future__ import annotations

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = rf"\s*[\r\n]+|{_SPACES}"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"


def _words(digits: str, letter: str = r"\p{L}", contractions: bool = True) -> str:
    """Contractions, words with what leads them, digits, signs with their line ends, blanks."""
    signs = rf" ?[^\s{letter}\p{{N}}]+[\r\n]*"
    word = rf"[^\r\n\p{{L}}\p{{N}}]?[{letter}]+"
    start = f"{_CONTRACTIONS}|" if contractions else ""
    return f"{start}{word}|{digits}|{signs}|{_LINES}"


def _cased(digits: str, contractions: bool) -> str:
    """Words that also end where lower case turns to upper."""
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    behind = f"{_CONTRACTIONS}?" if contractions else ""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{lead}[{upper}]*[{lower}]+{behind}|{lead}[{upper}]+[{lower}]*{behind}|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"
    )


_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    rf"{_ASCII_SIGNS}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}",
)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")

# Each name -> patterns, one after another; what a pattern matches, and what lies between, is split.
_BY_NAME: dict[tuple[str, ...], tuple[str, ...]] = {
    ("gpt-2", "phi-2", "mpt", "olmo", "jais", "jina-es", "jina-de", "roberta-bpe"): (_GPT2,),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"): (
        r"\p{N}",
        _GPT2,
    ),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "dbrx", "smaug-bpe"): (
        _words(r"\p{N}{1,3}"),
    ),
    ("chatglm-bpe", "glm4"): (_words(r"\p{N}{1,3}"),),
    ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"): (_words(r"\p{N}"),),
    ("qwen35",): (_words(r"\p{N}", r"\p{L}\p{M}"),),
    ("deepseek-v3", "hunyuan-dense"): _DEEPSEEK,
    ("falcon",): _FALCON,
    ("tekken",): (_cased(r"\p{N}", contractions=False),),
    ("gpt-4o", "llama4"): (_cased(r"\p{N}{1,3}", contractions=True),),
}
SPLITS = {name: patterns for names, patterns in _BY_NAME.items() for name in names}
# Their merges do not cover all words of the vocabulary: a whole word comes before any merge.
WHOLE_WORDS_FIRST = frozenset({"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken", "gpt-4o"})
