"""Articles to calibrate on and be judged by: made from a Wikipedia dump and the Brown corpus, read back."""

from __future__ import annotations

import bz2
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trisplit.assets.rows import read_rows

if TYPE_CHECKING:
    from mwparserfromhell.nodes import Node
    from mwparserfromhell.wikicode import Wikicode

SHORTEST_CHARS = 500

REFERENCE = re.compile(r"<!--.*?-->|<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref\s*>", re.DOTALL | re.IGNORECASE)
SECTION = re.compile(r"^(?===[^=].*==\s*$)", re.MULTILINE)
# Sections that list things instead of telling them.
LISTING = re.compile(
    r"==\s*(see also|references|notes|notes and references|further reading|external links|bibliography"
    r"|footnotes|sources|citations|works cited)\s*==",
    re.IGNORECASE,
)
NOT_PROSE = {"table", "gallery", "math", "timeline", "imagemap", "source", "ref", "references"}
NOT_SHOWN = re.compile(r"\s*(file|image|category|[a-z]{2,3})\s*:", re.IGNORECASE)
# Templates that stand for words of the sentence: which of their parameters are those words.
WORDS = {"convert": (1, 2), "cvt": (1, 2), "lang": (2,), "quote": (1,), "nowrap": (1,), "smaller": (1,)}
# In this order: what removed markup leaves behind, then spaces.
REMAINS = (
    (re.compile(r"^[ \t]*(\{\||\|\}|[|!]).*$", re.MULTILINE), ""),
    (re.compile(r"<[^<>\n]{1,200}>|'{2,}|\[\[|\]\]|__[A-Z]+__"), ""),
    (re.compile(r"\xa0"), " "),
    (re.compile(r"\([\s;,:]+"), "("),
    (re.compile(r"[\s;,]+\)"), ")"),
    (re.compile(r"\(\)"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ([,.;:)])"), r"\1"),
    (re.compile(r"^ +| +$", re.MULTILINE), ""),
    (re.compile(r"\n{3,}"), "\n\n"),
)
# Brown's marks stand apart as words do, its ? ! ; are doubled, and `Jr.` is followed by a full stop.
SPACING = (
    (re.compile(r"([?!;]) (?=\1)"), ""),
    (re.compile(r" ([,.;:?!)])(?=\s|$)"), r"\1"),
    (re.compile(r"\.\.(?=\s|$)"), "."),
    (re.compile(r"\( "), "("),
    (re.compile(r"`` "), '"'),
    (re.compile(r" ''(?=\W|$)"), '"'),
)


@dataclass(frozen=True, slots=True)
class Article:
    """A title and the plain text under it."""

    title: str
    text: str


def read_articles(path: Path) -> list[Article]:
    """The articles kept at `path`, in order. FetchProblem: a file or line that cannot be read."""
    return read_rows(path, Article)


def calibration(articles: Sequence[Article]) -> list[Article]:
    """The even-numbered articles: what a recipe may look at."""
    return list(articles[::2])


def held_out(articles: Sequence[Article]) -> list[Article]:
    """The odd-numbered articles: what a result is judged by, never looked at before."""
    return list(articles[1::2])


def wikipedia(files: Sequence[tuple[str, bytes]]) -> Iterator[Article]:
    """The articles of bz2 dumps in MediaWiki's export format, as prose of `SHORTEST_CHARS` or more.

    Gone are templates (but for WORDS), tables, references, figures, formulas and the sections that only
    list sources or links.
    """
    for _, compressed in files:
        for title, markup in _pages(bz2.decompress(compressed)):
            text = prose(markup)
            if len(text) > SHORTEST_CHARS:
                yield Article(title, text)


def _pages(dump: bytes) -> Iterator[tuple[str, str]]:
    """Title and markup of every page of the main namespace that is no redirect."""
    root = ET.fromstring(dump)
    for page in root.iterfind("{*}page"):
        markup = page.findtext("{*}revision/{*}text", "")
        if page.findtext("{*}ns") == "0" and not markup.lstrip().upper().startswith("#REDIRECT"):
            yield page.findtext("{*}title", ""), markup


def prose(markup: str) -> str:
    """Wiki markup as the sentences a reader sees."""
    import mwparserfromhell  # an extra, needed only while a dump is turned into text

    sections = SECTION.split(REFERENCE.sub("", markup))
    text = _shown(mwparserfromhell.parse("".join(s for s in sections if not LISTING.match(s))))
    for pattern, instead in REMAINS:
        text = pattern.sub(instead, text)
    return text.strip()


def _shown(code: Wikicode | None) -> str:
    return "" if code is None else "".join(map(_node_shown, code.nodes))


def _node_shown(node: Node) -> str:
    from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Tag, Template, Text, Wikilink

    match node:
        case Text():
            return str(node.value)
        case HTMLEntity():
            return str(node.normalize())
        case Heading():
            return _shown(node.title)
        case ExternalLink():
            return _shown(node.title)
        case Wikilink():
            return "" if NOT_SHOWN.match(str(node.title)) else _shown(node.text or node.title)
        case Tag():
            return "" if str(node.tag).strip().lower() in NOT_PROSE else _shown(node.contents)
        case Template():
            parameters = WORDS.get(str(node.name).strip().lower(), ())
            return " ".join(_shown(node.get(p).value) for p in parameters if node.has(p))
    return ""


def brown(files: Sequence[tuple[str, bytes]]) -> Iterator[Article]:
    """The texts of the Brown corpus, `word/TAG` each word, as paragraphs without tags, titled by file."""
    for path, content in files:
        paragraphs = re.split(r"\n\s*\n", content.decode())
        text = "\n\n".join(filter(None, map(_untagged, paragraphs)))
        yield Article(path.rpartition("/")[2], text)


def _untagged(paragraph: str) -> str:
    words = [word.rpartition("/")[0] for word in paragraph.split()]
    text = " ".join(word for word in words if not word.startswith("**"))
    for pattern, instead in SPACING:
        text = pattern.sub(instead, text)
    return text
