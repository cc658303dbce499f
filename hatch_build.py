"""Adds the manual pages to the wheel: they are made of the commands, and not kept beside them."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface):
    """Writes the pages for share/man, where pip, pipx and man look for them."""

    folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the pages; an editable installation has none."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        sys.dont_write_bytecode = True
        from rv.cli.manual import write_pages

        self.folder = tempfile.mkdtemp(prefix="rv-man-")
        write_pages(Path(self.folder))
        for page in Path(self.folder).iterdir():
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"

    def finalize(self, *_: Any) -> None:
        """Remove what `initialize` wrote."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
