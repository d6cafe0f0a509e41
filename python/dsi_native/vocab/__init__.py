"""Vocabularies as bytes, and what two of them have in common."""

from dsi_native.vocab.map import VocabularyMap, vocabulary_map
from dsi_native.vocab.open import open_vocabulary
from dsi_native.vocab.vocabulary import Vocabulary

__all__ = ["Vocabulary", "VocabularyMap", "open_vocabulary", "vocabulary_map"]
