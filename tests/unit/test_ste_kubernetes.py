"""The test environment's manifests for Kubernetes: valid, and in step with the services."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from edgeyard.training.cli.ste import _PORTS

STE = Path(__file__).parents[2] / "deploy/ste"
MANIFESTS = STE / "kubernetes"
KUSTOMIZATION: Any = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
OBJECTS: dict[str, Any] = {
    f"{each['kind']}/{each['metadata']['name']}": each
    for file in KUSTOMIZATION["resources"]
    for each in yaml.safe_load_all((MANIFESTS / file).read_text())
}
SERVICES = sorted(service.value for service in _PORTS)
PODS = [f"Deployment/{name}" for name in SERVICES] + ["StatefulSet/postgres"]


def check(manifest: object) -> None:
    """Raise ValidationError where Kubernetes would refuse a manifest, or ignore a part of it."""
    newest = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, newest, strict=True)


def containers(name: str) -> Iterator[Any]:
    yield from OBJECTS[name]["spec"]["template"]["spec"]["containers"]


def test_the_kustomization_has_every_manifest() -> None:
    files = {each.name for each in MANIFESTS.iterdir()} - {"kustomization.yaml"}
    assert set(KUSTOMIZATION["resources"]) == files
    assert {*PODS, *(f"Service/{name}" for name in [*SERVICES, "postgres"])} <= OBJECTS.keys()


@pytest.mark.parametrize("name", OBJECTS)
def test_a_manifest_is_valid(name: str) -> None:
    check(OBJECTS[name])


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize(
    ("field", "wrong"),
    [("livenessProb", {}), ("ports", [{"containerPort": "http"}]), ("resources", {"limit": {}})],
)
def test_a_misspelt_or_wrong_field_would_be_found(name: str, field: str, wrong: object) -> None:
    manifest = copy.deepcopy(OBJECTS[name])
    manifest["spec"]["template"]["spec"]["containers"][0][field] = wrong
    with pytest.raises(kubernetes_validate.ValidationError):
        check(manifest)


@pytest.mark.parametrize("name", PODS)
def test_each_container_has_health_checks_and_limits_and_no_rights(name: str) -> None:
    pod = OBJECTS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    for each in containers(name):
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= each.keys()
        assert {"cpu", "memory"} == each["resources"]["limits"].keys()
        assert each["resources"]["requests"].keys() == each["resources"]["limits"].keys()
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_what_selects_pods_selects_those_of_one_object() -> None:
    for name in PODS:
        labels = OBJECTS[name]["spec"]["template"]["metadata"]["labels"]
        service = OBJECTS[f"Service/{name.partition('/')[2]}"]
        assert labels == OBJECTS[name]["spec"]["selector"]["matchLabels"]
        assert labels == service["spec"]["selector"]


@pytest.mark.parametrize("service", SERVICES)
def test_image_dockerfile_and_manifest_of_a_service_agree(service: str) -> None:
    port = next(port for each, port in _PORTS.items() if each.value == service)
    text = (STE / service / "Dockerfile").read_text()
    entry = re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    assert entry is not None
    assert json.loads(entry[1])[-3:] == ["ste", "serve", service]
    assert f"\nEXPOSE {port}\n" in text
    assert re.search(r"^FROM edgeyard:latest$", text, re.MULTILINE)
    (container,) = containers(f"Deployment/{service}")
    assert container["image"] == f"edgeyard/ste-{service}"
    assert container["image"] in {each["name"] for each in KUSTOMIZATION["images"]}
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    (exposed,) = OBJECTS[f"Service/{service}"]["spec"]["ports"]
    assert (exposed["port"], exposed["targetPort"]) == (port, "http")


def test_services_are_called_by_names_and_ports_that_are_there() -> None:
    stated = "".join((MANIFESTS / file).read_text() for file in KUSTOMIZATION["resources"])
    called = set(re.findall(r"(?:http://|@)([a-z]+):(\d+)", stated))
    offered = {
        (name.partition("/")[2], str(each["spec"]["ports"][0]["port"]))
        for name, each in OBJECTS.items()
        if each["kind"] == "Service"
    }
    assert called == offered - {("controller", "8084")}
