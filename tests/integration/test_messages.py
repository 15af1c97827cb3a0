"""Messages to users: who is sent what, by mail and chat, how often, and what holds nobody up."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeyard.benchmark_api.mail import MailSettings
from edgeyard.errors import Conflict
from edgeyard.scheduler.engine.election import LeaderView
from edgeyard.scheduler.engine.lab_watch import OFFLINE_S, STALE_S, LabSources, LabWatch
from edgeyard.scheduler.engine.notify import BACK_OFF_S
from edgeyard.scheduler.model.checks import CHECK_TAG
from edgeyard.scheduler.model.event import Event
from edgeyard.scheduler.model.subscriptions import (
    Channel,
    Delivery,
    Subscription,
    Topic,
    new_subscription_id,
)
from edgeyard.scheduler.model.users import Login, Role, User
from edgeyard.scheduler.model.webhooks import Webhook, WebhookFormat
from edgeyard.scheduler.twin.twin import BoardState, BoardView
from tests.builders.api import running
from tests.builders.cluster import eventually
from tests.builders.engine import A, B, Lab
from tests.builders.notifier import notifier_of
from tests.builders.series import key
from tests.fakes.cluster import board
from tests.fakes.mail import MailBox, hanging_server, mail_server
from tests.fakes.receiver import Receiver, receiver


@pytest.fixture
def box() -> Iterator[MailBox]:
    with mail_server() as made:
        yield made


@pytest.fixture
def there() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def settings(port: int, **changes: Any) -> MailSettings:
    plain = MailSettings(
        host="127.0.0.1",
        port=port,
        security="none",
        user="",
        password="",
        sender="Lab <lab@example.org>",
    )
    return replace(plain, **changes)


def account(lab: Lab, user_id: str, role: Role = Role.SUBMITTER, email: str = "") -> None:
    now = lab.clock.now()
    with lab.store.write() as uow:
        with suppress(Conflict):
            uow.accounts.add_user(User(user_id=user_id, role=role, created_at=now))
        uow.accounts.put_login(
            Login(
                user_id=user_id,
                email=email or f"{user_id}@example.org",
                password_hash="x",
                changed_at=now,
            )
        )


def subscribe(
    lab: Lab,
    user_id: str,
    topic: Topic = Topic.USER,
    about: str = "",
    channel: Channel = Channel.MAIL,
    events: tuple[str, ...] = (),
) -> None:
    with lab.store.write() as uow:
        uow.subscriptions.add(
            Subscription(
                subscription_id=new_subscription_id(),
                user_id=user_id,
                topic=topic,
                about=about or (user_id if topic is Topic.USER else ""),
                channel=channel,
                events=events,
                created_at=lab.clock.now(),
                since_seq=uow.log.last_seq(),
            )
        )


def webhook(lab: Lab, user_id: str, url: str, form: WebhookFormat) -> None:
    with lab.store.write() as uow:
        uow.webhooks.put(
            Webhook(user_id=user_id, url=url, salt="s", created_at=lab.clock.now(), format=form)
        )


def completed(lab: Lab, user_id: str = "ann", **changes: Any) -> str:
    benchmark_id = lab.submit(user_id, **changes)
    lab.turn()
    lab.complete(lab.attempts(benchmark_id)[-1].job_id)
    lab.turn()
    return benchmark_id


def happened(lab: Lab, kind: str, user_id: str | None = None, **data: object) -> None:
    with lab.store.write() as uow:
        uow.log.append(Event(at=lab.clock.now(), kind=kind, user_id=user_id, data=data))


ALERT = {
    "change_id": "change-1",
    "series_id": "series-1",
    "lineage": "nightly",
    "target_uid": A,
    "runtime": "ort",
    "size": 0.051,
    "sentence": "the model is 5.1 % slower",
}


def log_of(lab: Lab, user_id: str = "ann") -> list[Delivery]:
    with lab.store.read() as uow:
        return list(uow.deliveries.page(user_id=user_id, state=None, limit=99, cursor=None)[0])


def test_a_subscriber_is_mailed_each_event_once(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    completed(lab)
    subscribe(lab, "ann")
    subscribe(lab, "ann", Topic.SERIES, "net.onnx")
    sending = notifier_of(lab.store, lab.clock, mail=settings(box.port))
    sending.run()
    assert box.got == []  # what was before
    benchmark_id = completed(lab)
    completed(lab, "bob")
    for _ in range(2):
        sending.run()
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    (mail,) = box.got
    assert box.recipients == ["ann@example.org"]
    assert mail["From"] == "Lab <lab@example.org>"
    assert mail["Subject"] == f"[Test lab] A benchmark completed: {benchmark_id}"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert f"http://edgeyard.test/ui/benchmarks/{benchmark_id}" in mail.get_content()
    (logged,) = log_of(lab)
    assert (logged.state.value, logged.recipient, logged.tries) == ("sent", "ann@example.org", 1)


def test_runs_of_checks_are_not_reported_one_by_one(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    completed(lab, tags=(CHECK_TAG,))
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    assert box.got == []
    assert log_of(lab) == []


def test_an_alert_goes_to_its_owner_and_to_subscribers_who_may_see_it(
    lab: Lab, box: MailBox
) -> None:
    for user_id, role in (("ann", Role.SUBMITTER), ("bob", Role.SUBMITTER), ("op", Role.OPERATOR)):
        account(lab, user_id, role)
    subscribe(lab, "ann")
    for about in ("nightly", "series-1"):
        subscribe(lab, "op", Topic.SERIES, about)
    subscribe(lab, "bob", Topic.SERIES, "nightly")
    subscribe(lab, "bob", Topic.BOARD, A)
    happened(lab, "alert.confirmed", "ann", **ALERT)
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    assert sorted(box.recipients) == ["ann@example.org", "op@example.org"]
    text = box.got[0].get_content()
    assert "the model is 5.1 % slower" in text
    assert "size: +5.1%" in text
    assert "http://edgeyard.test/ui/alerts/change-1" in text.splitlines()
    series = f"http://edgeyard.test/ui/history?series=nightly&target_uid={A}&runtime=ort"
    assert f"its series: {series}" in text.splitlines()
    assert log_of(lab, "bob") == []


def test_a_lineage_that_is_named_as_a_series_id_reaches_no_subscriber_of_that_series(
    lab: Lab, box: MailBox
) -> None:
    account(lab, "op", Role.OPERATOR)
    series_id = key(target_uid=A).series_id
    subscribe(lab, "op", Topic.SERIES, series_id)
    completed(lab, "bob", series=series_id)
    happened(lab, "alert.confirmed", "bob", **{**ALERT, "lineage": series_id})
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    assert box.got == []
    happened(lab, "alert.confirmed", "ann", **{**ALERT, "series_id": series_id})
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    assert box.recipients == ["op@example.org"]


def test_a_long_cause_is_mailed_whole(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    measured = " ".join(f"Version {each:012x} is 0.1 % faster." for each in range(30))
    happened(lab, "alert.confirmed", "ann", **{**ALERT, "sentence": f"{measured} The end."})
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    (mail,) = box.got
    assert " ".join(mail.get_content().split()).count("is 0.1 % faster.") == 30
    assert "The end." in " ".join(mail.get_content().split())


def test_a_user_who_lost_the_right_to_see_an_event_is_sent_nothing(lab: Lab, box: MailBox) -> None:
    account(lab, "op", Role.OPERATOR)
    account(lab, "ann")
    subscribe(lab, "op", Topic.USER, "ann")
    subscribe(lab, "ann")
    sending = notifier_of(lab.store, lab.clock, mail=settings(box.port))
    box.answer = "451 later"
    completed(lab)
    sending.run()
    with lab.store.write() as uow:
        user = uow.accounts.user("op", for_update=True)
        uow.accounts.save_user(replace(user, role=Role.SUBMITTER))
        user = uow.accounts.user("ann", for_update=True)
        uow.accounts.save_user(replace(user, disabled=True))
    box.answer = ""
    lab.clock.forward(BACK_OFF_S[0])
    sending.run()
    completed(lab)
    sending.run()
    assert box.got == []
    assert [each.state.value for each in log_of(lab, "op")] == ["withheld"]
    assert [each.state.value for each in log_of(lab, "ann")] == ["withheld"]


def test_topics_are_about_their_things(lab: Lab, there: Receiver) -> None:
    account(lab, "ann")
    account(lab, "op", Role.OPERATOR)
    for user_id in ("ann", "op"):
        webhook(lab, user_id, f"{there.url}/{user_id}", WebhookFormat.EDGEYARD)
    by = Channel.WEBHOOK
    subscribe(lab, "ann", Topic.CAMPAIGN, "camp-1", by, ("benchmark.completed",))
    subscribe(lab, "ann", Topic.BOARD, A, by)
    subscribe(lab, "op", Topic.LAB, "", by)
    subscribe(lab, "ann", Topic.LAB, "", by)  # as left by somebody who was an operator
    in_it = completed(lab, campaign_id="camp-1")
    completed(lab, campaign_id="camp-2")
    happened(lab, "board.drained", "op", target_uid=A, before={"x": 1})
    happened(lab, "board.quarantined", target_uid=A, reason="4 of 5 failed")
    happened(lab, "board.quarantined", target_uid=B)
    happened(lab, "server.leader", reason="http://b leads now")
    happened(lab, "model.state", model="failure/1", state="candidate")
    notifier_of(lab.store, lab.clock).run()
    with lab.store.read() as uow:
        rows = uow.deliveries.page(user_id=None, state=None, limit=99, cursor=None)[0]
    sent = [(each.user_id, each.kind) for each in sorted(rows, key=lambda each: each.event_seq)]
    assert sorted(sent) == sorted(
        [
            ("ann", "benchmark.completed"),
            ("ann", "board.drained"),
            ("ann", "board.quarantined"),
            ("op", "board.quarantined"),
            ("op", "board.quarantined"),
            ("op", "server.leader"),
        ]
    )
    assert [each.benchmark_id for each in rows if each.benchmark_id] == [in_it]
    assert all("before" not in each.json["data"] for each in there.got)


def test_an_event_is_compared_with_subscriptions_to_its_own_things_alone(
    lab: Lab, there: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    account(lab, "ann")
    webhook(lab, "ann", there.url, WebhookFormat.EDGEYARD)
    number = 300
    for each in range(number):
        subscribe(lab, "ann", Topic.SERIES, f"series-{each}", Channel.WEBHOOK)
    compared, wants = [], Subscription.wants

    def counted(self: Subscription, kind: str) -> bool:
        compared.append(kind)
        return wants(self, kind)

    monkeypatch.setattr(Subscription, "wants", counted)
    for each in range(number):
        happened(lab, "alert.confirmed", "ann", **{**ALERT, "series_id": f"series-{each}"})
    notifier_of(lab.store, lab.clock).run()
    assert len(compared) == number
    with lab.store.read() as uow:
        rows = uow.deliveries.page(user_id="ann", state=None, limit=number + 1, cursor=None)[0]
    assert len(rows) == number


@pytest.mark.parametrize("form", [WebhookFormat.SLACK, WebhookFormat.MATTERMOST])
def test_a_chat_gets_a_text_in_its_notation_which_names_can_not_break(
    lab: Lab, there: Receiver, form: WebhookFormat
) -> None:
    account(lab, "ann")
    webhook(lab, "ann", there.url, form)
    subscribe(lab, "ann", channel=Channel.WEBHOOK)
    broken = ALERT | {"lineage": "<!channel>\n@all [x](http://evil)"}
    happened(lab, "alert.confirmed", "ann", **broken)
    notifier_of(lab.store, lab.clock).run()
    (got,) = there.got
    assert list(got.json) == ["text"]
    text = got.json["text"]
    assert "http://edgeyard.test/ui/alerts/change-1" in text
    assert "http://edgeyard.test/ui/history?series=%3C%21channel%3E%0A%40all+%5Bx%5D%28http" in text
    assert "the model is 5.1 % slower" in text
    assert "<!channel>" not in text
    assert "\n@all" not in text
    if form is WebhookFormat.MATTERMOST:
        assert "@all" not in text
        assert "[x](http" not in text


def test_names_can_not_add_headers_to_a_mail(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    name = "x\r\nBcc: eve@example.org\r\n\r\nhello\u2028" + "y" * 5000
    happened(lab, "alert.confirmed", "ann", **(ALERT | {"lineage": name}))
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    (mail,) = box.got
    assert mail["Bcc"] is None
    assert box.recipients == ["ann@example.org"]
    assert len(mail["Subject"]) <= 150


@pytest.mark.parametrize("address", ["a@b.org\r\nRCPT TO:<eve@x.org>", "a@b.org, eve@x.org", "ann"])
def test_an_address_that_is_none_is_given_up_at_once(lab: Lab, box: MailBox, address: str) -> None:
    account(lab, "ann", email=address)
    subscribe(lab, "ann")
    completed(lab)
    notifier_of(lab.store, lab.clock, mail=settings(box.port)).run()
    assert box.recipients == []
    assert [each.state.value for each in log_of(lab)] == ["failed"]


def test_mail_is_tried_again_unless_the_address_is_refused_for_good(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    sending = notifier_of(lab.store, lab.clock, mail=settings(box.port))
    box.answer = "451 try later"
    completed(lab)
    sending.run()
    (logged,) = log_of(lab)
    assert (logged.state.value, logged.tries) == ("waiting", 1)
    assert "451 try later" in logged.error
    box.answer = ""
    lab.clock.forward(BACK_OFF_S[0])
    sending.run()
    assert len(box.got) == 1
    box.answer = "550 no such user"
    completed(lab)
    sending.run()
    assert log_of(lab)[0].state.value == "failed"


def test_after_the_messages_of_a_day_one_says_that_no_more_follow(lab: Lab, box: MailBox) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    mail = settings(box.port)
    sending = notifier_of(lab.store, lab.clock, mail=mail, per_day=lambda channel: 2)
    for _ in range(5):
        happened(lab, "alert.confirmed", "ann", **ALERT)
        sending.run()
    assert len(box.got) == 3
    assert "2 messages were sent today" in box.got[2]["Subject"]
    states = [each.state.value for each in log_of(lab)]
    assert sorted(states) == ["limited", "limited", "sent", "sent", "sent"]
    lab.clock.forward(86400)
    happened(lab, "alert.confirmed", "ann", **ALERT)
    sending.run()
    assert len(box.got) == 4


def test_a_message_that_is_refused_keeps_no_other_from_being_sent(
    lab: Lab, there: Receiver
) -> None:
    account(lab, "ann")
    webhook(lab, "ann", there.url, WebhookFormat.EDGEYARD)
    subscribe(lab, "ann", channel=Channel.WEBHOOK)
    there.refuses, *others = [completed(lab) for _ in range(4)]
    sending = notifier_of(lab.store, lab.clock)
    for wait_s in (0.0, *BACK_OFF_S):
        lab.clock.forward(wait_s)
        sending.run()
    states = {each.benchmark_id: (each.state.value, each.tries) for each in log_of(lab)}
    assert states == {
        there.refuses: ("failed", len(BACK_OFF_S) + 1),
        **dict.fromkeys(others, ("sent", 1)),
    }


def test_a_mail_server_that_hangs_delays_no_webhook(lab: Lab, there: Receiver) -> None:
    for user_id in ("ann", "bob", "cid"):
        account(lab, user_id)
        subscribe(lab, user_id)
    webhook(lab, "ann", there.url, WebhookFormat.EDGEYARD)
    subscribe(lab, "ann", channel=Channel.WEBHOOK)
    with hanging_server() as port:
        sending = notifier_of(lab.store, lab.clock, mail=settings(port), max_wait_s=0.0)
        for user_id in ("bob", "cid", "ann"):
            completed(lab, user_id)
        sending.run()
        eventually(lambda: len(there.got) == 1, "the webhook was called")
        sending.close()


def test_a_mail_server_that_hangs_is_left_in_time(lab: Lab) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    completed(lab)
    with hanging_server() as port:
        mail = settings(port)
        notifier_of(lab.store, lab.clock, mail=mail, mail_timeout_s=0.3).run()
    (logged,) = log_of(lab)
    assert logged.state.value == "waiting"
    assert "in time" in logged.error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 that it has signed itself."""
    path = tmp_path_factory.mktemp("mail") / "mail.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", str(path)]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(path.with_suffix(".crt"))]
    subprocess.run(made, check=True, capture_output=True)
    return path


def test_mail_goes_encrypted_with_a_log_in_and_no_secret_is_logged(
    lab: Lab, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    account(lab, "ann")
    subscribe(lab, "ann")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate.with_suffix(".crt"), certificate)
    with mail_server(tls) as box:
        good = settings(
            box.port,
            security="starttls",
            user="lab",
            password="s3cret-word",
            ca_file=certificate.with_suffix(".crt"),
        )
        assert "s3cret" not in repr(good)
        for number, each in enumerate((good, replace(good, password="other-word"))):
            completed(lab)
            notifier_of(lab.store, lab.clock, mail=each).run()
            assert len(box.logins) == number + 1
        assert box.encrypted == [True]
        completed(lab)
        lab.clock.forward(BACK_OFF_S[0])
        notifier_of(lab.store, lab.clock, mail=replace(good, ca_file=None)).run()
        assert len(box.got) == 1  # its certificate is not trusted
    errors = [each.error for each in log_of(lab)]
    assert any("can't be reached" in each for each in errors)
    assert "word" not in caplog.text.replace("smtp_password", "")


# --- the lab ------------------------------------------------------------------------------------


def watched(lab: Lab, state: dict[str, Any]) -> LabWatch:
    """Return a watch on a state that the test changes."""

    def views() -> list[BoardView]:
        away = state.get("away", ())
        return [
            BoardView(
                board=board(uid),
                state=BoardState.OFFLINE if uid in away else BoardState.IDLE,
                reason="no host reports it" if uid in away else "",
                host="h",
                expected=True,
                online=uid not in away,
                drained=uid in state.get("drained", ()),
                holder=None,
            )
            for uid in (A, B)
        ]

    def leader() -> LeaderView:
        return LeaderView(
            leads=True,
            epoch=1,
            server_id=state.get("server", "one"),
            url=f"http://{state.get('server', 'one')}",
            since=None,
            silent_s=0.0,
            lease_s=5.0,
        )

    sources = LabSources(
        boards=views,
        twin_age_s=lambda: state.get("age_s", 0.0),
        max_twin_age_s=60.0,
        twin_problem=lambda: "no route",
        disk_problem=lambda: state.get("disk", ""),
        leader=leader,
    )
    return LabWatch(lab.store, sources, lab.clock)


def reported(lab: Lab) -> list[str]:
    with lab.store.read() as uow:
        found = uow.log.events(after=0, limit=999)
    prefixes = ("board.o", "twin.", "disk.", "server.leader", "scorer.")
    return [
        f"{each.kind} {each.data.get('target_uid', '')}".strip()
        for each in found
        if each.kind.startswith(prefixes)
    ]


def test_a_board_that_stays_offline_is_reported_once_and_its_return(lab: Lab) -> None:
    state: dict[str, Any] = {"away": (A,)}
    watch = watched(lab, state)
    watch.run()
    lab.clock.forward(OFFLINE_S - 1)
    watch.run()
    assert reported(lab) == []
    lab.clock.forward(1)
    watch.run()
    watch.run()
    watched(lab, state).run()  # another server leads
    assert reported(lab) == [f"board.offline {A}"]
    state["age_s"] = 100.0
    watch.run()  # nothing is known of the boards
    state |= {"age_s": 0.0, "away": ()}
    watch.run()
    assert reported(lab) == [f"board.offline {A}", f"board.online {A}"]


def test_a_drained_board_may_be_offline(lab: Lab) -> None:
    watch = watched(lab, {"away": (A,), "drained": (A,)})
    for _ in range(2):
        watch.run()
        lab.clock.forward(OFFLINE_S)
    assert reported(lab) == []


def test_a_stale_twin_a_full_disk_and_a_new_leader_are_reported(lab: Lab) -> None:
    state: dict[str, Any] = {"age_s": 61.0, "disk": "1 GiB free"}
    watch = watched(lab, state)
    watch.run()
    lab.clock.forward(STALE_S)
    watch.run()
    assert sorted(reported(lab)) == ["disk.low", "twin.stale"]
    state |= {"age_s": 1.0, "disk": "", "server": "two"}
    watch.run()
    watch.run()
    assert sorted(reported(lab)[2:]) == ["disk.enough", "server.leader", "twin.fresh"]


# --- over HTTP ----------------------------------------------------------------------------------


def test_subscriptions_over_http(tmp_path: Path) -> None:
    with running(tmp_path, smtp_host="mail.lab", smtp_from="lab@example.org") as api:
        alice, operator = api.as_("alice"), api.as_("operator")

        def refused(client: Any, status: int, pointer: str = "", **body: object) -> None:
            answer = client.post("/v1/subscriptions", json=body)
            assert answer.status_code == status, answer.text
            if pointer:
                assert answer.json()["errors"][0]["pointer"] == pointer

        refused(alice, 422, "/channel", channel="mail")  # no address
        refused(alice, 422, "/channel", channel="webhook")  # no webhook
        refused(alice, 403, channel="mail", topic="lab")
        refused(alice, 404, channel="mail", topic="user", about="bob")
        refused(alice, 404, channel="mail", topic="board", about="nothing")
        refused(alice, 404, channel="mail", topic="series", about="nothing")
        refused(alice, 404, channel="mail", topic="series", about="series-0")
        refused(alice, 422, "/events/0", channel="mail", events=["board.offline"])
        password = {"email": "alice@example.org", "password": "a long password"}
        assert operator.put("/v1/users/alice/password", json=password).status_code == 204
        made = alice.post("/v1/subscriptions", json={"channel": "mail"})
        assert made.status_code == 201, made.text
        assert made.json()["about"] == "alice"
        refused(alice, 409, channel="mail")
        listed = alice.get("/v1/subscriptions").json()["items"]
        assert listed == [made.json()]
        assert api.as_("bob").get("/v1/subscriptions").json()["items"] == []
        assert operator.get("/v1/subscriptions?user_id=alice").json()["items"] == listed
        path = f"/v1/subscriptions/{made.json()['subscription_id']}"
        assert api.as_("bob").delete(path).status_code == 404
        assert alice.delete(path).status_code == 204
        assert alice.get("/v1/subscriptions").json()["items"] == []
        assert alice.get("/v1/deliveries").json() == {"items": [], "next_cursor": None}


def test_a_webhook_is_subscribed_and_its_end_ends_that(tmp_path: Path) -> None:
    with running(tmp_path, webhook_hosts=("127.0.0.1",)) as api:
        operator = api.as_("operator")
        asked = {"url": "http://127.0.0.1:9/hook", "format": "slack"}
        made = operator.put("/v1/users/operator/webhook", json=asked).json()
        assert made["format"] == "slack"
        topics = [each["topic"] for each in operator.get("/v1/subscriptions").json()["items"]]
        assert topics == ["user", "lab"] or topics == ["lab", "user"]
        operator.put("/v1/users/operator/webhook", json={"url": None})
        assert operator.get("/v1/subscriptions").json()["items"] == []
        refused = api.as_().post("/v1/subscriptions", json={"channel": "mail"})
        assert "smtp_host" in refused.text
