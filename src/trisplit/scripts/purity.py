"""May this script be tried in a closed world, and what of its surroundings belongs to its name? Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trisplit.scripts.closure import Part, without_imports
from trisplit.scripts.script import Script

# Variables that change what node prints, or which libraries any program loads.
MEDDLING = ("NODE_", "LD_", "DYLD_", "UV_", "ICU_", "OPENSSL_", "FORCE_COLOR", "GLIBC_TUNABLES", "MALLOC_")
# Read by scripts or installers only, or not before a connection is made.
HARMLESS = ("NODE_ENV", "NODE_VERSION", "NODE_HOME", "NODE_REPL_HISTORY", "NODE_EXTRA_CA_CERTS")

# A script that does not mention these cannot see where it lies. A backslash could spell any of them.
_PLACE = (b"__filename", b"__dirname", b"arguments", b"\\u")

# `super.x = 1` defines x on `this` without asking it, and that may be the global object. Calls are harmless.
_SPACE = r"[\s\ufeff]*"
_CALL = rf"\.{_SPACE}[A-Za-z0-9_$]+{_SPACE}\("
_THROUGH_SUPER = re.compile(rf"\bsuper\b(?!{_SPACE}{_CALL}){_SPACE}[.\[/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a reference run would have around it. `limits`: what it may not have as much of as others."""

    environment: Mapping[str, str]
    limits: tuple[str, ...] = ()
    stdout_is_terminal: bool = False
    stderr_is_terminal: bool = False


def impure_at_sight(script: Script, parts: Sequence[Part], around: Surroundings) -> str:
    """Why the script, the first of `parts`, is not even tried; empty when it may be."""
    if script.language == "python":
        return "Python: nothing we have proves that a Python script reads nothing besides"
    if script.unclear:
        return script.unclear
    for name in sorted(around.environment):
        if name.startswith(MEDDLING) and name not in HARMLESS:
            return f"the variable {name} is set, which may change what the engine does"
    if around.limits:
        return f"a limit is set on {', '.join(around.limits)}: the engine might meet it"
    for part in parts:
        if not part.is_json and (why := _impure_text(part, is_module=script.kind == "module")):
            return why if part.path == script.path else f"{why} ({part.path.name})"
    return ""


def _impure_text(part: Part, *, is_module: bool) -> str:
    text = part.source.decode(errors="replace")
    if "node_modules" in part.path.parts:
        return "lies in node_modules"
    rest = without_imports(part.source).decode(errors="replace") if is_module else text
    if "import" in rest:
        line = _line(rest, rest.index("import"))
        return f"mentions import, at line {line}: only plain declarations of modules are looked up"
    if through_super := _THROUGH_SUPER.search(text):
        line = _line(text, through_super.start())
        return f"uses super for more than calls, at line {line}: it could write past what guards the globals"
    return ""


def _line(text: str, at: int) -> int:
    return text[:at].count("\n") + 1


def place_matters(parts: Sequence[Part]) -> bool:
    """Whether the script could see where its files lie."""
    return any(word in part.source for part in parts for word in _PLACE)
