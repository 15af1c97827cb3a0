"""The platform's own client, as PyPI has it, works with Edgeyard unmodified."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.process import Server
from tests.platform_client import (
    PASSWORD,
    PlatformClient,
    client_of,
    client_python,  # noqa: F401
    write_training,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server")]

DEMO = Path(__file__).parents[2] / "deploy/demo"


@pytest.fixture(scope="module")
def client(
    server: Server,
    client_python: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> PlatformClient:
    folder = tmp_path_factory.mktemp("client")
    made = client_of(server, client_python, folder, "platform-user")
    for name in ("digits.onnx", "digits.tflite", "digits_new_head.onnx", "digits_test.npz"):
        shutil.copy(DEMO / name, folder)
    (folder / "bad.onnx").write_bytes(b"this is no model")
    write_training(folder, DEMO / "digits_train.npz")
    return made


def test_the_example_of_its_readme_ends_in_a_report(client: PlatformClient) -> None:
    """Its README's program, with the names of a board, an engine and a model that are here."""
    found, _ = client.run(
        """
        SETUP_FILE = "setup.yaml"

        TARGET = 'emumid'
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
    assert report["target"] == "emumid"
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


def test_every_method_on_benchmarks_datasets_and_models(client: PlatformClient) -> None:
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
        id1 = api.startBenchmark("emumid", "ort", "digits.onnx", 30, callback=called.append,
                                 target_uids=["emumid-0001-0001"],
                                 parameters={"threads": 1, "graph_optimization": "basic"})
        id2 = api.startBenchmark("emufast", "ort", "moved.onnx", dataset="digits_test.npz")
        results["first status"] = api.getBenchmarkStatus(id1)
        results["type1"] = api.waitBenchmarkResult(id1, "saved", interval=1, verbose=True)
        results["type2"] = api.waitBenchmarkResult(id2, "saved", interval=1)
        import threading
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(120)
        results["called"] = called
        results["ids"] = [id1, id2]
        results["info"] = api.getBenchmarkInfo(id2)
        results["mine"] = api.getBenchmarks()
        results["type2s"] = api.getBenchmarks(engine="ort", platform="emufast",
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
    assert {"emumid", "emufast"} <= set(found["config"]["targets"])
    assert {"ort", "tflite"} <= set(found["config"]["runtimes"])
    assert found["full"]["targets"]["emumid"]["instances"]
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
    assert (type1["benchmark_type"], type1["target_id"]) == ("TYPE1", "emumid-0001-0001")
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


def test_raw_rows_as_the_platform_s_users_have_them_are_a_dataset(client: PlatformClient) -> None:
    """Without labels there is no accuracy; the outputs come back as they are."""
    found, _ = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml")
        id = api.startBenchmark("emumid", "ort", "digits.onnx", dataset="test_x.bin")
        result = api.waitBenchmarkResult(id, interval=1)
        results["report"] = result["report"]
        results["bytes"] = len(result["raw_output"])
        """
    )
    assert found["report"]["accuracy"] is None
    assert found["report"]["inference_latency"]["count"] == 100
    assert found["bytes"] == 100 * 10 * 4


def test_an_on_device_training_gives_curves_and_a_trained_model(client: PlatformClient) -> None:
    found, _ = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml")
        config = OnDeviceTrainingConfig("odt.json")
        id = api.startOdtBenchmark("emumid", "ort", "digits_new_head.onnx", config)
        result = api.waitBenchmarkResult(id, "trained", interval=1)
        results.update(result)
        results["bytes"] = len(api.getModelOutput(id, name_only=False))
        results["saved"] = os.listdir("trained")
        """
    )
    report = found["report"]
    assert report["benchmark_type"] == "TYPE3"
    assert report["train_engine"] == "ort"
    for key in ("loss_train", "loss_test", "accuracy_test"):
        curve = report[key]
        assert len(curve["values"]) == 3
        assert curve["min"] <= curve["max"]
    assert report["loss_train"]["values"][-1] < report["loss_train"]["values"][0]
    assert "last dense layer" in report["trained"]
    assert "all before it is unchanged" in report["trained"]
    assert "last dense layer" in found["user_log"]
    assert report["edgeyard"]["training"]["config"]["validation_rows"] == 100
    assert found["model_output"].endswith("_trained.onnx")
    assert found["model_output"] in found["saved"]
    assert found["bytes"] > 1000


def test_what_goes_wrong_is_said_in_words_that_it_shows(client: PlatformClient) -> None:
    found, said = client.run(
        f"""
        api = dAIEdgeVLabAPI("setup.yaml")
        start = api.startBenchmark
        id = start("emumid", "ort", "bad.onnx")
        results["bad"] = api.waitBenchmarkResult(id, interval=1)
        results["refused"] = [
            start("emumiid", "ort", "digits.onnx"),
            start("emumid", "trt", "digits.onnx"),
            start("emumid", "ort", "no_such_model.onnx"),
            start("emumid", "ort", "digits.onnx", parameters={{"speed": 9}}),
            start("emumid", "ort", "digits.onnx", parameters={{"threads": "two"}}),
            start("emumid", "ort", "digits.onnx", target_uids=["rpi5-0001-0001"]),
            start("emumid", "ort", "digits.onnx", 0),
            api.uploadModel("no_such_model"),
            api.getBenchmarkInfo("nothing"),
            api.getBenchmarkReport("nothing"),
            api.getFLExperimentHistory(),
        ]
        config = OnDeviceTrainingConfig("odt.json")
        config.config["learning_parameters"]["optimizer"] = "adam"
        results["refused"].append(api.startOdtBenchmark("emumid", "ort", "digits.onnx", config))
        held = start("rpi4b", "ort", "digits.onnx")  # its board is offline
        results["early"] = [api.getBenchmarkReport(held), api.getInfoLog(held),
                            api.getErrorLog(held), api.getBinaryOutput(held),
                            api.getModelOutput(held)]
        results["waiting"] = api.getBenchmarkStatus(held)
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
    assert found["bad"]["error_log"].startswith("user_model: ")
    assert found["refused"] == [None] * len(found["refused"])
    for sentence in (
        "did you mean emumid?",
        "/engine: ",
        "you have no file 'no_such_model.onnx'",
        "engine ort has no such parameter",
        "/parameters/threads: has a wrong value",
        "holds what is no board of emumid",
        "/nb_inference",
        "no model 'no_such_model'",
        "no benchmark 'nothing'",
        "federated learning is not built",
        "is no parameter that Edgeyard's engines train by",
        "there is no report yet",
        "is not yet available. Status : 428",
        "the e-mail address or the password is wrong",
        "the refresh token is unknown, expired or revoked",
        "the token is not known",
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


def test_every_method_of_the_resource_configurator(client: PlatformClient) -> None:
    found, said = client.run(
        """
        api = dAIEdgeVLabAPI("setup.yaml")
        lab = ResourceConfigurator(api)
        results["families"] = lab.get_available_edge_device_families()
        results["engines"] = lab.get_available_runtimes_families()
        results["family"] = lab.create_edge_device_family("coral", "Coral", "A board.")
        results["family again"] = lab.create_edge_device_family("coral", "Coral", "A board.")
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
        results["board"] = lab.create_edge_device_instance("coral", ["edgetpu", "ort"], "", "s1")
        results["unknown family"] = lab.create_edge_device_instance("nothing", ["ort"], "")
        uid = results["board"]["inventory_id"]
        results["boards"] = lab.get_my_edge_device_instances()
        results["default"] = lab.get_default_configuration(uid)
        results["busy"] = lab.delete_edge_device_family("coral")
        results["boards deleted"] = [lab.delete_edge_device_instance(uid) for _ in range(2)]
        results["parameters deleted"] = [lab.delete_parameter(key)
                                         for key in ("level", "delegate", "level", "threads")]
        results["engines deleted"] = [lab.delete_runtime_family(name)
                                      for name in ("edgetpu", "edgetpu", "ort")]
        results["families deleted"] = [lab.delete_edge_device_family(name)
                                       for name in ("coral", "coral", "emumid")]
        """
    )
    assert "emumid" in {each["name"] for each in found["families"]}
    assert {"ort", "tflite"} <= {each["name"] for each in found["engines"]}
    assert found["family"]["name"] == "coral"
    assert found["family again"] == found["unknown family"] == found["no such"] == {}
    assert "family coral is already there" in said
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
    assert uid.startswith("coral-")
    assert [each["inventory_id"] for each in found["boards"]] == [uid]
    (entry,) = found["default"]["coral"]
    assert entry["target_uid"] == uid
    assert set(entry["engines"]) == {"edgetpu", "ort"}
    assert found["busy"] is False
    assert found["parameters deleted"] == [True, True, False, False]
    assert found["engines deleted"] == found["families deleted"] == [True, False, False]


def test_twenty_clients_at_once_get_what_is_theirs(server: Server, client: PlatformClient) -> None:
    found, said = client.run(
        """
        from concurrent.futures import ThreadPoolExecutor

        def one(number):
            api = dAIEdgeVLabAPI("setup.yaml")
            name = f"copy_{number}.onnx"
            with open("digits.onnx", "rb") as model, open(name, "wb") as copy:
                copy.write(model.read())
            dataset = f"rows_{number}.bin"
            with open(dataset, "wb") as rows:
                rows.write(str(number).encode())
            found = [number, api.uploadDataset(dataset) in api.getDatasets()]
            id = api.startBenchmark("emumid", "ort", name, 1)
            found += [id, api.getBenchmarkInfo(id)["model"] == name]
            if number % 7:  # boards take seconds for each
                return [*found, api.deleteBenchmark(id)]
            report = api.waitBenchmarkResult(id, interval=1)["report"]
            return [*found, report["model_file_name"] == name and report["status"] == "success"]

        with ThreadPoolExecutor(20) as threads:
            results["all"] = list(threads.map(one, range(20)))
        """
    )
    rows: list[Any] = found["all"]
    assert [(row[0], row[1], *row[3:]) for row in rows] == [
        (number, True, True, True) for number in range(20)
    ]
    assert len({row[2] for row in rows}) == 20
    assert "Error" not in said
