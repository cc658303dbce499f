"""What is shipped: the same files whichever way it is built, and everything that rv reads."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from rv import __version__
from rv.cli.manual import pages

ROOT = Path(__file__).parents[2]
NAME = f"rv_slurm-{__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, the wheel made of it, and `direct/` with a wheel of the checkout."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    subprocess.run([*build, str(out)], check=True, capture_output=True)
    subprocess.run([*build, str(out / "direct"), "--wheel"], check=True, capture_output=True)
    return out


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel but its record of itself, which has the time in it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a folder that belongs to the source."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel that went through the sdist."""
    (path,) = built.glob("*.whl")
    return path


def test_both_ways_to_build_a_wheel_give_the_same_files(built, wheel):
    """One of them passes through the sdist, so nothing may be missing there."""
    (direct,) = (built / "direct").glob("*.whl")
    assert contents(wheel) == contents(direct)


@pytest.mark.parametrize("kind", ["templates", "strategies"])
def test_the_bundle_is_the_tree(wheel, kind):
    """Every template and strategy, and nothing else."""
    prefix = f"rv/_bundle/{kind}/"
    shipped = {name.removeprefix(prefix): data for name, data in contents(wheel).items()
               if name.startswith(prefix)}  # fmt: skip
    assert shipped == tree(ROOT / kind)
    assert shipped


def test_the_package_is_the_tree(wheel):
    """Payloads, profiles and the fake nvidia-smi too."""
    shipped = {name.removeprefix("rv/"): data for name, data in contents(wheel).items()
               if name.startswith("rv/") and not name.startswith("rv/_bundle/")}  # fmt: skip
    assert shipped == tree(ROOT / "rv")
    needed = {"py.typed", "payloads/check.py", "payloads/_harness/main.py", "sandbox/nvidia-smi.sh"}
    assert needed | {"sandbox/profiles/campus.yaml", "sandbox/profiles/small.yaml"} <= set(shipped)


def test_the_wheel_has_one_top_level_name(wheel):
    """`templates` and `tests` at the top would be anybody's; Hydra finds plugins by theirs."""
    tops = {name.split("/")[0] for name in contents(wheel)} - {"hydra_plugins"}
    assert tops == {"rv", f"{NAME}.dist-info", f"{NAME}.data"}


def test_the_wheel_has_a_manual_page_of_each_command(wheel):
    """Where man finds it once it is installed."""
    prefix = f"{NAME}.data/data/"
    shared = {name.removeprefix(prefix): data for name, data in contents(wheel).items()
              if name.startswith(prefix)}  # fmt: skip
    assert shared == {f"share/man/man1/{name}": text.encode() for name, text in pages()}


def test_the_wheel_has_the_launcher_that_hydra_finds(wheel):
    """As a namespace: the folder is that of all of Hydra's plugins."""
    prefix = "hydra_plugins/"
    shipped = {name.removeprefix(prefix): data for name, data in contents(wheel).items()
               if name.startswith(prefix)}  # fmt: skip
    assert shipped == tree(ROOT / "hydra_plugins")
    assert set(shipped) == {"rv_launcher/__init__.py", "rv_launcher/launcher.py"}


def test_the_sdist_has_what_a_packager_needs(built):
    """Also the tests and how to run them."""
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {
        "tests/run.sh",
        "tests/setup.sh",
        "examples/setup.sh",
        "examples/quickstart.sh",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("dist")]


@pytest.fixture(scope="module")
def install(tmp_path_factory):
    """Install something into a fresh environment; what rv depends on is the tests' own."""

    def into(*what: str) -> Path:
        folder = tmp_path_factory.mktemp("venv")
        venv.create(folder, with_pip=True)
        here = folder / "bin" / "python"
        (site,) = (folder / "lib").glob("python*/site-packages")
        pip = [str(here), "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
        # Ours come last on the path, so that what is installed there wins.
        ours = [path for path in sys.path if path.endswith("site-packages")]
        (site / "zz_dependencies.pth").write_text("\n".join(ours), encoding="utf-8")
        subprocess.run([*pip, "--force-reinstall", *what], check=True, capture_output=True)
        return folder / "bin"

    return into


@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_an_installed_rv_works_from_anywhere(install, wheel, way, tmp_path):
    """Its command, its help, its templates and its payloads, away from the checkout."""
    folder = install(str(wheel)) if way == "wheel" else install("--editable", str(ROOT))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def out(*argv: str) -> str:
        done = subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=True)
        return done.stdout

    assert out(f"{folder}/rv", "--version") == f"rv {__version__}\n"
    assert "--gpu" in out(f"{folder}/rv", "up", "--help")
    code = (
        "from rv import bundle; print(bundle.__file__, bundle.payload_names(),"
        " [f.name for k in bundle.Kind for f in bundle.bundled(k).iterdir()])"
    )
    told = out(f"{folder}/python", "-c", code)
    assert told.startswith(str(ROOT if way == "editable" else folder.parent))
    for name in ("check.py", "single_node.sh.j2", "gpus.yaml"):
        assert name in told


def test_the_citation_is_of_this_version():
    """And of this licence."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (__version__, "MIT")
