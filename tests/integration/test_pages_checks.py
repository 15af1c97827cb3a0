"""Pages of checks and of what was used by month."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from edgeyard.scheduler.model.accounting import BoardMonth
from edgeyard.scheduler.model.checks import (
    BISECTION_TAG,
    CANDIDATE,
    CONFIRMATION_TAG,
    Check,
    CheckStatus,
    Pair,
)
from tests.builders.api import Api, running
from tests.builders.pages import HOSTILE, Parts, as_

pytestmark = pytest.mark.one_database("pages ask by the functions of the API's routes")

BOARD = "rpi4b-0001-0001"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("checks")) as found:
        yield found


def stored(api: Api, check_id: str, *ratios: float, **changes: object) -> Check:
    """A check of alice with pairs of these ratios; the third pair does not count."""
    pairs = tuple(
        Pair(
            baseline_id=f"b{number}",
            candidate_id=f"c{number}",
            baseline_value=10.0,
            candidate_value=10.0 * ratio,
            ratio=ratio,
            slowdown=ratio - 1,
            counts=number != 2,
            reasons=("other work ran",) if number == 2 else (),
        )
        for number, ratio in enumerate(ratios)
    )
    plain = Check(
        check_id=check_id,
        user_id="alice",
        baseline=f"old.onnx {HOSTILE}",
        candidate="new.onnx",
        max_slowdown=0.03,
        budget_s=600.0,
        max_pairs=30,
        versions={},
        created_at=api.clock.now(),
        target_uid=BOARD,
        pairs=pairs,
    )
    made = replace(plain, **changes)  # type: ignore[arg-type]
    with api.store.write() as uow:
        uow.checks.add(made)
    return made


def test_a_check_shows_its_slowdown_and_its_pairs_as_a_figure(api: Api) -> None:
    stored(api, "check-one", 1.05, 1.06, 1.9, 1.05, 1.07, 1.06)
    stored(api, "check-none", status=CheckStatus.CANCELLED)
    browser = as_(api)
    listed = browser.get("/ui/checks").text
    assert 'href="/ui/checks/check-one"' in listed
    assert "/ui/checks/check-none" in listed
    running_only = browser.get("/ui/checks?status=running").text
    assert "check-none" not in running_only
    assert "is none of" in browser.get("/ui/checks?status=odd").text
    text = browser.get("/ui/checks/check-one").text
    parts = Parts()
    parts.feed(text)
    assert not parts.wrong
    assert "What each pair measured" in text
    assert "hollow: invalid" in text
    assert "other work ran" in text
    assert "at most 3 % is accepted" in text
    assert text.count('href="/ui/benchmarks/') == 12
    assert HOSTILE not in text
    assert "None is measured yet" in browser.get("/ui/checks/check-none").text


@pytest.mark.parametrize(
    ("tags", "shown"),
    [
        ([], None),
        ([CONFIRMATION_TAG], "to confirm a suspected change"),
        ([CONFIRMATION_TAG, BISECTION_TAG], "to find the version with which a series changed"),
    ],
)
def test_a_check_states_what_edgeyard_started_it_for(
    api: Api, tags: list[str], shown: str | None
) -> None:
    check_id = f"check-for-{len(tags)}"
    stored(api, check_id, versions={CANDIDATE: {"description": {"tags": tags}}})
    browser = as_(api)
    row = browser.get("/ui/checks").text.split(f'href="/ui/checks/{check_id}"')[1].split("</tr>")[0]
    for text in (row, browser.get(f"/ui/checks/{check_id}").text):
        assert ("Edgeyard started it" in text) == (shown is not None)
        assert (shown or "") in text


def test_a_check_is_cancelled_by_its_owner_alone(api: Api) -> None:
    stored(api, "check-cancelled")
    assert as_(api, "bob").get("/ui/checks/check-cancelled").status_code == 404
    answer = as_(api).post("/ui/checks/check-cancelled/cancel", "/ui/checks/check-cancelled")
    assert answer.status_code == 303
    assert "The check is cancelled" in as_(api).get(answer.headers["location"]).text
    with api.store.read() as uow:
        assert uow.checks.get("check-cancelled").status is CheckStatus.CANCELLED


def test_the_use_of_boards_by_month_leads_from_month_to_month(api: Api) -> None:
    times = BoardMonth(
        target_uid=BOARD, month="2026-10", family="rpi4b", busy_s=900.0, idle_s=1800.0
    )
    with api.store.write() as uow:
        uow.accounting.add_board_months([times])
    browser = as_(api, "operator")
    text = browser.get("/ui/usage?month=2026-10&by=board").text
    assert "33.33 %" in text
    assert f'href="/ui/boards/{BOARD}"' in text
    assert 'rel="prev" href="/ui/usage?month=2026-09&amp;by=board"' in text
    assert 'rel="next" href="/ui/usage?month=2026-11&amp;by=board"' in text
    assert 'rel="next"' not in browser.get("/ui/usage").text
    assert "Nothing was used in 2020-01" in browser.get("/ui/usage?month=2020-01").text
    rows = list(
        csv.DictReader(io.StringIO(browser.get("/ui/usage.csv?month=2026-10&by=board").text))
    )
    assert [row["key"] for row in rows] == [BOARD]
    for wrong in ("month=soon", "by=colour", "month=0001-13"):
        answer = browser.get(f"/ui/usage?{wrong}")
        assert answer.status_code == 422
        assert 'aria-invalid="true"' in answer.text
