"""The wheel alone is enough: built, installed into a new environment elsewhere, and asked to inspect."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import mapper

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINT = "distilbert-base-uncased"  # in the bundled catalogue


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # without isolation: the build needs hatchling alone, which the test extra brings, and no network
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(folder),
        str(ROOT),
    )
    (built,) = folder.glob("*.whl")
    return built


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_holds_the_rules_the_catalogue_and_the_license(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("vocabulary", "flows", "families"):
        shipped = {
            path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules" / folder).rglob("*.yaml")
        }
        assert shipped and shipped <= {name.removeprefix("mapper/_rules/") for name in names}
    assert any(name.startswith("mapper/catalogue/") and not name.endswith(".py") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "mapper/py.typed" in names
    assert "mapper/report/schema.json" in names
    assert not any(name.startswith(("tests/", "generated/", "tools/")) for name in names)


def test_an_installed_wheel_inspects_a_model_of_the_catalogue(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = str(tmp_path / "venv" / scripts / "python")
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "-q",
        str(wheel),
    )
    # the dependencies are this environment's; the package is the wheel's
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    outside = {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}
    where = run(
        python,
        "-P" if sys.version_info >= (3, 11) else "-E",
        "-c",
        "import mapper; print(mapper.__file__)",
        **outside,
    )
    assert Path(where.strip()).is_relative_to(tmp_path)
    command = str(tmp_path / "venv" / scripts / "mapper")
    assert run(command, "--version", **outside).strip() == f"mapper {mapper.__version__}"
    text = run(command, "inspect", CHECKPOINT, **outside)
    assert "attention 12 heads" in text
    assert "catalogue" in text
