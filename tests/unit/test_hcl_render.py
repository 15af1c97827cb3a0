from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from edgeyard.devices.constraints import compare
from edgeyard.errors import HclError, HclMismatch, InvalidInput
from edgeyard.scheduler.clusters.nomad.expected import api_job
from edgeyard.scheduler.hcl.build import JobFile, JobRequest, build_job
from edgeyard.scheduler.hcl.check import check_round_trip
from edgeyard.scheduler.hcl.cron import cron_of, moment_of
from edgeyard.scheduler.hcl.job import (
    Artifact,
    DeviceConstraint,
    JobSpread,
    NodeConstraint,
    NomadJob,
    Periodic,
)
from edgeyard.scheduler.hcl.parse import parse_job
from edgeyard.scheduler.hcl.render import render
from edgeyard.scheduler.hcl.text import plain_text_problem
from edgeyard.scheduler.model.attempt import Attempt, AttemptState
from edgeyard.scheduler.model.benchmark import Benchmark, BenchmarkType, Binding, FileRole
from tests.builders.hcl import (
    DATASET,
    GIB,
    MODEL,
    ODT_CONFIG,
    PLATFORM_DESCRIPTION,
    PLATFORM_SETTINGS,
    RAW_EXEC,
    SPEC,
    a_request,
    with_constraint,
)


def conditions(job: NomadJob) -> list[tuple[str, str, str]]:
    return [(c.attribute, c.operator, c.value) for c in job.constraints]


FAMILY = ("${device.attr.family}", "=", "rpi4b")
ENGINE = ("${device.attr.engines}", "set_contains", "ort")
TYPE1 = ("${device.attr.engine.ort.supported_types}", "set_contains", "TYPE1")
IDLE = ("${device.attr.dynamic.progress}", "<", "1")
BELOW_90 = ("${device.attr.dynamic.progress}", "<", "90")
RAM = ("${device.attr.memory.ram}", ">=", str(4 * GIB))
STORAGE = ("${device.attr.memory.storage}", ">=", str(16 * GIB))


class TestBindings:
    def test_loose_states_memory_and_storage_where_they_were_asked_for_and_nothing_else(
        self,
    ) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, job_completion_threshold=None)
        job = build_job(a_request(description=wanted, binding=Binding.LOOSE), PLATFORM_SETTINGS)
        assert conditions(job) == [FAMILY, ENGINE, TYPE1, RAM, STORAGE]
        plain = replace(wanted, ram=0, storage=0)
        job = build_job(a_request(description=plain, binding=Binding.LOOSE), PLATFORM_SETTINGS)
        assert conditions(job) == [FAMILY, ENGINE, TYPE1]

    def test_filtered_states_everything_in_the_platform_s_order(self) -> None:
        wanted = with_constraint("soc.vendor", "=", "broadcom")
        job = build_job(a_request(description=wanted), PLATFORM_SETTINGS)
        own = ("${device.attr.soc.vendor}", "=", "broadcom")
        assert conditions(job) == [FAMILY, ENGINE, TYPE1, BELOW_90, RAM, STORAGE, own]

    def test_a_user_s_constraint_on_the_node_is_the_job_s_own(self) -> None:
        """Nomad's device blocks know the attributes of devices alone."""
        wanted = with_constraint("${attr.cpu.arch}", "=", "arm64")
        job = build_job(a_request(description=wanted), PLATFORM_SETTINGS)
        assert conditions(job) == [FAMILY, ENGINE, TYPE1, BELOW_90, RAM, STORAGE]
        own = NodeConstraint(attribute="${attr.cpu.arch}", operator="=", value="arm64")
        assert job.node_constraints == (own,)
        text = render(job)
        assert 'attribute = "${attr.cpu.arch}"' in text[: text.index("group ")]
        check_round_trip(job, text)
        assert api_job(job)["Constraints"] == [
            {"LTarget": "${attr.cpu.arch}", "Operand": "=", "RTarget": "arm64"}
        ]

    @pytest.mark.parametrize("name", ["${env.HOME}", "${attr.}", "${node.secret}", "${attr.a b}"])
    def test_what_is_no_attribute_of_a_node_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="/constraints/0/attribute"):
            build_job(a_request(description=with_constraint(name, "=", "x")), PLATFORM_SETTINGS)

    def test_strict_names_the_decided_board_inside_the_device_block(self) -> None:
        request = a_request(
            binding=Binding.STRICT, target_uid="rpi4b-0001-0001", allowed_uids=("rpi4b-0001-0002",)
        )
        job = build_job(request, PLATFORM_SETTINGS)
        pin = ("${device.attr.target_uid}", "=", "rpi4b-0001-0001")
        assert conditions(job) == [FAMILY, ENGINE, TYPE1, BELOW_90, RAM, STORAGE, pin]

    @pytest.mark.parametrize("binding", [Binding.LOOSE, Binding.FILTERED])
    def test_an_allow_list_limits_what_is_not_pinned(self, binding: Binding) -> None:
        allowed = ("rpi4b-0001-0001", "rpi4b-0001-0002")
        job = build_job(a_request(binding=binding, allowed_uids=allowed), PLATFORM_SETTINGS)
        assert conditions(job)[-1] == (
            "${device.attr.target_uid}",
            "set_contains_any",
            "rpi4b-0001-0001,rpi4b-0001-0002",
        )

    def test_a_board_that_the_user_named_is_kept_to_however_loose_the_binding(self) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, target=None, target_uid="rpi4b-0001-0003")
        job = build_job(a_request(description=wanted, binding=Binding.LOOSE), PLATFORM_SETTINGS)
        assert conditions(job)[-1] == ("${device.attr.target_uid}", "=", "rpi4b-0001-0003")
        assert conditions(job)[0] == FAMILY

    def test_results_go_to_a_folder_that_ends_with_the_benchmark_s_id(self) -> None:
        job = build_job(replace(a_request(), benchmark_id="rpi4b-ort-7"), PLATFORM_SETTINGS)
        assert job.env["RESULTS_PUB_URL"] == "http://10.200.0.1:42777/upload/rpi4b-ort-7/"

    def test_a_version_tag_is_a_condition_on_the_engine_s_version(self) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, version_tag="v1.20")
        job = build_job(a_request(description=wanted), PLATFORM_SETTINGS)
        attribute, operator, pattern = conditions(job)[-1]
        assert (attribute, operator) == ("${device.attr.engine.ort.version}", "regexp")
        assert job.env["VERSION_TAG"] == "v1.20"
        check_round_trip(job, render(job))
        for version, fits in {"1.20": True, "1.20.1": True, "v1.20": True, "1.2": False}.items():
            assert compare(version, operator, pattern) is fits
        assert not compare("1.201", operator, pattern)
        assert not compare(None, operator, pattern)

    def test_a_strict_binding_without_a_board_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="needs a board"):
            build_job(a_request(binding=Binding.STRICT), PLATFORM_SETTINGS)

    @pytest.mark.parametrize("threshold", [None, 0])
    def test_without_a_threshold_only_an_idle_board_will_do(self, threshold: int | None) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, job_completion_threshold=threshold)
        assert IDLE in conditions(build_job(a_request(description=wanted), PLATFORM_SETTINGS))

    @pytest.mark.parametrize("threshold", [None, 0])
    def test_a_job_of_one_board_that_preempts_nobody_does_not_ask_for_its_progress(
        self, threshold: int | None
    ) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, job_completion_threshold=threshold)
        request = a_request(
            description=wanted, binding=Binding.STRICT, target_uid="rpi4b-0001-0001"
        )
        job = build_job(request, PLATFORM_SETTINGS)
        assert all("progress" not in attribute for attribute, _, _ in conditions(job))

    def test_boards_that_publish_no_progress_are_not_asked_for_it(self) -> None:
        job = build_job(a_request(), replace(PLATFORM_SETTINGS, progress_constraint=False))
        assert all("progress" not in attribute for attribute, _, _ in conditions(job))

    def test_what_was_not_stated_is_not_constrained(self) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, ram=0, storage=0)
        job = build_job(a_request(description=wanted), PLATFORM_SETTINGS)
        assert conditions(job) == [FAMILY, ENGINE, TYPE1, BELOW_90]


def test_the_strict_example_leaves_no_room_for_interpretation() -> None:
    request = a_request(
        priority=100,
        binding=Binding.STRICT,
        target_uid="rpi4b-0001-0001",
        start_at=datetime(2025, 8, 13, 7, 17, 30, tzinfo=UTC),
    )
    job = parse_job(render(build_job(request, PLATFORM_SETTINGS)))
    assert job.priority == 100
    assert job.periodic == Periodic(cron="30 17 7 13 8 * 2025")
    assert conditions(job)[-1] == ("${device.attr.target_uid}", "=", "rpi4b-0001-0001")


class TestEnvironment:
    def test_a_latency_benchmark_has_all_eleven_unused_ones_empty(self) -> None:
        assert build_job(a_request(), PLATFORM_SETTINGS).env == {
            "NOMAD_ALLOC_ID": "${NOMAD_ALLOC_ID}",
            "NOMAD_NODE_ID": "${node.unique.id}",
            "TARGET": "rpi4b",
            "RUNTIME": "ort",
            "VERSION_TAG": "",
            "NB_INFERENCE": "20",
            "BENCHMARK_TYPE": "TYPE1",
            "MODEL_FILENAME": "small_model.onnx",
            "DATASET_FILENAME": "",
            "ODT_CONFIG_FILENAME": "",
            "RESULTS_PUB_URL": "http://10.200.0.1:42777/upload/rpi4b-ort-20250813091714/",
        }

    def test_training_names_its_dataset_and_configuration(self) -> None:
        wanted = replace(PLATFORM_DESCRIPTION, benchmark_type=BenchmarkType.TYPE3, runtime="tflite")
        request = a_request(description=wanted, files=(MODEL, DATASET, ODT_CONFIG, SPEC))
        job = build_job(request, PLATFORM_SETTINGS)
        assert job.env["NB_INFERENCE"] == ""
        assert job.env["DATASET_FILENAME"] == "faces.npz"
        assert job.env["ODT_CONFIG_FILENAME"] == "odt.json"
        assert conditions(job)[2][0] == "${device.attr.engine.tflite.supported_types}"
        assert [artifact.destination for artifact in job.artifacts] == [
            "local/small_model.onnx",
            "local/faces.npz",
            "local/odt.json",
            "local/spec.json",
        ]


class TestSecrets:
    def test_the_masked_form_shows_no_login(self) -> None:
        job = build_job(a_request(), PLATFORM_SETTINGS)
        assert "CANARY" in render(job)
        masked = render(job, masked=True)
        assert "CANARY" not in masked
        assert "registry-user" not in masked
        assert parse_job(masked).config["auth"] == {"username": "******", "password": "******"}

    def test_no_repr_and_no_mismatch_shows_the_login(self) -> None:
        job = build_job(a_request(), PLATFORM_SETTINGS)
        assert "CANARY" not in repr(job) + repr(PLATFORM_SETTINGS)
        with pytest.raises(HclMismatch) as raised:
            check_round_trip(job, render(job, masked=True))
        assert "CANARY" not in str(raised.value)

    def test_without_a_login_there_is_no_auth_block(self) -> None:
        assert "auth" not in render(
            build_job(a_request(), replace(PLATFORM_SETTINGS, auth_username=""))
        )


@pytest.mark.slow
def test_every_combination_of_optional_parts_renders_reads_back_and_renders_the_same() -> None:
    optional: list[dict[str, Any]] = [
        {"periodic": Periodic(cron="1 2 3 4 5 * 2030")},
        {"templates": ()},
        {"retries_off": False, "artifacts": ()},
        {"meta": {"benchmark_id": "b-1"}},
        {"cpu_mhz": 500},
        {"memory_mib": 1024},
        {"kill_timeout_s": None},
        {"namespace": "edgeyard"},
        {"lost_after_s": 600},
    ]
    base = build_job(a_request(), PLATFORM_SETTINGS)
    for chosen in itertools.product([False, True], repeat=len(optional)):
        changes: dict[str, Any] = {}
        for change, on in zip(optional, chosen, strict=True):
            changes |= change if on else {}
        job = replace(base, **changes)
        text = render(job)
        check_round_trip(job, text)
        assert render(parse_job(text)) == text


@pytest.mark.slow
def test_every_combination_of_optional_constraints_reads_back() -> None:
    for ram, storage, own, pinned, listed, due in itertools.product([False, True], repeat=6):
        wanted = with_constraint("soc.vendor", "regexp", "^b.*") if own else PLATFORM_DESCRIPTION
        request = a_request(
            description=replace(wanted, ram=GIB * ram, storage=GIB * storage),
            binding=Binding.STRICT if pinned else Binding.FILTERED,
            target_uid="rpi4b-0001-0001" if pinned else None,
            allowed_uids=("rpi4b-0001-0001",) if listed else (),
            start_at=datetime(2030, 1, 1, tzinfo=UTC) if due else None,
        )
        job = build_job(request, RAW_EXEC)
        check_round_trip(job, render(job))
        assert len(job.constraints) == 4 + ram + storage + own + (pinned or listed)


class TestHostileText:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("${attr.unique.hostname}", "'${'"),
            ("%{ if true }x%{ endif }", "'%{'"),
            ("a\x00b", "NUL"),
            ("a\nb", "control"),
            ("\x7f", "control"),
            ("\ud800", "surrogate"),
            ("e\u0301", "NFC"),
        ],
    )
    def test_is_refused_in_words_before_it_becomes_a_job(self, text: str, why: str) -> None:
        assert why in (plain_text_problem(text) or "")
        wanted = replace(PLATFORM_DESCRIPTION, version_tag=text)
        with pytest.raises(InvalidInput) as raised:
            build_job(a_request(description=wanted), PLATFORM_SETTINGS)
        assert [error.pointer for error in raised.value.errors] == ["/version_tag"]

    @pytest.mark.parametrize(
        "text", ["", "v1.2", 'quote " and \\', "$5 100 % }", "é 漢 🙂", "# no //"]
    )
    def test_plain_text_passes(self, text: str) -> None:
        assert plain_text_problem(text) is None

    @pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", ".bashrc", "", "x" * 256])
    def test_a_file_name_with_a_path_is_refused(self, name: str) -> None:
        hostile = JobFile(role=FileRole.MODEL, filename=name, download="d")
        with pytest.raises(InvalidInput, match="/model"):
            build_job(a_request(files=(hostile,)), PLATFORM_SETTINGS)

    def test_a_constraint_can_t_leave_its_attribute_or_invent_an_operator(self) -> None:
        for attribute, operator in [('family}" x = "', "="), ("family", "distinct_hosts")]:
            wanted = with_constraint(attribute, operator, "x")
            with pytest.raises(InvalidInput, match="/constraints/0"):
                build_job(a_request(description=wanted), PLATFORM_SETTINGS)

    def test_a_lone_surrogate_is_never_rendered(self) -> None:
        job = replace(build_job(a_request(), PLATFORM_SETTINGS), group="\udc00")
        with pytest.raises(HclError, match="surrogate"):
            render(job)


class TestCron:
    def test_has_seven_fields_and_reads_back(self) -> None:
        start = datetime(2025, 8, 13, 7, 17, 30, tzinfo=UTC)
        assert cron_of(start) == "30 17 7 13 8 * 2025"
        assert moment_of("30 17 7 13 8 * 2025") == start

    def test_is_utc_and_never_early(self) -> None:
        start = datetime(2026, 1, 1, 0, 59, 59, 1, tzinfo=timezone(timedelta(hours=1)))
        assert moment_of(cron_of(start)) == datetime(2026, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize("cron", ["* * * * * * *", "0 0 31 2 * 2026", "61 0 0 1 1 * 2026", ""])
    def test_anything_but_one_moment_is_refused(self, cron: str) -> None:
        with pytest.raises(HclError, match="cron"):
            moment_of(cron)


def test_the_platform_s_own_form_of_an_artifact_can_be_said() -> None:
    plain = Artifact(source="http://10.200.0.1:42777/download/m.onnx", destination="local/")
    job = replace(build_job(a_request(), PLATFORM_SETTINGS), artifacts=(plain,))
    assert parse_job(render(job)).artifacts == (plain,)


def test_is_set_needs_no_value() -> None:
    own = DeviceConstraint(attribute="${device.attr.npu}", operator="is_set", value="")
    job = replace(build_job(a_request(), PLATFORM_SETTINGS), constraints=(own,))
    assert parse_job(render(job)).constraints == (own,)


@pytest.mark.parametrize("priority", [0, 101])
def test_a_priority_that_nomad_would_change_or_refuse_is_a_mistake(priority: int) -> None:
    with pytest.raises(ValueError, match="1-100"):
        build_job(a_request(priority=priority), PLATFORM_SETTINGS)


def test_a_job_that_reads_back_as_another_is_named_field_by_field() -> None:
    job = build_job(a_request(), PLATFORM_SETTINGS)
    text = render(job).replace("priority = 80", "priority = 81").replace("TYPE1", "TYPE2")
    with pytest.raises(HclMismatch) as raised:
        check_round_trip(job, text)
    assert [difference.split(":")[0] for difference in raised.value.differences] == [
        "priority",
        "env",
        "constraints",
    ]
    assert "meant 80, read 81" in raised.value.differences[0]


def test_a_job_is_made_of_what_was_decided_for_the_attempt() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    benchmark = Benchmark(
        benchmark_id="b-1", user_id="u", description=PLATFORM_DESCRIPTION, submit_time=now
    )
    attempt = Attempt(
        benchmark_id="b-1",
        number=1,
        job_id="benchmark-rpi4b-ort-20260101000000-abcdefghij",
        state=AttemptState.PREPARED,
        binding=Binding.STRICT,
        priority=55,
        created_at=now,
        family="rpi4b",
        target_uid="rpi4b-0001-0002",
    )
    job = build_job(JobRequest.of(benchmark, attempt, [MODEL, SPEC]), RAW_EXEC)
    assert (job.job_id, job.priority) == (attempt.job_id, 55)
    assert conditions(job)[-1] == ("${device.attr.target_uid}", "=", "rpi4b-0001-0002")
    assert job.config == {"command": "/usr/bin/python3", "args": ("-m", "runner")}
    assert job.meta == {"benchmark_id": "b-1", "user": "u"}


def test_text_that_nomad_would_interpret_is_encoded_in_meta() -> None:
    request = replace(a_request(), benchmark_id="b-${node.unique.id}", user_id="zoë@lab\n%{x}")
    job = build_job(request, RAW_EXEC)
    assert job.meta == {
        "benchmark_id": "b-%24%7Bnode.unique.id%7D",
        "user": "zo%C3%AB%40lab%0A%25%7Bx%7D",
    }
    check_round_trip(job, render(job))


@pytest.mark.parametrize("text", ["${NOMAD_ALLOC_ID}", "${node.unique.id}", "%{ if true }"])
def test_a_label_interpolates_nothing(text: str) -> None:
    job = build_job(a_request(), PLATFORM_SETTINGS)
    labelled = replace(
        job,
        group=text,
        task=text,
        spreads=(JobSpread(attribute="rack", weight=1, targets=((text, 1),)),),
    )
    rendered = render(labelled)
    assert f'target "{text}"' not in rendered
    assert f'group "{text}"' not in rendered
    assert parse_job(rendered) == labelled
