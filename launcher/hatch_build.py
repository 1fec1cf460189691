"""Puts `trisplit` into the wheel: the compiled launcher, or where there is no compiler a shell script."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Launcher(BuildHookInterface):  # type: ignore[type-arg]
    """A wheel with a compiled launcher is for one kind of machine."""

    def initialize(self, _: str, build_data: dict[str, Any]) -> None:
        """Compiles, and adds what came of it to the scripts of the wheel."""
        if self.target_name != "wheel":
            return
        ours = runpy.run_path(str(Path(self.root, "launcher", "compiled.py")))
        program = Path(self.root, "build", "launcher", "trisplit")
        program.parent.mkdir(parents=True, exist_ok=True)
        made = ours["compile_launcher"](program)
        if not made:
            program.write_bytes(ours["SHELL"].read_bytes())
            program.chmod(0o755)
        build_data["shared_scripts"][str(program)] = "trisplit"
        build_data["shared_scripts"][str(ours["SHELL"])] = "trisplit-sh"
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        self.app.display_info(f"launcher: {made or 'no compiler; the one for a shell'}")
