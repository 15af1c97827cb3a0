"""The platform's own client, as PyPI has it, works with Edgeyard unmodified, on every cluster."""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.process import Server, edgeyard
from edgeyard.testbed import LoopbackNomad
from tests.builders.cluster import eventually
from tests.nomad_cluster import clear, settings_of
from tests.platform_client import (
    PASSWORD,
    PlatformClient,
    client_of,
    client_python,  # noqa: F401
    write_scaling_models,
    write_training,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEMO = Path(__file__).parents[2] / "deploy/demo"
FILES = (
    *("digits.onnx", "digits.tflite", "digits_test.npz"),
    *("digits_new_head.onnx", "digits_trainable.tflite"),
)
CLIENTS = 20
ACCESS_TOKEN_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What scripts of the client find on a cluster; each field is a name in them.

    Attributes:
        FAMILY: Its boards run TYPE1 with ``ort``.
        BOARD: One of them.
        ROWS: A family that runs TYPE2 with ``ort``.
        TFLITE: A family that runs and trains with ``tflite``.
        TRAINS: A family that trains with ``ort``.
        OFFLINE: A family of which the inventory has a board that no host reports.
    """

    FAMILY: str
    BOARD: str
    ROWS: str
    TFLITE: str
    TRAINS: str
    OFFLINE: str


CLUSTERS = {
    "embedded": Cluster(
        FAMILY="emumid",
        BOARD="emumid-0001-0001",
        ROWS="emumid",
        TFLITE="emumid",
        TRAINS="emumid",
        OFFLINE="rpi4b",
    ),
    "nomad": Cluster(
        FAMILY="rpi4b",
        BOARD="rpi4b-0001-0002",
        ROWS="rpi5",
        TFLITE="jetsonorinnano",
        TRAINS="x86",
        OFFLINE="coral",
    ),
}


@dataclass(frozen=True)
class Lab:
    """A server, a user's client of it, and the file with the settings that the server reloads."""

    server: Server
    client: PlatformClient
    cluster: Cluster
    config: Path

    @contextmanager
    def access_tokens_of(self, life_s: float) -> Iterator[None]:
        """Have the server give access tokens that are good for so long."""
        self._reload(f"access_token_s = {life_s}\ncampaign_limit = 7\n", 7)
        yield
        self._reload("campaign_limit = 8\n", 8)

    def _reload(self, settings: str, campaign_limit: int) -> None:
        """Have the server read its settings again: all are taken up at once, and one is shown."""

        def taken_up() -> bool:
            found = self.server.call("GET", "/v1/limits")
            values = {each["name"]: each["value"] for each in found["items"]}
            return bool(values["campaign_limit"] == campaign_limit)

        self.config.write_text(settings)
        self.server.process.send_signal(signal.SIGHUP)
        eventually(taken_up, "the settings are taken up")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("embedded", marks=pytest.mark.xdist_group("server")),
        pytest.param("nomad", marks=[pytest.mark.nomad, pytest.mark.xdist_group("nomad")]),
    ],
)
def lab(
    request: pytest.FixtureRequest,
    client_python: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp(request.param)
    cluster = CLUSTERS[request.param]
    config = folder / "server.toml"
    config.touch()
    environment = {"EDGEYARD_CONFIG": str(config)}
    nomad: LoopbackNomad | None = None
    if request.param == "nomad":
        nomad = request.getfixturevalue("nomad_cluster")
        assert nomad is not None
        clear(nomad)
        inventory = folder / "inventory.json"
        environment |= settings_of(nomad, inventory, offline=[f"{cluster.OFFLINE}-0001-0001"])
    with edgeyard(folder / "data", environment) as server:
        client = client_of(
            server,
            client_python,
            folder / "client",
            "platform-user",
            asdict(cluster) | {"CLIENTS": CLIENTS},
        )
        for name in FILES:
            shutil.copy(DEMO / name, client.folder)
        bad = (DEMO / "digits.onnx").read_bytes().replace(b"\x04Relu", b"\x04Rel_")
        (client.folder / "bad.onnx").write_bytes(bad)
        write_training(client.folder, DEMO / "digits_train.npz")
        yield Lab(server, client, cluster, config)
    if nomad is not None:
        clear(nomad)


@pytest.fixture
def client(lab: Lab) -> PlatformClient:
    return lab.client


@pytest.fixture
def cluster(lab: Lab) -> Cluster:
    return lab.cluster


def test_the_example_of_its_readme_ends_in_a_report(
    client: PlatformClient, cluster: Cluster
) -> None:
    """Its README's program, with the names of a board, an engine and a model that are here."""
    found, _ = client.run(
        """
        SETUP_FILE = "setup.yaml"

        TARGET = TFLITE
        RUNTIME = 'tflite'
        MODEL = 'digits.tflite'

        api = dAIEdgeVLabAPI(SETUP_FILE)
        id = api.startBenchmark(TARGET, RUNTIME, MODEL)
        results["result"] = api.waitBenchmarkResult(id, interval=1)
        print(results["result"])
        """
    )
    result = found["result"]
    report = result["report"]
    assert report["target"] == cluster.TFLITE
    assert report["inference_engine"] == "tflite"
    assert report["nb_infernece"] == report["nb_inference"] >= 20
    latency = report["inference_latency"]
    assert 0 < latency["min"] <= latency["mean"] <= latency["max"] < 1, "seconds"
    assert latency["mean"] == pytest.approx(np.mean(latency["values"]))
    ours = report["edgeyard"]["inference_latency"]
    assert latency["mean"] == pytest.approx(ours["mean"] / 1e3)
    assert 0 < report["load_time"] < 60
    assert report["ambiant_temperature"] is report["enery_efficiency"] is report["FLOPs"] is None
    assert result["user_log"]
    assert result["error_log"] is result["raw_output"] is result["model_output"] is None


def test_every_method_on_benchmarks_datasets_and_models(
    client: PlatformClient, cluster: Cluster
) -> None:
    found, said = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml", auto_refresh=True)
        results["status"] = api.getAPIStatus()
        results["refreshed"] = api.refresh() and api.refresh()
        results["config"] = api.getAvailableConfigurations()
        results["full"] = api.getAvailableConfigurations(full=True)
        results["parameters"] = api.getAvailableParameters("ort")
        results["unknown engine"] = api.getAvailableParameters("trt")

        results["dataset"] = api.uploadDataset("digits_test.npz")
        results["again"] = api.uploadDataset("digits_test.npz")
        results["datasets"] = api.getDatasets()
        results["uploaded"] = api.uploadModel("digits.onnx")
        results["models"] = api.getModels()
        results["of platform"] = api.getModels("user_models")
        results["converted"] = api.convertModel("digits.onnx", "user_models", "onnx", "onnx")
        results["not converted"] = api.convertModel("digits.onnx", "user_models", "onnx", "tflite")
        os.rename("digits.onnx", "moved.onnx")

        called = []
        id1 = api.startBenchmark(FAMILY, "ort", "digits.onnx", 30, callback=called.append,
                                 target_uids=[BOARD],
                                 parameters={"threads": 1, "graph_optimization": "basic"})
        id2 = api.startBenchmark(ROWS, "ort", "moved.onnx", dataset="digits_test.npz")
        results["first status"] = api.getBenchmarkStatus(id1)
        results["type1"] = api.waitBenchmarkResult(id1, "saved", interval=1, verbose=True)
        results["type2"] = api.waitBenchmarkResult(id2, "saved", interval=1)
        wait_for_threads()
        results["called"] = called
        results["ids"] = [id1, id2]
        results["info"] = api.getBenchmarkInfo(id2)
        results["mine"] = api.getBenchmarks()
        results["type2s"] = api.getBenchmarks(engine="ort", platform=ROWS,
                                              benchmark_type="TYPE2", model="moved.onnx",
                                              status="success", page=1, page_length=1)
        results["public"] = api.getPublicBenchmarks()
        results["no page"] = api.getBenchmarks(page=99)
        results["report"] = api.getBenchmarkReport(id1)
        results["logs"] = [api.getInfoLog(id1), api.getErrorLog(id1)]
        results["outputs"] = [api.getBinaryOutput(id2), api.getModelOutput(id2)]
        results["deleted"] = [api.deleteBenchmark(id1), api.deleteBenchmark(id1)]
        results["after"] = [api.getBenchmarkStatus(id1), api.getBenchmarks()]
        results["dataset deleted"] = [api.deleteDataset(results["dataset"]) for _ in range(2)]
        os.rename("moved.onnx", "digits.onnx")
        api.logout()
        results["after logging out"] = api.getBenchmarks()
        results["saved"] = sorted(os.listdir("saved"))
        """
    )
    assert found["status"]["status"] == "OK"
    assert found["refreshed"] is True
    assert {cluster.FAMILY, cluster.ROWS} <= set(found["config"]["targets"])
    assert {"ort", "tflite"} <= set(found["config"]["runtimes"])
    assert found["full"]["targets"][cluster.FAMILY]["instances"]
    assert {"threads", "execution_mode"} <= {each["key"] for each in found["parameters"]}
    assert found["unknown engine"] is None

    digest = hashlib.sha256((DEMO / "digits_test.npz").read_bytes()).hexdigest()
    assert found["dataset"] == found["again"] == f"digits_test.npz_{digest}"
    assert found["dataset"] in found["datasets"]
    assert found["uploaded"] == found["converted"] == "digits.onnx"
    assert found["models"] == found["of platform"]
    assert [each["model"] for each in found["models"]["user_models"]] == ["digits.onnx"]
    assert found["not converted"] is None
    assert "converts onnx to tflite" in said

    first, second = found["ids"]
    assert found["first status"]["status"] in ("queued", "pending", "running", "success")
    type1, type2 = found["type1"]["report"], found["type2"]["report"]
    assert (type1["benchmark_type"], type1["target_id"]) == ("TYPE1", cluster.BOARD)
    assert type1["edgeyard"]["engine_facts"]["graph_optimization"] == "basic"
    assert found["called"][0]["report"] == found["report"] == type1
    assert "Benchmark status:" in said
    assert type2["benchmark_type"] == "TYPE2"
    assert 0.8 < type2["accuracy"] <= 1
    labels = np.load(DEMO / "digits_test.npz")["y"]
    raw = np.frombuffer(found["outputs"][0].encode("latin-1"), np.float32)
    scores = raw.reshape(len(labels), -1)
    assert np.mean(scores.argmax(axis=1) == labels) == pytest.approx(type2["accuracy"])
    assert found["outputs"][1] is None
    assert found["logs"][0] == found["type1"]["user_log"]
    assert found["logs"][1] is None
    assert found["info"]["status"] == "success"
    assert {first, second} <= {each["id"] for each in found["mine"]["benchmarks"]}
    assert [each["id"] for each in found["type2s"]["benchmarks"]] == [second]
    assert found["public"]["benchmarks"] == []
    assert found["no page"] is None
    assert "page 99 does not exist" in said
    assert found["deleted"] == found["dataset deleted"] == [True, False]
    assert found["after"][0] is None
    assert first not in {each["id"] for each in found["after"][1]["benchmarks"]}
    assert found["after logging out"] is None
    assert f"{second}_output.bin" in found["saved"]
    assert f"{first}_benchmark_report.json" in found["saved"]


def test_an_on_device_training_gives_curves_and_a_trained_model(client: PlatformClient) -> None:
    found, _ = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml")
        called = []
        config = OnDeviceTrainingConfig("odt.json")
        ids = {"ort": api.startOdtBenchmark(TRAINS, "ort", "digits_new_head.onnx", config)}
        ids["tflite"] = api.startOdtBenchmark(TFLITE, "tflite", "digits_trainable.tflite", config,
                                              callback=called.append)
        for engine, id in ids.items():
            results[engine] = api.waitBenchmarkResult(id, "trained", interval=1)
        results["bytes"] = len(api.getModelOutput(ids["ort"], name_only=False))
        results["saved"] = os.listdir("trained")
        wait_for_threads()
        results["called"] = called
        """
    )
    for engine, suffix in (("ort", "onnx"), ("tflite", "tflite")):
        result = found[engine]
        report = result["report"]
        assert report["benchmark_type"] == "TYPE3"
        assert report["train_engine"] == engine
        for key in ("loss_train", "loss_test", "accuracy_test"):
            curve = report[key]
            assert len(curve["values"]) == 3
            assert curve["min"] <= curve["max"]
        assert report["loss_train"]["values"][-1] < report["loss_train"]["values"][0]
        assert report["edgeyard"]["training"]["config"]["validation_rows"] == 100
        assert result["model_output"].endswith(f"_trained.{suffix}")
        assert result["model_output"] in found["saved"]
    report = found["ort"]["report"]
    assert "last dense layer" in report["trained"]
    assert "all before it is unchanged" in report["trained"]
    assert "last dense layer" in found["ort"]["user_log"]
    assert found["bytes"] > 1000
    (called,) = found["called"]
    assert called["report"] == found["tflite"]["report"]


def test_what_goes_wrong_is_said_in_words_that_it_shows(
    client: PlatformClient, cluster: Cluster
) -> None:
    found, said = client.run(
        f"""
        import time
        api = dAIEdgeVLabAPI("setup.yaml")
        start = api.startBenchmark
        id = start(FAMILY, "ort", "bad.onnx")
        results["bad"] = api.waitBenchmarkResult(id, interval=1)
        results["refused"] = [
            start(FAMILY + "x", "ort", "digits.onnx"),
            start(FAMILY, "trt", "digits.onnx"),
            start(FAMILY, "ort", "no_such_model.onnx"),
            start(FAMILY, "ort", "digits.onnx", parameters={{"speed": 9}}),
            start(FAMILY, "ort", "digits.onnx", parameters={{"threads": "two"}}),
            start(FAMILY, "ort", "digits.onnx", target_uids=["another-0001-0001"]),
            start(FAMILY, "ort", "digits.onnx", 0),
            api.uploadModel("no_such_model"),
            api.getBenchmarkInfo("nothing"),
            api.getBenchmarkReport("nothing"),
            api.getFLExperimentHistory(),
        ]
        config = OnDeviceTrainingConfig("odt.json")
        config.config["learning_parameters"]["optimizer"] = "adam"
        results["refused"].append(api.startOdtBenchmark(FAMILY, "ort", "digits.onnx", config))
        held = start(OFFLINE, "ort", "digits.onnx")  # its board is offline
        results["early"] = [api.getBenchmarkReport(held), api.getInfoLog(held),
                            api.getErrorLog(held), api.getBinaryOutput(held),
                            api.getModelOutput(held)]
        for _ in range(300):  # the reason is known after the next decision
            results["waiting"] = api.getBenchmarkStatus(held)
            if results["waiting"]["waiting_reason"]:
                break
            time.sleep(0.1)
        results["gone"] = api.deleteBenchmark(held)
        results["wrong password"] = api.login(password="wrong")
        api.refresh_token = "ey_somebody-elses-token"
        try:
            api.refresh()
        except RuntimeError as error:
            results["refresh"] = str(error)
        api.token = "ey_somebody-elses-token"
        results["foreign token"] = api.getBenchmarks()
        results["back"] = api.login(password={PASSWORD!r})
        """
    )
    assert found["bad"]["report"]["status"] == "failed"
    assert found["bad"]["error_log"].startswith("engine_unsupported: ")
    assert found["refused"] == [None] * len(found["refused"])
    for sentence in (
        f"did you mean {cluster.FAMILY}?",
        "/engine: ",
        "you have no file 'no_such_model.onnx'",
        "engine ort has no such parameter",
        "/parameters/threads: has a wrong value",
        f"holds what is not a board of {cluster.FAMILY}",
        "/nb_inference",
        "no model 'no_such_model'",
        "no benchmark 'nothing'",
        "federated learning is not built",
        "is not a parameter that Edgeyard's engines train by",
        "there is no report yet",
        "is not yet available. Status : 428",
        "the e-mail address or the password is wrong",
        "the refresh token is unknown, expired or revoked",
        "no such token is known",
    ):
        assert sentence in said, said
    assert found["early"] == [None] * 5
    assert found["waiting"]["status"] == "queued"
    assert found["waiting"]["waiting_reason"]["code"] == "board_offline"
    assert found["gone"] is True
    assert found["wrong password"] is found["foreign token"] or not found["wrong password"]
    assert "Error while refreshing token" in found["refresh"]
    assert found["back"] is True
    assert "Traceback" not in said


def test_every_method_of_the_resource_configurator(
    client: PlatformClient, cluster: Cluster
) -> None:
    found, said = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml")
        lab = ResourceConfigurator(api)
        results["families"] = lab.get_available_edge_device_families()
        results["engines"] = lab.get_available_runtimes_families()
        results["family"] = lab.create_edge_device_family("newboard", "New", "A board.")
        results["family again"] = lab.create_edge_device_family("newboard", "New", "A board.")
        results["engine"] = lab.create_runtime_family("edgetpu", "Edge TPU", "", ["tflite"])
        results["none"] = lab.get_my_parameters()
        results["parameter"] = lab.create_parameter("delegate", "Delegate", "A library.", "string")
        results["of engine"] = lab.create_parameter("level", "Level", "How far.", "enum", "edgetpu",
                                                    ["low", "high"])
        results["types"] = lab.get_parameter_types()
        results["added"] = lab.add_parameter_to_runtime("edgetpu", "delegate")
        results["engines after"] = lab.get_available_runtimes_families()
        results["removed"] = [lab.remove_parameter_from_runtime("edgetpu", "delegate")
                              for _ in range(2)]
        results["one"] = lab.get_parameter("level")
        results["built in"] = lab.get_parameter("threads")
        results["no such"] = lab.get_parameter("nothing")
        try:
            lab.update_parameter("level", description="x")
        except AttributeError as error:  # of the client's own
            results["update"] = str(error)
        results["all"] = lab.get_parameters()
        results["mine"] = lab.get_my_parameters()
        results["board"] = lab.create_edge_device_instance("newboard", ["edgetpu", "ort"], "", "s1")
        results["unknown family"] = lab.create_edge_device_instance("nothing", ["ort"], "")
        uid = results["board"]["inventory_id"]
        results["boards"] = lab.get_my_edge_device_instances()
        results["default"] = lab.get_default_configuration(uid)
        results["busy"] = lab.delete_edge_device_family("newboard")
        results["boards deleted"] = [lab.delete_edge_device_instance(uid) for _ in range(2)]
        results["parameters deleted"] = [lab.delete_parameter(key)
                                         for key in ("level", "delegate", "level", "threads")]
        results["engines deleted"] = [lab.delete_runtime_family(name)
                                      for name in ("edgetpu", "edgetpu", "ort")]
        results["families deleted"] = [lab.delete_edge_device_family(name)
                                       for name in ("newboard", "newboard", FAMILY)]
        """
    )
    assert cluster.FAMILY in {each["name"] for each in found["families"]}
    assert {"ort", "tflite"} <= {each["name"] for each in found["engines"]}
    assert found["family"]["name"] == "newboard"
    assert found["family again"] == found["unknown family"] == found["no such"] == {}
    assert "family newboard already exists" in said
    assert found["engine"]["supported_file_extensions"] == [".tflite"]
    assert found["none"] == []
    assert found["parameter"]["key"] == "delegate"
    assert found["of engine"]["engines"] == ["edgetpu"]
    assert "enum" in found["types"]
    assert found["added"] is True
    (engine,) = [each for each in found["engines after"] if each["name"] == "edgetpu"]
    assert {each["key"] for each in engine["parameters"]} == {"delegate", "level"}
    assert found["removed"] == found["boards deleted"] == [True, False]
    assert found["one"]["default_values"] == '["low", "high"]'
    assert found["built in"]["type"] == "integer"
    assert "get_engine_parameter" in found["update"]
    assert {"threads", "level", "delegate"} <= {each["key"] for each in found["all"]}
    assert {each["key"] for each in found["mine"]} == {"level", "delegate"}
    uid = found["board"]["inventory_id"]
    assert uid.startswith("newboard-")
    assert [each["inventory_id"] for each in found["boards"]] == [uid]
    (entry,) = found["default"]["newboard"]
    assert entry["target_uid"] == uid
    assert set(entry["engines"]) == {"edgetpu", "ort"}
    assert found["busy"] is False
    assert found["parameters deleted"] == [True, True, False, False]
    assert found["engines deleted"] == found["families deleted"] == [True, False, False]


def test_twenty_clients_at_once_get_what_is_theirs(
    client: PlatformClient, cluster: Cluster
) -> None:
    """Each has a model of its own, whose outputs on its rows of its own no other model gives."""
    write_scaling_models(client.folder, CLIENTS)
    found, said = client.run(
        """
        import struct
        from concurrent.futures import ThreadPoolExecutor

        def one(number):
            api = dAIEdgeVLabAPI("setup.yaml")
            families = api.getAvailableConfigurations(full=True)["targets"]
            boards = [each["target_uid"] for each in families[ROWS]["instances"]]
            board = boards[number % len(boards)]
            name = f"rows_{number}.bin"
            rows = [float(number + place) for place in range(4 * (number + 1))]
            with open(name, "wb") as file:
                file.write(struct.pack(f"<{len(rows)}f", *rows))
            id = api.startBenchmark(ROWS, "ort", f"times_{number}.onnx", dataset=name,
                                    target_uids=[board])
            result = api.waitBenchmarkResult(id, interval=1)
            output = result["raw_output"]
            return {
                "id": id,
                "board": board,
                "report": result["report"],
                "right": output == struct.pack(f"<{len(rows)}f", *(number * row for row in rows)),
                "error_log": result["error_log"],
                "listed": id in {each["id"] for each in api.getBenchmarks()["benchmarks"]},
            }

        with ThreadPoolExecutor(CLIENTS) as threads:
            results["all"] = list(threads.map(one, range(CLIENTS)))
        """,
        timeout_s=550,
    )
    rows: list[dict[str, Any]] = found["all"]
    assert len({row["id"] for row in rows}) == CLIENTS
    for number, row in enumerate(rows):
        report = row["report"]
        assert report["status"] == "success", row["error_log"]
        assert report["model_file_name"] == f"times_{number}.onnx"
        assert report["target_id"] == row["board"]
        assert report["inference_latency"]["count"] == number + 1
        assert report["accuracy"] is None, "raw rows have no labels"
        assert row["right"], "the outputs are of another model or of other rows"
        assert row["listed"]
    assert "Error" not in said


def test_an_access_token_that_expires_is_refreshed_by_the_client(
    lab: Lab, client: PlatformClient
) -> None:
    """No clock is moved; the client's own thread refreshes after 2 s instead of ten minutes."""
    with lab.access_tokens_of(ACCESS_TOKEN_S):
        found, said = client.run(
            """
            import time, types
            import daiedge_vlab.api as module

            def until(condition):
                while not condition():
                    time.sleep(0.2)

            waiting = dAIEdgeVLabAPI("setup.yaml")
            fast = types.SimpleNamespace(time=lambda: 300 * time.time())
            module.time = fast
            api = dAIEdgeVLabAPI("setup.yaml", auto_refresh=True)
            held = api.startBenchmark(OFFLINE, "ort", "digits.onnx")
            first, tokens = api.token, set()
            until(lambda: waiting.getBenchmarks() is None)
            until(lambda: tokens.add(api.token) or len(tokens) > 3)
            until(lambda: api.getBenchmarkStatus(held) is not None)
            refreshed, api.token = api.token, first
            results["first"] = api.getBenchmarkStatus(held)
            api.token = refreshed
            until(lambda: api.deleteBenchmark(held))
            results["refreshed"] = waiting.refresh()
            results["goes on"] = waiting.getBenchmarks() is not None
            """
        )
    assert found == {"first": None, "refreshed": True, "goes on": True}
    assert "the access token expired at" in said
