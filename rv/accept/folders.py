"""Where acceptance keeps what it knows, on this machine."""

from pathlib import Path

from rv.slurm.text import printable


def data_folder() -> Path:
    """The folder of everything that acceptance keeps."""
    import platformdirs

    return platformdirs.user_data_path("rv") / "accept"


def cluster_file(kind: str, cluster: str, suffix: str) -> Path:
    """A file of one cluster, by its key, in the folder of its kind."""
    name = "".join(char if char.isalnum() or char in "-." else "_" for char in printable(cluster))
    return data_folder() / kind / f"{name or 'unknown'}{suffix}"
