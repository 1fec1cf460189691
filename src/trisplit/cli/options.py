"""Arguments and options that several commands have, alone and in sets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trisplit.cli.settings import Settings
    from trisplit.mesh.trust import Trust
    from trisplit.models.sampling import Sampling

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A folder, a .gguf file, a `trisplit fetch` name, or a hub id.")
]
Cut = Annotated[str, typer.Option(help="How layers become stage groups: layers, thirds or recut.")]
DtypeOption = Annotated[str, typer.Option("--dtype", help="Weights as f32, int8 or int4.")]
Context = Annotated[
    int | None, typer.Option(help="Tokens to make room for; default: the model's own, at most 4096.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """What tells friends from strangers."""

    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What both ends must know; default: TRISPLIT_SECRET, if it is set."
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates to trust wss:// by; default: the system's."),
    ] = None

    def trust(self) -> Trust:
        """The same, read."""
        from trisplit.mesh.trust import read_trust

        return read_trust(self.secret_file, self.ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Where and how a model is run."""

    stations: Annotated[
        str,
        typer.Option(
            metavar="N|[wss://]HOST:PORT,…",
            help="Split over N local station processes, or over stations already running (wss:// for TLS).",
        ),
    ] = "0"
    cut: Cut = "layers"
    topology: Annotated[
        str, typer.Option(help="How tokens travel between stations: ring, chain or star.")
    ] = "ring"
    dtype: DtypeOption = "f32"
    weights: Annotated[
        str,
        typer.Option(
            help="push: stations are sent their weights; path: they read MODEL where it is; auto: if it is."
        ),
    ] = "auto"
    threads: Annotated[
        int | None, typer.Option(help="Threads per process; default: the free cores, one per station.")
    ] = None
    context: Context = None
    overlap: Annotated[
        str,
        typer.Option(
            metavar="SET|FILE",
            help="Layers that start ahead of the one before, in thirds: all, none, 3,5-9, or the record of "
            "`gate overlap --out`. Answers may differ; not with `up`.",
        ),
    ] = "none"
    speculate: Annotated[
        str,
        typer.Option(
            metavar="auto|none|DRAFT",
            help="Guess ahead in a mesh: ngram, twin:int8, twin:FOLDER, model:NAME. auto does where legs are "
            "longer than 2 ms. Answers are the same.",
        ),
    ] = "auto"
    drafts_go: Annotated[
        str,
        typer.Option(
            metavar="auto|stream|rounds[:K]", help="How guesses are sent: one by one, or K in a frame."
        ),
    ] = "auto"

    def settings(self, trusting: Trusting) -> Settings:
        """The same, checked."""
        from trisplit.cli.settings import settings

        return settings(**asdict(self), **asdict(trusting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """Which token comes next."""

    temperature: Annotated[
        float, typer.Option(help="0 takes the likeliest token; higher is more varied.")
    ] = 0.0
    top_k: Annotated[int, typer.Option(help="Sample from the k likeliest tokens; 0 is off.")] = 0
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest tokens that hold this share.")] = 1.0
    min_p: Annotated[float, typer.Option(help="Drop tokens below this share of the likeliest.")] = 0.0
    repetition_penalty: Annotated[
        float, typer.Option(help="Over 1 makes tokens already there less likely.")
    ] = 1.0
    seed: Annotated[int, typer.Option(help="Same seed, same prompt, same answer.")] = 0

    def sampling(self) -> Sampling:
        """The same, checked."""
        from trisplit.models.sampling import Sampling

        return Sampling(**asdict(self))
