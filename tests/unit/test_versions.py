"""Conditions on versions, as Nomad decides them."""

import pytest

from edgeyard.devices.constraints import compare, constraint_problem


@pytest.mark.parametrize(
    ("version", "operator", "conditions", "met"),
    [
        ("1.20.1", "version", ">= 1.17", True),
        ("1.20.1", "version", ">= 1.17, < 1.20", False),
        ("1.9", "version", "> 1.10", False),
        ("v1.2", "version", "= 1.2.0", True),
        ("1.2.3", "version", "~> 1.2", True),
        ("2.0", "version", "~> 1.2", False),
        ("1.2.9", "version", "~> 1.2.3", True),
        ("1.3.0", "version", "~> 1.2.3", False),
        ("1.3.0-beta1", "version", ">= 1.0", False),
        ("1.3.0-beta1", "version", ">= 1.3.0-alpha1", True),
        ("1.3.0-beta1", "semver", ">= 1.0.0", True),
        ("1.3.0-beta1", "semver", ">= 1.3.0", False),
        ("1.3.0-beta.2", "semver", "< 1.3.0-beta.11", True),
        ("1.3", "semver", ">= 1.0.0, < 2", True),
        ("1.3", "semver", "1.3.0", True),
        ("1.3.0.1", "semver", "> 1.3", True),
        ("1.3.0-2", "semver", "< 1.3.0-beta", True),
        ("1.3.0-beta", "semver", "< 1.3.0-beta.rc", False),
        ("1.3.0-beta", "semver", "< 1.3.0-beta.1", True),
        ("1.2.9", "version", "~> 1.2.3-rc1", False),
        ("1.2.3.4", "version", "~> 1.2.3", True),
        ("1.2.3", "version", "~> 1.2.3.0", False),
        ("1.3.0+cu12", "version", "= 1.3", True),
        ("soon", "version", ">= 0", False),
        (7, "version", ">= 6", True),
        (True, "version", ">= 0", False),
    ],
)
def test_a_version_is_compared_as_nomad_compares_it(
    version: str | int | bool, operator: str, conditions: str, met: bool
) -> None:
    assert compare(version, operator, conditions) is met


@pytest.mark.parametrize(
    ("operator", "conditions", "named"),
    [
        ("version", "newest", "'newest'"),
        ("version", ">= 1.2,, < 3", "''"),
        ("semver", ">= new", "'>= new' is not a version"),
        ("version", "1.2", "write '= 1.2'"),
        ("semver", "~> 1.2.3", "no ~>"),
    ],
)
def test_a_wrong_condition_is_named(operator: str, conditions: str, named: str) -> None:
    problem = constraint_problem("engine.ort.version", operator, conditions)
    assert problem is not None
    assert named in problem
    assert not compare("1.2.3", operator, conditions)
