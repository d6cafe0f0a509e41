"""Prompts in all their forms, to token ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsi_native.errors import InvalidArgument


def is_batch(prompt: Any) -> bool:
    """Whether it is a list of prompts: of texts, of chats, or of sequences of ids."""
    if isinstance(prompt, (list, tuple)) and prompt:
        first = prompt[0]
        return isinstance(first, str) or (not isinstance(first, dict) and hasattr(first, "__len__"))
    return getattr(prompt, "ndim", 1) == 2


def without_mapping(prompt: Any) -> Any:
    """Of what a tokenizer returns its ids, padding left out; anything else as it is.

    Ids [n] are one prompt, ids [batch, n] a list of them. Raises InvalidArgument where a mapping
    has no input_ids.
    """
    if not hasattr(prompt, "keys"):
        return prompt
    if "input_ids" not in prompt:
        raise InvalidArgument(
            f"prompt: a mapping needs input_ids, as a tokenizer's output has; got keys "
            f"{', '.join(map(str, prompt.keys()))}. Chat messages are a list of such mappings"
        )
    ids, mask = prompt["input_ids"], prompt.get("attention_mask")
    if mask is None:
        return ids
    if is_batch(ids):
        return [_unpadded(*row) for row in zip(ids, mask, strict=True)]
    return _unpadded(ids, mask)


def _unpadded(ids: Any, mask: Any) -> list[int]:
    return [int(at) for at, keep in zip(ids, mask, strict=True) if keep]


def prompt_ids(prompt: Any, tokenizer: Any, vocab_size: int) -> np.ndarray:
    """int32 [n], n >= 1. Text and chats go through the tokenizer; chats through its template.

    Raises InvalidArgument where there is nothing to go on, no tokenizer, or an id outside the
    vocabulary.
    """
    prompt = without_mapping(prompt)
    if isinstance(prompt, str):
        if not prompt:
            raise InvalidArgument("prompt: is empty; at least one token is needed")
        ids = _tokenizer(tokenizer, "text needs").encode(_unicode(prompt))
    elif isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], dict):
        ids = _chat_ids(prompt, _tokenizer(tokenizer, "chat messages need"))
    else:
        ids = prompt
    return _checked(ids, vocab_size)


def _unicode(text: str) -> str:
    """The text. A shell's argument or standard input that is not UTF-8 comes with surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"prompt: is not valid Unicode at character {error.start}; was it UTF-8?"
        ) from None
    return text


def _tokenizer(tokenizer: Any, what: str) -> Any:
    if tokenizer is None:
        raise InvalidArgument(f"prompt: {what} a tokenizer, the target has none; give ids")
    return tokenizer


def _chat_ids(messages: Any, tokenizer: Any) -> Any:
    for message in messages:
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise InvalidArgument(f"prompt: a chat message needs role and content, got {message!r}")
        if isinstance(message["content"], str):
            _unicode(message["content"])
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidArgument("prompt: chat messages need a chat template, the tokenizer has none")
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    return ids["input_ids"] if hasattr(ids, "keys") else ids


def _checked(ids: Any, vocab_size: int) -> np.ndarray:
    if hasattr(ids, "detach"):  # a torch tensor
        ids = ids.detach().cpu().numpy()
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise InvalidArgument(f"prompt: not a sequence of token ids ({error})") from None
    if array.size == 0:
        raise InvalidArgument("prompt: is empty; at least one token is needed")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"prompt: must be text, chat messages or whole numbers in one dimension, got "
            f"{array.dtype} of shape {array.shape}"
        )
    for wrong in array[(array < 0) | (array >= vocab_size)][:1]:
        raise InvalidArgument(f"prompt: id {wrong} is outside the vocabulary of {vocab_size}")
    return np.ascontiguousarray(array, dtype=np.int32)
