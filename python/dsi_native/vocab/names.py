"""What control tokens are called where no file says what they are for."""

from __future__ import annotations

from collections.abc import Mapping

# In the order in which they end a text: a chat's end of turn comes before the end of a document.
_NAMES = {
    "eos": (
        "<|im_end|>",
        "<|eot_id|>",
        "<|eot|>",
        "<end_of_turn>",
        "<turn|>",
        "<|eom_id|>",
        "<|eom|>",
        "</s>",
        "<eos>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<EOT>",
        "[SEP]",
    ),
    "bos": (
        "<s>",
        "<bos>",
        "<|begin_of_text|>",
        "<|startoftext|>",
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
        "[CLS]",
    ),
    "pad": ("<pad>", "[PAD]", "<|finetune_right_pad_id|>"),
    "unk": ("<unk>", "[UNK]"),
}


def roles_by_name(control: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Roles of the control tokens whose names are customary; a role without any is left out."""
    ids = {text: at for at, text in control.items()}
    found = {role: tuple(ids[n] for n in names if n in ids) for role, names in _NAMES.items()}
    return {role: at for role, at in found.items() if at}
