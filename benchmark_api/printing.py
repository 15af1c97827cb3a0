"""Text of others on the way to a terminal."""


def printable(text: str) -> str:
    """Remove control characters: names and sentences of others may hold escape sequences."""
    if text.isprintable():  # most are, and figures have thousands
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
