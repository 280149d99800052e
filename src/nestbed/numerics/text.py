"""Text from elsewhere, made harmless before it is shown: a folder's name, or what a file holds, may be anything."""

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of what moves, colours or turns around other characters instead of being one."""
LONGEST_SENTENCE = 2000
"""Characters of a sentence."""


def visible(text: str, keep: str = "\n") -> str:
    r"""Return the text with control characters written out, as in \x1b, but for those to keep."""
    return "".join(
        _escaped(character) if unicodedata.category(character) in HIDDEN and character not in keep else character
        for character in text
    )


def sentence(text: str) -> str:
    """Return the text in one visible line, without what is beyond all reading."""
    return visible(text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]} …", keep="")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
