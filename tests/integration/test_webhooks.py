"""Webhooks: what is sent, how it is signed, and that nothing is lost or doubled."""

from __future__ import annotations

import hashlib
import hmac
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeyard.benchmark_api.fetch import AddressRules
from edgeyard.benchmark_api.webhooks import WebhookKeys, WebhookSender
from edgeyard.errors import Conflict, UrlRefused
from edgeyard.scheduler.engine import lifecycle
from edgeyard.scheduler.engine.notify import BACK_OFF_S, Notifier
from edgeyard.scheduler.engine.registered_models import promote, roll_back
from edgeyard.scheduler.model.benchmark import Failure, FailureCategory, IfUnavailable
from edgeyard.scheduler.model.registered_models import ModelKind
from edgeyard.scheduler.model.subscriptions import Channel, first_subscriptions
from edgeyard.scheduler.model.users import Role, User
from edgeyard.scheduler.model.webhooks import Webhook
from tests.builders.api import running
from tests.builders.cluster import eventually
from tests.builders.engine import A, B, Lab
from tests.builders.notifier import KEYS, notifier_of
from tests.builders.registered import add_candidate
from tests.databases import database_in, stored_text
from tests.fakes.receiver import ReceivedFile, Receiver, receiver

LOCAL = AddressRules(["127.0.0.1"])


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def notifier(
    lab: Lab,
    rules: AddressRules = LOCAL,
    seen: list[str] | None = None,
    max_wait_s: float = 60.0,
) -> Notifier:
    def observe(name: str, value: float, labels: object) -> None:
        if seen is not None:
            seen.append(f"{name} {labels}")

    sender = WebhookSender(rules)
    return notifier_of(lab.store, lab.clock, observe, post=sender, max_wait_s=max_wait_s)


def hook(lab: Lab, url: str, user_id: str = "ann") -> Webhook:
    with lab.store.write() as uow:
        made = Webhook(
            user_id=user_id,
            url=url,
            salt=f"salt-of-{user_id}",
            created_at=lab.clock.now(),
        )
        uow.webhooks.put(made)
        with suppress(Conflict):
            role = Role.SUBMITTER
            uow.accounts.add_user(User(user_id=user_id, role=role, created_at=lab.clock.now()))
        user = uow.accounts.user(user_id)
        for each in first_subscriptions(user, uow.log.last_seq(), lab.clock.now()):
            uow.subscriptions.add(each)
    return made


def completed(lab: Lab, user_id: str = "ann") -> str:
    benchmark_id = lab.submit(user_id)
    lab.turn()
    job_id = lab.attempts(benchmark_id)[-1].job_id
    lab.complete(job_id)
    lab.turn()
    return benchmark_id


def is_genuine(received: ReceivedFile, secret: str) -> bool:
    """As a receiver checks it."""
    parts = dict(part.split("=", 1) for part in received.headers["x-edgeyard-signature"].split(","))
    signed = f"{parts['t']}.".encode() + received.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(parts["v1"], expected)


def test_an_end_is_notified_once_and_signed(lab: Lab, there: Receiver) -> None:
    completed(lab)  # before there was a webhook: not sent
    mine = hook(lab, there.url)
    telling = notifier(lab)
    telling.run()
    assert there.got == []
    benchmark_id = completed(lab)
    for _ in range(3):
        telling.run()
    (got,) = there.got
    body = got.json
    assert body["type"] == "benchmark.completed"
    assert body["benchmark_id"] == benchmark_id
    assert body["url"] == f"http://edgeyard.test/v1/benchmarks/{benchmark_id}"
    assert body["data"]["status"] == "completed"
    assert got.headers["content-type"] == "application/json"
    assert is_genuine(got, KEYS.secret(mine))
    assert not is_genuine(ReceivedFile(got.headers, got.body + b" "), KEYS.secret(mine))
    assert not is_genuine(got, KEYS.secret(hook(lab, there.url, "bob")))
    at = int(got.headers["x-edgeyard-signature"].split(",")[0].removeprefix("t="))
    assert at == int(lab.clock.now().timestamp())


def test_every_end_and_every_change_of_board_is_notified(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url)
    telling = notifier(lab)
    cancelled, expired, failed = lab.submit(), lab.submit(queue_timeout_s=1.0), lab.submit()
    with lab.store.write() as uow:
        lifecycle.cancel(uow, cancelled, lab.clock.now(), "ann")
        lifecycle.expire(uow, expired, lab.clock.now(), "too long", deadline=False)
        why = Failure(category=FailureCategory.USER_MODEL, sentence="no model")
        lifecycle.fail(uow, failed, why, lab.clock.now())
    again = lab.submit(max_retries=1)
    job_id = lab.running(again)
    lab.cluster.end(job_id, Failure(category=FailureCategory.BOARD_FAULT, sentence="hot"))
    lab.reconciler.run()
    telling.run()
    assert sorted(there.types()) == [
        "benchmark.cancelled",
        "benchmark.expired",
        "benchmark.failed",
        "benchmark.requeued",
    ]
    assert there.got[-1].json["data"]["category"] == "board_fault"
    there.got.clear()
    with lab.store.write() as uow:
        lifecycle.cancel(uow, again, lab.clock.now(), "ann")
    # A is gone: one that insists on it is reported, one that doesn't moves on.
    lab.cluster.boards = [each for each in lab.cluster.boards if each.target_uid == B]
    insists = lab.submit(target=None, target_uid=A, if_unavailable=IfUnavailable.NOTIFY)
    moves = lab.submit(target=None, target_uid=A)
    lab.turn()
    lab.clock.forward(300)
    lab.turn()
    lab.turn()
    telling.run()
    content = {(each.json["type"], each.json["benchmark_id"]) for each in there.got}
    assert content == {
        ("benchmark.cancelled", again),
        ("benchmark.unavailable", insists),
        ("benchmark.rescheduled", moves),
    }


def test_each_user_is_notified_of_their_own_benchmarks_only(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url + "/ann")
    with receiver() as elsewhere:
        hook(lab, elsewhere.url, "bob")
        mine, theirs = completed(lab), completed(lab, "bob")
        completed(lab, "carol")
        notifier(lab).run()
        assert [each.json["benchmark_id"] for each in there.got] == [mine]
        assert [each.json["benchmark_id"] for each in elsewhere.got] == [theirs]


@pytest.mark.parametrize("status", [500, 404, 302, 0])
def test_what_is_not_taken_is_tried_again_also_by_the_next_server(
    lab: Lab, there: Receiver, status: int
) -> None:
    hook(lab, there.url)
    there.status = status
    completed(lab)
    telling = notifier(lab)
    telling.run()
    telling.run()
    assert len(there.got) == 1  # not before its time, and no redirect is followed
    with lab.store.read() as uow:
        assert uow.webhooks.of("ann").last_error
        assert uow.deliveries.waiting("ann", Channel.WEBHOOK) == 1
    lab.clock.forward(BACK_OFF_S[0])
    notifier(lab).run()  # another process, the same store
    assert len(there.got) == 2
    there.status = 200
    lab.clock.forward(BACK_OFF_S[1] - 1)
    notifier(lab).run()
    assert len(there.got) == 2
    lab.clock.forward(1)
    notifier(lab).run()
    notifier(lab).run()
    assert len(there.got) == 3
    assert len({each.body for each in there.got}) == 1
    with lab.store.read() as uow:
        assert uow.webhooks.of("ann").last_error == ""
        assert uow.deliveries.waiting("ann", Channel.WEBHOOK) == 0


def test_a_day_later_it_is_given_up(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url)
    there.status = 500
    completed(lab)
    seen: list[str] = []
    telling = notifier(lab, seen=seen)
    for wait_s in (0.0, *BACK_OFF_S, 86400.0):
        lab.clock.forward(wait_s)
        telling.run()
    assert len(there.got) == len(BACK_OFF_S) + 1
    assert [each for each in seen if "given_up" in each]
    with lab.store.read() as uow:
        assert uow.deliveries.waiting("ann", Channel.WEBHOOK) == 0
        assert uow.webhooks.of("ann").last_error == "it answered 500"


def test_a_webhook_that_does_not_answer_is_called_once_per_turn_and_delays_no_other(
    lab: Lab, there: Receiver
) -> None:
    with receiver() as broken:
        broken.status = 503
        hook(lab, broken.url)
        hook(lab, there.url, "bob")
        for _ in range(3):
            completed(lab)
        completed(lab, "bob")
        notifier(lab).run()
        assert len(broken.got) == 1
        assert len(there.got) == 1
        broken.status = 200
        lab.clock.forward(BACK_OFF_S[0])
        notifier(lab).run()
        assert len(broken.got) == 4


def test_a_receiver_that_never_answers_delays_nobody_else(lab: Lab, there: Receiver) -> None:
    with receiver() as silent:
        silent.silent.set()
        hook(lab, silent.url)
        hook(lab, there.url, "bob")
        telling = notifier(lab, max_wait_s=0.0)
        for count in (1, 2):
            completed(lab)
            completed(lab, "bob")
            telling.run()
            eventually(lambda wanted=count: len(there.got) == wanted, "bob has been sent his")  # type: ignore[misc]
        assert len(silent.got) == 1
        telling.close()


def test_closing_aborts_deliveries_which_are_sent_again_later(lab: Lab, there: Receiver) -> None:
    there.silent.set()
    hook(lab, there.url)
    completed(lab)
    telling = notifier(lab, max_wait_s=0.0)
    telling.run()
    eventually(lambda: len(there.got) == 1, "the delivery is under way")
    telling.close()
    there.silent.clear()
    notifier(lab).run()
    assert len({each.json["id"] for each in there.got}) == 1
    assert len(there.got) == 2


def test_a_crash_between_log_and_delivery_loses_nothing(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url)
    for _ in range(3):
        completed(lab)
    telling = notifier(lab)
    telling._follow()  # the rows are in the store, and the process dies
    notifier(lab).run()
    assert len(there.got) == 3
    assert len({each.json["id"] for each in there.got}) == 3


def test_a_webhook_that_is_removed_gets_nothing_any_more(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url)
    there.status = 500
    completed(lab)
    telling = notifier(lab)
    telling.run()
    with lab.store.write() as uow:
        uow.webhooks.remove("ann")
    lab.clock.forward(86400)
    telling.run()
    assert len(there.got) == 1


def test_private_addresses_are_refused_at_each_try(lab: Lab, there: Receiver) -> None:
    hook(lab, there.url)
    completed(lab)
    notifier(lab, AddressRules()).run()
    assert there.got == []
    with lab.store.read() as uow:
        assert "loopback" in uow.webhooks.of("ann").last_error


def test_a_name_that_turned_private_is_refused(there: Receiver) -> None:
    port = there.url.split(":")[2].split("/")[0]
    sender = WebhookSender(AddressRules(), resolve=lambda host, port: ["127.0.0.1"])
    with pytest.raises(UrlRefused):
        sender.post("http://rebound.example.org/hook", b"{}", {})
    with pytest.raises(UrlRefused):
        sender.post(f"http://rebound.example.org:{port}/hook", b"{}", {})
    assert there.got == []


# --- over HTTP ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://10.0.0.5/hook", "http://localhost/hook", "https://ci.example.org:9999/hook"]
)
def test_a_refused_address_names_the_setting_that_can_allow_it(tmp_path: Path, url: str) -> None:
    host = url.split("/")[2].partition(":")[0]
    with running(tmp_path) as api:
        refused = api.as_().put("/v1/users/alice/webhook", json={"url": url})
        assert refused.status_code == 422, refused.text
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "/url"
        assert f"the operator's setting webhook_hosts can allow {host}" in error["reason"]
    with running(tmp_path / "allowed", webhook_hosts=(host,)) as api:
        assert api.as_().put("/v1/users/alice/webhook", json={"url": url}).status_code == 200


def test_the_secret_is_shown_once_and_is_not_in_the_database(tmp_path: Path) -> None:
    with running(tmp_path, webhook_hosts=("127.0.0.1",)) as api:
        asked = {"url": "http://127.0.0.1:9/hook"}
        made = api.as_().put("/v1/users/alice/webhook", json=asked)
        assert made.status_code == 200, made.text
        secret = made.json()["secret"]
        assert secret.startswith("whsec_")
        assert len(secret) > 40
        shown = api.as_().get("/v1/users/alice/webhook").json()
        assert shown["url"] == asked["url"]
        assert shown["waiting"] == 0
        assert secret not in str(shown)
        with api.store.read() as uow:
            assert api.services.webhook_keys.secret(uow.webhooks.of("alice")) == secret
        dump = stored_text(database_in(tmp_path))
        assert "salt" in dump
        assert secret not in dump
        assert secret.removeprefix("whsec_") not in dump
        again = api.as_().put("/v1/users/alice/webhook", json=asked).json()["secret"]
        assert again != secret
        gone = api.as_().put("/v1/users/alice/webhook", json={"url": None}).json()
        assert gone["url"] is None
        assert "secret" not in gone


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/x", "http://10.0.0.1/x", "ftp://example.org/x", "http://u:p@example.org/x"],
)
def test_a_url_that_must_not_be_posted_to_is_refused(tmp_path: Path, url: str) -> None:
    # What models may be fetched from is none of the webhooks' matter.
    with running(tmp_path, allow_hosts=("127.0.0.1", "10.0.0.0/8")) as api:
        answer = api.as_().put("/v1/users/alice/webhook", json={"url": url})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/url"
        assert api.as_().put("/v1/users/alice/webhook", json={}).status_code == 422


def test_the_server_s_key_is_its_own_and_stays(tmp_path: Path) -> None:
    made = Webhook(user_id="ann", url="", salt="s", created_at=datetime(2026, 11, 21, tzinfo=UTC))
    first = WebhookKeys.of_folder(tmp_path).secret(made)
    assert WebhookKeys.of_folder(tmp_path).secret(made) == first
    (other := tmp_path / "other").mkdir()
    assert WebhookKeys.of_folder(other).secret(made) != first
    assert stat.S_IMODE((tmp_path / "webhook.key").stat().st_mode) == 0o600


def test_operators_are_sent_promotions_and_roll_backs_of_models(lab: Lab, there: Receiver) -> None:
    with lab.store.write() as uow:
        for user_id in ("olga", "otto"):
            uow.accounts.add_user(
                User(user_id=user_id, role=Role.OPERATOR, created_at=lab.clock.now())
            )
    hooks = {user_id: hook(lab, there.url, user_id) for user_id in ("olga", "otto", "ann")}
    add_candidate(lab.store)
    now = lab.clock.now()
    with lab.store.write() as uow:
        promote(uow, ModelKind.FAILURE, 1, now, by_user_id="olga")
        promote(uow, ModelKind.FAILURE, 1, now, by_user_id="", force=True)
        roll_back(uow, ModelKind.FAILURE, now, by_user_id="", reason="worse")
    sending = notifier(lab)
    for _ in range(3):
        sending.run()
    sent = {
        user_id: [each.json for each in there.got if is_genuine(each, KEYS.secret(of))]
        for user_id, of in hooks.items()
    }
    assert {user_id: len(each) for user_id, each in sent.items()} == {
        "olga": 3,
        "otto": 3,
        "ann": 0,
    }
    for received in (sent["olga"], sent["otto"]):
        assert [each["data"]["state"] for each in received] == ["shadow", "active", "retired"]
        assert {each["type"] for each in received} == {"model.state"}
        assert received[0]["url"] == "http://edgeyard.test/v1/models/failure/1"
        assert received[-1]["data"]["reason"] == "rolled back: worse"
