"""What was probably meant by a word that nobody knows."""

from collections.abc import Iterable


def instead(word: str, known: Iterable[str]) -> str:
    """A question that names it, to end a sentence with; empty when nothing is near."""
    from difflib import get_close_matches  # most words are known

    near = get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]}?" if near else ""
