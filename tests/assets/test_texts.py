"""Wiki markup and tagged words become prose; articles are read back and shared out fairly."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from trisplit.assets import Article, calibration, held_out, read_articles
from trisplit.assets.rows import to_line
from trisplit.assets.texts import brown, prose, wikipedia
from trisplit.errors import FetchProblem
from trisplit.paths import cache_dir

MARKUP = """{{Infobox|a=1}}
[[File:Fig.png|thumb|A [[caption]]]]
'''Albedo''' ({{IPAc-en|æ|l}}; from [[Latin language|Latin]] ''albus'') is {{convert|5|km|mi}} away.<ref
name="a">Book {{cite|x}}</ref> It holds H<sub>2</sub>O &amp; {{lang|el|ἀρχή}}, [http://example.org a link]<ref
name="a"/>.<!-- hidden
-->
{| class="wikitable"
|-
! head
| cell
|}
== History ==
* First
* [[wikt:second|second]]
== See also ==
* [[Elsewhere]]
=== More of it ===
* [[Further]]
== After ==
Last<math>x^2</math> words.
[[Category:Light]]
[[fr:Albédo]]
"""

PROSE = """Albedo (from Latin albus) is 5 km away. It holds H2O & ἀρχή, a link.

History
First
second
After
Last words."""


def test_markup_becomes_what_a_reader_sees() -> None:
    assert prose(MARKUP) == PROSE


def test_markup_that_does_not_parse_leaves_no_marks() -> None:
    assert (
        prose("A '''bold start [[half\n{| open\n| a cell\nend <ref>never") == "A bold start half\n\nend never"
    )


def dump(*pages: tuple[str, str, str]) -> bytes:
    bodies = "".join(
        f"<page><title>{title}</title><ns>{space}</ns><revision><text>{text}</text></revision></page>"
        for title, space, text in pages
    )
    header = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">'
    return bz2.compress(f"{header}{bodies}</mediawiki>".encode())


def test_a_dump_gives_its_long_articles_only() -> None:
    long = "word " * 101
    pages = [
        ("Kept", "0", long),
        ("Too short", "0", "word"),
        ("Redirect", "0", "#redirect [[Kept]]" + long),
        ("Talk:Kept", "1", long),
    ]
    assert list(wikipedia([("dump.bz2", dump(*pages))])) == [Article("Kept", long.strip())]


def test_brown_loses_its_tags_and_keeps_its_paragraphs() -> None:
    tagged = (
        b"\n\n\tThe/at jury/nn said/vbd ``/`` no/at evidence/nn ''/'' (/( of/in it/pps )/) ./.\n"
        b"Why/wrb ?/. ?/.\n\n\n\tMr./np Allen/np Jr./np ./. and/or/cc **zg/nil\n"
    )
    text = 'The jury said "no evidence" (of it). Why?\n\nMr. Allen Jr. and/or'
    assert list(brown([("package/ca01", tagged)])) == [Article("ca01", text)]


def test_articles_are_read_back_and_no_article_is_in_both_halves(tmp_path: Path) -> None:
    articles = [Article(f"t{i}", f"text {i}\nwith a \u2028 line") for i in range(5)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(map(to_line, articles)))
    assert read_articles(path) == articles
    assert [a.title for a in calibration(articles)] == ["t0", "t2", "t4"]
    assert [a.title for a in held_out(articles)] == ["t1", "t3"]


def test_a_line_that_is_no_article_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"title":"a","text":"b"}\n{"title":"a"}\n')
    with pytest.raises(FetchProblem, match=r"line 2 of .*a\.jsonl is no Article: .*`text`"):
        read_articles(path)
    with pytest.raises(FetchProblem, match=r"cannot read .*none\.jsonl: No such file"):
        read_articles(tmp_path / "none.jsonl")


@pytest.mark.real
def test_the_real_texts_are_what_we_measure_on() -> None:
    wiki, corpus = cache_dir() / "wiki" / "wiki.jsonl", cache_dir() / "brown" / "brown.jsonl"
    if not (wiki.exists() and corpus.exists()):
        pytest.skip("trisplit fetch wiki brown")
    articles = read_articles(wiki)
    assert len(articles) == 104
    assert [a.title for a in articles[:3]] == ["Anarchism", "Autism", "Albedo"]
    assert sum(len(a.text) for a in articles) == pytest.approx(2_804_421, rel=0.01)
    marks = ("{{", "[[", "<ref", "'''", "{|", "&nbsp;")
    assert not [mark for a in articles for mark in marks if mark in a.text]
    texts = read_articles(corpus)
    assert len(texts) == 500
    assert texts[0].text.startswith(
        "The Fulton County Grand Jury said Friday an investigation of Atlanta's recent"
    )
