"""``make docs``: the reference page of the server's settings."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.fields import FieldInfo

from edgeyard.benchmark_api import cluster_settings
from edgeyard.benchmark_api.cluster_settings import ClusterSettings
from edgeyard.benchmark_api.settings import RELOADED_SETTINGS, Settings


def page() -> str:
    """Return the reference page of all settings, as Markdown."""
    lines = [
        "# Settings of the server",
        "",
        "Made from `benchmark_api/settings.py` by `make docs`; do not edit. A setting comes from,",
        "first wins: arguments of `edgeyard up`, `EDGEYARD_<NAME>`, `EDGEYARD_<NAME>_FILE` (of",
        "secrets: a file with the value), the TOML file that `--config` or `EDGEYARD_CONFIG`",
        "names, its default. Sizes take `4 GiB` as well as bytes, durations `15 min` as well as",
        "seconds.",
        "",
        "SIGHUP (`kill -HUP`, systemd's `ExecReload`) has a running server read them again, with",
        "the files that they name (inventory, policy, certificates): "
        + ", ".join(f"`{name}`" for name in Settings.model_fields if name in RELOADED_SETTINGS)
        + "; of the cluster: "
        + ", ".join(
            f"`{name}`"
            for name in ClusterSettings.model_fields
            if name in cluster_settings.RELOADED
        )
        + ".",
        "Where times, limits of the engine or the policy changed, the engine is made anew within",
        "a second or two; what runs goes on. Other settings that changed are named in the log and",
        "in the event `server.reloaded`, and need a restart. Where a file is wrong all stays, and",
        "`server.reload_failed` says why.",
        "With the embedded cluster other emulated boards need a restart, too. The inventory's file "
        "is read again whenever it changes, without a signal.",
        "",
        "| setting | default | meaning |",
        "| --- | --- | --- |",
    ]
    lines += _rows(Settings.model_fields)
    lines += [
        "",
        "## Clusters",
        "",
        "Settings of an entry `[clusters.NAME]`. In the environment:",
        f"`{cluster_settings.VARIABLE}NAME__SETTING`, where a dash of the name is an underscore.",
        "[How to say where jobs may run](../how-to/clusters.md).",
        "",
        "| setting | default | meaning |",
        "| --- | --- | --- |",
        *_rows(ClusterSettings.model_fields),
    ]
    return "\n".join(lines) + "\n"


def _rows(fields: Mapping[str, FieldInfo]) -> list[str]:
    rows = []
    for name, field in fields.items():
        default = "" if field.default is None or name == "data_dir" else _shown(field.default)
        secret = " Secret." if "SecretStr" in str(field.annotation) else ""
        rows.append(f"| `{name}` | {default} | {field.description}{secret} |")
    return rows


def _shown(default: object) -> str:
    text = ", ".join(default) if isinstance(default, tuple) else str(default)
    return f"`{text}`" if text and default != {} else ""
