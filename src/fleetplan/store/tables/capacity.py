"""Tables of the stage `capacity`: what the fleet that a spec names under `capacity` holds of its traffic."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

CAPACITY = Table(
    "capacity",
    "capacity",
    "What each candidate holds on the GPUs of its kind, or kinds, that there are; empty unless the spec names some under capacity",
    (
        SCENARIO,
        CANDIDATE,
        text("gpu", "catalogue name of the GPU"),
        integer("gpus", "GPUs of its kinds that there are", "GPU"),
        integer("replicas", "replicas that serve on them, spares and packing taken off"),
        integer("prefill_replicas", "replicas of the prefill pool; null: one pool", nullable=True),
        integer("decode_replicas", "replicas of the decode pool; null: one pool", nullable=True),
        flag("best", "whether no other candidate holds a higher rate"),
        number(
            "highest_requests_per_s",
            "highest rate at which every promise holds; null: none",
            "request/s",
            nullable=True,
        ),
        number("highest_factor", "the same over the planned rate: the headroom", nullable=True),
        number(
            "lowest_failing_factor",
            "lowest factor that was seen to fail; null: the cap on utilisation is what stops",
            nullable=True,
        ),
        number("saturated_requests_per_s", "rate that the replicas sustain", "request/s", nullable=True),
        text("binding_limit", "what fails just above the highest rate", nullable=True),
        text("reason", "why it holds no load; null: it holds some", nullable=True),
        flag(
            "holds_today", "whether every promise holds at the planned traffic; null: not run", nullable=True
        ),
        number("utilisation_today", "planned over sustainable rate", nullable=True),
        integer(
            "longest_context_tokens", "longest prompt and answer of one sequence", "token", nullable=True
        ),
        integer(
            "longest_prompt_tokens",
            "longest prompt whose lone request is within every TTFT limit; null: not one token",
            "token",
            nullable=True,
        ),
    ),
    ("scenario", "candidate_id"),
)

CAPACITY_PROMISES = Table(
    "capacity_promises",
    "capacity",
    "The tightest limit that each promise could have on the fleet that there is, at the planned traffic, all of a candidate's at once",
    (
        SCENARIO,
        CANDIDATE,
        text("class", "class of requests"),
        text("metric", "ttft, tpot, itl, e2e or attainment"),
        number("percentile", "percentile of the promise, 0 to 100"),
        number("promised_s", "the limit as promised; null: it is no single time", "s", nullable=True),
        number("tightest_s", "the least limit that would hold; null: see the reason", "s", nullable=True),
        number("promised_share", "share of the requests that must meet the promise"),
        number("met_share", "share that meets it as it stands"),
        text("reason", "why there is no tightest limit; null: there is", nullable=True),
    ),
    ("scenario", "candidate_id", "class", "metric", "percentile"),
)

TABLES = (CAPACITY, CAPACITY_PROMISES)
