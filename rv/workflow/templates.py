"""The templates of job scripts, the user's own before the bundled; and jinja2's code of them."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rv import __version__, bundle
from rv.errors import ErrorKind, RvError
from rv.render.templates import Templates
from rv.transport.own_folder import is_own
from rv.transport.private_directories import make_private

if TYPE_CHECKING:
    import jinja2
    from jinja2.bccache import Bucket


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


def templates() -> Templates:
    """Return all templates; their code is kept where only this user can write, else nowhere."""
    import platformdirs

    return _kept_in(platformdirs.user_cache_path("rv") / "templates")


@lru_cache(maxsize=4)
def _kept_in(folder: Path) -> Templates:
    try:
        make_private(folder)
    except OSError:
        return Templates(read_template)
    return Templates(read_template, _code(folder) if is_own(folder) else None)


def _code(folder: Path) -> "jinja2.BytecodeCache":
    """Return jinja2's cache of code, which fails no command: a bad file in it is compiled anew."""
    import jinja2

    class Code(jinja2.FileSystemBytecodeCache):
        def load_bytecode(self, bucket: "Bucket") -> None:
            try:
                super().load_bytecode(bucket)
            except Exception:  # noqa: BLE001 - unpickling a damaged file may raise anything
                bucket.reset()

        def dump_bytecode(self, bucket: "Bucket") -> None:
            with suppress(OSError):
                super().dump_bytecode(bucket)

    # By the versions: its own mark of the format changes seldom, and constants are quoted already.
    return Code(str(folder), f"{__version__}-{jinja2.__version__}-%s")
