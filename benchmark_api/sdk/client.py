"""The client: everything that a program can ask of an Edgeyard server."""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, Unpack, overload

import httpx

from edgeyard.atomic_files import open_atomically
from edgeyard.benchmark_api.schemas.answers import (
    AcceptedCampaign,
    Act,
    BenchmarkPage,
    Board,
    Boards,
    Campaign,
    CampaignDryRun,
    CampaignSummary,
    Delivery,
    DescribedBoard,
    DryRun,
    Event,
    ExpectedBoard,
    Explanation,
    Group,
    Groups,
    ListedBenchmark,
    Me,
    Queue,
    QueueItem,
    ResultFile,
    ResultRow,
    ResultRows,
    Scenario,
    Series,
    SeriesChange,
    SeriesPoints,
    Share,
    Shares,
    Simulation,
    StoredCheck,
    SubmissionAnswer,
    Subscription,
    Subscriptions,
    UsageReport,
    UserFile,
    WatchedSeries,
    as_json,
)
from edgeyard.benchmark_api.schemas.answers import Benchmark as BenchmarkAnswer
from edgeyard.benchmark_api.schemas.answers import Results as ResultsAnswer
from edgeyard.benchmark_api.schemas.job_fields import JobChanges, JobFields
from edgeyard.benchmark_api.schemas.matrix import left_out_warnings
from edgeyard.benchmark_api.sdk.answers import read_answer
from edgeyard.benchmark_api.sdk.benchmark import Benchmark, Benchmarks, benchmark_of, gang_of
from edgeyard.benchmark_api.sdk.comparison import NUMBERS, compare, frame_row
from edgeyard.benchmark_api.sdk.config import client_settings
from edgeyard.benchmark_api.sdk.errors import MissingExtra, NotFoundError, ValidationFailed
from edgeyard.benchmark_api.sdk.fields import records, whole
from edgeyard.benchmark_api.sdk.follow import follow_events, follow_logs
from edgeyard.benchmark_api.sdk.fronts import with_fronts
from edgeyard.benchmark_api.sdk.http import Api, part
from edgeyard.benchmark_api.sdk.local_checks import (
    check_before_upload,
    check_clone_before_upload,
    check_locally,
)
from edgeyard.benchmark_api.sdk.memory import InMemory, as_files
from edgeyard.benchmark_api.sdk.progress import ProgressView, view_for
from edgeyard.benchmark_api.sdk.results import Results, results_of
from edgeyard.benchmark_api.sdk.resuming import RESUME_FROM_BYTES, send_resumable
from edgeyard.benchmark_api.sdk.submission import (
    CHECK_FIELDS,
    OWN_INPUT_FIELDS,
    SCHEDULE_FIELDS,
    SWEEP,
    Filters,
    UploadedFile,
    campaign_of,
    explicit_fields,
    is_matrix,
    local_files,
    refuse_fields,
    with_uploads,
)
from edgeyard.benchmark_api.sdk.waiting import raise_for_end, wait_for_end
from edgeyard.errors import InvalidInput

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

    from edgeyard.benchmark_api.sdk.gate import Check
    from edgeyard.benchmark_api.sdk.inference import Evaluation, Inference

_ACTS_EVERY_S = 2.0
"""Time between two questions for new acts, seconds."""

PAGE = 100
"""Benchmarks a page when listing."""
RESULT_ROWS_A_CALL = 50
"""Ids in one query: URLs of some kilobytes are refused by many proxies."""

HASH_FROM_BYTES = 2**20
"""Smaller files are sent without asking first whether the server has them: that takes as long."""

MIN_MEMBERS_FOR_CAMPAIGN = 4
"""Minimum members for which one request for their campaign is cheaper than one for each."""

_CAMPAIGN_ID = re.compile("campaign-[0-9a-f]{16}")

Named = str | Benchmark
"""A benchmark, or its id."""
File = str | Path
"""A local path, a URL, or the name of a file that was uploaded before."""
Model = File | InMemory
"""A file, the bytes of one, or an ``onnx.ModelProto``."""


class Client:
    """Talks to one Edgeyard server.

    Server and token come from the arguments, else from ``EDGEYARD_URL``, ``EDGEYARD_TOKEN`` and
    ``EDGEYARD_PROFILE``, else from ``edgeyard.toml`` of the folder, else from
    ``~/.config/edgeyard/config.toml``. Every call raises `ApiError` if the server refuses it and
    `ServerNotReached` if it does not answer. A client is a context manager that closes its
    connections.

    Calls block. A client may be used from several threads at once; in a program with asyncio call
    it by ``await asyncio.to_thread(client.wait, benchmark)``.

    Example::

        from edgeyard import Client

        client = Client()
        benchmark = client.submit(model="net.onnx", runtime="ort", benchmark_type="TYPE1",
                                  target="emumid", wait=True)
        print(benchmark.results().latency)

    Args:
        url: Of the server, e.g. ``http://127.0.0.1:42777``.
        token: Bearer token.
        profile: Named in one of the configuration files.
        transport: For tests.
        sleep: For tests.
        monotonic_s: For tests.
        on_notice: Receives a sentence where a call had to choose, such as the newest of several
            campaigns of a name; None: it is a `UserWarning`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        profile: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
        monotonic_s: Callable[[], float] | None = None,
        on_notice: Callable[[str], object] | None = None,
    ) -> None:
        self._on_notice = on_notice or _warn
        self.settings = client_settings(url=url, token=token, profile=profile)
        self._sleep = sleep or time.sleep
        self._monotonic_s = monotonic_s or time.monotonic
        self.api = Api(self.settings, transport=transport, sleep=self._sleep)

    def close(self) -> None:
        """Release the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def because(self, reason: str) -> Iterator[None]:
        """State why calls in the block change something, for the log of acts.

        ``with client.because("its fan is loud"): client.cancel(benchmark)``. Calls of other threads
        do not send the reason.
        """
        with self.api.because(reason):
            yield

    def upload(self, path: File, *, on_sent: Callable[[int], object] | None = None) -> UploadedFile:
        """Upload a file, streamed; the newest of a name is the one that the name means.

        Large content that you uploaded before is not sent again, and a large upload that broke
        off goes on where it ended, also from another process.

        Args:
            path: The file.
            on_sent: Receives the number of bytes sent so far.

        Raises:
            InvalidInput: The file cannot be read.
            ApiError: The server refuses it, for example because of its size or your quota.
            ServerNotReached: The server does not answer.
        """
        path = Path(path)
        if path.exists() and not path.is_file():
            raise InvalidInput.at("/file", f"{path} is not a regular file", "a file")
        sha256 = self._hash_of(path)
        if sha256 and (known := self._known_content(path, sha256)) is not None:
            return known
        if sha256 and path.stat().st_size >= RESUME_FROM_BYTES:
            return self._send_resumable(path, sha256, on_sent)

        def body() -> Mapping[str, object]:
            handle.seek(0)
            source = CountedFile(handle, on_sent) if on_sent else handle
            return {"files": {"file": (path.name, source, "application/octet-stream")}}

        try:
            handle = path.open("rb")
        except OSError as error:
            raise InvalidInput.at("/file", f"can't read {path}: {error.strerror}") from error
        with handle:
            # The same content is stored once, so that sending it twice does no harm.
            response = self.api.request("POST", "/v1/files", make_body=body, idempotent=True)
        return uploaded_file(read_answer(response.json(), UserFile))

    def _send_resumable(
        self, path: Path, sha256: str, on_sent: Callable[[int], object] | None
    ) -> UploadedFile:
        found: list[UploadedFile] = []

        def is_known() -> bool:
            known = self._known_content(path, sha256)
            found.extend([] if known is None else [known])
            return known is not None

        send_resumable(self.api, path, sha256, is_known, on_sent, self._sleep)
        if not found and not is_known():
            raise InvalidInput.at("/file", f"{path} was deleted on the server while it was sent")
        return found[-1]

    def _hash_of(self, path: Path) -> str:
        """Return the SHA-256 of a file; "" of one that is too small to need it."""
        try:
            if path.stat().st_size < HASH_FROM_BYTES:
                return ""
            with path.open("rb") as handle:
                return hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise InvalidInput.at("/file", f"can't read {path}: {error.strerror}") from error

    def _known_content(self, path: Path, sha256: str) -> UploadedFile | None:
        """Name content that the server has from this user already; None if it has to be sent."""
        body: dict[str, object] = {"name": path.name, "sha256": sha256}
        try:
            answer = self.api.post("/v1/files/names", body, key=uuid.uuid4().hex)
        except NotFoundError:
            return None
        return uploaded_file(read_answer(answer, UserFile))

    @overload
    def submit(  # type: ignore[overload-overlap]  # text is a sequence of texts, too
        self,
        *,
        model: Model,
        runtime: str,
        benchmark_type: str,
        target: str | None = None,
        count: None = None,
        wait: bool = False,
        timeout: float | None = None,
        progress: bool = True,
        **fields: Unpack[JobFields],
    ) -> Benchmark: ...

    @overload
    def submit(
        self,
        *,
        model: Model | Sequence[Model],
        runtime: str | Sequence[str],
        benchmark_type: str,
        target: str | Sequence[str] | None = None,
        count: int | None = None,
        wait: bool = False,
        timeout: float | None = None,
        progress: bool = True,
        **fields: Unpack[JobFields],
    ) -> Benchmarks: ...

    @overload
    def submit(
        self,
        *,
        model: Model | Sequence[Model],
        runtime: str | Sequence[str],
        benchmark_type: str,
        target: str | Sequence[str] | None = None,
        count: int | None = None,
        sweep: Mapping[str, Sequence[object]],
        wait: bool = False,
        timeout: float | None = None,
        progress: bool = True,
        **fields: Unpack[JobFields],
    ) -> Benchmarks: ...

    @explicit_fields(JobFields)
    def submit(
        self,
        *,
        model: Model | Sequence[Model],
        runtime: str | Sequence[str],
        benchmark_type: str,
        target: str | Sequence[str] | None = None,
        count: int | None = None,
        sweep: Mapping[str, Sequence[object]] | None = None,
        wait: bool = False,
        timeout: float | None = None,
        progress: bool = True,
        **fields: Unpack[JobFields],
    ) -> Benchmark | Benchmarks:
        """Submit a benchmark; with a list for model, target or runtime, one a combination.

        With a list, a sweep or a count, the answer is a list.

        Args:
            model: A local file, a folder of an ONNX model and its data files, the bytes of a file,
                or an ``onnx.ModelProto`` is uploaded first; so are ``dataset`` (a file, or arrays
                by name, e.g. ``{"x": rows, "y": labels}``) and ``odt_config``. Otherwise a URL, or
                the name of an uploaded file.
            runtime: Engine, e.g. ``ort``.
            benchmark_type: ``TYPE1``, ``TYPE2``, ``TYPE3``, ``GENAI``, or a type that engines
                declare.
            target: Family, e.g. ``rpi4b``; may be left out where ``target_uid`` is given.
            count: Boards on which it runs at the same time, one benchmark on each, all or none.
            sweep: Values of parameters that vary, e.g. ``{"threads": [1, 2, 4]}``: one benchmark
                for each combination, as with lists.
            wait: Wait for the end, as `wait` does.
            timeout: Of the wait, seconds; with ``wait`` only.
            progress: Of the wait.
            fields: The other fields of a job description (see `JobFields`), e.g.
                ``nb_inference=100``. A ``cron`` creates a schedule, which is not waited for.

        Raises:
            ValidationFailed: The server names the fields that are wrong.
            InvalidInput: A local file that isn't there.
            BenchmarkEnded: With ``wait``: it ended without a result.
        """
        if timeout is not None and not wait:
            accepted = "wait=True, or user_time for the limit of the run"
            raise InvalidInput.at("timeout", "has an effect with wait=True only", accepted)
        if wait:
            refuse_fields(fields, ("cron",), "creates a schedule, which wait=True cannot wait for")
        given = {"model": model, "runtime": runtime, "target": target}
        description: dict[str, object] = {
            **fields,
            **{name: _listed(value) for name, value in given.items()},
            "benchmark_type": benchmark_type,
            "count": count,
            SWEEP: sweep,
        }
        submitted = self.submit_description(description)
        if wait:
            submitted = self.wait(submitted, timeout, progress=progress)
        return submitted[0] if count is None and not is_matrix(description) else submitted

    def submit_description(
        self,
        description: Mapping[str, object],
        *,
        base: Path | None = None,
        upload: Callable[[Path], UploadedFile] | None = None,
    ) -> Benchmarks:
        """Submit a job description, e.g. one read from a file; always gives a list.

        Args:
            base: Folder that relative paths are seen from; None: the current one.
            upload: Used instead of `Client.upload`.
        """
        folder = base or Path.cwd()
        with as_files(description) as files:
            check_before_upload(self.api, files, folder)
            ready = with_uploads(files, folder, upload or self.upload)
        key = uuid.uuid4().hex
        if not is_matrix(ready):
            answer = self.api.post("/v1/benchmarks", ready, key=key)
            return gang_of(read_answer(answer, SubmissionAnswer), self)
        answer = self.api.post("/v1/campaigns", campaign_of(ready), key=key)
        campaign = read_answer(answer, AcceptedCampaign)
        return [
            benchmark_of(each, self, campaign.campaign_id, campaign.warnings)
            for each in campaign.benchmarks
        ]

    def preview(
        self,
        description: Mapping[str, object],
        *,
        base: Path | None = None,
        upload: Callable[[Path], UploadedFile] | None = None,
        hash_file: Callable[[Path], str] | None = None,
    ) -> Sequence[DryRun]:
        """Return what would happen to a job description, one answer for each combination.

        Combinations that can't work are left out; ``on_notice`` of the client gets each.

        Nothing is submitted. Local files are checked here, and the server gets their sizes and
        hashes; only a file that it has to compare with one that it has is uploaded, for example a
        dataset for an uploaded model.

        Args:
            description: Fields of a job description; lists for model, target or runtime, and
                ``sweep``.
            base: Folder that relative paths start from; None: the current one.
            upload: Used instead of `Client.upload`.
            hash_file: Used to compute the SHA-256 of a file.
        """
        from edgeyard.benchmark_api.sdk import preview

        folder = base or Path.cwd()
        with as_files(description) as files:
            if any(path for paths in local_files(files, folder).values() for path in paths):
                check_locally(files, folder)
            ready = preview.prepare(
                files,
                folder,
                url=self.settings.url,
                upload=upload or self.upload,
                hash_file=hash_file or preview.sha256_of,
            )
            key, params, body = uuid.uuid4().hex, ready.params, ready.ready
            if is_matrix(body):
                answer = self.api.post("/v1/campaigns", campaign_of(body), params=params, key=key)
                found = read_answer(answer, CampaignDryRun)
                answers, left_out = found.items, found.left_out
            else:
                answer = self.api.post("/v1/benchmarks", body, params=params, key=key)
                answers, left_out = [read_answer(answer, DryRun)], []
            for warning in left_out_warnings(left_out):
                self._on_notice(warning)
            return preview.with_local_content(
                answers, body, ready, left_out={each.position for each in left_out}
            )

    def preview_clone(
        self,
        benchmark: Named,
        changes: Mapping[str, object],
        *,
        upload: Callable[[Path], UploadedFile] | None = None,
        hash_file: Callable[[Path], str] | None = None,
    ) -> DryRun:
        """Return what would happen to a clone with these changes; nothing is submitted.

        Args:
            benchmark: The benchmark, or its id.
            changes: Fields of the job description that differ.
            upload: As for `preview`.
            hash_file: As for `preview`.
        """
        from edgeyard.benchmark_api.sdk import preview

        here = Path.cwd()
        whole = check_clone_before_upload(self.api, _id(benchmark), changes, here)
        ready = preview.prepare(
            changes,
            here,
            url=self.settings.url,
            upload=upload or self.upload,
            hash_file=hash_file or preview.sha256_of,
            origin=whole,
        )
        path, key = f"{_path(benchmark)}/clone", uuid.uuid4().hex
        answer = self.api.post(path, ready.ready, params=ready.params, key=key)
        return preview.with_local_content([read_answer(answer, DryRun)], whole, ready)[0]

    @explicit_fields(JobFields, without=(*OWN_INPUT_FIELDS, *SCHEDULE_FIELDS))
    def infer(
        self,
        model: Model,
        inputs: str
        | Path
        | ArrayLike
        | Mapping[str, ArrayLike]
        | Mapping[str, Mapping[str, ArrayLike]],
        target: str | None = None,
        *,
        runtime: str = "ort",
        batch_size: int | None = None,
        compare_local: bool = False,
        timeout: float | None = None,
        progress: bool = True,
        on_submit: Callable[[Benchmark], object] | None = None,
        **fields: Unpack[JobFields],
    ) -> Inference:
        """Run a model on own inputs on a board and bring its outputs back.

        Args:
            model: One model: as for `submit`.
            inputs: Arrays by input name, an array for the only input, or an ``.npz``. A mapping
                of mappings holds several sets, for example of different shapes, with a result
                each. Rows beyond the model's batch are run batch by batch.
            target: Family, e.g. ``rpi4b``; may be left out where ``target_uid`` is given.
            runtime: Engine, e.g. ``ort``.
            batch_size: Rows of a run; None: the model's own, else all rows at once.
            compare_local: Run the same here and compare the outputs; ``model`` is a local file.
            timeout: Of the wait, seconds.
            progress: Of the wait.
            on_submit: Called with the benchmark before the wait for it.
            fields: Other fields of the job description (see `JobFields`).

        Raises:
            InvalidInput: The inputs hold values that are no finite numbers, there are several
                models or targets, or the local run failed.
            ValidationFailed: The server names what does not fit the model.
            BenchmarkEnded: It ended without a result.
        """
        from edgeyard.benchmark_api.sdk import inference

        refuse_fields(fields, OWN_INPUT_FIELDS, "its inputs are stated by `inputs`")
        refuse_fields(fields, ("cron",), "creates a schedule, and this is one run")
        refuse_fields(fields, ("count",), "needs several boards, and this is one run")
        inference.check_single({"model": model, "target": target, "runtime": runtime})
        parameters = dict(fields.pop("parameters", {}))
        if batch_size is not None:
            parameters["batch_size"] = batch_size
        with (
            as_files({"model": model}) as files,
            inference.inputs_file(inputs) as file,
            tempfile.TemporaryDirectory() as folder,
        ):
            description: dict[str, object] = {
                **fields,
                "model": files["model"],
                "runtime": runtime,
                "target": target,
                "benchmark_type": "TYPE1",
                "dataset": file,
                "keep_outputs": True,
                "parameters": parameters,
            }
            local = None
            try:
                if compare_local:
                    path = inference.local_model(files["model"])
                    check_before_upload(self.api, description, Path.cwd())
                    local = inference.LocalModel(path, runtime, parameters).run(file)
                (submitted,) = self.submit_description(description)
            except (ValidationFailed, InvalidInput) as error:
                raise inference.about_inputs(error) from error
            if on_submit is not None:
                on_submit(submitted)
            benchmark = self.wait(submitted, timeout, progress=progress)
            found = inference.inference_of(self.results(benchmark), Path(folder))
        return found if local is None else inference.with_comparison(found, local)

    def inference(self, benchmark: Named) -> Inference:
        """Return the outputs that an earlier benchmark with ``keep_outputs`` kept."""
        from edgeyard.benchmark_api.sdk import inference

        with tempfile.TemporaryDirectory() as folder:
            return inference.inference_of(self.results(benchmark), Path(folder))

    @explicit_fields(JobFields, without=(*OWN_INPUT_FIELDS, *SCHEDULE_FIELDS))
    def evaluate(
        self,
        model: Model,
        data: str | Path | Mapping[str, ArrayLike],
        metric: Callable[[Mapping[str, Any], Any], Any],
        target: str | None = None,
        *,
        runtime: str = "ort",
        truth: str = "y",
        batch_size: int | None = None,
        timeout: float | None = None,
        progress: bool = True,
        **fields: Unpack[JobFields],
    ) -> Evaluation:
        """Run a dataset on a board and a metric of your own on the outputs, here.

        Args:
            model: One model: as for `submit`.
            data: An ``.npz`` or arrays: ``y``, and ``x`` or an array for each input; an input
                that takes a scalar gets one value for all rows.
            metric: ``metric(outputs, y)``, with the outputs of all rows by name.
            target: As for `infer`.
            runtime: As for `infer`.
            truth: Name of the array that is given as ``y``, for models with an input ``y``.
            batch_size: As for `infer`.
            timeout: As for `infer`.
            progress: As for `infer`.
            **fields: As for `infer`.

        Raises:
            InvalidInput: The data lack the truth or inputs, or the metric raised; its error names
                the benchmark, whose outputs `inference` returns.
        """
        from edgeyard.benchmark_api.sdk import inference

        arrays, y = inference.split_dataset(data, truth)
        found = self.infer(
            model,
            arrays,
            target,
            runtime=runtime,
            batch_size=batch_size,
            timeout=timeout,
            progress=progress,
            **fields,
        )
        return inference.evaluation_of(found, y, metric)

    @explicit_fields(JobChanges, without=CHECK_FIELDS)
    def check(
        self,
        baseline: str | Path,
        *,
        max_slowdown: float = 0.03,
        budget_s: float = 1800.0,
        max_pairs: int = 10,
        self_test: bool = False,
        report: Callable[[str], object] = lambda _: None,
        **changes: Unpack[JobChanges],
    ) -> Check:
        """Check that a candidate is not slower than a baseline, alternately on one board.

        Example::

            found = client.check("main", model="net.onnx", max_slowdown=0.03)
            assert found.decision == "passed", found.reason

        Args:
            baseline: Id of a benchmark, a tag (its newest completed benchmark), a campaign with
                one completed benchmark, or a model file.
            max_slowdown: Slowdown that is accepted, e.g. 0.03 for 3 %: of the primary metric, by
                which it may grow where lower is better, and fall where higher is better.
            budget_s: Time for all runs together, in seconds.
            max_pairs: Maximum number of pairs of runs, from 3 to 100.
            self_test: Whether the candidate may be the same as the baseline, to see their noise.
            report: Receives warnings, and a sentence about each pair.
            changes: Fields of the job description in which the candidate differs (see
                `JobChanges`); with a model file as baseline, all fields of both except the model.

        Of two versions that are the same nothing is measured without `self_test`: the decision is
        `unchanged`. The server drives it: it goes on if this program ends or loses the connection,
        and `check_state` returns its outcome then.

        Raises:
            InvalidInput: There is no such baseline, or the two do different work.
            BenchmarkEnded: A run ended without a result, or somebody cancelled the check.
        """
        from edgeyard.benchmark_api.sdk.gate import Gate

        gate = Gate(
            self,
            baseline=baseline,
            max_slowdown=max_slowdown,
            changes={name: value for name, value in changes.items() if value is not None},
            budget_s=budget_s,
            max_pairs=max_pairs,
            self_test=self_test,
            report=report,
            sleep=self._sleep,
            monotonic_s=self._monotonic_s,
        )
        try:
            return gate.run()
        except KeyboardInterrupt:
            gate.cancel()
            raise

    def checks(self, status: str | None = None) -> Iterator[StoredCheck]:
        """Yield the checks that the server drives or has driven, newest first.

        Args:
            status: Only those, e.g. ``running``; None: all.
        """
        for item in self.api.pages("/v1/checks", {"status": status}):
            yield read_answer(item, StoredCheck)

    def check_state(self, check_id: str) -> StoredCheck:
        """Return a check with its pairs so far.

        Raises:
            NotFoundError: There is none.
        """
        return read_answer(self.api.get(f"/v1/checks/{part(check_id)}"), StoredCheck)

    def cancel_check(self, check_id: str) -> StoredCheck:
        """End a check, and the run that is under way; one that has ended stays as it is.

        Raises:
            NotFoundError: There is none.
        """
        return read_answer(self.api.post(f"/v1/checks/{part(check_id)}/cancel"), StoredCheck)

    def series(
        self,
        name: str | None = None,
        *,
        target: str | None = None,
        target_uid: str | None = None,
        runtime: str | None = None,
        benchmark_type: str | None = None,
    ) -> Iterator[Series]:
        """Yield series of results over time, by name.

        Args:
            name: Only of this lineage; None: of all.
            target: Only of boards of this family.
            target_uid: Only of this board.
            runtime: Only by this engine.
            benchmark_type: Only of this type.
        """
        params = {
            "series": name,
            "target": target,
            "target_uid": target_uid,
            "runtime": runtime,
            "benchmark_type": benchmark_type,
        }
        for item in self.api.pages("/v1/series", params):
            yield read_answer(item, Series)

    def series_points(
        self,
        name: str,
        *,
        target: str | None = None,
        target_uid: str | None = None,
        runtime: str | None = None,
        benchmark_type: str | None = None,
        submitted_from: str | None = None,
    ) -> SeriesPoints:
        """Return the newest 500 results of a lineage, the oldest first.

        Each is relative to the one before it in its series, and has what may explain it.

        Args:
            name: The lineage: as submissions state it, otherwise the schedule's or model's name.
            target: Only of boards of this family.
            target_uid: Only of this board.
            runtime: Only by this engine.
            benchmark_type: Only of this type.
            submitted_from: Only those submitted from this time on, RFC 3339.
        """
        params = {
            "series": name,
            "target": target,
            "target_uid": target_uid,
            "runtime": runtime,
            "benchmark_type": benchmark_type,
            "submitted_from": submitted_from,
        }
        return read_answer(self.api.get("/v1/series/points", params), SeriesPoints)

    def alerts(
        self,
        status: str | None = None,
        *,
        series: str | None = None,
        target_uid: str | None = None,
    ) -> Iterator[SeriesChange]:
        """Yield alerts, newest first: changes of series that runs have confirmed.

        Args:
            status: Only those that are ``active`` (confirmed or open), ``confirmed``, ``open``,
                ``resolved`` or ``dismissed``; None: all.
            series: Only of this lineage.
            target_uid: Only on this board.
        """
        params = {"status": status, "series": series, "target_uid": target_uid}
        for item in self.api.pages("/v1/alerts", params):
            yield read_answer(item, SeriesChange)

    def alert(self, change_id: str) -> SeriesChange:
        """Return an alert, or a change of a series that is none.

        Raises:
            NotFoundError: There is none.
        """
        return read_answer(self.api.get(f"/v1/alerts/{part(change_id)}"), SeriesChange)

    def resolve_alert(self, change_id: str, reason: str = "") -> SeriesChange:
        """End an alert; it is reopened if its level comes back within 30 days.

        Raises:
            StateConflict: It is not confirmed or open.
        """
        return self._end_alert(change_id, "resolve", reason)

    def dismiss_alert(self, change_id: str, reason: str = "") -> SeriesChange:
        """End an alert for good: it is never reopened.

        Args:
            change_id: Which.
            reason: Why. It is required, unless the client states one for all that it does.

        Raises:
            StateConflict: It is not confirmed or open.
        """
        return self._end_alert(change_id, "dismiss", reason)

    def _end_alert(self, change_id: str, how: str, reason: str) -> SeriesChange:
        body = {"reason": reason} if reason else {}
        answer = self.api.post(f"/v1/alerts/{part(change_id)}/{how}", body)
        return read_answer(answer, SeriesChange)

    def watched_series(self, series_id: str) -> WatchedSeries:
        """Return what the watch over a series knows of it.

        Raises:
            NotFoundError: The watch has seen no result of it.
        """
        return read_answer(self.api.get(f"/v1/series/{part(series_id)}"), WatchedSeries)

    def reset_threshold(self, series_id: str) -> WatchedSeries:
        """Remove the threshold of a series, so that small changes are suspected again.

        Raises:
            NotFoundError: The watch has seen no result of it.
        """
        answer = self.api.delete(f"/v1/series/{part(series_id)}/threshold")
        return read_answer(answer, WatchedSeries)

    def set_series(self, series_id: str, *, alert_unconfirmed: bool) -> WatchedSeries:
        """Set whether changes of a series that can't be confirmed are alerts.

        Raises:
            NotFoundError: The watch has seen no result of it.
        """
        body = {"alert_unconfirmed": alert_unconfirmed}
        answer = self.api.put(f"/v1/series/{part(series_id)}/settings", body)
        return read_answer(answer, WatchedSeries)

    def cancel(self, benchmark: Named) -> Benchmark:
        """Stop it and free its board; its end follows in a moment."""
        return self._act(benchmark, "cancel")

    def hold(self, benchmark: Named) -> Benchmark:
        """Keep it from being placed until `release`; only while it is pending."""
        return self._act(benchmark, "hold")

    def release(self, benchmark: Named) -> Benchmark:
        """Let it go on after `hold`."""
        return self._act(benchmark, "release")

    def preempt(self, benchmark: Named) -> Benchmark:
        """Stop it while it runs: it goes back to the queue and loses no retry; for operators."""
        return self._act(benchmark, "preempt")

    def prioritise(self, benchmark: Named, user_priority: int) -> Benchmark:
        """Give it another user priority, 1-10; only while it is pending."""
        return self._act(benchmark, "priority", {"user_priority": user_priority})

    def retry(self, benchmark: Named) -> Benchmark:
        """Submit the same once more; only where it has ended.

        With a ``count`` above 1 all of its gang run again. The first of them is returned, and
        ``client.campaign(result.campaign_id)`` has all.
        """
        return self._act(benchmark, "retry", shape=SubmissionAnswer)

    @explicit_fields(JobChanges)
    def clone(self, benchmark: Named, **changes: Unpack[JobChanges]) -> Benchmark:
        """Submit a benchmark again with changes; local files in them are uploaded.

        With a ``count`` above 1 a new gang is made. Its first benchmark is returned, and
        ``client.campaign(result.campaign_id)`` has all.

        Args:
            benchmark: The benchmark, or its id.
            changes: Fields of the job description that differ (see `JobFields`).
        """
        return self.clone_description(benchmark, {**changes})

    def clone_description(self, benchmark: Named, changes: Mapping[str, object]) -> Benchmark:
        """Submit a benchmark again with the changes of a mapping, e.g. one read from a file."""
        body = self._uploaded_changes(benchmark, changes)
        return self._act(benchmark, "clone", body, shape=SubmissionAnswer)

    def _uploaded_changes(
        self, benchmark: Named, changes: Mapping[str, object]
    ) -> Mapping[str, object]:
        check_clone_before_upload(self.api, _id(benchmark), changes, Path.cwd())
        return with_uploads(changes, Path.cwd(), self.upload)

    def files(self, *, name: str | None = None) -> Iterator[UploadedFile]:
        """Yield your uploaded files, newest first; pages are fetched as they are needed.

        Args:
            name: Only those of this name; None: all.
        """
        for item in self.api.pages("/v1/files", {"limit": PAGE, "name": name}):
            yield uploaded_file(read_answer(item, UserFile))

    def download_file(self, file: str | UploadedFile, path: File) -> Path:
        """Download an uploaded file into ``path``, a file or a folder; whole or not at all.

        Args:
            file: The file, its id, or its name (the newest of a name counts).
            path: Where it is written.

        Raises:
            NotFoundError: You have no such file.
        """
        found = file if isinstance(file, UploadedFile) else self.file(file)
        path = Path(path)
        target = path / Path(found.name).name if path.is_dir() else path
        return self.download(f"/v1/files/{part(found.file_id)}/content", target)

    def file(self, file: str) -> UploadedFile:
        """Return an uploaded file by its id, or the newest one by its name.

        Raises:
            NotFoundError: You have no such file.
        """
        try:
            answer = self.api.get(f"/v1/files/{part(file)}")
        except NotFoundError:
            named = next(self.files(name=file), None)
            if named is None:
                raise
            return named
        return uploaded_file(read_answer(answer, UserFile))

    def delete_file(self, file: str | UploadedFile) -> Sequence[str]:
        """Delete an uploaded file, and return the ids of what was deleted.

        Args:
            file: The file, its id, or a name that one content alone has; all files of this name
                are deleted then.

        Raises:
            NotFoundError: There is no such file.
            InvalidInput: Files of several contents or users have this name.
        """
        file_id = file if isinstance(file, str) else file.file_id
        try:
            self.api.request("DELETE", f"/v1/files/{part(file_id)}")
        except NotFoundError:
            pages = self.api.pages("/v1/files", {"limit": PAGE, "name": file_id})
            named = [read_answer(item, UserFile) for item in pages]
            if not named:
                raise
            ids = [each.file_id for each in named]
            if len({(each.user_id, each.sha256) for each in named}) > 1:
                reason = f"{len(ids)} files of different content have the name {file!r}"
                raise InvalidInput.at("FILE_ID", reason, f"an id: {', '.join(ids[:5])}") from None
            for each in ids:
                self.api.request("DELETE", f"/v1/files/{part(each)}")
            return ids
        return [file_id]

    def benchmark(self, benchmark_id: Named) -> Benchmark:
        """Return one benchmark as it is now."""
        return benchmark_of(read_answer(self.api.get(_path(benchmark_id)), BenchmarkAnswer), self)

    def list(self, *, page_size: int = PAGE, **filters: Unpack[Filters]) -> Iterator[Benchmark]:
        """Yield benchmarks, newest first; pages are fetched as they are needed.

        Args:
            page_size: Benchmarks of one request, 1-1000.
            filters: Which benchmarks (see `Filters`).
        """
        for item in self.api.pages("/v1/benchmarks", {"limit": page_size, **self._query(filters)}):
            yield benchmark_of(read_answer(item, ListedBenchmark), self)

    def count(self, **filters: Unpack[Filters]) -> int:
        """Count benchmarks.

        Args:
            filters: Which benchmarks (see `Filters`).
        """
        page = self.api.get("/v1/benchmarks", {**self._query(filters), "limit": 1, "total": True})
        return read_answer(page, BenchmarkPage).total or 0

    def _query(self, filters: Filters) -> dict[str, object]:
        """Return filters as the server knows them: a campaign by its id."""
        given: dict[str, object] = {**filters}
        campaign = given.pop("campaign", None)
        if isinstance(campaign, str):
            given["campaign_id"] = self.campaign_id(campaign)
        return given

    def campaign(self, campaign: str) -> Benchmarks:
        """Return all members of a campaign.

        Args:
            campaign: Its id or name, as for `campaign_id`.

        Raises:
            NotFoundError: There is no such campaign.
        """
        try:
            answer = self.api.get(f"/v1/campaigns/{part(campaign)}")
        except NotFoundError:
            answer = self.api.get(f"/v1/campaigns/{part(self.campaign_id(campaign))}")
        return [benchmark_of(each, self) for each in read_answer(answer, Campaign).benchmarks]

    def campaign_id(self, campaign: str) -> str:
        """Return the id of a campaign.

        Args:
            campaign: Its id or its name. Of several campaigns of a name the newest is meant, of
                yours where one is yours; ``on_notice`` of the client gets a sentence about it.

        Raises:
            NotFoundError: There is no such campaign.
        """
        if _CAMPAIGN_ID.fullmatch(campaign):
            return campaign
        where = f"/v1/campaigns/{part(campaign)}"
        named = list(self.campaigns(name=campaign))
        if not named:
            self.api.get(where)
            return campaign
        if len({each.user_id for each in named}) > 1:  # operators see everybody's
            own = self.user_id()
            named.sort(key=lambda each: each.user_id != own)
        newest, *others = named
        if others:
            shown = ", ".join(each.campaign_id for each in others[:5])
            more = f" and {len(others) - 5} more" if len(others) > 5 else ""
            self._on_notice(
                f"{len(named)} campaigns have the name {campaign!r}; the newest is meant, "
                f"{newest.campaign_id} of {newest.user_id}, and not {shown}{more}"
            )
        return newest.campaign_id

    def campaigns(self, *, name: str | None = None) -> Iterator[CampaignSummary]:
        """Yield campaigns, newest first.

        Args:
            name: Only those of this name; None: all.
        """
        for item in self.api.pages("/v1/campaigns", {"limit": PAGE, "name": name}):
            yield read_answer(item, CampaignSummary)

    def share(
        self,
        benchmark: Named | Sequence[Named] | None = None,
        *,
        campaign: str | None = None,
        expires_at: str | None = None,
        label: str = "",
        options: str = "",
    ) -> Share:
        """Make a link that shows results, read-only, to people without an account.

        Args:
            benchmark: What it shows; several are a comparison.
            campaign: Id or name of a campaign that it shows instead.
            expires_at: When it ends, RFC 3339; None: in 30 days.
            label: What it is for; only you see it.
            options: Of a comparison: the query of its page's address.

        Returns:
            The link; its ``url`` is in this answer alone.

        Raises:
            NotFoundError: There is no such thing.
        """
        body: dict[str, object] = {"label": label, "options": options}
        if campaign is not None:
            body["campaign_id"] = self.campaign_id(campaign)
        if isinstance(benchmark, str | Benchmark):
            body["benchmark_id"] = _id(benchmark)
        elif benchmark is not None:
            body["benchmark_ids"] = [_id(each) for each in benchmark]
        if expires_at is not None:
            body["expires_at"] = expires_at
        return read_answer(self.api.post("/v1/shares", body), Share)

    def shares(self) -> Sequence[Share]:
        """Return the links that have not ended, newest first; operators see everybody's."""
        return read_answer(self.api.get("/v1/shares"), Shares).items

    def revoke_share(self, share_id: str) -> None:
        """Revoke a link: its address is not found from now on."""
        self.api.request("DELETE", f"/v1/shares/{part(share_id)}")

    def subscriptions(self, user_id: str | None = None) -> Sequence[Subscription]:
        """Return your subscriptions to messages, oldest first; operators see everybody's.

        Args:
            user_id: Only those of this user; None: all that you may see.
        """
        query = {"user_id": user_id} if user_id is not None else None
        return read_answer(self.api.get("/v1/subscriptions", query), Subscriptions).items

    def subscribe(
        self,
        topic: str = "user",
        about: str | None = None,
        *,
        channel: str = "mail",
        events: Sequence[str] = (),
        dry_run: bool = False,
    ) -> Subscription:
        """Subscribe to messages.

        Args:
            topic: ``user``, ``campaign``, ``series``, ``board``, or ``lab`` (operators).
            about: Id of the user (None: yours), campaign or board; name of the lineage or id of
                the series.
            channel: ``mail`` or ``webhook``.
            events: Types of events that are sent; (): all of the topic.
            dry_run: Store nothing, but raise what would be raised.

        Raises:
            NotFoundError: There is no such thing, or you may not see it.
            ValidationFailed: The account has no e-mail address or webhook, the server sends no
                mail, or the topic has no such event.
        """
        body: dict[str, object] = {"topic": topic, "channel": channel, "events": list(events)}
        if about is not None:
            body["about"] = about
        params = {"dry_run": "true"} if dry_run else {}
        return read_answer(self.api.post("/v1/subscriptions", body, params=params), Subscription)

    def unsubscribe(self, subscription_id: str) -> None:
        """Remove a subscription."""
        self.api.request("DELETE", f"/v1/subscriptions/{part(subscription_id)}")

    def messages(
        self, *, user_id: str | None = None, state: str | None = None
    ) -> Iterator[Delivery]:
        """Yield the messages of the log, newest first; operators see everybody's.

        Args:
            user_id: Only those to this user.
            state: Only ``waiting``, ``sent``, ``failed``, ``limited`` or ``withheld`` ones.
        """
        query = {"limit": PAGE, "user_id": user_id, "state": state}
        for item in self.api.pages("/v1/deliveries", query):
            yield read_answer(item, Delivery)

    def usage(self, by: str = "user", month: str | None = None) -> UsageReport:
        """Return what was used in a month; operators see what everybody used.

        Args:
            by: What the rows are: ``user``, ``group``, ``board``, ``family`` or ``engine``.
            month: E.g. ``2026-10``, in UTC; None: this one.

        Raises:
            ApiError: There is no such month, or nothing to report by of this name.
        """
        return read_answer(self.api.get("/v1/usage", {"by": by, "month": month}), UsageReport)

    def groups(self) -> Sequence[Group]:
        """Return all groups with what they have and may have; for others than operators their own.

        Groups share limits, credits and a weight in fair sharing.
        """
        return read_answer(self.api.get("/v1/groups"), Groups).items

    def group(self, group_id: str) -> Group:
        """Return a group with what its members have and may have together.

        Raises:
            ApiError: There is none, or you are not in it (404).
        """
        return read_answer(self.api.get(f"/v1/groups/{part(group_id)}"), Group)

    def add_group(self, group_id: str, **limits: float | None) -> Group:
        """Make a group; operators only.

        Args:
            group_id: Its name.
            limits: ``share``, ``credits``, ``max_running``, ``max_bytes``, ``max_files``,
                ``max_pending``, ``max_live``, ``max_bookings`` or ``max_schedules``.

        Raises:
            ApiError: There is one of this name, or a limit can't be so.
        """
        return read_answer(self.api.post("/v1/groups", {"group_id": group_id, **limits}), Group)

    def change_group(self, group_id: str, **limits: float | None) -> Group:
        """Change limits of a group, as in `add_group`; None: no such limit. Others stay.

        Raises:
            ApiError: There is no such group, or a limit can't be so.
        """
        return read_answer(self.api.patch(f"/v1/groups/{part(group_id)}", limits), Group)

    def remove_group(self, group_id: str) -> None:
        """Remove a group: its members go on without, and its past use stays reported.

        Raises:
            ApiError: There is no such group.
        """
        self.api.request("DELETE", f"/v1/groups/{part(group_id)}")

    def user_id(self) -> str:
        """Return the account of the client's token."""
        return read_answer(self.api.get("/v1/me"), Me).user.user_id

    def queue(self) -> Sequence[QueueItem]:
        """Return the benchmarks that wait, in their order, each with the reason."""
        return read_answer(self.api.get("/v1/queue"), Queue).items

    def boards(self) -> Sequence[Board]:
        """Return all boards with their states."""
        return read_answer(self.api.get("/v1/boards"), Boards).items

    def board(self, target_uid: str) -> DescribedBoard:
        """Return a board with all its attributes."""
        answer = self.api.get(f"/v1/boards/{part(target_uid)}")
        return read_answer(answer, DescribedBoard)

    def add_board(self, entry: Mapping[str, object]) -> ExpectedBoard:
        """Add a board to the inventory, also of a new family; for operators.

        Args:
            entry: As in the boards file: ``target_uid``, ``memory``, ``engines``, ...
        """
        return read_answer(self.api.post("/v1/inventory/boards", dict(entry)), ExpectedBoard)

    def remove_board(self, target_uid: str) -> None:
        """Remove a board from the inventory; what runs on it runs to its end. For operators."""
        self.api.request("DELETE", f"/v1/inventory/boards/{part(target_uid)}")

    def hcl(self, benchmark: Named, attempt: int | None = None) -> str:
        """Return the HCL of an attempt's job (None: the newest attempt), with secrets masked."""
        return self.api.request("GET", f"{_path(benchmark)}/hcl", params={"attempt": attempt}).text

    def explain(self, benchmark: Named, *, changes: bool = False) -> Explanation:
        """Return the last decision on a benchmark: priority, every board's verdict and scores.

        Args:
            benchmark: The benchmark, or its id.
            changes: Also compute ``changes``, which would let it start sooner.
        """
        params = {"changes": True} if changes else None
        return read_answer(self.api.get(f"{_path(benchmark)}/explanation", params), Explanation)

    def events(self, benchmark: Named, *, follow: bool = False) -> Iterator[Event]:
        """Yield a benchmark's events; with ``follow`` also new ones, until the benchmark ends."""
        return follow_events(self.api, _path(benchmark), follow, self._sleep)

    def acts(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        actor: str | None = None,
        type: str | None = None,  # as in the API
        board: str | None = None,
        benchmark_id: str | None = None,
    ) -> Iterator[Act]:
        """Yield who did what, newest first: your acts and those on your benchmarks.

        Operators get everybody's, and counts of failed sign-ins.

        Args:
            since: At or after this time, RFC 3339.
            until: Before this time.
            actor: Id of the user who acted.
            type: Type of the act, such as ``board.drained``.
            board: The board that it was done to.
            benchmark_id: The benchmark that it was done to.
        """
        params = {
            "since": since,
            "until": until,
            "actor": actor,
            "type": type,
            "board": board,
            "benchmark_id": benchmark_id,
            "limit": PAGE,
        }
        return (read_answer(each, Act) for each in self.api.pages("/v1/events", params))

    def follow_acts(
        self,
        *,
        actor: str | None = None,
        type: str | None = None,  # as in the API
        board: str | None = None,
    ) -> Iterator[Act]:
        """Yield acts as they are done, from now on, without end; arguments as of `acts`.

        The server is asked every two seconds.
        """
        which = {"actor": actor, "type": type, "board": board}
        after = whole(self.api.page("/v1/events", {"limit": 1}), "next_after")
        while True:
            page = self.api.page("/v1/events", {**which, "after": after or 0, "limit": PAGE})
            found = records(page, "items")
            for each in found:
                act = read_answer(each, Act)
                after = act.seq
                yield act
            if not found:
                self._sleep(_ACTS_EVERY_S)

    def logs(
        self,
        benchmark: Named,
        *,
        follow: bool = False,
        stream: str = "stderr",
        attempt: int | None = None,
    ) -> Iterator[str]:
        """Yield the lines of the log of a benchmark's task, without their line ends.

        Args:
            benchmark: The benchmark, or its id.
            follow: Also yield new lines until the benchmark ends, and those of later attempts.
            stream: ``stderr`` (the task's log) or ``stdout``.
            attempt: Number of the attempt, from 1; None: the newest.
        """
        return follow_logs(self.api, _path(benchmark), follow, stream, attempt, self._sleep)

    def results(self, benchmark: Named) -> Results:
        """Return the results of a benchmark: its report with the verdict."""
        answer = self.api.get(f"{_path(benchmark)}/results")
        return results_of(read_answer(answer, ResultsAnswer), self.download_result)

    def download_result(self, benchmark: Named, file: ResultFile, path: File) -> Path:
        """Fetch a result file into ``path``, a file or a folder; whole or not at all."""
        path = Path(path)
        target = path / Path(file.name).name if path.is_dir() else path
        where = f"{_path(benchmark)}/results/{file.attempt}/{part(file.name)}"
        return self.download(where, target)

    def download(self, where: str, target: Path) -> Path:
        """Stream what a path of the API gives into a file; whole or not at all."""
        with open_atomically(target) as sink, self.api.stream(where) as response:
            for chunk in response.iter_bytes():
                sink.write(chunk)
        return target

    def result_rows(
        self, benchmarks: Iterable[Named] = (), *, campaign_id: str | None = None
    ) -> Sequence[ResultRow]:
        """Return one row for each benchmark: what was measured, where, and how far to trust it."""
        if campaign_id is not None:
            answer = self.api.get("/v1/results", {"campaign_id": campaign_id})
            return read_answer(answer, ResultRows).items
        ids = [_id(one) for one in benchmarks]
        rows: dict[str, ResultRow] = {}
        for start in range(0, len(ids), RESULT_ROWS_A_CALL):
            some = ids[start : start + RESULT_ROWS_A_CALL]
            answer = self.api.get("/v1/results", {"benchmark_id": some})
            rows |= {row.benchmark_id: row for row in read_answer(answer, ResultRows).items}
        return [rows[one] for one in ids if one in rows]

    def results_frame(self, benchmarks: Iterable[Named]) -> pandas.DataFrame:
        """Return a data frame with a row for each benchmark, indexed by ``benchmark_id``.

        Columns of numbers are numeric, ``ended_at`` is a time in UTC, and all others are text. Rows
        with equal ``group`` measured the same thing; ``ratio`` is the primary metric over the best
        one of the group, with its 95 % interval. The parts of the workload state what was measured,
        and ``between_runs`` is the standard deviation between runs, relative to the number.
        ``on_front`` states of a sweep of parameters whether no other result beats it in every
        respect; None: it is of no sweep, or not judged.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra("pandas", "data", "a data frame of results") from error
        rows = with_fronts(compare([as_json(row) for row in self.result_rows(benchmarks)]))
        if not rows:
            return pandas.DataFrame()
        frame = pandas.DataFrame([frame_row(row) for row in rows])
        numbers = [name for name in NUMBERS if name in frame]
        frame[numbers] = frame[numbers].apply(pandas.to_numeric)
        frame["ended_at"] = pandas.to_datetime(frame["ended_at"], utc=True)
        return frame.set_index("benchmark_id")

    def add_scenario(
        self, scenario: Mapping[str, object], *, tags: Sequence[str] = (), source: str = ""
    ) -> Scenario:
        """Store a scenario, and return it as stored; one that is there already gets the tags.

        Args:
            scenario: Its content, as `edgeyard scenarios export --form json` prints it.
            tags: Tags to add.
            source: Where it comes from, in words.
        """
        params = {"tag": [*tags], "source": source or None}
        response = self.api.request(
            "POST",
            "/v1/scenarios",
            params=params,
            make_body=lambda: {"json": scenario},
            idempotent=True,
        )
        return read_answer(response.json(), Scenario)

    def scenario(self, reference: str) -> Scenario:
        """Return a scenario without its content.

        Args:
            reference: Its name (the newest of that name), its hash, or 6 or more first digits.
        """
        return read_answer(self.api.get(f"/v1/scenarios/{part(reference)}"), Scenario)

    def scenario_content(self, reference: str) -> Mapping[str, object]:
        """Return the content of a scenario."""
        answer = self.api.get(f"/v1/scenarios/{part(reference)}/content")
        return read_answer(answer, dict[str, object])

    def scenarios(
        self,
        *,
        name: str | None = None,
        world: str | None = None,
        tags: Sequence[str] = (),
        page_size: int = PAGE,
    ) -> Iterator[Scenario]:
        """Yield stored scenarios, newest first; pages are fetched as they are needed.

        Args:
            name: Only those with this name.
            world: Only those of this world: boards or nodes.
            tags: Only those that have all of these tags.
            page_size: Scenarios of one request, 1-1000.
        """
        params = {
            "name": name,
            "world": world,
            "tag": [*tags],
            "limit": min(page_size, 1000),
        }
        for item in self.api.pages("/v1/scenarios", params):
            yield read_answer(item, Scenario)

    def tag_scenario(
        self, reference: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> Scenario:
        """Add and remove tags of a scenario, and return it as stored then."""
        path = f"/v1/scenarios/{part(reference)}/tags"
        body: dict[str, object] = {"add": [*add], "remove": [*remove]}
        return read_answer(self.api.post(path, body, key=uuid.uuid4().hex), Scenario)

    def remove_scenario(self, reference: str) -> None:
        """Remove a scenario of which no simulation is stored."""
        self.api.request("DELETE", f"/v1/scenarios/{part(reference)}")

    def save_simulation(self, simulation: Mapping[str, object]) -> Simulation:
        """Store a simulation, or replace your own with the same id.

        Args:
            simulation: ``run_id``, ``scenario`` (a hash or name), ``policy``, ``seed`` and
                ``metrics``; optionally ``kind``, ``state``, ``version``, ``wall_s`` and
                ``columns_file``.
        """
        path = f"/v1/simulations/{part(str(simulation.get('run_id', '')))}"
        body = {name: value for name, value in simulation.items() if name != "run_id"}
        response = self.api.request("PUT", path, make_body=lambda: {"json": body})
        return read_answer(response.json(), Simulation)

    def simulation(self, run_id: str) -> Simulation:
        """Return a stored simulation with its metrics."""
        return read_answer(self.api.get(f"/v1/simulations/{part(run_id)}"), Simulation)

    def simulations(
        self,
        *,
        scenario: str | None = None,
        policy: str | None = None,
        kind: str | None = None,
        page_size: int = PAGE,
    ) -> Iterator[Simulation]:
        """Yield stored simulations, newest first; pages are fetched as they are needed.

        Args:
            scenario: Only those of this scenario: a hash or a name.
            policy: Only those of this policy.
            kind: Only those of this kind, for example ``sim``.
            page_size: Simulations of one request, 1-1000.
        """
        params = {"scenario": scenario, "policy": policy, "kind": kind, "limit": page_size}
        for item in self.api.pages("/v1/simulations", params):
            yield read_answer(item, Simulation)

    def remove_simulation(self, run_id: str) -> None:
        """Remove a stored simulation."""
        self.api.request("DELETE", f"/v1/simulations/{part(run_id)}")

    @overload
    def wait(  # type: ignore[overload-overlap]  # text is an iterable of texts, too
        self,
        benchmarks: Named,
        timeout: float | None = None,
        *,
        progress: bool = True,
        check: bool = True,
        view: ProgressView | None = None,
    ) -> Benchmark: ...

    @overload
    def wait(
        self,
        benchmarks: Iterable[Named],
        timeout: float | None = None,
        *,
        progress: bool = True,
        check: bool = True,
        view: ProgressView | None = None,
    ) -> Benchmarks: ...

    def wait(
        self,
        benchmarks: Named | Iterable[Named],
        timeout: float | None = None,
        *,
        progress: bool = True,
        check: bool = True,
        view: ProgressView | None = None,
    ) -> Benchmark | Benchmarks:
        """Wait until all have ended.

        Args:
            timeout: Seconds; None: as long as it takes.
            progress: Show on stderr how it gets on: live on a terminal, else a line a change.
            check: Raise where one ended without a result, when all have ended.
            view: Shows the progress instead of the default view.

        Raises:
            BenchmarkFailed: And `BenchmarkExpired`, `BenchmarkCancelled`: with ``check``.
            WaitTimeout: The time is over; the benchmarks go on.
        """
        alone = isinstance(benchmarks, str | Benchmark)
        many: Iterable[Named] = [benchmarks] if alone else benchmarks  # type: ignore[list-item, assignment]
        ids = list(dict.fromkeys(_id(one) for one in many))
        states = wait_for_end(
            self._refresh,
            ids,
            timeout_s=timeout,
            view=view or view_for(progress),
            sleep=self._sleep,
            monotonic_s=self._monotonic_s,
        )
        if check:
            raise_for_end(states)
        return states[0] if alone else states

    def _refresh(self, benchmark_ids: Sequence[str], known: Mapping[str, Benchmark]) -> Benchmarks:
        """Return the present states of several; members of one campaign come in one request."""
        campaigns = Counter(known[one].campaign_id for one in benchmark_ids if one in known)
        states = {
            state.benchmark_id: state
            for campaign_id, count in campaigns.items()
            if campaign_id and count >= MIN_MEMBERS_FOR_CAMPAIGN
            for state in self.campaign(campaign_id)
        }
        return [states.get(one) or self.benchmark(one) for one in benchmark_ids]

    def _act(
        self,
        benchmark: Named,
        action: str,
        body: Mapping[str, object] | None = None,
        shape: type[BenchmarkAnswer | SubmissionAnswer] = BenchmarkAnswer,
    ) -> Benchmark:
        key = uuid.uuid4().hex  # cancelling twice does no harm; the others use the key
        answer = self.api.post(f"{_path(benchmark)}/{action}", body, key=key)
        return benchmark_of(read_answer(answer, shape), self)


class CountedFile:
    """A file that reports how much of it was read."""

    def __init__(self, file: BinaryIO, on_read: Callable[[int], object]) -> None:
        self._file = file
        self._on_read = on_read

    def read(self, size: int = -1) -> bytes:
        """Read as the file does."""
        data = self._file.read(size)
        self._on_read(self._file.tell())
        return data

    def fileno(self) -> int:
        """Return the file's descriptor, from which its length is read."""
        return self._file.fileno()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move in the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the file."""
        return self._file.tell()


def uploaded_file(file: UserFile) -> UploadedFile:
    """Return the file of an answer."""
    return UploadedFile(
        file_id=file.file_id,
        name=file.name,
        sha256=file.sha256,
        size_bytes=file.size,
        url=file.url,
    )


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


def _listed(value: object) -> object:
    """Sequences as lists, which is what JSON and the matrix know."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(value)
    return value


def _id(benchmark: Named) -> str:
    benchmark_id = benchmark if isinstance(benchmark, str) else benchmark.benchmark_id
    if not benchmark_id:
        reason = "is empty: a cron creates a schedule, whose benchmarks `list(schedule_id=...)` has"
        raise InvalidInput.at("benchmark_id", reason, "the id of a benchmark")
    return benchmark_id


def _path(benchmark: Named) -> str:
    return f"/v1/benchmarks/{part(_id(benchmark))}"
