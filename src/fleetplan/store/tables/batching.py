"""Tables of the stage `batching`: what simulations measure, by load."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

SIMULATIONS = Table(
    "simulations",
    "batching",
    "One replica of each candidate that can run, simulated at shares of its saturated rate, by class of requests",
    (
        SCENARIO,
        CANDIDATE,
        number("load_share", "offered rate over the saturated rate"),
        text("class", "class of requests; * for all"),
        integer("replicas", "replicas that serve"),
        number("offered_requests_per_s", "offered rate", "request/s"),
        integer("requests", "requests measured, after the warm-up", "request"),
        integer("rejected_requests", "requests rejected or timed out", "request"),
        flag("stable", "whether the queue stopped growing"),
        number("ttft_p50_s", "median time to first token; null: unbounded", "s", nullable=True),
        number("ttft_p95_s", "95th percentile of time to first token; null: unbounded", "s", nullable=True),
        number("ttft_p99_s", "99th percentile of time to first token; null: unbounded", "s", nullable=True),
        number(
            "ttfvt_p99_s",
            "99th percentile of time to first visible token: that of TTFT where none is hidden; null: unbounded",
            "s",
            nullable=True,
        ),
        number("tpot_p50_s", "median time per output token; null: unbounded", "s", nullable=True),
        number("tpot_p95_s", "95th percentile of time per output token; null: unbounded", "s", nullable=True),
        number("tpot_p99_s", "99th percentile of time per output token; null: unbounded", "s", nullable=True),
        number("e2e_p95_s", "95th percentile of arrival to last token; null: unbounded", "s", nullable=True),
        number("e2e_p99_s", "99th percentile of arrival to last token; null: unbounded", "s", nullable=True),
        number("attainment", "share of requests with promises that meet all of theirs", nullable=True),
        number("goodput_requests_per_s", "rate of those requests", "request/s", nullable=True),
        number(
            "throughput_tokens_per_s",
            "output tokens per second of the replica; null: no LLM",
            "token/s",
            nullable=True,
        ),
    ),
    ("scenario", "candidate_id", "load_share", "class"),
)

SATURATION = Table(
    "saturation",
    "batching",
    "The rate of one replica that always has work, by simulation of the same traffic mix",
    (
        SCENARIO,
        CANDIDATE,
        number("sustainable_requests_per_s", "requests finished per second", "request/s"),
        number(
            "bound_requests_per_s",
            "what no scheduler could beat, by the least work of a request",
            "request/s",
        ),
        text("resource", "what it runs out of: KV memory, compute or bandwidth"),
    ),
    ("scenario", "candidate_id"),
)

TABLES = (SIMULATIONS, SATURATION)
