"""What modules and caches keep until the process is gone is no leak: tables, engines, errors."""

import functools
import sys
import types

import strict

import dsi_native as dsi
from numpy_lm import NumpyLm


class Tokenizer:
    """Just enough of one for a table of bytes, which dsi_native keeps in a cache."""

    added_tokens_decoder: dict = {}  # noqa: RUF012

    class backend_tokenizer:
        class decoder:
            @staticmethod
            def __getstate__() -> bytes:
                return b'{"type": "ByteLevel"}'

    def get_vocab(self) -> dict:
        return {chr(65 + n): n for n in range(50)}


@functools.lru_cache
def engine_of(seed: int) -> dsi.Engine:
    return dsi.Engine(NumpyLm(seed=seed), "lookup", tokenizer=Tokenizer())


out = engine_of(1).generate(strict.PROMPT, max_new_tokens=60, stop="zz", ignore_eos=True)
assert len(out.text) > 20
module = types.ModuleType("holder")
sys.modules["holder"] = module
module.engine = engine_of(2)
module.lookup = dsi.PromptLookup()
module.request = module.engine.submit(strict.PROMPT, **strict.FOREVER)
try:
    dsi.Engine(NumpyLm(), NumpyLm(65))
except dsi.InvalidArgument as error:
    module.error = error
