"""Tables of the stage `batching`: simulations by load."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

SIMULATIONS = Table(
    "simulations",
    "batching",
    "One simulation of a candidate at a number of replicas, by class of requests",
    (
        SCENARIO,
        CANDIDATE,
        integer("replicas", "replicas that serve"),
        text("class", "class of requests; * for all"),
        integer("requests", "requests measured, after the warm-up", "request"),
        integer("rejected_requests", "requests rejected or timed out", "request"),
        flag("stable", "whether the queue stopped growing"),
        number("ttft_p50_s", "median time to first token; null: unbounded", "s", nullable=True),
        number("ttft_p95_s", "95th percentile of time to first token; null: unbounded", "s", nullable=True),
        number("ttft_p99_s", "99th percentile of time to first token; null: unbounded", "s", nullable=True),
        number("tpot_p50_s", "median time per output token; null: unbounded", "s", nullable=True),
        number("tpot_p95_s", "95th percentile of time per output token; null: unbounded", "s", nullable=True),
        number("tpot_p99_s", "99th percentile of time per output token; null: unbounded", "s", nullable=True),
        number("e2e_p99_s", "99th percentile of arrival to last token; null: unbounded", "s", nullable=True),
        number("attainment", "share of requests with promises that meet all of theirs", nullable=True),
        number("goodput_requests_per_s", "rate of those requests", "request/s", nullable=True),
        number("throughput_tokens_per_s", "output tokens per second of the fleet", "token/s"),
    ),
    ("scenario", "candidate_id", "replicas", "class"),
)

TABLES = (SIMULATIONS,)
