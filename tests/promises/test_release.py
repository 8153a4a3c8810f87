"""What goes with a release agrees with the package: workflow, container, citation, versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.licenses import canonicalize_license_expression

import vlcpctl

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CHANGELOG = ROOT / "CHANGELOG.md"
ACTION = ROOT / ".github" / "actions" / "setup" / "action.yml"
PYTHON = "Programming Language :: Python :: 3."


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(ROOT / ".github" / "workflows" / "ci.yml")
    return found


def test_all_places_name_one_version() -> None:
    assert PROJECT["version"] == vlcpctl.__version__
    released = re.findall(
        r"^## (\d\S+) - (\S+)$", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE
    )
    citation = read_yaml(ROOT / "CITATION.cff")
    assert (citation["version"], str(citation["date-released"])) == released[0]
    is_released = ".dev" not in vlcpctl.__version__
    assert not is_released or citation["version"] == vlcpctl.__version__
    assert ("## Unreleased\n" in CHANGELOG.read_text(encoding="utf-8")) != is_released


def test_the_workflow_tests_every_python_that_is_supported(workflow: dict[str, Any]) -> None:
    supported = [f"3.{one[len(PYTHON) :]}" for one in PROJECT["classifiers"] if PYTHON in one]
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python-version"] == supported
    assert PROJECT["requires-python"] == f">={supported[0]}"


def test_jobs_may_no_more_than_they_need_and_actions_are_pinned(workflow: dict[str, Any]) -> None:
    """To a commit where the files of a release pass, as a tag can be moved; else to a version."""
    assert workflow["permissions"] == {"contents": "read"}
    granted = {name: job.get("permissions") for name, job in workflow["jobs"].items()}
    assert granted.pop("release") == {"id-token": "write"}
    assert set(granted.values()) == {None}
    for name, job in {**workflow["jobs"], "setup": read_yaml(ACTION)["runs"]}.items():
        version = r"[0-9a-f]{40}" if name in {"package", "release"} else r"v\d+"
        for step in job["steps"]:
            action = step.get("uses", "./")
            assert action.startswith("./") or re.search(rf"@{version}$", action), (name, action)


def test_a_release_waits_for_everything(workflow: dict[str, Any]) -> None:
    jobs = workflow["jobs"]
    assert {*jobs["release"]["needs"], "release"} == set(jobs)
    assert jobs["release"]["if"] in jobs["slow"]["if"]  # a job that is skipped is waited for, too
    assert all("if" not in jobs[name] for name in jobs if name not in {"release", "slow"})


def test_the_licence_names_all_that_the_wheel_ships() -> None:
    expression = PROJECT["license"]
    assert canonicalize_license_expression(expression) == expression
    emoji9 = ROOT / "vlcpctl" / "data" / "emoji9"
    named = set(re.findall(r"\(`([^`]+)`\)", (emoji9 / "LICENSES.md").read_text(encoding="utf-8")))
    assert named == set(expression.split(" AND "))
    found = [path for name in ("*LICENSE*", "OFL*") for path in (ROOT / "vlcpctl").rglob(name)]
    assert set(PROJECT["license-files"]) == {
        "LICENSE",
        *(path.relative_to(ROOT).as_posix() for path in found),
    }


def test_hooks_make_the_checks_of_the_test_recipe() -> None:
    recipe = (ROOT / "recipes" / "test.sh").read_text(encoding="utf-8")
    checks = re.findall(r"^check (.+)$", recipe, re.MULTILINE)
    (local, _) = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    entries = [hook["entry"].replace(".venv/bin/", "") for hook in local["hooks"]]
    for check in checks:
        # pre-commit adds the names of files, and fails when a hook has changed one.
        words = check.removesuffix(" pyproject.toml")
        assert words.replace("ruff format --check", "ruff format") in entries, check
    assert len(checks) > 5
