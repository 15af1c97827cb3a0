"""The contracts between Edgeyard's parts, one module a part: protocols and values, no code.

Adapters live in `scheduler.store`, `scheduler.clusters`, `scheduler.files` and
`scheduler.s3_files`; only `edgeyard.benchmark_api.bootstrap` builds them. An adapter derives from
its protocol, which documents the methods of both.
"""

from edgeyard.scheduler.ports.accounting import Accounting
from edgeyard.scheduler.ports.accounts import Accounts, UsageCounts
from edgeyard.scheduler.ports.attempts import Attempts
from edgeyard.scheduler.ports.benchmarks import BenchmarkFilter, Benchmarks, StoredSeries
from edgeyard.scheduler.ports.boards import BoardOverrides, Canaries, Registrations, Reservations
from edgeyard.scheduler.ports.checks import Checks
from edgeyard.scheduler.ports.clock import Clock
from edgeyard.scheduler.ports.cluster import (
    Cluster,
    JobRun,
    JobState,
    LoadReport,
    LogChunk,
    NodeSource,
    RecurringJob,
    StartedRun,
)
from edgeyard.scheduler.ports.contents import Files
from edgeyard.scheduler.ports.credits import Credits
from edgeyard.scheduler.ports.cycles import Cycles
from edgeyard.scheduler.ports.files import FileStore, FileWriter
from edgeyard.scheduler.ports.leadership import Leadership
from edgeyard.scheduler.ports.log import Log
from edgeyard.scheduler.ports.models import Models
from edgeyard.scheduler.ports.outbound import MailSend, Sent, UrlFetcher, WebhookPost
from edgeyard.scheduler.ports.policies import Policies, Scoring
from edgeyard.scheduler.ports.scenarios import Scenarios, Simulations
from edgeyard.scheduler.ports.series import SeriesStore
from edgeyard.scheduler.ports.shares import Shares
from edgeyard.scheduler.ports.store import Store, UnitOfWork
from edgeyard.scheduler.ports.submissions import Campaigns, Schedules
from edgeyard.scheduler.ports.subscriptions import (
    Deliveries,
    LabConditions,
    Subscriptions,
)
from edgeyard.scheduler.ports.uploads import Uploads
from edgeyard.scheduler.ports.webhooks import Webhooks

__all__ = [
    "Accounting",
    "Accounts",
    "Attempts",
    "BenchmarkFilter",
    "Benchmarks",
    "BoardOverrides",
    "Campaigns",
    "Canaries",
    "Checks",
    "Clock",
    "Cluster",
    "Credits",
    "Cycles",
    "Deliveries",
    "FileStore",
    "FileWriter",
    "Files",
    "JobRun",
    "JobState",
    "LabConditions",
    "Leadership",
    "LoadReport",
    "Log",
    "LogChunk",
    "MailSend",
    "Models",
    "NodeSource",
    "Policies",
    "RecurringJob",
    "Registrations",
    "Reservations",
    "Scenarios",
    "Schedules",
    "Scoring",
    "Sent",
    "SeriesStore",
    "Shares",
    "Simulations",
    "StartedRun",
    "Store",
    "StoredSeries",
    "Subscriptions",
    "UnitOfWork",
    "Uploads",
    "UrlFetcher",
    "UsageCounts",
    "WebhookPost",
    "Webhooks",
]
