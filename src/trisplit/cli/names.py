"""MODEL as a person writes it: a path, the name of a model to fetch, or a model on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from trisplit.assets import ASSETS, Asset, fetch
from trisplit.cli.progress import bars
from trisplit.errors import FetchProblem, Problem, RequestProblem, UnknownName
from trisplit.table import size

HUB_WAIT_S = 10.0

# Two parts and no more, the file after a colon: `a/b.gguf` and `./a/b` are paths that do not exist.
_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?<!\.gguf)(:(?P<file>.+\.gguf))?", re.ASCII)
_MEMBER = re.compile(r"(.+)-\d{5}-of-(\d{5}\.gguf)")


def find_model(name: str) -> Path:
    """The folder or file that MODEL stands for, fetched or downloaded if it is not on this machine.

    Tried in this order: a path, a `fetch` name, `org/name` or `org/name:file.gguf` on the hub. Whether a
    model lies at the path is for `open_model` to say. Problems: RequestProblem and UnknownName when the
    name stands for no model, FetchProblem when what it stands for cannot be had.
    """
    path = Path(name)
    if os.path.exists(name):
        return path
    if name in ASSETS:
        _refuse_text(ASSETS[name])
        return fetched(name)
    if hub_id := _HUB_ID.fullmatch(name):
        return _from_hub(name, hub_id["repo"], hub_id["file"] or "")
    if path.suffix == ".gguf" or path.name != name:
        raise RequestProblem(f"{name} does not exist", fix=_instead(path))
    raise UnknownName("file, folder or model to fetch", name, [*_models(), *_near(path)])


def fetched(name: str) -> Path:
    """The asset called `name`, fetched behind a progress bar if it is missing; Problems as of `fetch`."""
    with bars() as show:

        def progress(done: int, total: int) -> None:
            show.advance(f"fetching {name}", done, total, f"{size(done)} of {size(total)}")

        return fetch(name, progress)


def _is_model(asset: Asset) -> bool:
    return asset.file.endswith(".gguf")


def _models() -> list[str]:
    return [name for name, asset in ASSETS.items() if _is_model(asset)]


def _refuse_text(asset: Asset) -> None:
    if not _is_model(asset):
        what = f"{asset.name} is no model: {asset.what}"
        raise RequestProblem(what, fix=f"models to fetch: {', '.join(_models())}")


def _near(path: Path) -> list[str]:
    """What is called nearly as `path`, and lies where it was said to be."""
    try:
        return get_close_matches(path.name, os.listdir(path.parent), n=1)
    except (OSError, ValueError):
        return []


def _instead(path: Path) -> str:
    """What was probably meant by a path that does not exist."""
    if near := _near(path):
        return f"did you mean {path.with_name(near[0])}?"
    return f"name a folder, a .gguf file, org/name on the hub, or one of {', '.join(_models())}"


# --- the hub --------------------------------------------------------------------------------------


def _from_hub(name: str, repo: str, file: str) -> Path:
    """The model in the hub library's own cache; the hub is asked first, so that it is the newest."""
    try:
        import huggingface_hub as hub
    except ImportError:
        what = f"{name} does not exist here, and to look on the hub huggingface_hub is missing"
        raise RequestProblem(what, fix="pip install 'trisplit[hub]'") from None
    try:
        # The download would ask too, but wait for a silent hub without end, or try five times.
        info = hub.HfApi().model_info(repo, timeout=HUB_WAIT_S)
        _refuse_unless_offered(repo, file, [sibling.rfilename for sibling in info.siblings or ()])
        return _snapshot(repo, file)
    except Problem:
        raise
    except Exception as error:  # of requests, httpx or its own: that depends on the library's release
        if kept := _kept(repo, file):
            return kept
        raise _refusal(name, repo, error) from error


def _snapshot(repo: str, file: str, *, kept: bool = False) -> Path:
    """One GGUF with all its members, or what a safetensors model is made of; `kept`: from the cache alone."""
    import huggingface_hub as hub

    wanted, unwanted = ["*.json", "*.safetensors", "*.jinja"], list[str]()
    if not file:
        unwanted = ["*/*", "consolidated*"]  # copies for other programs
    elif member := _MEMBER.fullmatch(file):
        wanted = [f"{member[1]}-*-of-{member[2]}"]
    else:
        wanted = [file]
    folder = hub.snapshot_download(
        repo, allow_patterns=wanted, ignore_patterns=unwanted, local_files_only=kept
    )
    return Path(folder, file)


def _kept(repo: str, file: str) -> Path | None:
    """What an earlier download left in the library's cache, if it is whole."""
    try:
        path = _snapshot(repo, file, kept=True)
    except Exception:
        return None
    return path if os.path.isfile(path if file else path / "config.json") else None


def _refuse_unless_offered(repo: str, file: str, offered: Sequence[str]) -> None:
    if (file or "config.json") in offered:
        return
    ggufs = sorted(other for other in offered if other.endswith(".gguf"))
    likely = next(iter(get_close_matches(file, ggufs, n=1) or ggufs), None)
    raise RequestProblem(
        f"{repo} on the hub has no {file or 'config.json'}",
        fix=f"name one of its {len(ggufs)} GGUF files: {repo}:{likely}" if likely else "name another model",
    )


def _refusal(name: str, repo: str, error: Exception) -> FetchProblem:
    """Why the hub did not give us a model."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    match error:
        case GatedRepoError():
            what = f"{repo} is gated on the hub"
            fix = "accept its terms on its page there, then log in: hf auth login"
        case RepositoryNotFoundError():
            what = f"{name} does not exist here, and the hub shows us no such model"
            fix = f"{_instead(Path(name))}; for a private model log in: hf auth login"
        case _:
            what = f"{name} does not exist here, and the hub cannot give it: {_first_line(error)}"
            fix = f"check the network, or {_instead(Path(name))}"
    return FetchProblem(what, fix=fix)


def _first_line(error: Exception) -> str:
    said = str(error).strip()
    return said.splitlines()[0] if said else type(error).__name__
