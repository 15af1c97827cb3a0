"""The import name comes from links, and nothing of ours lands where it could collide."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("scheduler", "benchmark_api", "devices", "plugins", "templates", "testbed")
FOLDERS = (*PRODUCT, "simulator", "training")


@pytest.mark.parametrize("name", FOLDERS)
def test_the_package_folder_links_to_the_top_level_one(name: str) -> None:
    link = ROOT / "src/edgeyard" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name


def _modules_after(statement: str) -> set[str]:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))",
        ],
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_bare_name_is_loaded() -> None:
    loaded = _modules_after("import edgeyard.benchmark_api.cli")
    assert not loaded & set(FOLDERS)


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _modules_after("import edgeyard")
    heavy = {"numpy", "httpx", "fastapi", "sqlalchemy", "onnxruntime", "pydantic"}
    assert not loaded & heavy


def test_the_client_needs_no_web_stack() -> None:
    loaded = _modules_after("from edgeyard import Client")
    assert "httpx" in loaded
    assert not loaded & {"fastapi", "starlette", "uvicorn", "sqlalchemy", "onnxruntime"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["benchmark_api.main", "benchmark_api.cli", "training.cli.learning_a2c"]
)
def test_server_and_command_line_start_without_jax(module: str) -> None:
    loaded = _modules_after(f"import edgeyard.{module}")
    assert not loaded & {"jax", "jaxlib", "optax", "gymnasium", "numba"}


@pytest.mark.parametrize("folder", ["how-to", "tutorials"])
def test_the_first_page_leads_to_every_guide(folder: str) -> None:
    page = (ROOT / "docs/index.md").read_text()
    guides = sorted((ROOT / "docs" / folder).glob("*.md"))
    assert guides
    assert [each.name for each in guides if f"({folder}/{each.name})" not in page] == []


def test_extras_that_pages_and_docstrings_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    tracked = subprocess.run(
        ["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    named: dict[str, set[str]] = {}
    for file in set(tracked.stdout.split()) - {"CHANGELOG.md"}:
        text = (ROOT / file).read_text(encoding="utf-8")
        for alone, together in re.findall(r"extra `+(\w+)`|edgeyard\[([\w,]+)\]", text):
            for each in (alone or together).split(","):
                named.setdefault(each, set()).add(file)
    assert len(named) > 8
    assert {each: files for each, files in named.items() if each not in extras} == {}


_INSTALL = re.compile(
    r"\b(?:pip3?|pipx|uv)\b[^\n]*?\binstall\b[^\n]*|\binstall\s+`?['\"]?edgeyard[\[=][^\n]*", re.I
)
_BARE = re.compile(r"(?<![\w./@:{-])edgeyard(?:\[[\w,]*\])?(?=$|[\s'\"`=<>~!;),])")


def bare_names(text: str) -> list[str]:
    """Commands that would ask a package index for Edgeyard, whose name nobody owns there."""
    commands = [found[0].partition("#")[0] for found in _INSTALL.finditer(text)]
    return [
        each
        for each in commands
        if _BARE.search(re.split("install", each, maxsplit=1, flags=re.I)[1])
    ]


@pytest.mark.parametrize(
    ("command", "is_bare"),
    [
        ("pip install edgeyard", True),
        ("$ ~/edgeyard-client/bin/pip install --quiet edgeyard", True),
        ("pip install 'edgeyard[server,onnx]'", True),
        ("/opt/edgeyard/bin/pip install edgeyard==0.2.0 numpy", True),
        ("uv pip install edgeyard[plot]", True),
        ("pipx install edgeyard", True),
        ("writing Parquet needs pyarrow: install edgeyard[export]", True),
        ("Install `edgeyard[training]`", True),
        ("pip install ./edgeyard-0.2.0-py3-none-any.whl", False),
        ("pip install 'edgeyard-0.2.0-py3-none-any.whl[plot]'", False),
        ('/opt/edgeyard/bin/pip install "${WHEEL}[server]"', False),
        ("pip install pillow  # for edgeyard", False),
        ("pip install daiedge-vlab==1.2.12", False),
    ],
)
def test_a_command_that_asks_an_index_for_the_name_is_found(command: str, is_bare: bool) -> None:
    assert bool(bare_names(command)) == is_bare


def test_no_page_no_example_and_no_message_installs_a_bare_name() -> None:
    """Edgeyard is installed from a wheel by its path: a stranger may own its name on an index."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    seen = 0
    for name in tracked:
        if name == "CHANGELOG.md" or name == "tests/unit/test_packaging.py":
            continue  # what was once so; the commands above
        if not name.endswith(
            (".md", ".py", ".yml", ".yaml", ".toml", ".sh", "Makefile", "Dockerfile")
        ):
            continue
        path = ROOT / name
        if path.is_file():
            seen += 1
            assert bare_names(path.read_text("utf-8")) == [], name
    assert seen > 500
