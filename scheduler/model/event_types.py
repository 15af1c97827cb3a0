"""The catalogue of all types of events and acts: what messages, the log and its pages call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of event.

    Attributes:
        text: What happened, as a sentence without its end.
        act: Somebody did it: the log of acts has a record of this type.
        sent: Users can subscribe to it.
    """

    text: str
    act: bool = False
    sent: bool = False


def _act(text: str) -> EventType:
    return EventType(text, act=True)


EVENT_TYPES: Mapping[str, EventType] = {
    "alert.confirmed": EventType("a change of a series was confirmed", sent=True),
    "alert.dismissed": EventType("an alert was dismissed", act=True, sent=True),
    "alert.open": EventType("a change of a series could not be confirmed or refuted", sent=True),
    "alert.reopened": EventType("an alert that was resolved came back", sent=True),
    "alert.resolved": EventType("an alert was resolved", act=True, sent=True),
    "attempt.adopted": EventType("a run that the database did not know was taken over"),
    "attempt.board": EventType("a run began on another board than it was placed on"),
    "attempt.repair_failed": EventType("the record of a run could not be brought up to date"),
    "attempt.state": EventType("a run of a benchmark changed its state"),
    "benchmark.cancelled": EventType("a benchmark was cancelled", act=True, sent=True),
    "benchmark.completed": EventType("a benchmark completed", sent=True),
    "benchmark.deleted": _act("a benchmark was deleted"),
    "benchmark.expired": EventType("a benchmark expired before it could run", sent=True),
    "benchmark.failed": EventType("a benchmark failed", sent=True),
    "benchmark.held": _act("a benchmark was held back"),
    "benchmark.phase": EventType("the run of a benchmark reached another phase"),
    "benchmark.preempted": _act("a run was stopped so that its board is free"),
    "benchmark.preempts": EventType("a benchmark waits for the board of one that was preempted"),
    "benchmark.prioritised": _act("the priority of a benchmark was changed"),
    "benchmark.released": _act("a benchmark that was held back may run"),
    "benchmark.requeued": EventType("a benchmark is tried again", sent=True),
    "benchmark.rescheduled": EventType(
        "a benchmark runs on another board than the one that it named", sent=True
    ),
    "benchmark.status": EventType("a benchmark changed its status"),
    "benchmark.submitted": _act("a benchmark was submitted"),
    "benchmark.unavailable": EventType(
        "the board that a benchmark names is not available", sent=True
    ),
    "benchmark.unpinned": EventType("a benchmark may run on another board than it asked for"),
    "benchmark.waiting": EventType("what a benchmark waits for changed"),
    "board.added": _act("a board was added to the inventory"),
    "board.changed": EventType("the host, an engine or the firmware of a board changed"),
    "board.drained": EventType("a board was taken out of service", act=True, sent=True),
    "board.leased": _act("a board was leased"),
    "board.offline": EventType("a board is offline, or not usable", sent=True),
    "board.online": EventType("a board is back after it was offline", sent=True),
    "board.probe_failed": EventType("the probe of a board in quarantine failed"),
    "board.probed": _act("the probe of a board in quarantine was brought forward"),
    "board.quarantined": EventType("a board was put into quarantine", act=True, sent=True),
    "board.registered": _act("a board was registered by the platform's client"),
    "board.released": _act("the lease of a board was ended"),
    "board.removed": _act("a board was removed from the inventory"),
    "board.resumed": EventType("a drained board was put back into service", act=True, sent=True),
    "board.unquarantined": EventType("the quarantine of a board was lifted", act=True, sent=True),
    "board.unregistered": _act("the registration of a board was removed"),
    "campaign.cancelled": _act("the benchmarks of a campaign were cancelled"),
    "campaign.changed": _act("the benchmarks of a campaign were changed"),
    "campaign.submitted": _act("a campaign was submitted"),
    "check.cancelled": _act("a check was cancelled"),
    "check.ended": EventType("a check ended"),
    "check.started": _act("a check of two versions was started"),
    "cluster.stray_ended": EventType("a job that the database did not know ended"),
    "cluster.stray_job": EventType("the cluster runs a job that the database does not know"),
    "cluster.stray_stopped": _act("a job that the database does not know was stopped"),
    "disk.enough": EventType("the server's disk has room again", sent=True),
    "disk.low": EventType("the server's disk is nearly full", sent=True),
    "engine.registered": _act("an engine, or a parameter of one, was registered or changed"),
    "engine.unregistered": _act("an engine, or a parameter of one, was removed"),
    "family.registered": _act("a hardware type was registered"),
    "family.unregistered": _act("a hardware type was removed"),
    "file.deleted": _act("a file was deleted"),
    "file.fetched": EventType("a file that a benchmark names was downloaded"),
    "file.renamed": _act("a file was given another name"),
    "file.uploaded": _act("a file was uploaded"),
    "group.added": _act("a group of users was made"),
    "group.changed": _act("a group of users was changed"),
    "group.removed": _act("a group of users was removed"),
    "inventory.reload_failed": EventType("the inventory could not be read again"),
    "inventory.reloaded": _act("the inventory was changed and read again"),
    "model.changed": _act("a trained model was promoted or rolled back"),
    "model.state": EventType("a trained model changed its state", sent=True),
    "password.removed": _act("the password of an account was removed"),
    "password.set": _act("the password of an account was set"),
    "policy.active": _act("the active policy was changed"),
    "policy.changed": _act("a policy was stored or changed"),
    "policy.override": _act("a benchmark was given a policy of its own, or none"),
    "policy.shadow": _act("the shadow policy was changed"),
    "rate.set": _act("the price of a family's boards was set"),
    "request.changed": _act("something was changed by a route of an installed package"),
    "result.late": EventType("a result came after its benchmark had ended"),
    "result.received": EventType("the result of a run was received"),
    "scenario.changed": _act("a scenario was stored, tagged or removed"),
    "schedule.ended": _act("a schedule was ended"),
    "scorer.changed": _act("the state of a scorer was changed"),
    "scorer.resumed": EventType("a scorer that failed answers again", sent=True),
    "scorer.suspended": EventType("a scorer fails and is not called for a while", sent=True),
    "series.blamed": EventType("more results show what explains an alert"),
    "series.changed": _act("the settings of a series, or its threshold, were changed"),
    "series.noise": EventType("a suspected change of a series was refuted"),
    "series.suspected": EventType("the level of a series seems to have changed"),
    "series.unconfirmed": EventType(
        "a suspected change of a series could not be confirmed or refuted"
    ),
    "server.clock_differs": EventType("the clocks of server and database differ"),
    "server.leader": EventType("another server leads", sent=True),
    "server.pruned": _act("old data was deleted by a command on the server's machine"),
    "server.reload_failed": _act("the settings could not be read again"),
    "server.reloaded": _act("the settings were read again"),
    "session.ended": _act("a session ended"),
    "session.opened": _act("somebody signed in"),
    "share.added": _act("a link was made that shows something without signing in"),
    "share.removed": _act("a link that showed something without signing in was revoked"),
    "sign_in.failed": _act("sign-ins failed, counted for each address and minute"),
    "simulation.changed": _act("a simulation was stored or removed"),
    "subscription.added": _act("a user subscribed to messages"),
    "subscription.removed": _act("a subscription to messages was removed"),
    "token.added": _act("a token was made"),
    "token.revoked": _act("a token was revoked"),
    "training.begun": _act("the training of models was begun"),
    "training.stopped": _act("the training of models was stopped"),
    "twin.fresh": EventType("the cluster answers again", sent=True),
    "twin.stale": EventType("the state of the boards is out of date", sent=True),
    "user.added": _act("an account was made"),
    "user.changed": _act("an account was changed"),
    "user.credits": _act("the credits of an account were changed"),
    "webhook.removed": _act("the webhook of a user was removed"),
    "webhook.set": _act("the webhook of a user was set"),
}
"""All types, in the order of their names."""
