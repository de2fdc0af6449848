"""The commands of the README, the pinned set, and the doctor."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from classroom import run

from autograder import doctor

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)")
LEARNERS = {"numpy", "torch", "matplotlib", "jupyterlab", "nbgrader"}


def canonical(name: str) -> str:
    """A package's name as every index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str, text: str | None = None) -> dict[str, str]:
    """The versions that a requirements file pins; every line must be a comment or a pin."""
    lines = (text or (ROOT / file).read_text()).splitlines()
    found = {}
    for line in (line.strip() for line in lines if line.strip() and not line.startswith("#")):
        match = PIN.fullmatch(line)
        assert match, f"{file}: '{line}' is not NAME==VERSION"
        found[canonical(match[1])] = match[2]
    return found


def make(*arguments: str, at: Path, **variables: str) -> subprocess.CompletedProcess:
    """One call of make, without the make around this test."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    return subprocess.run(["make", *arguments], cwd=at, env={**env, **variables}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)


@pytest.fixture
def copy(tmp_path) -> Path:
    """What make needs, in a folder with a space in its name, with an environment that is up to date."""
    here = tmp_path / "a course"
    here.mkdir()
    for name in ("Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, here)
    (here / ".venv").mkdir()
    (here / ".venv" / ".installed").touch()
    return here


def test_every_requirement_is_pinned_and_in_the_tested_set():
    tested, needed = pins("constraints.txt"), pins("requirements.txt")
    assert {name: tested.get(name) for name in needed} == needed


def test_everything_that_the_package_needs_is_in_the_tested_set():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    assert {canonical(name) for name in named} <= set(pins("constraints.txt"))


def test_the_tested_set_is_what_these_tests_run_with():
    for name, version in pins("requirements.txt").items():
        assert metadata.version(name).split("+")[0] == version, f"{name}: run make setup"


def test_second_setup_has_nothing_to_do(copy):
    assert make("--question", ".venv/.installed", at=copy).returncode == 0


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt", "pyproject.toml"])
def test_setup_runs_again_when_what_it_installs_changed(copy, name):
    os.utime(copy / ".venv" / ".installed", (0, 0))
    os.utime(copy / name)
    assert make("--question", ".venv/.installed", at=copy).returncode == 1


def test_extra_arguments_reach_pip(copy):
    shutil.rmtree(copy / ".venv")
    printed = make("-n", "setup", "PIP_ARGS=--no-index", at=copy).stdout
    assert "pip install --disable-pip-version-check --no-index" in printed


def test_an_old_python_is_one_clear_line(copy):
    shutil.rmtree(copy / ".venv")
    old = copy / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make("setup", "PYTHON=./old", at=copy)
    assert done.returncode != 0
    assert "older than Python 3.11; install a newer one or name it" in done.stderr
    assert not (copy / ".venv").exists()


def test_clean_leaves_peoples_grades_alone(copy):
    for folder in ("course/submitted/ada", "_build/html"):
        (copy / folder).mkdir(parents=True)
    assert make("clean", at=copy).returncode == 0
    assert (copy / "course/submitted/ada").is_dir() and not (copy / "_build").exists()


def test_ci_runs_the_test_command_of_the_readme():
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.startswith("#")]
    assert [line.rsplit("exec ", 1)[-1] for line in lines] == ["make test"]
    assert "\nmake test\n" in (ROOT / "README.md").read_text() or "`make test`" in (ROOT / "README.md").read_text()


def commands(text: str) -> set[tuple[str, str]]:
    """The (program, command) pairs of ours that a text tells its reader to run."""
    return set(re.findall(r"(?m)(?:^|`)(?:\.venv/bin/)?(make|autograder) ([a-z]+)", text))


@pytest.mark.parametrize("file", ["README.md", "book/instructors.md"])
def test_every_command_that_the_instructions_name_exists(file):
    from autograder import cli

    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    there = {("make", name) for name in targets} | {("autograder", name) for name in cli.main.commands}
    assert commands((ROOT / file).read_text()) - there == set()


def test_no_tracked_file_names_a_machine():
    """A path of someone's machine or the address of a package index would be wrong on every other machine."""
    there = r"(^|[^A-Za-z0-9._/-])/(work|root|home|Users)/[a-z]|(index-url|find-links)[ =]"
    run = subprocess.run(["git", "grep", "-nIE", there, "--", ".", ":!tests/test_tooling.py"], cwd=ROOT,
                         capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    assert run.stdout == ""


def test_doctor_finds_this_environment_whole():
    findings = doctor.examine(ROOT)
    assert [one.line() for one in findings if one.state == "missing"] == []
    assert {"python", "torch", "kernel python3", "Chromium", "disk"} <= {one.name for one in findings}


def test_doctor_gives_a_cure_for_whatever_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.metadata, "version", missing)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor, "PLAYWRIGHT_CACHES", ())
    monkeypatch.setattr(doctor.sys, "prefix", str(tmp_path))
    monkeypatch.delenv("PLAYWRIGHT_BROWSERS_PATH", raising=False)
    absent = [one for one in doctor.examine(ROOT) if one.state != "ok"]
    assert {"torch", "nbgrader", "git", "Chromium", "Validate button"} <= {one.name for one in absent}
    assert [one.name for one in absent if not one.cure] == []
    assert all("\n" not in one.line() for one in absent)


def missing(name: str) -> str:
    """What importlib.metadata does for a package that is not installed."""
    raise metadata.PackageNotFoundError(name)


def test_doctor_takes_the_browser_that_the_caller_names(monkeypatch):
    monkeypatch.setenv("CHROMIUM", sys.executable)
    assert doctor.chromium() == Path(sys.executable)
    monkeypatch.setenv("CHROMIUM", "no such program")
    assert doctor.chromium() is None and doctor.browser().state == "note"


def test_doctor_command_fails_where_something_needed_is_missing(monkeypatch):
    from click.testing import CliRunner

    from autograder import cli

    assert CliRunner().invoke(cli.main, ["doctor"]).exit_code == 0
    monkeypatch.setattr(doctor.metadata, "version", missing)
    done = CliRunner().invoke(cli.main, ["doctor"])
    assert done.exit_code == 1 and "run: make setup" in done.output


QUICK = """
import sys
from autograder import cli
cli._import_jsonschema()
import autograder.report, autograder.feedback, autograder.progress, nbformat
heavy = {"torch", "rfc3987_syntax", "matplotlib"} & {name for name, module in sys.modules.items() if module}
assert not heavy, heavy
nbformat.validate(nbformat.v4.new_notebook())
import rfc3987_syntax
"""
HELP = """
import sys
from autograder import cli
try:
    cli.main(["grade", "--help"])
finally:
    assert "jsonschema" not in sys.modules
"""


def test_commands_that_run_no_code_import_neither_torch_nor_a_grammar():
    """Two seconds and one of them, of a report that takes one and a half."""
    subprocess.run([sys.executable, "-c", QUICK], check=True, timeout=120)


def test_help_of_a_command_imports_what_it_prints_alone():
    done = subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True, text=True, timeout=120)
    assert "--dry-run" in done.stdout


PLATFORMS = {
    "Moodle": ("Anna Lee_12_assignsubmission_file/03_scaling.ipynb", "Bo Ek_7_assignsubmission_file_/03_scaling.ipynb"),
    "Canvas": ("annalee_12345_67890_03_scaling.ipynb", "boek_LATE_12346_67891_03_scaling-1.ipynb"),
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_pattern_of_the_guide_sorts_a_platforms_zip(platform, tmp_path):
    guide = (ROOT / "book" / "instructors.md").read_text()
    pattern = re.search(rf"^# {platform}: .*\n(c\.FileNameCollectorPlugin\..*)$", guide, re.MULTILINE)[1]
    (tmp_path / "nbgrader_config.py").write_text(f"c = get_config()\n{pattern}\n")
    archive = tmp_path / "downloaded" / "03_scaling" / "archive"
    archive.mkdir(parents=True)
    with zipfile.ZipFile(archive / "all.zip", "w") as made:
        for name in PLATFORMS[platform]:
            made.writestr(name, "{}")
    done = run("nbgrader", "zip_collect", "03_scaling", cwd=tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("submitted/*/*/*")}
    names = ("Anna Lee", "Bo Ek") if platform == "Moodle" else ("annalee", "boek")
    assert found == {f"submitted/{name}/03_scaling/03_scaling.ipynb" for name in names}, done.stderr
