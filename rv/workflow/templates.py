"""The templates of job scripts: the user's own before the bundled, and what jinja2 made of them."""

import marshal
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from rv import bundle
from rv.errors import ErrorKind, RvError
from rv.files import others_may_write, read_regular, write_atomically
from rv.render import quote
from rv.render.templates import Templates
from rv.transport.private_directories import make_private, own_directory

_FILE: Final = "compiled"
_MOST_BYTES: Final = 16 << 20


def read_template(name: str) -> str:
    """Read a template, the user's own before the bundled one. Raises `RvError(CONFIG)`."""
    template = bundle.find(bundle.Kind.TEMPLATES, name, bundle.user_config_dir())
    if template is None:
        raise RvError(
            ErrorKind.CONFIG, f"no template {name!r}", hint="see templates/ for their names"
        )
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RvError(
            ErrorKind.CONFIG, f"{template}: cannot be read: {error}", hint="rename it to do without"
        ) from error


class KeptTemplates:
    """Keeps compiled templates in a file of the user's cache, which no other user can write.

    One that cannot be read, or is of another version, is an empty one: it fails no command.
    """

    def load(self) -> Mapping[str, bytes]:
        """Return what was kept by the same versions of rv, jinja2 and Python."""
        with suppress(OSError, ValueError), own_directory(_folder()) as own:
            status = (own / _FILE).lstat()
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if is_own and not any(map(others_may_write, (status, own.stat()))):
                data = read_regular(own / _FILE, _MOST_BYTES)
                digest, body = data[:32], data[32:]
                if digest == _digest(body):
                    return dict[str, bytes](marshal.loads(body))  # noqa: S302 - our own
        return {}

    def keep(self, templates: Mapping[str, bytes]) -> None:
        """Keep these in place of those before, for readers at any moment."""
        body = marshal.dumps(dict(templates))
        with suppress(OSError):
            make_private(_folder())
            with own_directory(_folder()) as own:
                if not others_may_write(own.stat()):
                    write_atomically(own / _FILE, _digest(body) + body, mode=0o600)


def _folder() -> Path:
    import platformdirs

    return platformdirs.user_cache_path("rv") / "templates"


def _digest(body: bytes) -> bytes:
    """Return what says that this was made whole, by the code that is installed now."""
    from jinja2 import compiler

    made_by = [sys.version]
    for module in (compiler, quote):  # what is constant was quoted when it was compiled
        status = Path(str(module.__file__)).stat()
        made_by.append(f"{module.__file__} {status.st_size} {status.st_mtime_ns}")
    return sha256("\n".join(made_by).encode("utf-8", "surrogateescape") + body).digest()


TEMPLATES: Final = Templates(read=read_template, compiled=KeptTemplates())
