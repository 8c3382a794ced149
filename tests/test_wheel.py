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
from mapper._parsed import digest, unpacked
from mapper.rulebook.compiled import compiled
from mapper.rulebook.rulebook import KINDS
from mapper.rulebook.shelf import found

ROOT = Path(__file__).resolve().parent.parent
COMPILED = "mapper/_compiled"
CHECKPOINT = "distilbert-base-uncased"  # in the bundled catalogue


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # without isolation: the build needs hatchling and PyYAML alone, which are here, and no network
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
    for folder in KINDS:
        shipped = {
            path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules" / folder).rglob("*.yaml")
        }
        assert shipped and shipped <= {name.removeprefix("mapper/_rules/") for name in names}
    assert any(name.startswith("mapper/catalogue/") and not name.endswith(".py") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "mapper/py.typed" in names
    assert "mapper/report/schema.json" in names
    assert not any(name.startswith(("tests/", "generated/", "tools/")) for name in names)


def test_what_the_wheel_has_read_already_is_what_its_rules_say(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        read = {name: archive.read(f"{COMPILED}/{name}") for name in compiled()}
        assert len(read) == len([name for name in archive.namelist() if name.startswith(COMPILED)])
    assert read == compiled()
    for kind in KINDS:
        kept = unpacked(read[f"{kind}.kept"])
        assert kept is not None
        texts = [texts_of(Path(file.path)) for file in found(kind, [ROOT / "rules"])]
        assert list(kept.numbers()) == [digest(text) for text in texts]


def texts_of(file: Path) -> list[str]:
    """What a file of rules says, and its examples, of which what a family must have is made."""
    beside = ROOT / "rules" / "examples" / file.name
    is_family = file.parent.name == "families" and beside.is_file()
    return [path.read_text(encoding="utf-8") for path in (file, *([beside] if is_family else []))]


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
    isolated = "-P" if sys.version_info >= (3, 11) else "-E"  # the package is not that of this folder
    where = run(
        python,
        isolated,
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

    # nothing is parsed: what the wheel has read already is believed, until somebody changes a file
    (tmp_path / "file").write_text("")
    for cache in ("none", "none", "file/cannot_be_written"):
        environment = {**outside, "XDG_CACHE_HOME": str(tmp_path / cache)}
        without_yaml = (
            f"import sys; sys.modules['yaml'] = None; import mapper; print(mapper.inspect('{CHECKPOINT}'))"
        )
        assert run(python, isolated, "-c", without_yaml, **environment).strip() == text.strip()
    family = next(Path(site).rglob("_rules/families/distilbert.yaml"))
    family.write_text(family.read_text(encoding="utf-8").replace("family: distilbert", "family: trebilbert"))
    for cache in ("none", "none", "file/cannot_be_written"):
        environment = {**outside, "XDG_CACHE_HOME": str(tmp_path / cache)}
        assert "trebilbert" in run(command, "inspect", CHECKPOINT, **environment).splitlines()[0]
