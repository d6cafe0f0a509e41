"""The installed distribution: its tag, its files, what it links and what it depends on."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dsi_native

ROOT = Path(__file__).resolve().parents[2]
try:
    DIST = metadata.distribution("dsi-native")
except metadata.PackageNotFoundError:
    pytest.skip("dsi-native is not installed, only importable", allow_module_level=True)


def is_editable() -> bool:
    direct = DIST.read_text("direct_url.json")
    return direct is not None and json.loads(direct).get("dir_info", {}).get("editable", False)


from_wheel = pytest.mark.skipif(is_editable(), reason="an editable install has no wheel contents")


def test_one_version_everywhere() -> None:
    (written,) = re.findall(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert dsi_native.__version__ == DIST.version == written


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tag names x86-64")
def test_wheel_tag() -> None:
    tag = re.search(r"^Tag: (.+)$", DIST.read_text("WHEEL") or "", re.MULTILINE)
    assert tag is not None
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"{python}-{python}-(many)?linux\w*_x86_64", tag[1])


@from_wheel
def test_wheel_contents() -> None:
    files = {str(f) for f in DIST.files or [] if f.parts[0] == "dsi_native"}
    assert sum(re.fullmatch(r"dsi_native/_core\..*\.so", f) is not None for f in files) == 1
    assert {"dsi_native/_core.pyi", "dsi_native/py.typed", "dsi_native/__init__.py"} <= files
    allowed = {".py", ".pyi", ".so", ".typed", ".pyc"}
    prompts = {f for f in files if re.fullmatch(r"dsi_native/experiments/prompts/\w+\.txt", f)}
    data = {"dsi_native/experiments/paper_rows.json"}
    assert data <= files
    assert {f for f in files - prompts - data if Path(f).suffix not in allowed} == set()
    assert len(prompts) == len(list((ROOT / "python/dsi_native/experiments/prompts").glob("*.txt")))
    tops = {f.parts[0] for f in DIST.files or []} - {"..", "dsi_native"}
    assert tops == {f"dsi_native-{DIST.version}.dist-info"}


def test_license_is_shipped() -> None:
    assert DIST.metadata["License-Expression"] == "Apache-2.0"
    if not is_editable():
        assert any(f.name == "LICENSE" for f in DIST.files or [])


def test_base_install_needs_numpy_only() -> None:
    base = [r for r in DIST.requires or [] if "extra ==" not in r]
    assert [re.match(r"[\w-]+", r)[0] for r in base] == ["numpy"]
    extras = {"torch", "hf", "cli", "plots", "triton", "dev"}
    assert set(DIST.metadata.get_all("Provides-Extra")) == extras


def test_extension_links_no_framework() -> None:
    extension = Path(dsi_native._core.__file__)
    linked = subprocess.run(["ldd", extension], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in linked
    assert re.search(r"cuda|cudart|torch|libpython|not found", linked) is None


def test_stub_describes_the_module() -> None:
    stub = Path(dsi_native._core.__file__).with_name("_core.pyi")
    if not stub.exists():
        pytest.skip("an editable install keeps the stub in its build folder")
    text = stub.read_text()
    public = [n for n in dir(dsi_native._core) if not n.startswith("_")]
    assert public
    missing = [n for n in public if not re.search(rf"^(class|def) {n}\b|^{n}\b", text, re.M)]
    assert missing == []


def test_cli_without_its_extra_says_what_to_install(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = (
        "import sys\n"
        "sys.modules['typer'] = None\n"
        "from dsi_native.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = run_python("-c", code)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        'dsi needs its command line extra: pip install "dsi-native[cli]"'
    ]
