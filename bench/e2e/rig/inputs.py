"""The prompts that the package ships."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsi_native.errors import InvalidArgument
from dsi_native.experiments import prompts as prompts_of_package


@dataclass(frozen=True)
class Prompt(prompts_of_package.Prompt):
    """One of the package's prompts; of kind "edit": much of the answer repeats it."""

    def ids(self, tokenizer: Any) -> np.ndarray:
        """int32 [n], as a chat through the tokenizer's template."""
        messages = [{"role": "user", "content": self.text}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
        return np.asarray(ids["input_ids"] if hasattr(ids, "keys") else ids, dtype=np.int32)


def prompts(count: int) -> list[Prompt]:
    """The first `count` of twelve, the kinds taking turns."""
    try:
        found = prompts_of_package.built_in_prompts(count)
    except InvalidArgument as error:
        raise SystemExit(f"--{error}") from None
    return [Prompt(**vars(prompt)) for prompt in found]
