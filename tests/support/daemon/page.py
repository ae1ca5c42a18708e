"""The page of the daemon as text."""

import re
from html.parser import HTMLParser


class Reader(HTMLParser):
    """Keeps the content of a page: the elements with their attributes, and the text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


def visible_text(text: str) -> str:
    """Return the text that people read on a page, without the texts of pictures."""
    plain = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", plain).split())
