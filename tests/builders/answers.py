"""Answers of the API as clients see them, with defaults for all that does not matter."""

from __future__ import annotations

from typing import Any

from edgeyard.benchmark_api.sdk.comparison import over_time
from edgeyard.scheduler.model.quotas import QUOTA_NAMES

Body = dict[str, Any]

UID = "rpi4b-0001-0001"
ID = "rpi4b-ort-20261121080000-abcdefghij"
LONG_ID = "jetsonorinnano-ort-20261121080000-abcdefghij"


def benchmark(benchmark_id: str = ID, status: str = "completed", **changes: object) -> Body:
    """A benchmark as `GET /v1/benchmarks/{id}` shows it."""
    placed = status not in ("pending", "cancelled", "expired")
    ended = status in ("completed", "failed", "cancelled", "expired")
    base: dict[str, object] = {
        "benchmark_id": benchmark_id,
        "user_id": "ada",
        "campaign_id": None,
        "schedule_id": None,
        "series": "net.onnx",
        "check_id": None,
        "name": "",
        "status": status,
        "phase": "measuring" if status == "running" else None,
        "progress_message": None,
        "progress": 41.0 if status == "running" else None,
        "waiting_reason": (
            {"code": "board_offline", "sentence": "its board is offline"}
            if status == "pending"
            else None
        ),
        "failure": (
            {"category": "user_model", "sentence": "the model can't be read"}
            if status == "failed"
            else None
        ),
        "priority": 80,
        "target_uid": UID if placed else None,
        "held": False,
        "stopped_by": None,
        "stopped_reason": None,
        "unpinned": False,
        "user_priority": 5,
        "forecast": None,
        "planned": None,
        "age_s": 0.5,
        "cluster_problem": "",
        "description": {
            "model": "net.onnx",
            "runtime": "ort",
            "benchmark_type": "TYPE1",
            "target": "rpi4b",
            "nb_inference": 20,
        },
        "files": [
            {
                "role": "model",
                "position": 0,
                "name": "net.onnx",
                "sha256": "ab" * 32,
                "size_bytes": 2**20,
                "url": None,
            }
        ],
        "submit_time": "2026-11-21T08:00:00Z",
        "started_at": "2026-11-21T08:00:01Z" if placed else None,
        "ended_at": "2026-11-21T08:00:03Z" if ended else None,
        "deadline": None,
        "retry_of": None,
        "attempts": (
            [
                {
                    "number": 1,
                    "job_id": "benchmark-rpi4b-ort-20261121080000-abcdefghij",
                    "state": "ended" if ended else "running",
                    "target_uid": UID,
                    "allowed_uids": [],
                    "binding": "strict",
                    "priority": 80,
                    "created_at": "2026-11-21T08:00:00Z",
                    "queued_at": "2026-11-21T08:00:00Z",
                    "started_at": "2026-11-21T08:00:01Z",
                    "task_ended_at": None,
                    "result_at": None,
                    "ended_at": None,
                    "phase": None,
                    "progress": None,
                    "time_limit_s": None,
                    "counts": True,
                    "failure": None,
                    "stopping": None,
                    "cluster_page": None,
                    "evaluation_id": None,
                }
            ]
            if placed
            else []
        ),
        "links": {},
    }
    return base | changes


def accepted(benchmark_id: str | None = ID, **changes: object) -> Body:
    """What a submission answers."""
    return {
        "benchmark_id": benchmark_id,
        "status": "pending",
        "forecast": None,
        "links": {},
        "warnings": [],
    } | changes


def dry_run(**changes: object) -> Body:
    """What a dry run answers."""
    return {
        "would": "run",
        "boards": [],
        "waiting_reason": None,
        "priority": 80,
        "priority_parts": {"type": 80.0},
        "hcl": 'job "benchmark-x" {}',
        "forecast": None,
        "planned": None,
        "description": {"model": "net.onnx", "runtime": "ort", "benchmark_type": "TYPE1"},
        "workload": workload(),
        "not_uploaded": [],
        "warnings": [],
    } | changes


def boards(*items: Body) -> Body:
    """What `GET /v1/boards` answers."""
    return {
        "items": list(items),
        "taken_at": "2026-11-21T08:00:00Z",
        "age_s": 1.0,
        "cluster_problem": "",
    }


def queue(*items: Body) -> Body:
    """What `GET /v1/queue` answers."""
    return {
        "items": list(items),
        "decided_at": None,
        "policy": "default/1",
        "age_s": 1.0,
        "cluster_problem": "",
    }


def me(user_id: str = "ada", role: str = "operator") -> Body:
    """What `GET /v1/me` answers."""
    user: Body = {
        "user_id": user_id,
        "role": role,
        "created_at": "2026-11-21T08:00:00Z",
        "max_priority": 5,
        "share": 1.0,
        "max_lease_s": 0.0,
        "group_id": None,
        "boards": [],
        "disabled": False,
    }
    bounds = ("max_budget", "max_running", *QUOTA_NAMES)
    return {"user": user | dict.fromkeys(bounds), "role": role}


def campaign(*members: Body, campaign_id: str = "c") -> Body:
    """What `GET /v1/campaigns/{id}` answers."""
    return {
        "campaign_id": campaign_id,
        "user_id": "ada",
        "name": "",
        "created_at": "2026-11-21T08:00:00Z",
        "benchmarks": list(members),
    }


def event(seq: int = 1, kind: str = "benchmark.status", **data: object) -> Body:
    """An event of a benchmark."""
    return {
        "seq": seq,
        "at": "2026-11-21T08:00:00Z",
        "kind": kind,
        "benchmark_id": ID,
        "user_id": None,
        "data": data,
    }


def user_file(url: str = "http://edgeyard.test/v1/files/f/content", **changes: object) -> Body:
    """What an upload answers."""
    return {
        "file_id": "f",
        "user_id": "ada",
        "name": "net.onnx",
        "sha256": "ab" * 32,
        "size": 5,
        "created_at": "2026-11-21T08:00:00Z",
        "url": url,
    } | changes


def problem(status: int, code: str, detail: str = "", errors: object = ()) -> Body:
    """An RFC 9457 body."""
    found = {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code}
    return {**found, "errors": list(errors)}  # type: ignore[call-overload]


def report(verdict: str = "comparable", **changes: object) -> Body:
    """A report as the runner uploads it."""
    reason = {"code": "other_load", "sentence": "Other work had 40% of the time."}
    return {
        "schema": "edgeyard/result/v1",
        "status": "ok",
        "nb_inference": 20,
        "primary_metric": "p50",
        "inference_latency": {
            "unit": "ms",
            "mean": 12.5,
            "std": 0.5,
            "min": 11.0,
            "max": 15.0,
            "p50": 12.3,
            "p50_ci95": [12.1, 12.6],
            "p50_ci95_half_width": 0.02,
            "p50_ci95_degrees": 3.0,
            "p90": 13.5,
            "p99": 14.9,
        },
        "verdict": {"verdict": verdict, "reasons": [] if verdict == "comparable" else [reason]},
    } | changes


def workload(**changes: object) -> Body:
    """What a row measured."""
    return {
        "model_sha256": "0123456789abcdef" * 4,
        "dataset_sha256": [],
        "benchmark_type": "TYPE1",
        "engine": "ort",
        "engine_version": "1.31.1",
        "parameters": {},
        "inputs": [{"name": "x", "shape": [1, 3, 224, 224], "dtype": "float32"}],
        "batch_size": None,
        "training": None,
        "load": None,
        "metric": "p50 in ms, lower is better",
    } | changes


def row(benchmark_id: str = ID, **changes: object) -> Body:
    """A row of `GET /v1/results`; its primary metric is the p50 unless stated."""
    base: Body = {
        "benchmark_id": benchmark_id,
        "model": "net.onnx",
        "target": "rpi4b",
        "target_uid": UID,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "status": "completed",
        "workload": workload(),
        "p50_ms": 12.3,
        "p50_low_ms": 12.1,
        "p50_high_ms": 12.6,
        "between_runs": None,
        "p90_ms": 13.5,
        "p99_ms": 14.9,
        "mean_ms": 12.5,
        "nb_inference": 20,
        "inner_loops": 1,
        "runs_per_s": 80.0,
        "rows_per_s": 80.0,
        "accuracy": None,
        "top5": None,
        "metric": None,
        "metric_value": None,
        "final_loss": None,
        "load_cold_ms": 41.0,
        "load_warm_ms": 38.0,
        "first_inference_ms": 20.0,
        "time_to_first_token_ms": None,
        "prefill_tokens_per_s": None,
        "ram_peak_bytes": 120 * 2**20,
        "ram_baseline_bytes": None,
        "ram_model_bytes": None,
        "energy_j": None,
        "energy_low_j": None,
        "energy_high_j": None,
        "energy_above_idle_j": None,
        "power_w": None,
        "energy_scope": None,
        "verdict": "comparable",
        "reasons": [],
        "kernel": "6.1.0",
        "firmware": "2026.09",
        "ended_at": "2026-11-21T08:00:03Z",
    } | changes
    measured = base["p50_ms"] is not None
    primary = {
        "primary_metric": "p50" if measured else None,
        "primary_title": "median latency" if measured else None,
        "primary_unit": "ms" if measured else None,
        "primary_better": "lower" if measured else None,
        "primary_value": base["p50_ms"],
        "primary_low": base["p50_low_ms"],
        "primary_high": base["p50_high_ms"],
        "primary_degrees": 3.0,
        "primary_repeat_low": None,
        "primary_repeat_high": None,
    }
    return primary | base


def results(benchmark_id: str = ID, verdict: str = "comparable") -> Body:
    """What `GET …/results` answers."""
    whole = report(verdict)
    return {
        "benchmark_id": benchmark_id,
        "status": "completed",
        "summary": row(benchmark_id, verdict=verdict, reasons=whole["verdict"]["reasons"]),
        "inference": [],
        "layers": None,
        "soak": None,
        "concurrency": None,
        "load_test": None,
        "reports": [{"attempt": 1, "received_at": "2026-11-21T08:00:03Z", "report": whole}],
        "files": [
            {
                "attempt": 1,
                "name": name,
                "sha256": "cd" * 32,
                "size_bytes": 1728,
                "received_at": "2026-11-21T08:00:03Z",
                "url": "x",
            }
            for name in ("latencies.npy", "report.json")
        ],
    }


def board(target_uid: str = UID, state: str = "idle", **changes: object) -> Body:
    """A board of `GET /v1/boards`."""
    return {
        "target_uid": target_uid,
        "family": target_uid.split("-")[0],
        "state": state,
        "reason": "no host reports it" if state == "offline" else "",
        "engines": [
            {
                "name": "ort",
                "version": "1.31.1",
                "supported_types": ["TYPE1", "TYPE2"],
                "declared_types": {},
                "execution_providers": [],
            },
            {
                "name": "tflite",
                "version": "2.3.0",
                "supported_types": ["TYPE1", "TYPE3"],
                "declared_types": {},
                "execution_providers": [],
            },
        ],
        "ram_bytes": 4 * 2**30,
        "storage_bytes": 32 * 2**30,
        "host": "host-1",
        "cluster": "embedded",
        "host_clock_offset_s": None,
        "progress": 0.0,
        "benchmark_id": None,
        "emulated": False,
        "expected": True,
        "quarantine": None,
        "leases": [],
        "cpu": "Cortex-A72",
        "cores": 4,
        "os": "Debian GNU/Linux 12",
        "accelerators": [],
        "times": None,
        "temperature_c": None,
    } | changes


def explanation(**changes: object) -> Body:
    """What `GET …/explanation` answers for one that was placed."""

    def verdict(uid: str, reason: str | None, sentence: str, **more: object) -> Body:
        base = {"target_uid": uid, "reason": reason, "sentence": sentence}
        costs: Body = {"cost_s": None, "cost_error_s": None, "cost_parts_s": {}}
        costs |= dict.fromkeys(("energy_j", "energy_low_j", "energy_high_j"))
        return base | {"never": False, "score": None, "scores": {}} | costs | more

    answers = {
        "scores": {"fastest": 52.0, "least_loaded": 0.9, "ilp": None},
        "cost_s": 53.5,
        "cost_error_s": 3.0,
        "cost_parts_s": {"run": 52.0, "failures": 1.5},
    }
    return {
        "benchmark_id": ID,
        "decided_at": "2026-11-21T08:00:00Z",
        "policy": "default/1",
        "rank": 0,
        "rank_reason": "priority 80, waiting for 14 s",
        "never_ahead": 0,
        "priority": 80,
        "priority_parts": {"type": 70.0, "user": 10.0, "age": 0.0, "deadline": 0.0},
        "age_s": 0.5,
        "cluster_problem": "",
        "verdicts": [
            verdict("rpi4b-0001-0002", "board_busy", "runs rpi4b-ort-1 and holds the whole board"),
            verdict(UID, None, f"{UID} is free", score=0.9, **answers),
            verdict("rpi5-0001-0001", "no_such_family", "is of family rpi5", never=True),
        ],
        "placement": {
            "benchmark_id": ID,
            "target_uid": UID,
            "family": "rpi4b",
            "binding": "strict",
            "priority": 80,
            "allowed_uids": [],
            "binding_reason": "",
        },
        "waiting": None,
        "never": False,
        "scorers": [
            {
                "scorer": scorer,
                "objective": objective,
                "unit": unit,
                "weight": 1.0,
                "reward": None,
                "absent": "",
                "fallback": "",
                "late": "",
                "model": "",
            }
            for scorer, objective, unit in (
                ("fastest", "run time", "seconds"),
                ("least_loaded", "load", "preference"),
                ("ilp", "completion", "preference"),
            )
        ],
        "choice": "expected to end at 2026-11-21 08:00:52 UTC (52 s ± 3 s)",
        "agreement": 0.75,
        "ran_on": None,
        "forecast": None,
        "planned": None,
    } | changes


def check_pair(number: int, ratio: float | None = 1.0, **changes: object) -> Body:
    """A pair of a check, of which the baseline takes 10 ms."""
    return {
        "baseline_id": f"a{number}",
        "candidate_id": f"b{number}",
        "baseline_value": 10.0,
        "candidate_value": None if ratio is None else 10.0 * ratio,
        "ratio": ratio,
        "slowdown": None if ratio is None else ratio - 1,
        "counts": ratio is not None,
        "reasons": [],
        **changes,
    }


def stored_check(status: str = "running", *pairs: Body, **changes: object) -> Body:
    """What `GET /v1/checks/{id}` answers."""
    return {
        "check_id": "check-1",
        "user_id": "ada",
        "purpose": "comparison",
        "status": status,
        "reason": "",
        "baseline": "base",
        "candidate": "parameters",
        "target_uid": UID,
        "metric": {"name": "p50", "title": "median latency", "unit": "ms", "better": "lower"},
        "max_slowdown": 0.03,
        "budget_s": 1800.0,
        "max_pairs": 10,
        "slowdown": None,
        "low": None,
        "high": None,
        "level": 0.99375,
        "pairs": list(pairs),
        "run_id": None,
        "errors": [],
        "created_at": "2026-11-21T08:00:00Z",
        "ended_at": None if status == "running" else "2026-11-21T08:10:00Z",
        "links": {"self": "/v1/checks/check-1"},
        **changes,
    }


def soak_report(minutes: int = 10, steady: int | None = 4) -> Body:
    """A soak of a board that throttles after four minutes and does not report its clock.

    Args:
        steady: The first steady minute; None: it is never steady.
    """
    windows = [
        {
            "begin_s": 60.0 * each,
            "end_s": 60.0 * (each + 1),
            "nb_inference": 600,
            "p50_ms": 100.0 if each < 4 else 150.0,
            "p50_low_ms": 99.0 if each < 4 else 149.0,
            "p50_high_ms": 101.0 if each < 4 else 151.0,
            "p99_ms": 160.0,
            "temperature_c": 50.0 + each,
            "clock_mhz": None,
            "throttled": each >= 4,
        }
        for each in range(minutes)
    ]
    part = None
    if steady is not None:
        part = {"begin_s": 60.0 * steady, "windows": minutes - steady, "p50_ms": 150.0}
    return {
        "duration_s": 60.0 * minutes,
        "window_s": 60.0,
        "windows": windows,
        "steady": part,
        "throttling": {"after_s": 240.0, "sign": "reported", "watched": ["reported"]},
        "overhead": 0.001,
    }


def series_point(result: Body, **changes: object) -> Body:
    """A row of results as a point of a series; its ratio is set by `series_points`."""
    base: Body = {
        "series_id": "series-1",
        "user_id": "alice",
        "git_commit": "",
        "link": "",
        "runner": "0.9",
        "governor": "performance",
        "temperature_c": 51.5,
        "other_load": 0.02,
        "suspected": None,
    }
    return {**result, **base, **changes}


def series_points(*points: Body, truncated: bool = False) -> Body:
    """`GET /v1/series/points`, whose ratios are those that the server states."""
    items = over_time(points)
    left_out = len(points) - len(items)
    return {
        "items": items,
        "failed": [],
        "left_out": left_out,
        "truncated": truncated,
        "watched": [],
        "changes": [],
    }


def series_change(status: str = "confirmed", **changes: object) -> Body:
    """What `GET /v1/alerts/{id}` answers."""
    return {
        "change_id": "alert-1",
        "series_id": "series-1",
        "lineage": "detector",
        "user_id": "ada",
        "target_uid": UID,
        "runtime": "ort",
        "benchmark_type": "TYPE1",
        "status": status,
        "sentence": f"detector on {UID} is worse since b-9: p50 +8.0 %",
        "begin_id": "b-9",
        "before_id": "b-8",
        "metric": "p50",
        "worse": True,
        "size": 0.08,
        "low": 0.06,
        "high": 0.1,
        "confirmed_size": None,
        "confirmed_low": None,
        "confirmed_high": None,
        "found_at": "2026-11-21T08:00:00Z",
        "alert_id": None,
        "check_ids": ["check-1"],
        "reason": "the slowdown is more than 4.00%",
        "cause": "model",
        "blame": "",
        "not_tested": [],
        "reopened_at": None,
        "ended_at": None,
        "by_user_id": None,
        "note": "",
        "links": {},
        **changes,
    }


def concurrency_report(**changes: object) -> Any:
    """A curve of a board of four cores whose knee is at two callers; shape of the report."""
    points = ((1, 100.0, 10.0), (2, 180.0, 11.0), (4, 200.0, 20.0))
    return {
        "levels": [
            {
                "callers": callers,
                "duration_s": 2.0,
                "nb_inference": round(2 * rate),
                "runs_per_s": rate,
                "runs_per_s_low": rate - 2,
                "runs_per_s_high": rate + 2,
                "p50_ms": p50_ms,
                "p50_low_ms": p50_ms - 0.1,
                "p50_high_ms": p50_ms + 0.1,
                "p99_ms": 1.5 * p50_ms,
                "p99_low_ms": 1.4 * p50_ms,
                "p99_high_ms": None,
            }
            for callers, rate, p50_ms in points
        ],
        "callers": 2,
        "knee": 2,
        "not_distinct": [],
        "cores": 4,
        "shared_model": True,
        **changes,
    }


def load_trial(rate: float | None, p50_ms: float, **changes: object) -> Any:
    """A trial of 662 queries; shape of the report."""
    return {
        "rate": rate,
        "nb_inference": 662,
        "planned": 662,
        "duration_s": 662 / (rate or 100),
        "ended": "complete",
        "late": 1,
        "max_late": 1,
        "kept": True,
        "valid": True,
        **{
            f"{name}{end}_ms": factor * p50_ms * by
            for name, factor in (("latency", 3), ("p50", 1), ("p90", 2), ("p99", 3))
            for end, by in (("", 1), ("_low", 0.98), ("_high", 1.02))
        },
        "queue_mean": None if rate is None else 0.4,
        "queue_max": None if rate is None else 4,
        "generator_late_ms": None if rate is None else 0.06,
        "generator_late_max_ms": None if rate is None else 0.2,
        **changes,
    }


def load_report(**changes: object) -> Any:
    """A server load whose largest rate was found at 40/s; shape of the report."""
    kept = load_trial(40.0, 12.0)
    return {
        "rules": "LoadGen's rules",
        "kind": "server",
        "percentile": 99.0,
        "bound_ms": 50.0,
        "seed": 7,
        "min_duration_s": 10.0,
        "min_queries": 662,
        "rate": 40.0,
        "largest_rate": 40.0,
        "rate_not_kept": 41.5,
        "not_kept_valid": True,
        "ended": "found",
        "latency_ms": 36.0,
        "latency_ci95": [35.3, 36.7],
        "latency_ci95_degrees": 400.0,
        "early_stopping_ms": 48.0,
        "alone": load_trial(None, 10.0),
        "result": kept,
        "trials": [
            load_trial(50.0, 20.0, kept=False, ended="late", late=2, nb_inference=300),
            load_trial(25.0, 11.0),
            kept,
            load_trial(41.5, 13.0, kept=False, late=2),
        ],
        **changes,
    }
