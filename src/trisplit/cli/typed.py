"""What a person typed for a bench, understood or refused; and how a bench's rows are shown."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from trisplit.errors import RequestProblem, UnknownName

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trisplit.models.convert import Dtype

TEXTS = ("wiki", "brown")


def words(text: str) -> list[str]:
    """What stands between commas.

    >>> words("f32, int8,")
    ['f32', 'int8']
    """
    return [word for word in (part.strip() for part in text.split(",")) if word]


def some(found: Sequence[str], what: str) -> Sequence[str]:
    """These, of which there must be one; RequestProblem."""
    if not found:
        raise RequestProblem(f"no {what} was named", fix="name at least one")
    return found


def dtypes_named(text: str) -> list[Dtype]:
    """Dtypes by their names; UnknownName, or RequestProblem for none."""
    from trisplit.models.convert import DTYPES

    known: dict[str, Dtype] = {dtype: dtype for dtype in DTYPES}
    for word in words(text):
        if word not in known:
            raise UnknownName("dtype", word, known)
    return [known[word] for word in some(words(text), "dtype")]


def addresses_typed(text: str) -> dict[str, str]:
    """Stations that run already, named s1, s2, … in order; none where their number is meant.

    RequestProblem for what is no address, and for one that is named twice.
    """
    from trisplit.mesh.address import Address

    places = [place.strip() for place in text.split(",")] if ":" in text else []
    for place in places:
        Address.read(place)
        if places.count(place) > 1:
            raise RequestProblem(f"station {place} is named twice", fix="name each station once")
    return {f"s{i}": place for i, place in enumerate(places, 1)}


def one_dtype(text: str) -> Dtype:
    """The one dtype that was named; Problems as of `dtypes_named`."""
    kinds = dtypes_named(text)
    if len(kinds) > 1:
        raise RequestProblem(f"{text} is more than one dtype", fix="run the bench once for each")
    return kinds[0]


def counts(text: str, option: str = "--threads", what: str = "threads") -> list[int]:
    """Numbers of threads, or of what was asked for by another option; RequestProblem for what is none."""
    for word in some(words(text), f"number of {what}"):
        if not word.isdecimal() or not 1 <= int(word) <= 1024:
            raise RequestProblem(f"{word!r} is no number of {what}", fix=f"write {option} 1,2")
    return [int(word) for word in words(text)]


def factors(text: str, option: str) -> dict[str, float]:
    """How many times, by name; RequestProblem for what is not NAME=TIMES.

    >>> factors("s2=2, s3=1.5", "--far")
    {'s2': 2.0, 's3': 1.5}
    """
    pairs = [re.fullmatch(r"([^=\s]+)=([0-9]{1,4}(?:\.[0-9]+)?)", word) for word in words(text)]
    if not all(pairs):
        raise RequestProblem(f"{option} {text} makes no sense", fix=f"write {option} s2=3,s4=2")
    return {pair[1]: float(pair[2]) for pair in pairs if pair}


def span(text: str, last: int) -> tuple[int, int]:
    """`2-10` as numbers, from 2 to `last` at most; without any all of these. RequestProblem otherwise.

    >>> span("2-10", 12), span("", 12)
    ((2, 10), (2, 12))
    """
    if not text and last >= 2:
        return 2, last
    pair = re.fullmatch(r"([0-9]{1,6})-([0-9]{1,6})", text)
    first, past = (int(pair[1]), int(pair[2])) if pair else (0, 0)
    if not 2 <= first <= past <= last:
        what = f"tokens {text or '2-'} of {last} cannot count"
        raise RequestProblem(what, fix="write --warm 2-10, with numbers from 2 up to those of --tokens")
    return first, past


def warn_if_busy(threads: int) -> None:
    """More threads than free cores halve the speed of any engine."""
    from trisplit.machine import free_cores

    if threads > free_cores():
        print(f"{threads} threads, and {free_cores()} free cores: expect poor figures", file=sys.stderr)


def show_rows(
    rows: Iterable[DataclassInstance],
    *,
    as_json: bool,
    also: Mapping[str, Sequence[DataclassInstance]] | None = None,
) -> None:
    """Rows, and others beside them under a name, with the machine and the command; or tables of them."""
    from trisplit.bench.report import Report
    from trisplit.machine import this_machine

    command = shlex.join(["trisplit", *sys.argv[1:]])
    report = Report(rows=list(rows), machine=this_machine(), command=command, also=also or {})
    print(report.json() if as_json else "\n\n".join(map(str, report.tables())))
