"""How much of rv a command loads: a number that does not depend on how fast a machine is."""

from pathlib import Path

from tests.figures import modules_of_a_dry_run

ROOT = Path(__file__).parents[3]
MOST = 70


def test_a_dry_run_on_a_snapshot_loads_few_modules() -> None:
    """What it plans with, and nothing that asks, submits or follows."""
    modules = modules_of_a_dry_run(ROOT)
    assert {"rv.planner.planning", "rv.ui.plan_views", "rv.config.gpu_models"} <= modules
    assert len(modules) <= MOST
    parts = ("rv.transport.", "rv.sandbox", "rv.accept", "rv.workflow.follow", "rv.race.stage")
    assert [name for name in modules if name.startswith(parts)] == []


def test_a_module_that_is_imported_counts(tmp_path: Path) -> None:
    """In a checkout whose planner imports one more."""
    for name in ("tests", "strategies", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    package = tmp_path / "rv"
    package.mkdir()
    for path in (ROOT / "rv").iterdir():
        if path.name != "planner":
            (package / path.name).symlink_to(path)
    (package / "planner").mkdir()
    for path in (ROOT / "rv" / "planner").glob("*.py"):
        (package / "planner" / path.name).symlink_to(path)
    planning = package / "planner" / "planning.py"
    text = planning.read_text(encoding="utf-8")
    planning.unlink()
    planning.write_text(f"{text}\nimport rv.race.pace\n", encoding="utf-8")
    assert modules_of_a_dry_run(tmp_path) - modules_of_a_dry_run(ROOT) == {"rv.race.pace"}
