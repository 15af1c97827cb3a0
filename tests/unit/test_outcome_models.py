"""Models of outcomes: their rows, their forms, their gates, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from edgeyard.errors import InvalidInput, NotFound
from edgeyard.plugins.scorers.fastest import Fastest
from edgeyard.plugins.testing import NOW, batch_of, board, past_run, pending
from edgeyard.scheduler.engine.active_models import ActiveModels
from edgeyard.scheduler.engine.registered_models import PromotionMode, promote_due
from edgeyard.scheduler.framework.batch import Batch, Pairs
from edgeyard.scheduler.framework.protocols import Answer
from edgeyard.scheduler.learning.features import COLUMNS, Encoder, Input, normalise
from edgeyard.scheduler.learning.manifest import parse_manifest
from edgeyard.scheduler.learning.model import Model, any_cause_chance, model_of_content
from edgeyard.scheduler.model.attempt import Outcome
from edgeyard.scheduler.model.cycle_record import CycleRecord
from edgeyard.scheduler.model.registered_models import ModelKind, ModelState
from edgeyard.scheduler.outcomes import learning as outcomes
from edgeyard.scheduler.outcomes.files import chance_files, quantile_files
from edgeyard.scheduler.outcomes.gates import (
    MAX_COVERAGE_ERROR,
    TARGETS,
    PredictionFigures,
    compare,
    coverage_gate,
    lowest_rise,
    measure_gates,
    predict_loaded,
    split_by_boards,
    split_by_time,
    user_gate,
)
from edgeyard.scheduler.outcomes.learning import (
    MIN_RUNS,
    TrainingReport,
    learn_outcomes,
    refusal_of,
)
from edgeyard.scheduler.outcomes.models import (
    MIN_HISTORY_WEIGHT,
    QuantileModel,
    fit_failures,
    fit_run_times,
    history_quantiles,
    pinball_losses,
    user_weights,
)
from edgeyard.scheduler.outcomes.rows import OutcomeRows, read_outcome_rows
from edgeyard.scheduler.prediction.estimates import PastPairs
from edgeyard.scheduler.store import SqlStore
from edgeyard.scheduler.store.attempts import SqlAttempts
from edgeyard.scheduler.store.cycles import SqlCycles
from tests.builders import records as make
from tests.builders.outcomes import (
    Run,
    add_past,
    as_the_history_expects,
    disturbed_by_load,
    slowed_by_load,
)

pytestmark = pytest.mark.slow  # all tests here take some ten seconds together

RUN_TIME, FAILURE = ModelKind.RUN_TIME, ModelKind.FAILURE
MEASUREMENT = ModelKind.MEASUREMENT


@pytest.fixture(name="store")
def an_empty_store(sqlite_store: SqlStore) -> SqlStore:
    return sqlite_store


@pytest.fixture(name="slowed", scope="module")
def rows_of_a_lab_that_load_slows(tmp_path_factory: pytest.TempPathFactory) -> OutcomeRows:
    store = SqlStore(f"sqlite:///{tmp_path_factory.mktemp('lab')}/edgeyard.db")
    add_past(store, 60, quality=disturbed_by_load)
    rows = read_outcome_rows(store)
    store.close()
    return rows


def usable(kind: ModelKind, rows: OutcomeRows) -> OutcomeRows:
    return TARGETS[kind].rows(rows)


def a_failure_model(rows: OutcomeRows) -> Model:
    content, manifest = chance_files(FAILURE, fit_failures(usable(FAILURE, rows)), "a test")
    return model_of_content(manifest, content, "a test")


def test_rows_have_the_numbers_that_a_model_was_given_in_the_cycle(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in training and in use: what the encoder gave then, the rows give now."""
    seen: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    inputs = parse_manifest(quantile_files(RUN_TIME, _plain_model(), "a test")[1]).inputs
    inner = Fastest.answer

    def answer(self: Fastest, batch: Batch, pairs: Pairs) -> Answer:
        found = np.concatenate(list(Encoder(batch, pairs.rows, pairs.boards, inputs).chunks(1000)))
        for x, row, place in zip(found, pairs.rows.tolist(), pairs.boards.tolist(), strict=True):
            kind = batch.kinds[row]
            seen[f"{batch.now} {kind.model_sha256} {batch.snapshot.uids[place]}"] = x
        return inner(self, batch, pairs)

    monkeypatch.setattr(Fastest, "answer", answer)
    add_past(store, 12)
    rows = read_outcome_rows(store)
    assert len(rows) == 12 * 8
    values = normalise(rows.values, inputs)
    compared = 0
    with store.read() as uow:
        model_of = {each.seq: each.model_sha256 for each in uow.attempts.outcomes()}
    for row in range(len(rows)):
        at = NOW + timedelta(seconds=round(rows.decided_s[row] - NOW.timestamp()))
        key = f"{at} {model_of[int(rows.seqs[row])]} {rows.boards[row]}"
        assert np.array_equal(values[row], seen[key]), key
        compared += 1
    assert compared == len(rows)


def _plain_model() -> QuantileModel:
    columns = ("log_model_bytes", "host_cpu", "host_memory", "host_busy", "log_board_cores")
    inputs = tuple(Input(column=each) for each in columns)
    widths = np.array([-1.0, 0.0, 1.0])
    return QuantileModel(inputs, np.zeros(5), widths, widths, np.array([1.0, 2.0, 3.0]))


def test_a_row_knows_nothing_of_what_came_later(store: SqlStore) -> None:
    add_past(store, 3)
    rows = read_outcome_rows(store)
    first = rows.decided_s == rows.decided_s.min()
    assert np.isnan(rows.location[first]).all()
    assert np.isfinite(rows.location[~first]).all()


def test_outcomes_that_cannot_be_rows_are_counted(store: SqlStore) -> None:
    add_past(store, 2)
    with store.write() as uow:
        uow.benchmarks.add(make.a_benchmark("lost"))
        uow.attempts.add_all([make.an_attempt("lost")])
        uow.attempts.add_outcome(make.an_outcome("lost"))
        uow.benchmarks.add(make.a_benchmark("jumped"))
        uow.attempts.add_all(
            [make.an_attempt("jumped", created_at=NOW + timedelta(days=1), job_id="j")]
        )
        uow.attempts.add_outcome(make.an_outcome("jumped", ended_at=NOW))
        uow.attempts.add_outcome(make.an_outcome("gone", target_uid=None))
    rows = read_outcome_rows(store)
    assert rows.left_out == {
        "without the recorded cycle that decided them": 1,
        "that ended before they began: a clock was set": 1,
        "on an unknown board": 1,
    }


@pytest.mark.parametrize("run_s", [0.0, -3.0, None])
def test_run_times_that_are_none_are_not_learned(store: SqlStore, run_s: float | None) -> None:
    add_past(store, 2, end=lambda run: (run_s if run.number % 2 else 5.0, None))
    rows = read_outcome_rows(store)
    assert np.isfinite(usable(RUN_TIME, rows).run_s).all()
    assert len(usable(RUN_TIME, rows)) == 8
    assert "8 without a usable run time" in refusal_of(RUN_TIME, rows)


@pytest.mark.slow
def test_models_learn_what_the_history_does_not_know(slowed: OutcomeRows) -> None:
    for kind in ModelKind:
        target, rows = TARGETS[kind], usable(kind, slowed)
        past, later = split_by_time(rows)
        known = np.isfinite(target.history(later).reshape(len(later), -1)).all(axis=1)
        predicted = target.losses(target.fit(past).predict(later), later)[known]
        history = target.losses(target.history(later), later)[known]
        assert predicted.mean() < history.mean(), kind


@pytest.mark.slow
def test_the_file_predicts_what_was_fitted(slowed: OutcomeRows) -> None:
    for kind, target in TARGETS.items():
        rows = usable(kind, slowed)
        model = target.fit(rows)
        content, manifest = target.files(model, "a test")
        loaded = model_of_content(manifest, content, "a test")
        assert np.allclose(predict_loaded(loaded, rows), model.predict(rows), atol=1e-4), kind


def test_quantiles_never_cross(slowed: OutcomeRows) -> None:
    rows = usable(RUN_TIME, slowed)
    found = fit_run_times(rows).predict(rows)
    assert (np.diff(found, axis=1) > 0).all()


@pytest.mark.slow
def test_more_faults_never_mean_a_lower_risk(slowed: OutcomeRows) -> None:
    """On the file itself: boards that differ in their faults alone."""
    model = a_failure_model(slowed)
    boards = [board(f"rpi4b-{number:04}-0001") for number in range(1, 8)]
    for runs in (1, 5, 20):
        past = [
            past_run(each.target_uid, failure="board_fault" if number < faults else None)
            for faults, each in enumerate(boards)
            for number in range(runs + len(boards))
        ]
        batch = batch_of(boards, [pending(model_bytes=10, user_time_s=60.0)], past)
        rows = np.zeros(len(boards), dtype=np.intp)
        risks = any_cause_chance(model.predict(batch, rows, np.arange(len(boards))))
        assert (np.diff(risks) > 0).all(), risks
        assert (np.diff(PastPairs(batch, rows, np.arange(len(boards))).failure_rates()) > 0).all()


@pytest.mark.slow
def test_the_risk_rises_with_the_history_even_where_the_data_says_otherwise(
    slowed: OutcomeRows,
) -> None:
    rows = usable(FAILURE, slowed)
    rate = rows.values["board_failure_rate"]
    few = rate < np.median(rate)
    turned = replace(rows, failed=few, board_failed=few)
    model = fit_failures(turned)
    assert model.history_weights[1] == MIN_HISTORY_WEIGHT
    content, manifest = chance_files(FAILURE, model, "a test")
    assert lowest_rise(model_of_content(manifest, content, "a test")) >= 0
    falling = replace(model, history_weights=np.array([1.0, -1.0]))
    content, manifest = chance_files(FAILURE, falling, "a test")
    assert lowest_rise(model_of_content(manifest, content, "a test")) < 0


@pytest.mark.parametrize("kind", [FAILURE, MEASUREMENT])
def test_a_greater_chance_by_history_never_means_a_lower_risk_in_the_file(
    slowed: OutcomeRows, kind: ModelKind
) -> None:
    target = TARGETS[kind]
    content, manifest = target.files(target.fit(usable(kind, slowed)), "a test")
    assert lowest_rise(model_of_content(manifest, content, "a test")) >= 0


def test_a_cause_that_never_struck_stays_the_history_s(slowed: OutcomeRows) -> None:
    """In this lab boards fail, and more often on busy hosts; models never do."""
    model = fit_failures(usable(FAILURE, slowed))
    load = [each.column for each in model.inputs].index("host_cpu")
    assert model.weights[load, 0] == 0.0
    assert model.weights[load, 1] > 0.0
    assert (model.history_weights[0], model.offsets[0]) == (1.0, 0.0)


def test_losses_are_pinball_losses_and_cut_at_limits(slowed: OutcomeRows) -> None:
    rows = usable(RUN_TIME, slowed).only(np.arange(2))
    rows = replace(rows, run_s=np.exp([1.0, 1.0]), censored=np.array([False, True]))
    low = pinball_losses(np.full((2, 3), 0.0), rows)
    assert low == pytest.approx([0.5, 0.5])  # mean of 0.1, 0.5 and 0.9 of what is missing
    high = pinball_losses(np.full((2, 3), 2.0), rows)
    assert high == pytest.approx([0.5, 0.0])


def improving_history(seed: int) -> OutcomeRows:
    """Rows of one kind on hosts whose load makes runs longer, which the history does not know.

    The history knows the middle ever better, and takes what load does for noise.
    """
    count, rng = 700, np.random.default_rng(seed)
    missing, no = np.full(count, np.nan), np.zeros(count, np.bool_)
    load, error = rng.uniform(0.0, 1.0, count), 0.5 / np.sqrt(1.0 + np.arange(count) / 8.0)
    middle = np.log(20.0) + 1.2 * 0.5 + error * rng.normal(size=count)
    run_s = 20.0 * np.exp(1.2 * load + 0.1 * rng.normal(size=count))
    names = np.array([f"board-{number % 8}" for number in range(count)])
    at_s = np.linspace(0.0, 60.0 * count, count)
    return OutcomeRows(
        values={**dict.fromkeys(COLUMNS, missing), "host_cpu": load},
        location=middle,
        scale=np.hypot(0.36, error),
        error=error,
        freedom=np.full(count, 30.0),
        loading_freedom=missing,
        run_s=run_s,
        censored=no,
        failed=no,
        board_failed=no,
        loading_s=missing,
        incomparable=missing,
        countable=~no,
        boards=names,
        users=np.full(count, "ada"),
        benchmarks=names,
        cycles=np.arange(count),
        decided_s=at_s,
        ended_s=at_s + 30.0,
        seqs=np.arange(count),
        left_out={},
    )


def test_intervals_hold_as_many_later_runs_although_the_history_gets_better() -> None:
    errors, losses = [], []
    for seed in range(8):
        rows = improving_history(seed)
        past, later = split_by_time(rows)
        figures = compare(
            TARGETS[RUN_TIME],
            later,
            fit_run_times(past).predict(later),
            fit_run_times(replace(past, error=np.zeros(len(past)))).predict(later),
        )
        assert figures is not None
        assert figures.calibration is not None
        errors.append(figures.calibration.mean)
        losses.append(figures.difference.mean)
    assert abs(np.mean(errors)) < MAX_COVERAGE_ERROR
    assert np.mean(losses) < 0.0  # than with widths that don't follow what the history knows


def figures_of(outside: Sequence[int], runs: int) -> PredictionFigures:
    """Figures of boards with as many runs each, some of them outside their 80 % interval."""
    count = len(outside) * runs
    number = np.arange(count)
    rows = replace(
        improving_history(0).only(np.zeros(count, np.intp)),
        run_s=np.where(number % runs < np.repeat(outside, runs), 1000.0, 20.0),
        boards=np.array([f"board-{each:02}" for each in number // runs]),
    )
    predicted = np.tile(np.log([10.0, 20.0, 40.0]), (count, 1))
    found = compare(TARGETS[RUN_TIME], rows, predicted, predicted)
    assert found is not None
    return found


def test_the_gate_of_coverage_states_how_well_it_knows() -> None:
    even = coverage_gate(figures_of([4] * 10, runs=20))
    assert even.passed
    assert [even.figure, even.low, even.high] == pytest.approx([0.0, 0.0, 0.0])
    narrow = coverage_gate(figures_of([6] * 10, runs=20))
    assert not narrow.passed
    assert narrow.figure == pytest.approx(-0.1)
    assert "off by -10.0 percentage points (-10.0 to -10.0)" in narrow.sentence
    one_board = coverage_gate(figures_of([8, 0, 0, 0, 0], runs=8))
    assert not one_board.passed
    assert one_board.figure == pytest.approx(0.0)
    assert "too few runs to know that it is not off by 15" in one_board.sentence


def test_what_is_held_out_is_later_or_on_other_boards(slowed: OutcomeRows) -> None:
    past, later = split_by_time(slowed)
    assert past.ended_s.max() < later.decided_s.min()
    for known, unknown in split_by_boards(slowed):
        assert not set(known.boards) & set(unknown.boards)


def test_a_user_counts_for_as_many_runs_as_the_median_one() -> None:
    users = np.array(["a"] * 10 + ["b"] * 10 + ["c"] * 100)
    weights = user_weights(users)
    assert weights.mean() == pytest.approx(1.0)
    totals = [weights[users == each].sum() for each in "abc"]
    assert totals == pytest.approx([40.0] * 3)
    two = np.array(["a"] * 10 + ["b"] * 1000)
    weights = user_weights(two)
    assert weights[two == "b"].sum() == pytest.approx(weights[two == "a"].sum())


@pytest.mark.slow
def test_the_active_model_is_compared_on_runs_that_are_new_to_it_alone(
    slowed: OutcomeRows,
) -> None:
    rows = usable(FAILURE, slowed)
    active = a_failure_model(slowed)
    until_s = float(rows.decided_s.max())
    gates, figures = measure_gates(FAILURE, rows, active, until_s)
    gate = next(each for each in gates if each.name == "active")
    assert not gate.passed
    assert "fewer than 30 held-out runs" in gate.sentence
    assert figures["active"] is None
    _, later = split_by_time(rows)
    middle_s = float(np.median(later.decided_s))
    _, figures = measure_gates(FAILURE, rows, active, middle_s)
    new = later.only(later.decided_s > middle_s)
    compared = figures["active"]
    assert isinstance(compared, dict)
    assert 0 < compared["rows"] <= len(new) < len(later)


def test_a_cycle_that_is_deleted_meanwhile_is_skipped(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_past(store, 3)
    first, deleted, last = sorted(set(read_outcome_rows(store).cycles.tolist()))
    get = SqlCycles.get

    def missing(self: SqlCycles, seq: int) -> CycleRecord:
        if seq == deleted:
            raise NotFound("cycle", str(seq))
        return get(self, seq)

    monkeypatch.setattr(SqlCycles, "get", missing)
    rows = read_outcome_rows(store)
    assert sorted(set(rows.cycles.tolist())) == [first, last]
    assert rows.left_out["without the recorded cycle that decided them"] == 8


def test_numbers_that_are_none_do_not_get_into_the_store(store: SqlStore) -> None:
    with pytest.raises(InvalidInput, match="not finite"), store.write() as uow:
        uow.attempts.add_outcome(make.an_outcome("b-1", run_s=float("nan")))


@pytest.mark.parametrize("run_s", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_in_a_store_written_by_others_are_left_out(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, run_s: float
) -> None:
    add_past(store, 20, end=as_the_history_expects)
    stored = SqlAttempts.outcomes

    def outcomes_of(self: SqlAttempts, *, since: datetime | None = None) -> list[Outcome]:
        found = stored(self, since=since)
        return [replace(each, run_s=run_s) if each.seq % 2 else each for each in found]

    monkeypatch.setattr(SqlAttempts, "outcomes", outcomes_of)
    rows = read_outcome_rows(store)
    assert len(rows) == 160
    assert np.isfinite(usable(RUN_TIME, rows).run_s).all()
    report = learn_outcomes(store, rows, NOW, kinds=[RUN_TIME])[0]
    assert report.registered is None
    assert "without a usable run time" in report.refusal
    assert promote_due(store, PromotionMode.AUTO, NOW) == []


@pytest.mark.slow
def test_one_user_s_fake_results_are_noticed_and_named(store: SqlStore) -> None:
    def end(run: Run) -> tuple[float | None, str | None]:
        return (0.01, None) if run.user == "eve" else slowed_by_load(run)

    add_past(store, 60)
    rows = usable(RUN_TIME, read_outcome_rows(store))
    assert user_gate(TARGETS[RUN_TIME], rows).passed
    later = NOW + timedelta(days=10)
    add_past(store, 13, end=end, users=("eve",), first=10_000, begin=later, seed=5)
    rows = read_outcome_rows(store)
    report = learn_outcomes(store, rows, later, kinds=[RUN_TIME])[0]
    assert report.registered is not None
    gate = next(each for each in report.registered.failed_gates if each.name == "one_user")
    assert "without the runs of eve" in gate.sentence
    assert promote_due(store, PromotionMode.AUTO, later) == []
    models = ActiveModels(store)
    models.refresh()
    assert models.current == ()  # past runs predict


@pytest.mark.slow
def test_candidates_are_registered_with_gates_and_data(store: SqlStore) -> None:
    add_past(store, 60, quality=disturbed_by_load)
    rows = read_outcome_rows(store)
    found = {each.kind: each.registered for each in learn_outcomes(store, rows, NOW)}
    for kind in ModelKind:
        model = found[kind]
        assert model is not None
        assert model.state is ModelState.CANDIDATE
        gates = {each.name: each for each in model.gates}
        assert gates["later"].passed
        assert gates["other_boards"].passed
        assert model.data["sha256"] == usable(kind, rows).digest
        assert model.data["last_outcome"] == usable(kind, rows).seqs.max()
        with store.read() as uow:
            assert uow.models.get(kind, 1) == model
            events = [
                each
                for each in uow.log.events(after=0, limit=100_000)
                if each.kind == "model.state"
            ]
        assert model.reference in [each.data["model"] for each in events]
    again = learn_outcomes(store, rows, NOW)
    assert [each.registered for each in again] == [None] * 4
    assert "nothing new has ended" in again[0].refusal


@pytest.mark.slow
def test_two_trainings_at_the_same_time_register_one_model(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_past(store, 60)
    rows = read_outcome_rows(store)
    measured: list[TrainingReport] = []

    def another_is_faster(*given: Any) -> Any:
        monkeypatch.setattr(outcomes, "measure_gates", measure_gates)
        measured.extend(learn_outcomes(store, rows, NOW, kinds=[FAILURE]))
        return measure_gates(*given)

    monkeypatch.setattr(outcomes, "measure_gates", another_is_faster)
    (found,) = learn_outcomes(store, rows, NOW, kinds=[FAILURE])
    assert [each.registered is not None for each in measured] == [True]
    assert found.registered is None
    assert found.refusal == "nothing new has ended since failure/1 was trained"
    with store.read() as uow:
        assert [each.reference for each in uow.models.all()] == ["failure/1"]
        events = uow.log.events(after=0, limit=100_000)
    assert len([each for each in events if each.kind == "model.state"]) == 1


@pytest.mark.slow
def test_where_the_history_knows_all_the_gates_say_no(store: SqlStore) -> None:
    add_past(store, 60, end=as_the_history_expects)
    found = learn_outcomes(store, read_outcome_rows(store), NOW, kinds=[RUN_TIME])[0].registered
    assert found is not None
    failed = {each.name for each in found.failed_gates}
    assert {"later", "other_boards"} <= failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cycles", "boards", "words"),
    [
        (0, 8, "there are no ended runs to learn from"),
        (5, 2, f"10 runs have ended, and {MIN_RUNS} are needed"),
        (150, 1, "all runs are of 1 board, and 4 are needed"),
    ],
)
def test_too_little_is_refused_in_words(
    store: SqlStore, cycles: int, boards: int, words: str
) -> None:
    add_past(store, cycles, boards=boards)
    rows = read_outcome_rows(store)
    for each in learn_outcomes(store, rows, NOW):
        assert each.registered is None
        if each.kind is FAILURE or (each.kind is RUN_TIME and cycles != 5):
            assert each.refusal.startswith(words)
    assert promote_due(store, PromotionMode.AUTO, NOW) == []


def test_constant_features_and_too_few_failures_are_refused(
    slowed: OutcomeRows, store: SqlStore
) -> None:
    constant = replace(
        slowed, values={name: np.full(len(slowed), 3.0) for name in COLUMNS}, left_out={}
    )
    assert refusal_of(RUN_TIME, constant).startswith("no feature varies (log_nb_inference")
    never = replace(slowed, failed=np.zeros(len(slowed), np.bool_))
    assert refusal_of(FAILURE, never).startswith("0 of 480 runs failed, and at least 10")
    refused = learn_outcomes(store, constant, NOW, kinds=[RUN_TIME, FAILURE])
    refused += learn_outcomes(store, never, NOW, kinds=[FAILURE])
    assert [each.registered for each in refused] == [None] * 3
    assert promote_due(store, PromotionMode.AUTO, NOW) == []


@pytest.mark.parametrize("run_s", [1e9, 1e-3])
def test_run_times_of_clocks_that_jumped_do_not_move_the_expectation_of_others(
    slowed: OutcomeRows, run_s: float
) -> None:
    """In one run of fifty: decades ahead, or back to the beginning of the run."""
    rows = usable(RUN_TIME, slowed)
    jumped = np.arange(len(rows)) % 50 == 7
    found = fit_run_times(replace(rows, run_s=np.where(jumped, run_s, rows.run_s))).predict(rows)
    change = np.abs(found - fit_run_times(rows).predict(rows))[~jumped, 1]
    assert float(np.median(change)) < 0.03  # ln seconds: 3 %
    assert float(change.max()) < 0.25


def test_history_quantiles_are_those_of_its_distribution(slowed: OutcomeRows) -> None:
    rows = slowed.only(np.isfinite(slowed.location))
    found = history_quantiles(rows)
    assert np.allclose(found[:, 1], rows.location)
    assert (np.diff(found, axis=1) > 0).all()
