"""Links that show benchmarks, a campaign or a comparison to people without an account."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ShareKind(StrEnum):
    """What a link shows."""

    BENCHMARK = "benchmark"  # one benchmark with its result
    CAMPAIGN = "campaign"  # the benchmarks of a campaign
    COMPARISON = "comparison"  # the results of benchmarks, side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A link, of which only the hash of its secret is stored.

    Attributes:
        user_id: Who made it: it shows what they may see.
        benchmark_ids: What is shown; () of a campaign.
        campaign_id: The same; None: it is no campaign.
        options: How a comparison is shown, as the query of its page's address.
        sha256: Of the secret in its address.
        label: What it is for, in its maker's words.
        made_by: ``token_id`` of the token that made it, whose end is its end too; None: made in a
            session that a password opened.
    """

    share_id: str
    user_id: str
    kind: ShareKind
    benchmark_ids: tuple[str, ...]
    campaign_id: str | None
    options: str
    sha256: str
    label: str
    created_at: datetime
    expires_at: datetime
    made_by: str | None
