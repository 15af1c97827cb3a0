"""What no board could ever satisfy, told from kinds of boards."""

from __future__ import annotations

import pytest

from edgeyard.benchmark_api.routes.offers import Boards, Offer, Offers
from edgeyard.devices.attributes import attributes_of
from edgeyard.devices.model import AttributeValue, Board
from edgeyard.scheduler.model.benchmark import BenchmarkType, Constraint, JobDescription
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


def test_all_that_no_board_meets_is_told_again_and_again() -> None:
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

    monkeypatch.setattr("edgeyard.benchmark_api.routes.offers.attributes_of", counted)
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
