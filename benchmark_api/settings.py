"""The server's settings: the only reader of the environment.

A setting comes from, first wins: arguments of the command line, ``EDGEYARD_<NAME>``,
``EDGEYARD_<NAME>_FILE`` (secrets only: the file's content), the TOML file, its default.
All mistakes are reported at once.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from email.utils import parseaddr
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

import platformdirs
from pydantic import (
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from edgeyard.benchmark_api import cluster_settings
from edgeyard.benchmark_api.cluster_settings import EMBEDDED, ClusterSettings
from edgeyard.benchmark_api.setting_values import CommaSeparated, PlainUrl, Seconds, Size
from edgeyard.errors import ConfigError, reason_of
from edgeyard.home import expanded
from edgeyard.scheduler.model.benchmark import FileRole
from edgeyard.scheduler.model.canaries import stated_canaries
from edgeyard.scheduler.model.checks import MAX_BUDGET_S
from edgeyard.scheduler.model.quotas import QUOTA_NAMES, Quotas
from edgeyard.scheduler.model.run_bounds import (
    DEFAULT_MAX_RUN_S,
    DEFAULT_MAX_SILENCE_S,
    DEFAULT_MAX_UPLOAD_S,
)
from edgeyard.scheduler.model.series_changes import CONFIRM_BUDGET_S
from edgeyard.scheduler.model.tariff import parse_tariff

PREFIX = "EDGEYARD_"

_NOT_OURS = frozenset(
    {
        *("CONFIG", "URL", "TOKEN", "TOKEN_FILE", "PROFILE", "COLUMNS"),
        *("FAILPOINT", "BOARD", "UPLOAD_TOKEN", "SCENARIO_DB", "STE_TOKEN", "STE_TOKEN_FILE"),
    }
)
"""Variables of the client, the runner and the tests, which the server leaves alone."""


def setting_of(quota: str) -> str:
    """Return the name of the setting that is the default of an account's quota."""
    if quota.startswith("max_run_"):
        return "run_max_" + quota.removeprefix("max_run_")
    return f"user_{quota}"


_FILE_LIMITS: Mapping[FileRole, str] = {
    FileRole.MODEL: "model_limit_bytes",
    FileRole.LANGUAGE_MODEL: "language_model_limit_bytes",
    FileRole.DATASET: "dataset_limit_bytes",
    FileRole.ODT_CONFIG: "body_limit_bytes",
}
"""Settings that limit the size of a file, by its role."""

ENGINE_SETTINGS = frozenset(
    {
        *("policy", "twin_max_age_s", "default_user_time_s", "no_output_timeout_s"),
        *("tariff",),
        *("start_lead_s", "pin_grace_s", "start_grace_s", "setup_grace_s", "lost_grace_s"),
        *("board_grace_s", "upload_grace_s", "upload_timeout_s", "claim_timeout_s"),
        *("fetch_timeout_s", "downloads_per_user", "dispatch_threads"),
        *("retain_events_s", "retain_cycles_s", "retain_hcl_s", "retain_results_s"),
        "canaries",
        *("retain_uploads_s", "retain_files_s", "retain_benchmarks_s"),
    }
)
"""Reloaded settings for which the engine is made anew; what runs goes on."""

RELOADED_SETTINGS = ENGINE_SETTINGS | frozenset(
    {
        *("inventory", "log_level", "log_format", "allow_hosts", "webhook_hosts"),
        *("model_limit_bytes", "language_model_limit_bytes", "dataset_limit_bytes"),
        *("result_limit_bytes", "body_limit_bytes"),
        *("scenario_limit_bytes", "canary_share", "quarantine_on_drift"),
        *("campaign_limit", "default_queue_timeout_s", "trusted_network"),
        *("user_max_bytes", "user_max_files", "user_max_pending", "user_max_live"),
        *(
            "user_max_bookings",
            "user_max_schedules",
            "user_max_tokens",
            "run_max_files",
            "run_max_bytes",
        ),
        *("lab_name", "lab_contact"),
        "confirm_budget_s",
        *("smtp_host", "smtp_port", "smtp_security", "smtp_user", "smtp_password", "smtp_from"),
        *("smtp_ca_file", "mails_per_day", "webhook_messages_per_day"),
        *("max_pending_total", "access_token_s", "refresh_token_s"),
        *("user_max_registrations", "max_registrations_total"),
    }
)
"""Settings that a running server takes up on SIGHUP, besides `cluster_settings.RELOADED` of its
cluster; all others need a restart."""


_DAY_S = 86400.0
_EVER = "none: for ever"


class Settings(BaseSettings):
    """What an operator can set. Sizes take ``4 GiB``, durations ``15 min``."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=False
    )

    # where it runs
    role: Literal["all", "api", "engine"] = Field(
        "all",
        description="What this server does. all: serve the API, and run the scheduler while it "
        "leads; api: serve the API only; engine: run the scheduler only, which needs the cluster's "
        "public_url. "
        "Of all servers on one database one leads.",
    )
    data_dir: Path = Field(
        Path(platformdirs.user_data_dir("edgeyard")),
        description="Folder of the database, the files and the first admin token.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(42777, ge=0, le=65535, description="Port to listen on; 0: any free one.")
    allowed_hosts: CommaSeparated = Field(
        (), description="Host headers to answer to, comma-separated; empty: any."
    )
    lab_name: str = Field(
        "Edgeyard lab",
        min_length=1,
        max_length=100,
        description="Name of this lab, as its pages show it.",
    )
    lab_contact: str = Field(
        "",
        max_length=200,
        description="Whom to ask for an account or help, as the first page shows it: an address or "
        "a sentence.",
    )
    log_format: Literal["json", "text"] = Field("text", description="Form of the server's log.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity that is logged."
    )

    # store
    database_url: SecretStr | None = Field(
        None,
        description="SQLAlchemy URL; default: SQLite in data_dir. "
        "PostgreSQL: postgresql+psycopg://user:password@host/name.",
    )

    file_store: str | None = Field(
        None,
        description="Folder of uploaded files and results, or s3://BUCKET/PREFIX; default: files "
        "in data_dir. Servers on one database need the same one.",
    )
    s3_endpoint: PlainUrl | None = Field(
        None, description="URL of the S3 service of file_store; default: Amazon's."
    )
    s3_region: str | None = Field(None, description="Region of the bucket of file_store.")
    s3_access_key: str | None = Field(
        None,
        description="Access key for file_store; default: as boto3 finds it (AWS_ACCESS_KEY_ID, a "
        "profile, the machine's role).",
    )
    s3_secret_key: SecretStr | None = Field(None, description="Secret of s3_access_key.")

    # lab
    clusters: dict[str, ClusterSettings] = Field(
        {},
        description="Where jobs run, `[clusters.NAME]`: see below. None: on this machine, a "
        f"cluster called {EMBEDDED}. At present a server has one.",
    )
    inventory: Path | None = Field(
        None, description="JSON file of expected boards; default: emulated boards of this machine."
    )
    unknown_devices: Literal["deny", "warn", "allow"] = Field(
        "deny",
        description="Boards that hosts report and the inventory does not name: deny shows and "
        "never uses them, warn uses and points them out, allow uses them.",
    )
    policy: str = Field("default", description="Name of a built-in policy, or a TOML file.")
    models_dir: Path | None = Field(
        None,
        description="Folder of ONNX models with manifests: each is a scorer for policies to name.",
    )
    learn_promote: Literal["auto", "ask", "never"] = Field(
        "ask",
        description="Models from the lab's history whose gates hold. auto: become the shadow, then "
        "active; ask: become the shadow, then operators are notified; never: wait for operators.",
    )
    learn_every_s: Seconds = Field(
        0.0,
        ge=0,
        description="Time from one training of such models to the next, s; 0: only by a command. "
        "Needs the extra onnx.",
    )
    confirm_budget_s: Seconds = Field(
        CONFIRM_BUDGET_S,
        ge=0,
        le=MAX_BUDGET_S,
        description="Time for a check that confirms a suspected change of a series, with its "
        "waiting, s; 0: the lab confirms no changes.",
    )
    twin_max_age_s: Seconds | None = Field(
        None,
        gt=0,
        le=86400,
        description="Age of the boards' state past which dispatch holds, s; default: the policy's.",
    )

    canary_share: float = Field(
        0.0,
        ge=0,
        le=0.2,
        description="Share of each board's time for canaries: reference models that run while the "
        "board is idle, and after a change of its host, an engine, its firmware or system. "
        "They show when a board drifts. 0: none run.",
    )
    canaries: CommaSeparated = Field(
        (),
        description="The reference models, as ENGINE:FILE, comma-separated; a file's name without "
        "its ending names the canary. Default: three small ones, for ort, tflite and openvino.",
    )

    quarantine_on_drift: bool = Field(
        False,
        description="Whether a board is in quarantine while its canaries show a drift that a check "
        "has confirmed.",
    )

    # limits
    model_limit_bytes: Size = Field(
        4 * 2**30, gt=0, description="Largest model, bytes; not of a language model."
    )
    language_model_limit_bytes: Size = Field(
        16 * 2**30, gt=0, description="Largest language model (its archive), bytes."
    )
    dataset_limit_bytes: Size = Field(
        16 * 2**30,
        gt=0,
        description="Largest dataset, bytes. A file that is uploaded before its use is known may "
        "have the largest of these three limits.",
    )
    reserve_bytes: Size = Field(
        64 * 2**20,
        ge=0,
        description="Room that uploads of users leave free on the disk of the files, bytes: for "
        "results of what runs, and for the database. Past it uploads are refused with 507.",
    )
    ballast_bytes: Size = Field(
        16 * 2**20,
        ge=0,
        description="Size of a file next to an SQLite database that is given up when the disk is "
        "full, bytes: cancelling, deleting, pruning and starting work then. Users' submissions are "
        "refused with 507 until there is room for it again.",
    )
    result_limit_bytes: Size = Field(4 * 2**30, gt=0, description="Largest result file, bytes.")
    body_limit_bytes: Size = Field(
        2**20, ge=1024, le=64 * 2**20, description="Largest JSON or YAML body, bytes."
    )
    scenario_limit_bytes: Size = Field(
        16 * 2**20, ge=1024, le=2**30, description="Largest scenario of simulations, bytes of JSON."
    )
    twin_limit_bytes: Size = Field(
        16 * 2**20,
        ge=1024,
        le=2**30,
        description="Room for the states that are posted to the digital twin, in memory, bytes of "
        "JSON.",
    )
    campaign_limit: int = Field(
        1000, ge=1, le=100_000, description="Maximum number of benchmarks of one campaign."
    )

    # quotas: of each user who is no operator, unless their account has its own
    user_max_bytes: Size = Field(
        2 * 2**30,
        ge=0,
        description="Bytes that are stored for one user: uploads, what was fetched from URLs, "
        "results, scenarios and simulations; each content counts once for each user who has it. "
        "Past it uploads and submissions are refused with 507.",
    )
    user_max_files: int = Field(1000, ge=0, description="Uploaded files of one user; past it: 507.")
    user_max_pending: int = Field(
        2000, ge=0, description="Waiting benchmarks of one user; past it: 429."
    )
    user_max_live: int = Field(
        2500, ge=0, description="Waiting and running benchmarks of one user; past it: 429."
    )
    user_max_bookings: int = Field(
        4,
        ge=0,
        description="Waiting benchmarks of one user with a start_time that is still to come, each "
        "board of a gang counting; past it: 507.",
    )
    user_max_schedules: int = Field(
        50, ge=0, description="Active schedules of one user; past it: 507."
    )
    user_max_tokens: int = Field(50, ge=0, description="Good tokens of one user; past it: 507.")
    run_max_files: int = Field(
        100, ge=1, description="Files that one run may upload; past it: 413."
    )
    run_max_bytes: Size = Field(
        512 * 2**20,
        ge=0,
        description="Bytes that one run may upload; past it: 413. Results may take a user over "
        "user_max_bytes by so much, so that no run that was admitted is lost.",
    )
    user_max_registrations: int = Field(
        100,
        ge=0,
        description="Families, engines, boards and parameters that one user may register for the "
        "platform's client, all kinds together; past it: 507. Not for operators.",
    )
    max_registrations_total: int = Field(
        500,
        ge=0,
        description="Registrations of all users together, which bounds the two lists that need no "
        "token; past it: 507. Not for operators.",
    )
    max_pending_total: int = Field(
        20_000,
        ge=1,
        description="Waiting benchmarks of all users together; past it: 429. Operators may "
        "submit all the same.",
    )

    # rate limits, in a window of a minute that moves; 0: none
    user_requests_per_minute: int = Field(
        6000, ge=0, description="Requests with one token of a submitter; past it: 429."
    )
    open_requests_per_user: int = Field(
        1000,
        ge=0,
        description="Requests of one submitter that are under way at the same time, uploads and "
        "followed logs included; past it: 429. Below max_connections, so that others are served.",
    )
    open_body_bytes_per_user: Size = Field(
        64 * 2**20,
        ge=0,
        description="Bytes of the bodies in memory of one submitter's requests that are under way "
        "(JSON, YAML; files are streamed), bytes; past it: 429. A single one is not refused; 0: no "
        "limit.",
    )
    heavy_requests_per_user: int = Field(
        8,
        ge=1,
        description="Requests of one user that take long (scenarios, simulations, campaigns, what "
        "would let a benchmark start sooner) that run, one at a time, or wait for their turn; past "
        "it: 429.",
    )
    trusted_requests_per_minute: int = Field(
        120_000,
        ge=0,
        description="Requests with one token of an operator, of a host's account or of a running "
        "task; past it: 429.",
    )
    address_requests_per_minute: int = Field(
        6000,
        ge=0,
        description="Requests without a token from one address (an IPv6 /64 is one), but /livez "
        "and /v1/version; past it: 429.",
    )
    failures_per_minute: int = Field(
        120,
        ge=0,
        description="Requests from one address with a token, or a download's name, that is not "
        "good; past it: 429 to all such. Good tokens are not affected.",
    )
    login_failures: int = Field(
        10,
        ge=1,
        description="Failed log-ins of one account from one address in five minutes; past it: 429.",
    )
    login_address_failures: int = Field(
        100,
        ge=1,
        description="Failed log-ins of all accounts from one address in five minutes; past it: "
        "429.",
    )
    login_account_failures: int = Field(
        200,
        ge=1,
        description="Failed log-ins of one account in an hour, from all addresses that it did not "
        "log in from during the last 30 days; past it: 429 to these.",
    )
    login_account_successes: int = Field(
        60,
        ge=1,
        description="Log-ins of one account with the right password in five minutes; past it: 429.",
    )
    trusted_proxies: CommaSeparated = Field(
        (),
        description="Addresses or networks of proxies whose X-Forwarded-For names the client; "
        "empty: the header is ignored.",
    )

    # trust
    trusted_network: bool = Field(
        False, description="Take results without a token: only where every host is trusted."
    )
    allow_hosts: CommaSeparated = Field(
        (),
        description="Hosts that model and dataset URLs may name although their address is "
        "private: names, *.names, addresses or networks, each with an optional :port.",
    )
    webhook_hosts: CommaSeparated = Field(
        (),
        description="Hosts that users' webhooks may be at although their address is private; "
        "written as in allow_hosts.",
    )
    webhook_key: SecretStr | None = Field(
        None,
        min_length=32,
        description="Key that the secrets of users' webhooks are made of, 32 characters at least; "
        "default: webhook.key in data_dir. Servers on one database need the same one.",
    )
    smtp_host: str | None = Field(
        None,
        max_length=253,
        description="Mail server that sends messages to users; default: no mail is sent.",
    )
    smtp_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port of smtp_host; default: 587, 465 or 25 by smtp_security.",
    )
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="Encryption of the connection to smtp_host. starttls: from the first commands "
        "on; tls: from the beginning; none: not at all, and no password is sent.",
    )
    smtp_user: str | None = Field(None, description="User to log in as; default: no log-in.")
    smtp_password: SecretStr | None = Field(None, description="Password of smtp_user.")
    smtp_from: str | None = Field(
        None,
        max_length=300,
        description="Sender of the mail: an address, or Name <address>. Needed with smtp_host.",
    )
    smtp_ca_file: Path | None = Field(
        None,
        description="PEM file of the authorities that may certify the mail server; default: those "
        "of this machine.",
    )
    mails_per_day: int = Field(
        50,
        ge=1,
        description="Maximum number of mails to one user in a day (UTC). The next message states "
        "that no more follow on this day; the log of messages lists them.",
    )
    webhook_messages_per_day: int = Field(
        10_000,
        ge=1,
        description="Maximum number of messages to one user's webhook in a day (UTC); as "
        "mails_per_day.",
    )
    scorer_hosts: CommaSeparated = Field(
        (),
        description="Hosts that scorers of policies may be asked at although their address is "
        "private; written as in allow_hosts.",
    )
    fetch_timeout_s: Seconds = Field(
        1800.0, gt=0, le=86400, description="Bound on one download of a user's URL, s."
    )
    max_connections: int = Field(
        4000,
        ge=10,
        le=1_000_000,
        description="Open connections of clients; beyond that the oldest without a request goes.",
    )
    downloads_per_user: int = Field(
        2, ge=1, le=16, description="Downloads from URLs that run at the same time for one user."
    )

    # scenarios
    scenario_prometheus: str | None = Field(
        None,
        description="URL of a Prometheus from which scenarios are pulled; default: none are.",
    )
    scenario_window_s: Seconds = Field(
        3600.0,
        ge=1,
        le=30 * 86400,
        description="Length of each scenario that is pulled, and time between two, s.",
    )
    scenario_step_s: Seconds = Field(
        15.0,
        gt=0,
        le=86400,
        description="Time between two samples of scenarios that are pulled, s.",
    )
    scenario_queries: Path | None = Field(
        None,
        description="TOML file with the queries for pulling scenarios; default: those for "
        "node_exporter and Nomad.",
    )

    # the digital twin
    twin_prometheus: str | None = Field(
        None,
        description="URL of a Prometheus whose figures of node_exporter and Nomad the digital twin "
        "shows; default: those that hosts and the cluster report.",
    )

    # sessions of accounts with a password
    access_token_s: Seconds = Field(
        1800.0,
        ge=1,
        le=86400,
        description="How long an access token is good that a log-in by password gives, s.",
    )
    refresh_token_s: Seconds = Field(
        30 * 86400.0,
        ge=1,
        le=366 * 86400,
        description="How long a log-in by password can be refreshed, s.",
    )

    # the past, as estimates and forecasts know it
    history_runs: int = Field(
        100_000,
        ge=100,
        le=10_000_000,
        description="Maximum number of ended attempts from which run times and failures are "
        "predicted.",
    )
    history_days: float = Field(
        365.0,
        gt=0,
        le=36_500,
        description="Age beyond which ended attempts are left out of predictions, days.",
    )

    # times of a benchmark
    default_user_time_s: Seconds = Field(
        DEFAULT_MAX_RUN_S,
        gt=0,
        le=30 * 86400,
        description="Maximum run time of a benchmark that states no user_time, s.",
    )
    tariff: str = Field(
        "",
        description="Factors on what board time costs, by hour of the day in UTC: 24 numbers with "
        "commas, the first from midnight on. The hour in which an attempt is placed counts for "
        "all of it; default: 1 at all hours.",
    )
    default_queue_timeout_s: Seconds | None = Field(
        None,
        description="Maximum wait until its task starts of a benchmark that states no "
        "queue_timeout_s, s; default: no limit.",
    )
    no_output_timeout_s: Seconds = Field(
        DEFAULT_MAX_SILENCE_S,
        gt=0,
        le=86400,
        description="A run without any output or progress for this time is ended, s.",
    )
    start_lead_s: Seconds = Field(
        0.0,
        ge=0,
        le=86400,
        description="How long before its start_time a benchmark is handed to the cluster, which "
        "then starts it at the second (periodic block); 0: kept in the queue until due.",
    )
    pin_grace_s: Seconds = Field(
        300.0,
        ge=0,
        le=30 * 86400,
        description="How long the board that a benchmark names may be offline, unhealthy or "
        "drained, or busy past the benchmark's start_time, before its if_unavailable applies: "
        "another board that fits may run it, or the event benchmark.unavailable is recorded; s.",
    )
    start_grace_s: Seconds = Field(
        300.0,
        ge=0,
        le=30 * 86400,
        description="How long a job may be in the cluster without being given a board, s; then it "
        "is taken back, the board that was assumed for it is free, and it is decided on anew.",
    )
    setup_grace_s: Seconds = Field(
        3600.0,
        ge=0,
        le=30 * 86400,
        description="How long a job that was given its board may take to download its files and "
        "start its task, s; then it is taken back.",
    )
    lost_grace_s: Seconds = Field(
        15.0,
        ge=0,
        le=86400,
        description="How long Nomad may leave out a job that it had, in several answers of which "
        "one is newer than the first, before the attempt is lost and the benchmark tried again, s.",
    )
    board_grace_s: Seconds = Field(
        30.0,
        ge=0,
        le=86400,
        description="How long the board of a running task may be unhealthy, as its own host "
        "reports, "
        "before the task is stopped as the board's fault and tried on another board, s.",
    )
    upload_grace_s: Seconds = Field(
        60.0, ge=0, le=86400, description="Wait for a result after the task has ended, s."
    )
    upload_timeout_s: Seconds = Field(
        DEFAULT_MAX_UPLOAD_S,
        gt=0,
        description="How long a task tries to upload its result while the server does not take it, "
        "s. Then the board is freed, and the server fetches the result from the host when it is "
        "back (on Nomad).",
    )
    claim_timeout_s: Seconds = Field(
        300.0,
        gt=0,
        description="Bound on fetching a result from its host, where it was left because it could "
        "not be uploaded, s.",
    )

    # retention: what is live, or needed by what is live, stays whatever its age
    retain_events_s: Seconds = Field(
        90 * _DAY_S, gt=0, description="How long events of ended benchmarks are kept, s."
    )
    retain_acts_s: Seconds | None = Field(
        730 * _DAY_S,
        ge=366 * _DAY_S,
        description="How long the records of what people did are kept, s: at least a year; "
        f"{_EVER}.",
    )
    retain_cycles_s: Seconds = Field(
        90 * _DAY_S,
        gt=0,
        description="How long recorded decisions and explanations of ended benchmarks are kept, s.",
    )
    retain_hcl_s: Seconds | None = Field(
        None,
        ge=_DAY_S,
        description=f"How long the Nomad jobs of ended attempts are kept as text, s; {_EVER}.",
    )
    retain_uploads_s: Seconds = Field(
        _DAY_S,
        gt=0,
        description="How long the server keeps the beginning of an upload after its last piece, "
        "so that the upload can go on, s.",
    )
    retain_results_s: Seconds | None = Field(
        None,
        ge=_DAY_S,
        description="How long files that tasks uploaded are kept (raw latencies, logs, trained "
        f"models), s; reports stay with their benchmarks; {_EVER}.",
    )
    retain_files_s: Seconds | None = Field(
        None,
        ge=_DAY_S,
        description="How long models and data sets are kept after they were uploaded and after the "
        f"last benchmark with them ended, s; {_EVER}.",
    )
    retain_benchmarks_s: Seconds | None = Field(
        None,
        ge=_DAY_S,
        description="How long ended benchmarks are kept with their attempts, reports, files and "
        f"charges, s; balances and run times that were learned stay; {_EVER}.",
    )

    # dispatch
    dispatch_threads: int = Field(
        8, ge=1, le=64, description="Jobs handed to the cluster at the same time."
    )

    sandbox: Literal["required", "auto", "off"] | None = Field(
        None,
        description="How runs of the embedded cluster are confined. required: nothing runs where "
        "files and network can't be confined; auto: as far as this machine allows; off. Default: "
        "as the boards file says, otherwise auto. Hosts of Nomad follow their own boards file.",
    )

    # rendering
    driver: Literal["docker", "raw_exec"] | None = Field(
        None, description="Task driver; default: raw_exec embedded, docker on Nomad."
    )
    docker_image: str = Field(
        "daiedge-vlab-bootstrap", description="Image of the bootstrap container."
    )
    docker_network_mode: str = Field("host", description="Network mode of the container.")
    docker_privileged: bool = Field(
        False,
        description="Whether the container is privileged: it then owns its host. Name device files "
        "in the boards file instead.",
    )
    docker_auth_username: str | None = Field(None, description="Login at the image's registry.")
    docker_auth_password: SecretStr | None = Field(
        None, description="Password at the image's registry."
    )
    raw_exec_command: CommaSeparated = Field(
        (),
        description="Command of the runner for raw_exec, comma-separated; default: on Nomad "
        "edgeyard-runner, as hosts' PATH finds it, else this server's own.",
    )

    @field_validator("data_dir")
    @classmethod
    def _from_anywhere(cls, value: Path) -> Path:
        # Tasks run in folders of their own: a path that depends on where the server was started
        # would be another one there.
        return expanded(value).absolute()

    @field_validator("tariff")
    @classmethod
    def _by_hour(cls, value: str) -> str:
        parse_tariff(value)  # its message names the mistake
        return value

    @field_validator("clusters")
    @classmethod
    def _one_cluster(cls, value: dict[str, ClusterSettings]) -> dict[str, ClusterSettings]:
        cluster_settings.check(value)
        return value

    @field_validator("allow_hosts", "webhook_hosts", "scorer_hosts")
    @classmethod
    def _known_forms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if "/" in word:
                ipaddress.ip_network(word, strict=False)  # its message names the mistake
            elif re.fullmatch(r"(\*\.)?[A-Za-z0-9._\[\]:-]+", word) is None:
                raise ValueError(f"{word!r} is neither a host nor a network")
        return value

    @field_validator("canaries")
    @classmethod
    def _canaries_are_files(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        stated_canaries(value)  # its message names the mistake
        return value

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> Self:
        if (self.docker_auth_username is None) != (self.docker_auth_password is None):
            raise ValueError("docker_auth_username and docker_auth_password belong together")
        if (self.smtp_user is None) != (self.smtp_password is None):
            raise ValueError("smtp_user and smtp_password belong together")
        if self.smtp_host is not None and self.smtp_from is None:
            raise ValueError("smtp_host needs smtp_from: the sender of the mail")
        if self.smtp_user is not None and self.smtp_security == "none":
            raise ValueError("smtp_security = none would send smtp_password in plain text")
        if (self.s3_access_key is None) != (self.s3_secret_key is None):
            raise ValueError("s3_access_key and s3_secret_key belong together")
        named = self.file_store or ""
        if named.startswith("s3:") and not urlsplit(named).netloc:
            raise ValueError("file_store names no bucket: use s3://BUCKET/PREFIX")
        if self.role == "engine" and self.cluster.public_url is None:
            raise ValueError(
                f"role = engine needs clusters.{self.cluster_name}.public_url: the address of a "
                "server that boards upload to"
            )
        return self

    @field_validator("smtp_from")
    @classmethod
    def _one_sender(cls, value: str | None) -> str | None:
        if value is not None:
            name, address = parseaddr(value)
            is_plain = re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", address) is not None
            if not is_plain or not (name + value).isprintable() or not address.isascii():
                raise ValueError("is no sender: use an address, or Name <address>")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            ipaddress.ip_network(word, strict=False)
        return value

    @property
    def file_limits(self) -> Mapping[FileRole, int]:
        """Largest file of each role, bytes."""
        return {role: getattr(self, name) for role, name in _FILE_LIMITS.items()}

    def upload_limit(
        self,
        roles: Sequence[FileRole] = (FileRole.DATASET, FileRole.LANGUAGE_MODEL, FileRole.MODEL),
    ) -> tuple[str, int]:
        """Return the setting that limits a file whose role is not known yet, and its value, bytes.

        Args:
            roles: Those that the file may have; the largest of their limits holds.
        """
        names = [_FILE_LIMITS[role] for role in roles]
        name = max(names, key=lambda each: getattr(self, each))
        return name, getattr(self, name)

    @property
    def quotas(self) -> Quotas:
        """Quotas of users whose accounts have none of their own."""
        return Quotas(**{name: getattr(self, setting_of(name)) for name in QUOTA_NAMES})

    @property
    def cluster_name(self) -> str:
        """Name of the cluster that runs the jobs."""
        return next(iter(self.clusters), EMBEDDED)

    @property
    def cluster(self) -> ClusterSettings:
        """The cluster that runs the jobs."""
        return self.clusters.get(self.cluster_name) or ClusterSettings()

    @property
    def chosen_driver(self) -> str:
        """Nomad driver of the jobs: the setting ``driver``, or the default of the cluster."""
        return self.driver or ("raw_exec" if self.cluster.kind == "embedded" else "docker")

    @classmethod
    def load(cls, config: Path | None = None, **arguments: object) -> Self:
        """Settings from everywhere that they can come from.

        Args:
            config: TOML file; None: the one that ``EDGEYARD_CONFIG`` names, if it does.
            arguments: From the command line; None values do not count.

        Raises:
            ConfigError: With every mistake, each with its place.
        """
        named = config or os.environ.get(f"{PREFIX}CONFIG")
        problems = _unknown_variables(cls.model_fields)
        tables: Mapping[str, object] = {}
        try:
            tables = tomllib.loads(Path(named).read_text("utf-8")) if named else {}
        except (OSError, ValueError) as error:
            why = _named_twice(error) or reason_of(error)
            problems.append(f"the settings file {named} can't be read: {why}")
        of_environment, unknown = cluster_settings.from_environment(os.environ)
        problems += map(_no_cluster_setting, unknown)
        try:
            secrets = _secrets_from_files(cls.model_fields)
        except ConfigError as error:
            problems += error.problems
            secrets = {}
        given = {key: value for key, value in arguments.items() if value is not None}
        below = {**tables, **secrets}
        if of_environment:
            of_file = tables.get("clusters")
            known = of_file if isinstance(of_file, Mapping) else {}
            below["clusters"] = cluster_settings.merge(known, of_environment)
        try:
            settings = _with_sources(cls, below)(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            problems += [
                _said(each, cls.model_fields, tables, str(named)) for each in error.errors()
            ]
        if problems:
            raise ConfigError(problems)
        return cls.model_construct(**dict(settings))


def _with_sources(cls: type[Settings], below: Mapping[str, object]) -> type[Settings]:
    """The class, reading ``below`` where neither arguments nor the environment say anything."""

    class Bound(cls):  # type: ignore[valid-type, misc]
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, _PresetSource(settings_cls, below)

    return Bound


class _PresetSource(PydanticBaseSettingsSource):
    """Values that were read before."""

    def __init__(self, settings_cls: type[BaseSettings], values: Mapping[str, object]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[object, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, object]:
        return dict(self._values)


def _secrets_from_files(fields: Mapping[str, FieldInfo]) -> dict[str, object]:
    found: dict[str, object] = {}
    problems = []
    for name in _secret_names(fields):
        variable = f"{PREFIX}{name.upper()}_FILE"
        if path := os.environ.get(variable):
            try:
                found[name] = Path(path).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}: {path}: {reason_of(error)}")
    if problems:
        raise ConfigError(problems)
    return found


def _secret_names(fields: Mapping[str, FieldInfo]) -> list[str]:
    return [name for name, field in fields.items() if "SecretStr" in str(field.annotation)]


def _unknown_variables(fields: Mapping[str, FieldInfo]) -> list[str]:
    secret_files = {f"{name.upper()}_FILE" for name in _secret_names(fields)}
    known = {name.upper() for name in fields if name != "clusters"} | secret_files | _NOT_OURS
    return [
        f"{name}: no such setting{_nearest(name.removeprefix(PREFIX), known, PREFIX)}"
        for name in sorted(os.environ)
        if name.startswith(PREFIX)
        and name.removeprefix(PREFIX) not in known
        and not name.startswith(cluster_settings.VARIABLE)
    ]


def _no_cluster_setting(variable: str) -> str:
    name, _, setting = variable.removeprefix(cluster_settings.VARIABLE).partition("__")
    known = {each.upper() for each in ClusterSettings.model_fields}
    prefix = f"{cluster_settings.VARIABLE}{name}__"
    return f"{variable}: no such setting{_nearest(setting, known, prefix)}"


def _named_twice(error: Exception) -> str:
    """Return what is wrong where a file has two clusters of one name; "" for other mistakes."""
    found = re.search(r"\('clusters', '([^']*)'", str(error))
    if found is None:
        return ""
    return f"clusters.{found[1]} is there twice: each cluster has a name of its own"


def _nearest(word: str, known: set[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _said(
    error: Mapping[str, object],
    fields: Mapping[str, FieldInfo],
    tables: Mapping[str, object],
    config: str,
) -> str:
    """Return one mistake as a line, never with the value: it may be a secret."""
    location = error["loc"]
    path = tuple(map(str, location)) if isinstance(location, tuple) else ()
    name = ".".join(path[:3] if path[:1] == ("clusters",) else path[:1])
    place = f"{config}: {name}" if path[:1] and path[0] in tables else name or "settings"
    if error["type"] == "extra_forbidden":
        known = set(fields) if len(path) < 3 else set(ClusterSettings.model_fields)
        return f"{place}: no such setting{_nearest(path[-1], known)}"
    return f"{place}: {str(error['msg']).removeprefix('Value error, ')}"
