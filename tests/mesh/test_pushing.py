"""What a coordinator offers: stages by content, read from the disk when wanted, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from trisplit.errors import PeerProblem, RequestProblem
from trisplit.mesh.costs import plan_model
from trisplit.mesh.pushing import How, Stock, Weights
from trisplit.mesh.room import Room
from trisplit.models.description import unpack
from trisplit.models.model import Model, open_model
from trisplit.models.shelf import shelf
from trisplit.wire.messages import Source, StageSpec, Want

T = TypeVar("T")
Tiny = Callable[[str], Path]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture
def model(tiny: Tiny) -> Model:
    return open_model(tiny("qwen2"))


@pytest.mark.parametrize(("weights", "names", "pushes"), [("auto", 1, 1), ("push", 0, 1), ("path", 1, 0)])
def test_an_order_says_where_weights_come_from(
    weights: Weights, names: int, pushes: int, model: Model
) -> None:
    (share,) = plan_model(
        model, [Room("s1", None)], cut="layers", topology="ring", dtype="int8", context=32
    ).shares
    order = Stock(model, "int8", weights).order(share.groups, How(threads=2, context=32, sessions=3))
    source = Source(str(model.checkpoint.path), model.checkpoint.digest)
    assert order.source == (source if names else None)
    assert order.pushes == bool(pushes)
    assert unpack(order.config) == model.config
    assert (order.dtype, order.threads, order.context, order.sessions) == ("int8", 2, 32, 3)
    (group,) = order.groups
    assert [(s.layer, s.kind) for s in group.stages] == [(s.layer, s.kind) for s in model.stages]
    assert group.n_bytes == sum(model.weight_bytes(stage, "int8") for stage in model.stages)


def test_an_offer_names_the_content_of_files(model: Model) -> None:
    stock = Stock(model, "f32", "push")

    async def offered() -> list[list[tuple[bytes, int]]]:
        specs = [StageSpec(-1, "embed"), StageSpec(0, "down"), StageSpec(-1, "head")]
        offers = [await stock.offer(spec) for spec in specs]
        assert [offer.stage for offer in offers] == specs
        return [[(file.digest, file.n_bytes) for file in offer.files] for offer in offers]

    embed, down, head = run(offered())
    assert (len(embed), len(down), len(head)) == (1, 1, 2)
    assert head[1] == embed[0], "a tied head is the embedding's own bytes"
    for digest, n_bytes in (*embed, *down, *head):
        content = (shelf() / f"{digest.hex()}.safetensors").read_bytes()
        assert (hashlib.sha256(content).digest(), len(content)) == (digest, n_bytes)


def test_what_is_wanted_is_read_from_the_file(model: Model) -> None:
    stock = Stock(model, "f32", "push")

    async def pieces() -> None:
        (file,) = (await stock.offer(StageSpec(0, "down"))).files
        content = (shelf() / f"{file.digest.hex()}.safetensors").read_bytes()
        whole = Want(file.digest, 0, file.n_bytes)
        assert (await stock.piece(whole)).data == content
        assert (await stock.piece(Want(file.digest, 100, 7))).data == content[100:107]
        for offset in (1, file.n_bytes, 2**64 - 1):
            with pytest.raises(PeerProblem, match="are wanted, which nobody offered"):
                await stock.piece(msgspec.structs.replace(whole, offset=offset))

    run(pieces())


def test_nothing_is_read_that_was_not_offered(model: Model) -> None:
    list(model.files(model.stages, "f32"))
    (other,) = (path.stem for path in sorted(shelf().glob("*.safetensors"))[:1])
    with pytest.raises(PeerProblem, match=f"bytes 0 to 1 of {other} are wanted, which nobody offered"):
        run(Stock(model, "f32", "push").piece(Want(bytes.fromhex(other), 0, 1)))


def test_a_file_that_is_gone_is_told(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path))
    stock = Stock(model, "f32", "push")

    async def gone() -> None:
        (file,) = (await stock.offer(StageSpec(0, "down"))).files
        path = shelf() / f"{file.digest.hex()}.safetensors"
        path.write_bytes(b"")
        with pytest.raises(RequestProblem, match="cannot be read: it is shorter than it was"):
            await stock.piece(Want(file.digest, 0, 1))
        path.unlink()
        with pytest.raises(RequestProblem, match="cannot be read: No such file"):
            await stock.piece(Want(file.digest, 0, 1))

    run(gone())
