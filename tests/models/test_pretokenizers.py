"""Each published way of cutting words, pinned on texts where they differ."""

from __future__ import annotations

import pytest

from trisplit.models.pretokenizers import WORDS, splitter
from trisplit.models.vocabulary import BYTE_OF

TEXT = "We'LL see iPhone12345 cafe\u0301's  \n\n x?!\n½"
CUTS = {
    "gpt-2": "We|'|LL| see| iPhone|12345| cafe|\u0301'|s|  \n\n| x|?!|\n|½",
    "smollm": "We|'|LL| see| iPhone|1|2|3|4|5| cafe|\u0301'|s|  \n\n| x|?!|\n|½",
    "llama-bpe": "We|'LL| see| iPhone|123|45| cafe|\u0301'|s|  \n\n| x|?!\n|½",
    "qwen2": "We|'LL| see| iPhone|1|2|3|4|5| cafe|\u0301'|s|  \n\n| x|?!\n|½",
    "qwen35": "We|'LL| see| iPhone|1|2|3|4|5| cafe\u0301|'s|  \n\n| x|?!\n|½",
    "tekken": "We|'LL| see| i|Phone|1|2|3|4|5| cafe\u0301|'s|  \n\n| x|?!\n|½",
    "gpt-4o": "We'LL| see| i|Phone|123|45| cafe\u0301's|  \n\n| x|?!\n|½",
    "deepseek-llm": "We|'|LL| see| iPhone|1|2|3|4|5| cafe|\u0301|'|s|  |\n|\n| x|?!|\n|½",
    "deepseek-coder": "We|'|LL| see| iPhone|1|2|3|4|5| cafe|\u0301|'|s|  |\n|\n| x|?!|\n|½",
    "falcon": "We|'|LL| see| iPhone|123|45| cafe|\u0301|'|s|  \n\n| x|?!|\n|½",
}
SAME = {
    "mpt": "gpt-2",
    "starcoder": "smollm",
    "refact": "smollm",
    "command-r": "smollm",
    "dbrx": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
}


def cuts(name: str, text: str) -> str:
    """The words with | between them."""
    words = [word for word, _ in splitter(WORDS[name]).pre_tokenize_str(text)]
    return "|".join(bytes(BYTE_OF[letter] for letter in word).decode() for word in words)


@pytest.mark.parametrize("name", WORDS)
def test_words(name: str) -> None:
    assert cuts(name, TEXT) == CUTS[SAME.get(name, name)]


def test_scripts_that_deepseek_cuts_apart() -> None:
    assert cuts("llama-bpe", "中文abc漢字。ñandú") == "中文abc漢字|。ñandú"
    assert cuts("deepseek-coder", "中文abc漢字。ñandú") == "中文|abc|漢字|。|ñandú"
    # Its range of punctuation runs over the ASCII letters and cuts them out of words again.
    assert cuts("deepseek-llm", "中文abc漢字。ñandú") == "中文|abc|漢字|。|ñ|and|ú"
