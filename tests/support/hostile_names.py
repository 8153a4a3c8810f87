"""Names that are no plain text in some format."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = {
    "escape codes": "\x1b]0;x\x07\x9b31m\u202e",
    "script": "<script>alert(1)</script>",
    "attribute": "\"' onload=alert(1) x='",
    "entity": "&lt;b&gt;",
    "link": "[x](javascript:alert(1))",
    "image": "![x](http://example.com/x.png)",
    "address": "http://example.com www.example.com",
    "pipe": "a|b",
    "lines": "a\n\n# b\r\n- c\u2028d",
    "number": "1. a",
    "code": "`a` *b* _c_ ~~d~~ $e$",
    "rich": "[bold red]a[/]",
}


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}
