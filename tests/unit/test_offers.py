"""What no board could ever satisfy, found by kinds of boards."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from edgeyard.benchmark_api.submission.offer import Boards, Offer, Offers
from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.model import AttributeValue, Board, BoardEngine, Host
from edgeyard.scheduler.model.benchmark import BenchmarkType, Constraint, JobDescription
from edgeyard.scheduler.twin.joined import JoinedBoard
from edgeyard.scheduler.twin.twin import Twin
from tests.fakes.cluster import board

GIB = 2**30
MANY = tuple(board(f"rpi4b-0001-{number:04}") for number in range(499))
BIG = board("rpi4b-0002-0001", ram_bytes=8 * GIB)
LAB = (*MANY, BIG)


def asked(*conditions: tuple[str, str, str], **changes: object) -> JobDescription:
    whole: dict[str, object] = {
        "model": "net.onnx",
        "runtime": "ort",
        "benchmark_type": BenchmarkType.TYPE1,
        "target": "rpi4b",
        "constraints": tuple(
            Constraint(attribute=attribute, operator=operator, value=value)
            for attribute, operator, value in conditions
        ),
        **changes,
    }
    return JobDescription(**whole)  # type: ignore[arg-type]


def pointers(offer: Offer, wanted: JobDescription) -> list[str]:
    return [each.pointer for each in offer.problems(wanted)]


@pytest.mark.parametrize(
    "condition",
    [
        ("memory.ram", ">", str(4 * GIB)),
        ("target_uid", "=", BIG.target_uid),
        ("target_uid", "regexp", "-0002-"),
    ],
)
def test_what_one_board_of_500_meets_is_possible(condition: tuple[str, str, str]) -> None:
    assert pointers(Offer(LAB), asked(condition)) == []
    # and no longer where that board is none that is asked for
    without = ["/constraints/0"]
    assert pointers(Offer(MANY), asked(condition)) == without
    assert pointers(Offer(LAB), asked(condition, target_uid=MANY[0].target_uid)) == without


def test_all_that_no_board_meets_is_reported_again_and_again() -> None:
    never = asked(
        ("camera", "=", "v2"),
        ("engines", "set_contains", "tflite"),
        ("target_uid", "=", "rpi4b-0009-0009"),
        ram=16 * GIB,
        benchmark_type=BenchmarkType.TYPE2,
    )
    offer = Offer(LAB)
    for _ in range(2):
        assert pointers(offer, never) == ["/ram", "/constraints/1", "/constraints/2"]


def test_boards_of_one_kind_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Board] = []

    def counted(each: Board) -> dict[str, AttributeValue]:
        looked_at.append(each)
        return attributes_of(each)

    monkeypatch.setattr("edgeyard.benchmark_api.submission.offer.attributes_of", counted)
    offer = Offer(LAB)
    for _ in range(3):
        assert offer.problems(asked(("memory.ram", ">=", "1"))) == []
    assert looked_at == [MANY[0], BIG]


def test_an_offer_stays_while_the_boards_do_and_sees_those_that_change() -> None:
    now: list[tuple[Boards, Boards]] = [(MANY, ())]
    newest = Offers(lambda: now[0])
    first = newest.now()
    assert pointers(first, asked(ram=8 * GIB)) == ["/ram"]
    assert newest.now() is first
    now[0] = (MANY, (BIG,))
    assert pointers(newest.now(), asked(ram=8 * GIB)) == []
    now[0] = ((), (BIG,))
    assert pointers(newest.now(), asked(target_uid=MANY[0].target_uid)) == ["/target_uid"]
    assert list(newest.now().families) == ["rpi4b"]


def reported(*boards: Board, online: bool = True) -> dict[str, JoinedBoard]:
    """What a twin says of boards that hosts report, or reported once."""
    host = Host("pi-1", "pi-1", online, boards)
    if not online:
        host = replace(host, ready_reason="down")
    twin = Twin(boards)
    twin.refresh([host], datetime(2026, 11, 21, 12, tzinfo=UTC))
    return dict(twin.joined())


RACK_A = replace(MANY[0], attributes={"rack": "a", "floor": "low"})
RACK_B = replace(MANY[1], attributes={"rack": "b", "floor": "high"})


def test_an_attribute_that_no_board_publishes_is_refused_with_those_that_are() -> None:
    joined = reported(RACK_A, RACK_B)
    offer = Offer((RACK_A, RACK_B), lambda: joined)
    [error] = offer.problems(asked(("rakc", "=", "a")))
    assert error.pointer == "/constraints/0"
    assert error.reason == "no board of rpi4b publishes rakc"
    assert "did you mean rack?" in error.accepted
    [error] = offer.problems(asked(("rack", "=", "c")))
    assert error.accepted == "what holds for rack of 'a' or 'b'"
    [error] = offer.problems(asked(("rakc", "=", "a"), target_uid=RACK_A.target_uid))
    assert error.reason == f"{RACK_A.target_uid} does not publish rakc"
    assert offer.problems(asked(("rack", "=", "b"), ("rakc", "is_not_set", ""))) == []
    assert pointers(offer, asked(("rack", "=", "b"), target_uid=RACK_A.target_uid)) == [
        "/constraints/0"
    ]


@pytest.mark.parametrize("known", [{}, reported(RACK_A)], ids=["never seen", "one is missing"])
def test_an_attribute_that_a_missing_board_may_publish_is_taken_with_a_warning(
    known: dict[str, JoinedBoard],
) -> None:
    offer = Offer((RACK_A, MANY[1]), lambda: known)
    wanted = asked(("camera", "=", "v2"), ("dynamic.status", "=", "odd"))
    assert offer.problems(wanted) == []
    [warning] = offer.warnings(wanted)
    assert "camera = v2" in warning


def test_what_boards_publish_is_read_again_when_it_changes() -> None:
    now = [reported(RACK_A)]
    offer = Offer((RACK_A,), lambda: now[0])
    wanted = asked(("camera", "=", "v2"))
    assert pointers(offer, wanted) == ["/constraints/0"]
    now[0] = reported(replace(RACK_A, attributes={"camera": "v2"}))
    assert pointers(offer, wanted) == []


@pytest.mark.parametrize(
    ("conditions", "changes", "pointer"),
    [
        ((("rack", "=", "a"), ("floor", "=", "high")), {}, "/constraints/1"),
        ((("rack", "=", "b"), ("target_uid", "=", RACK_A.target_uid)), {}, "/constraints/1"),
        ((("rack", "=", "b"),), {"ram": 8 * GIB}, "/constraints/0"),
        ((), {"ram": 8 * GIB, "runtime": "tflite"}, "/ram"),
        ((), {"ram": 8 * GIB, "storage": 32 * GIB}, "/storage"),
    ],
)
def test_conditions_that_different_boards_meet_but_none_alone_are_refused(
    conditions: tuple[tuple[str, str, str], ...], changes: dict[str, object], pointer: str
) -> None:
    roomy = replace(RACK_B, storage_bytes=32 * GIB)
    tflite = BoardEngine("tflite", "1", frozenset({"TYPE1"}))
    both = replace(MANY[2], engines=(*MANY[2].engines, tflite))
    boards = (RACK_A, roomy, both, BIG)
    joined = reported(*boards)
    offer = Offer(boards, lambda: joined)
    [error] = offer.problems(asked(*conditions, **changes))
    assert error.pointer == pointer
    assert "that fits otherwise" in error.reason
    assert error.accepted


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def with_providers(uid: str, *providers: str) -> Board:
    attributes = {"engine.ort.execution_providers": ",".join(providers)} if providers else {}
    return replace(board(uid), attributes=attributes)


def test_an_execution_provider_that_no_board_has_is_refused() -> None:
    boards = (with_providers("rpi4b-0001-0001", CPU), with_providers("rpi4b-0001-0002", CPU))
    joined = reported(*boards)
    offer = Offer(boards, lambda: joined)
    assert offer.problems(asked(parameters={"execution_provider": CPU})) == []
    [error] = offer.problems(asked(parameters={"execution_provider": CUDA}))
    assert error.pointer == "/parameters/execution_provider"
    assert error.reason == f"no board of rpi4b has {CUDA}"
    assert CPU in error.accepted
    pinned = asked(parameters={"execution_provider": CUDA}, target_uid="rpi4b-0001-0001")
    assert offer.problems(pinned)[0].reason == f"rpi4b-0001-0001 does not have {CUDA}"


def test_boards_without_the_execution_provider_are_a_warning_where_others_have_it() -> None:
    boards = (with_providers("rpi4b-0001-0001", CPU), with_providers("rpi4b-0001-0002", CPU, CUDA))
    joined = reported(*boards)
    offer = Offer(boards, lambda: joined)
    wanted = asked(parameters={"execution_provider": CUDA})
    assert offer.problems(wanted) == []
    [warning] = offer.warnings(wanted)
    assert "1 of 2 boards do not have" in warning
    assert f"--constraint 'engine.ort.execution_providers set_contains {CUDA}'" in warning


def test_an_execution_provider_of_boards_that_state_none_is_left_to_them() -> None:
    boards = (with_providers("rpi4b-0001-0001", CPU), with_providers("rpi4b-0001-0002"))
    joined = reported(*boards)
    wanted = asked(parameters={"execution_provider": CUDA})
    assert Offer(boards, lambda: joined).problems(wanted) == []
    assert Offer(boards).problems(wanted) == []


def with_version(uid: str, version: str, **changes: Any) -> Board:
    engine = BoardEngine("ort", version, frozenset({"TYPE1"}))
    return replace(board(uid), engines=(engine,), **changes)


def test_a_version_that_no_board_has_is_refused_with_those_that_there_are() -> None:
    old, new = with_version("rpi4b-0001-0001", "1.20.1"), with_version("rpi4b-0001-0002", "1.31.1")
    joined = reported(old, new)
    offer = Offer((old, new), lambda: joined)
    assert offer.problems(asked(version_tag="1.31")) == []
    assert offer.problems(asked(version_tag="v1.20.1")) == []
    [error] = offer.problems(asked(version_tag="9.9"))
    assert error.pointer == "/version_tag"
    assert error.reason == "no known board of rpi4b has version 9.9 of ort"
    assert error.accepted == "1.20.1 or 1.31.1"
    [error] = offer.problems(asked(version_tag="1.31", target_uid=old.target_uid))
    assert (error.pointer, error.accepted) == ("/version_tag", "1.20.1")


def test_a_version_that_only_other_boards_have_is_refused() -> None:
    old = with_version("rpi4b-0001-0001", "1.20.1", ram_bytes=8 * GIB)
    new = with_version("rpi4b-0001-0002", "1.31.1")
    joined = reported(old, new)
    offer = Offer((old, new), lambda: joined)
    [error] = offer.problems(asked(version_tag="1.31", ram=8 * GIB))
    assert error.reason == "no board of rpi4b that fits otherwise has version 1.31 of ort"
    assert error.accepted == "1.20.1"
    assert offer.ram_bytes(asked(version_tag="1.20")) == (8 * GIB, 8 * GIB)


def test_a_version_that_a_missing_board_may_have_is_taken_with_a_warning() -> None:
    old, new = with_version("rpi4b-0001-0001", "1.20.1"), with_version("rpi4b-0001-0002", "1.31.1")
    joined = reported(old)
    offer = Offer((old, new), lambda: joined)
    wanted = asked(version_tag="1.31")
    assert offer.problems(wanted) == []
    [warning] = offer.warnings(wanted)
    assert "no board that is online has version 1.31 of ort" in warning


def test_an_attribute_of_a_node_that_is_not_read_yet_refuses_nothing() -> None:
    only = MANY[0]
    twin = Twin([only])
    rack = ("${meta.rack}", "=", "b")

    def problems(read: bool, rack_of_node: str) -> list[str]:
        attributes = {"${meta.rack}": rack_of_node} if read else {}
        host = Host("n1", "n1", True, (only,), attributes=attributes, attributes_read=read)
        twin.refresh([host], datetime(2026, 11, 21, 12, tzinfo=UTC))
        return pointers(Offer([only], twin.joined), asked(rack))

    assert problems(False, "") == []
    assert problems(True, "a") == ["/constraints/0"]
    assert problems(True, "b") == []


def test_boards_that_share_cores_count_once_for_a_gang() -> None:
    one, two, three = MANY[:3]
    sharing = replace(one, shares_with=frozenset({two.target_uid}))
    assert Offer([sharing, two, three]).problems(asked(count=2)) == []
    [error] = Offer([sharing, two, three]).problems(asked(count=3))
    assert error.pointer == "/count"
    assert error.reason == "is 3, and 2 of rpi4b share no cores"
    assert error.accepted == "at most 2"
    assert Offer([one, two, three]).problems(asked(count=3)) == []
