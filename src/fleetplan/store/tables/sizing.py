"""Tables of the stage `sizing`: the decision, with its evidence."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

DECISIONS = Table(
    "decisions",
    "sizing",
    "One row a scenario: the cheapest fleet whose simulation meets every promise, or why there is none",
    (
        SCENARIO,
        text("candidate_id", "the chosen candidate; null if none will do", nullable=True),
        text("verdict", "feasible or infeasible"),
        text("reason", "why it is infeasible; null if feasible", nullable=True),
        text("gpu", "catalogue name of the GPU", nullable=True),
        integer("replicas", "replicas that serve", nullable=True),
        integer("spare_replicas", "replicas on top that stand by", nullable=True),
        integer("gpus_per_replica", "GPUs that one replica takes", "GPU", nullable=True),
        integer(
            "gpus",
            "GPUs to buy: (replicas + spares) × GPUs per replica, rounded up to nodes",
            "GPU",
            nullable=True,
        ),
        number("utilisation", "offered rate over sustainable rate", nullable=True),
        number("cost_usd_per_hour", "cost of the fleet", "USD/h", nullable=True),
        number("cost_usd_per_month", "cost of the fleet", "USD/month", nullable=True),
        number(
            "cost_usd_per_million_output_tokens",
            "cost of the fleet over the output tokens that it serves at the planned traffic",
            "USD/1M tokens",
            nullable=True,
        ),
        text("binding_limit", "the limit that binds, e.g. TTFT p99 of class chat", nullable=True),
    ),
    ("scenario",),
)

EVIDENCE = Table(
    "evidence",
    "sizing",
    "The simulated verdicts around the decision: N - 1, N, N + 1, by promise",
    (
        SCENARIO,
        CANDIDATE,
        integer("replicas", "replicas that serve"),
        text("class", "class of requests"),
        text("metric", "ttft, tpot, itl or e2e"),
        number("percentile", "percentile of the promise, 0 to 100"),
        number("limit_s", "the promise", "s"),
        number("simulated_s", "the simulated value; null: unbounded", "s", nullable=True),
        flag("holds", "whether the promise is kept"),
    ),
    ("scenario", "candidate_id", "replicas", "class", "metric", "percentile"),
)

TABLES = (DECISIONS, EVIDENCE)
