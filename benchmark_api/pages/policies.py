"""Policies: which decides, which is its shadow, what the scorers do; and what may be changed."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from edgeyard.benchmark_api.auth import BrowserOperator, BrowserUser
from edgeyard.benchmark_api.pages.forms import SignedInForm, json_body
from edgeyard.benchmark_api.pages.page import page, see_other
from edgeyard.benchmark_api.routes import policies, scorers
from edgeyard.benchmark_api.routes.context import Ctx
from edgeyard.benchmark_api.routes.contract import PageRouter
from edgeyard.errors import InvalidInput
from edgeyard.scheduler.model.policies import PolicyRole

router = PageRouter()

CYCLES = 1000
"""The newest recorded cycles that a shadow is judged by."""


@router.get("/ui/policies")
def listed(request: Request, caller: BrowserUser, context: Ctx) -> Response:
    """All policies with what each is doing, the scorers of the active one, and the shadow."""
    found = policies.policies(caller, context).content
    compared = None
    if caller.is_operator:
        compared = policies.comparison(caller, context, limit=CYCLES).content
    return page(
        request,
        "policies",
        caller,
        policies=sorted(found.items, key=lambda each: (not each.roles, each.name, -each.version)),
        overrides=found.overrides,
        scorers=scorers.scorers(caller, context).content,
        compared=compared,
    )


@router.get("/ui/policies/{name}")
def one(request: Request, name: str, caller: BrowserUser, context: Ctx) -> Response:
    """A policy with its text."""
    version = request.query_params.get("version", "")
    if version and not (version.isdecimal() and len(version) < 7):
        raise InvalidInput.at("/version", "is no version", "a number such as 2")
    found = policies.policy(name, caller, context, int(version) if version else None).content
    return page(request, "policy", caller, policy=found)


@router.post("/ui/policies/{role}")
def activate(
    role: PolicyRole, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Let a policy decide, or decide as the shadow."""
    policies.activate(role, json_body(name=form.text("name")), caller, context)
    return see_other("/ui/policies", f"policy-{role.value}")


@router.post("/ui/policies/{role}/end")
def deactivate(
    role: PolicyRole, form: SignedInForm, caller: BrowserOperator, context: Ctx
) -> Response:
    """Return to the configured policy, or end the shadow."""
    policies.deactivate(role, caller, context)
    return see_other("/ui/policies", f"policy-{role.value}-ended")
