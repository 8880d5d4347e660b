"""Tables of the stage `queueing`: closed forms beside the simulations."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

QUEUEING = Table(
    "queueing",
    "queueing",
    "Waiting by closed forms: a check of the simulations and an instant answer",
    (
        SCENARIO,
        CANDIDATE,
        integer("replicas", "replicas that serve"),
        text("formula", "queueing model, e.g. mmc"),
        number("arrival_rate_requests_per_s", "requests per second", "request/s"),
        number("service_s", "mean service time of one server", "s"),
        integer("servers", "servers of the model"),
        number("utilisation", "offered load per server"),
        flag("stable", "whether a steady state exists"),
        number("wait_mean_s", "mean wait before service; null: unstable", "s", nullable=True),
        number(
            "wait_p99_s",
            "99th percentile of the wait; null: unstable or without closed form",
            "s",
            nullable=True,
        ),
        text("note", "why a value is null", nullable=True),
    ),
    ("scenario", "candidate_id", "replicas", "formula"),
)

TABLES = (QUEUEING,)
