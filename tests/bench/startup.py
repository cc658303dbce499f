"""How much `rv --help` adds to importing typer. Wanted: at most 2."""

import subprocess
import sys

from timing import alternate


def main() -> None:
    """Print the ratio."""
    seconds = alternate(
        {
            "import typer": lambda: subprocess.run(
                [sys.executable, "-c", "import typer"], check=True
            ),
            "rv --help": lambda: subprocess.run(
                [sys.executable, "-m", "rv", "--help"], check=True, stdout=subprocess.DEVNULL
            ),
        },
        rounds=15,
    )
    ratio = seconds["rv --help"] / seconds["import typer"]
    print(f"startup: rv --help {seconds['rv --help'] * 1000:.0f} ms,", end=" ")
    print(f"import typer {seconds['import typer'] * 1000:.0f} ms, ratio {ratio:.2f} (want <= 2)")


if __name__ == "__main__":
    main()
