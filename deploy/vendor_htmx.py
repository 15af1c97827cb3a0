"""Takes htmx from its npm package into the pages: ``python -m deploy.vendor_htmx``.

The package is refused unless its hash is `INTEGRITY`; npm's client downloads it and runs nothing of
it. ``tests/unit/test_pages.py`` checks that the files in the tree are those of `FILES`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from deploy.programs import npm_package

PACKAGE = "htmx.org@4.0.1"
INTEGRITY = (
    "sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPlu"
    "B2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg=="
)
"""Hash of the package's archive, which ``npm view PACKAGE dist.integrity`` states."""

TARGET = Path(__file__).parents[1] / "templates" / "pages" / "static"

FILES = {
    "dist/htmx.min.js": (
        "htmx.min.js",
        "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    ),
    "dist/ext/hx-csp.min.js": (
        "hx-csp.min.js",
        "a7e1e6711ae6c3e50ad300fba7936cbe8d07599cdae313414a179ddd6b26e143",
    ),
    "dist/ext/hx-sse.min.js": (
        "hx-sse.min.js",
        "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
    ),
    "LICENSE": ("htmx.LICENSE", "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38"),
}
"""What is taken, by its path in the package: its name here and its SHA-256."""


def vendor(target: Path) -> None:
    """Write the files of the package into a folder.

    Raises:
        ValueError: The package or a file of it is another one.
    """
    with npm_package(PACKAGE, INTEGRITY) as package:
        for source, (name, sha256) in FILES.items():
            member = package.extractfile(f"package/{source}")
            data = b"" if member is None else member.read()
            if hashlib.sha256(data).hexdigest() != sha256:
                raise ValueError(f"{source} of {PACKAGE} is not the file that was reviewed")
            (target / name).write_bytes(data)


if __name__ == "__main__":
    vendor(TARGET)
