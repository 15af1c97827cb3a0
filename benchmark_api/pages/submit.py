"""The page Submit: a model, where it runs, a preview, and the same as a command."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from edgeyard.benchmark_api.auth import SESSION_COOKIE, BrowserSubmitter, Caller, browser_submitter
from edgeyard.benchmark_api.pages import equivalents, job_form
from edgeyard.benchmark_api.pages.forms import Form, check_sent, json_body
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.problems import problem_of
from edgeyard.benchmark_api.routes import benchmarks, campaigns, files, lab, submitting
from edgeyard.benchmark_api.routes.context import Context, Ctx, RawBody, whole_id
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.benchmark_api.routes.receiving import ReceivedFile, receive_fields, receive_texts
from edgeyard.benchmark_api.schemas import answers as shapes
from edgeyard.errors import EdgeyardError, InvalidInput, NotAuthenticated
from edgeyard.scheduler.model.benchmark import FileRole

router = PageRouter()

MAX_PARTS = 500
"""Fields of the form: one for each field of a job description, family and engine."""
MAX_LOST_BYTES = 16 * 2**20
"""Bytes that are read of a form whose session has ended, so that what was typed is kept."""
MAX_SUGGESTED = 100
"""Names of uploaded files that fields offer."""
MAX_LINK = 4000
"""Characters of an address that keeps what was typed."""

_FILE = "model_file"
_ROLES = (FileRole.MODEL, FileRole.LANGUAGE_MODEL)
"""Roles that the file may have; the form's other fields state which."""
_NOT_TYPED = ("csrf", "key", "next")


@dataclass(frozen=True, slots=True)
class _Submission:
    """A submitted form that one of our pages sent, with its file."""

    caller: Caller
    form: Form
    file: ReceivedFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would happen to what is typed, and what is wrong with it.

    Attributes:
        runs: One, or one for each combination of a matrix.
        left_out: Combinations that can't work.
        wrong: What is wrong, by field; "" is about none.
        status: HTTP status of what is wrong.
    """

    runs: Sequence[shapes.DryRun] = ()
    left_out: Sequence[shapes.LeftOut] = ()
    wrong: Mapping[str, Sequence[str]] = field(default_factory=dict)
    status: int = 200


async def _submission(request: Request) -> _Submission:
    context: Context = request.app.state.context
    services = context.services
    try:
        caller = await browser_submitter(request)
    except NotAuthenticated:
        kept = await receive_texts(request, services.files, MAX_LOST_BYTES, MAX_PARTS)
        request.state.typed = {name: text for name, text in kept.items() if text}
        request.state.next_page = _link(kept)
        raise
    budget = await run_in_threadpool(files.upload_budget, context, caller)
    setting, limit = services.settings.upload_limit(_ROLES)
    texts, received = await receive_fields(
        request,
        services.files,
        {_FILE: limit},
        setting,
        budget,
        max_parts=MAX_PARTS,
        of_page=True,
    )
    form = Form(texts)
    with files.removed_if_refused(context, received.values()):
        check_sent(request, form, SESSION_COOKIE)
    return _Submission(caller, form, received.get(_FILE))


Submission = Annotated[_Submission, Depends(_submission)]


@router.get("/ui/submit")
async def empty(request: Request, caller: BrowserSubmitter, context: Ctx) -> Response:
    """The form, filled in as the address says, or with an earlier benchmark (``clone``)."""
    form = Form(request.query_params)
    for name in job_form.MATRIX:  # stated like other fields, or as the boxes that the form has
        form |= {f"{name}.{value}": "on" for value in request.query_params.getlist(name) if value}
        form.pop(name, None)
    if clone := form.get("clone"):
        changes, form = form, await run_in_threadpool(_form_of_benchmark, clone, caller, context)
        form = _with_changes(
            form, {name: text for name, text in changes.items() if name != "clone"}
        )
    job = job_form.read_request(form)
    ready = bool(job.whole.get("model")) and bool(job.whole.get("runtime"))
    preview = await _preview(job, caller, context) if ready else None
    return await run_in_threadpool(_page, request, caller, context, form, preview)


@router.post("/ui/submit/check")
async def check(request: Request, sent: Submission, context: Ctx) -> Response:
    """What would happen; a file that came with the form is uploaded, nothing is submitted."""
    preview = await run_in_threadpool(_name_file, sent, context)
    if preview is None:
        preview = await _preview(job_form.read_request(sent.form), sent.caller, context)
    return await run_in_threadpool(_page, request, sent.caller, context, sent.form, preview)


@router.post("/ui/submit")
async def submit(request: Request, sent: Submission, context: Ctx) -> Response:
    """Submit what was typed; what is refused is shown again, with what is wrong."""
    refused = await run_in_threadpool(_name_file, sent, context)
    job = job_form.read_request(sent.form)
    if refused is None and job.problems:
        refused = await _preview(job, sent.caller, context)
    elif refused is None:
        try:
            return see_other(*await _submit(job, sent, context))
        except NotAuthenticated:
            raise
        except EdgeyardError as error:
            refused = _refusal(error)
    return await run_in_threadpool(
        _page, request, sent.caller, context, sent.form, refused, refused.status
    )


def _name_file(sent: _Submission, context: Context) -> Preview | None:
    """Give the file that came with the form its name; returns what is wrong with it, if anything.

    The form then names the file, so that it need not be sent again.
    """
    if sent.file is None:
        return None
    try:
        named = files.name_file(context, sent.caller, sent.file, "/model")
    except EdgeyardError as error:
        return _refusal(error)
    sent.form["model"] = named.name
    return None


async def _submit(job: job_form.JobRequest, sent: _Submission, context: Context) -> tuple[str, str]:
    """Submit as `/v1` does; returns the page that shows what was made, and its notice."""
    caller, body = sent.caller, json_body(**job.body)
    # A form that is sent twice is one submission; once something in it is changed, it is another.
    key = hashlib.sha256(sent.form.get("key", "").encode() + body.data).hexdigest()
    match await _answer(job, body, caller, context, idempotency_key=key):
        case (
            shapes.AcceptedCampaign(campaign_id=str(campaign_id))
            | shapes.SubmissionAnswer(campaign_id=str(campaign_id))
        ):
            return f"/ui/benchmarks?campaign_id={quote(campaign_id)}", "submitted"
        case shapes.SubmissionAnswer(benchmark_id=str(benchmark_id)):
            return f"/ui/benchmarks/{quote(benchmark_id)}", "submitted"
    return "/ui/submit", "scheduled"


async def _answer(
    job: job_form.JobRequest,
    body: RawBody,
    caller: Caller,
    context: Context,
    *,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> object:
    """Return what `/v1/campaigns` answers, or, of one benchmark, `/v1/benchmarks`."""
    if job.matrix:
        with context.heavy.place(caller.user_id) as place:
            made = await campaigns.submit(
                place, body, caller, context, dry_run=dry_run, idempotency_key=idempotency_key
            )
        return made.content
    send = partial(
        submitting.submit, body, caller, context, dry_run=dry_run, idempotency_key=idempotency_key
    )
    return (await run_in_threadpool(send)).content


async def _preview(job: job_form.JobRequest, caller: Caller, context: Context) -> Preview:
    try:
        dry = await _answer(job, json_body(**job.body), caller, context, dry_run=True)
    except NotAuthenticated:
        raise
    except EdgeyardError as error:
        found = _refusal(error)
    else:
        found = _preview_of(dry)
    if job.problems:  # what could not be read was left out of the question
        wrong = {**found.wrong, **job_form.by_field(job.problems)}
        return Preview(wrong=wrong, status=422)
    return found


def _preview_of(dry: object) -> Preview:
    match dry:
        case shapes.CampaignDryRun(items=runs, left_out=left_out):
            return Preview(runs=runs, left_out=left_out)
        case shapes.DryRun():
            return Preview(runs=[dry])
    return Preview()


def _refusal(error: EdgeyardError) -> Preview:
    status = problem_of(error).status_code
    if isinstance(error, InvalidInput) and error.errors:
        return Preview(wrong=job_form.by_field(error.errors), status=status)
    return Preview(wrong={"": [str(error)]}, status=status)


def _page(
    request: Request,
    caller: Caller,
    context: Context,
    form: Form,
    preview: Preview | None,
    status: int = 200,
) -> Response:
    job = job_form.read_request(form)
    boards = lab.boards(caller, context).content.items
    name = form.text("model")
    model = next(iter(_own_files(caller, context, name)), None) if name else None
    return page(
        request,
        "submit",
        caller,
        status=status,
        form=form,
        key=secrets.token_urlsafe(16),
        fields=job_form.fields(),
        common=[job_form.fields()[name] for name in job_form.COMMON],
        groups=job_form.groups(),
        matrix=_matrix(boards, job_form.boxes(form, "target"), job_form.boxes(form, "runtime")),
        types=sorted({one for each in boards for engine in each.engines for one in _types(engine)}),
        suggested=sorted({each.name for each in _own_files(caller, context)}),
        inputs=files.inputs(model.file_id, caller, context).content.items if model else None,
        model=model,
        preview=preview,
        wrong=preview.wrong if preview else {},
        same=_equivalents(job) if job.whole.get("model") or job.whole.get("model_url") else {},
        link=_link(form),
    )


def _own_files(caller: Caller, context: Context, name: str | None = None) -> list[shapes.UserFile]:
    """Return the caller's newest files; operators see those of others, but can't submit them."""
    found = files.list_files(caller, context, name=name, limit=MAX_SUGGESTED).content.items
    return [each for each in found if each.user_id == caller.user_id]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Which engine runs which types on which family.

    Attributes:
        families: With the number of their boards.
        engines: Their names.
        types: Those that an engine runs on boards of a family, by both.
        chosen: Families and engines whose boxes are ticked.
    """

    families: Mapping[str, int]
    engines: Sequence[str]
    types: Mapping[tuple[str, str], Sequence[str]]
    chosen: frozenset[str]


def _matrix(
    boards: Sequence[shapes.Board], families: Sequence[str], engines: Sequence[str]
) -> Matrix:
    counts: dict[str, int] = dict.fromkeys(sorted({each.family for each in boards}), 0)
    types: dict[tuple[str, str], set[str]] = {}
    for each in boards:
        counts[each.family] += 1
        for engine in each.engines:
            types.setdefault((each.family, engine.name), set()).update(_types(engine))
    for family in families:  # of a link, or of a benchmark whose boards are gone
        counts.setdefault(family, 0)
    names = sorted({engine for _, engine in types} | set(engines))
    chosen = frozenset({*(f"target.{each}" for each in families)}) | {
        f"runtime.{each}" for each in engines
    }
    return Matrix(counts, names, {key: sorted(found) for key, found in types.items()}, chosen)


def _types(engine: shapes.Engine) -> list[str]:
    return [*engine.supported_types, *engine.declared_types]


def _equivalents(job: job_form.JobRequest) -> dict[str, str]:
    """Return what submits the same elsewhere, by its heading."""
    where = "/v1/campaigns" if job.matrix else "/v1/benchmarks"
    return {
        "Command line": equivalents.command_of(job),
        "Python": equivalents.python_of(job),
        f"JSON for POST {where}": equivalents.json_of(job),
    }


def _form_of_benchmark(benchmark_id: str, caller: Caller, context: Context) -> Form:
    found = benchmarks.show(whole_id(context.services, benchmark_id, caller), caller, context)
    return job_form.form_of(found.content.description)


def _with_changes(form: Form, changes: Mapping[str, str]) -> Form:
    """Return a form with changes; boxes of a field replace all of that field."""
    replaced = {f"{name.split('.')[0]}." for name in changes if "." in name}
    kept = {name: text for name, text in form.items() if not name.startswith(tuple(replaced))}
    return Form({**kept, **changes})


def _link(form: Mapping[str, str]) -> str:
    """Return the address of the form as it is typed; of an empty form if that is too long."""
    kept = [(name, text) for name, text in form.items() if text and name not in _NOT_TYPED]
    address = f"/ui/submit?{urlencode(kept)}" if kept else "/ui/submit"
    return address if len(address) <= MAX_LINK else "/ui/submit"
