"""Values of decisions as answers of the API."""

from edgeyard.benchmark_api.views import placement
from edgeyard.plugins.testing import board, pending, snapshot_of
from tests.builders.decision import cycle


def test_a_placement_becomes_an_answer_with_all_its_fields() -> None:
    (found,) = cycle(snapshot_of([board("rpi4b-0001-0001")]), [pending()]).placements
    answer = placement(found)
    assert (answer.benchmark_id, answer.target_uid) == ("b-1", "rpi4b-0001-0001")
    assert (answer.binding, answer.allowed_uids) == (found.binding, list(found.allowed_uids))
    assert (answer.priority, answer.binding_reason) == (found.priority, "")
