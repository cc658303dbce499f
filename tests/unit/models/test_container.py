"""Images and mounts: each form for each runtime, and what neither can take."""

import pytest

from rv.errors import RvError
from rv.models.container import is_path, read_image, read_mount

DIGEST = "sha256:0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "pyxis", "apptainer"),
    [
        ("ubuntu:24.04", "ubuntu:24.04", "docker://ubuntu:24.04"),
        ("docker://ubuntu:24.04", "ubuntu:24.04", "docker://ubuntu:24.04"),
        ("lab/deep", "lab/deep", "docker://lab/deep"),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io#nvidia/pytorch:24.05-py3",
         "docker://nvcr.io/nvidia/pytorch:24.05-py3"),
        ("nvcr.io#nvidia/pytorch:24.05-py3", "nvcr.io#nvidia/pytorch:24.05-py3",
         "docker://nvcr.io/nvidia/pytorch:24.05-py3"),
        ("$oauthtoken@nvcr.io#nvidia/pytorch", "$oauthtoken@nvcr.io#nvidia/pytorch",
         "docker://nvcr.io/nvidia/pytorch"),
        ("localhost:5000/deep:1", "localhost:5000#deep:1", "docker://localhost:5000/deep:1"),
        (f"ghcr.io/lab/deep@{DIGEST}", f"ghcr.io#lab/deep@{DIGEST}",
         f"docker://ghcr.io/lab/deep@{DIGEST}"),
        ("oras://ghcr.io/lab/deep:1", "", "oras://ghcr.io/lab/deep:1"),
        ("/images/a b.sqsh", "/images/a b.sqsh", "/images/a b.sqsh"),
        ("deep.sif", "", "deep.sif"),
        ("./folder", "", "./folder"),
        ("~/it's $HERE.sif", "", "~/it's $HERE.sif"),
    ],
)  # fmt: skip
def test_an_image_has_a_name_for_each_runtime(text: str, pyxis: str, apptainer: str) -> None:
    """A SIF and a folder are Apptainer's alone."""
    image = read_image(text)
    assert (image.pyxis, image.apptainer) == (pyxis, apptainer)
    assert bool(image.path) is is_path(text)


@pytest.mark.parametrize(
    "text",
    [
        "two words",
        "-x",
        "http://host/image",
        "a;b",
        "$(reboot)",
        "/a\nb",
        "#x",
        "docker://",
        "a/../b",
    ],
)
def test_what_is_no_image_is_refused(text: str) -> None:
    """Before anything is asked of the cluster."""
    with pytest.raises(RvError, match="is no image"):
        read_image(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("/data", "/data:/data"), ("/data:ro", "/data:/data:ro"), ("/a b:/c", "/a b:/c"),
        ("/a:/b:rw", "/a:/b:rw"),
    ],
)  # fmt: skip
def test_a_mount_is_written_in_full(text: str, whole: str) -> None:
    """Both runtimes read the same form."""
    assert read_mount(text) == whole


@pytest.mark.parametrize(
    "text", ["data", "/a:b", "/a:/b:xx", "/a,/b", "/a:/b:ro:ro", "", "/", "/a:/", "/a\n", "/a:"]
)
def test_what_is_no_mount_is_refused(text: str) -> None:
    """A comma would be two mounts; nothing goes over the root folder."""
    with pytest.raises(RvError, match="is no mount"):
        read_mount(text)
