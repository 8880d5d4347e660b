"""Tables of the stage `queueing`: closed forms beside the simulations, their error, and the goodput curve."""

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
        number(
            "arrival_rate_requests_per_s", "requests per second that one queue of the model gets", "request/s"
        ),
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
        number(
            "ttft_mean_s",
            "mean time to first token; null: unstable, or not of this model",
            "s",
            nullable=True,
        ),
        number("ttft_p99_s", "99th percentile of it; null as above", "s", nullable=True),
        number("tpot_mean_s", "mean time per output token; null as above", "s", nullable=True),
        number(
            "e2e_p95_s",
            "95th percentile of arrival to answer; null: unstable, or an LLM, whose answers are no one service",
            "s",
            nullable=True,
        ),
        number("e2e_p99_s", "99th percentile of it; null as above", "s", nullable=True),
        text("method", "exact, or the name of the approximation"),
        text("note", "why a value is null", nullable=True),
    ),
    ("scenario", "candidate_id", "replicas", "formula"),
)

CHAIN_ERRORS = Table(
    "chain_errors",
    "queueing",
    "Continuous batching as a birth–death chain against the engine, by load, for one candidate under Poisson arrivals",
    (
        SCENARIO,
        CANDIDATE,
        number("utilisation", "arrival rate over the rate of a full batch"),
        integer("requests", "requests simulated", "request"),
        number("ttft_mean_s", "mean time to first token by the chain", "s"),
        number("ttft_simulated_s", "the same by the engine", "s"),
        number("ttft_standard_error_s", "standard error of the simulated mean", "s"),
        number("tpot_mean_s", "mean time per output token by the chain; null: one token", "s", nullable=True),
        number("tpot_simulated_s", "the same by the engine", "s", nullable=True),
        number("ttft_error", "relative error of the chain's TTFT"),
        number("tpot_error", "relative error of the chain's TPOT", nullable=True),
    ),
    ("scenario", "candidate_id", "utilisation"),
)

GOODPUT = Table(
    "goodput",
    "queueing",
    "One replica of the decided candidate (of two pools, the smallest pair near balance) at one load, by the cap on its batch, that of decode: where the promise breaks, and throughput against interactivity",
    (
        SCENARIO,
        CANDIDATE,
        integer("batch_cap", "most sequences in a step"),
        number("arrival_rate_requests_per_s", "requests per second", "request/s"),
        number(
            "ttft_p99_s", "99th percentile of the time to first token; null: unbounded", "s", nullable=True
        ),
        number(
            "tpot_p99_s",
            "99th percentile of the time per output token; null: no such request",
            "s",
            nullable=True,
        ),
        number("throughput_tokens_per_s", "output tokens per second", "token/s"),
        number(
            "user_tokens_per_s",
            "interactivity: tokens per second of one user, 1/TPOT",
            "token/s",
            nullable=True,
        ),
        number("attainment", "share of requests that meet their promises"),
        number("goodput_requests_per_s", "rate of those requests", "request/s"),
        flag("stable", "whether the queue did not grow through the run"),
        flag("pareto", "whether no other cap is better in both throughput and interactivity"),
    ),
    ("scenario", "candidate_id", "batch_cap"),
)

ROOM = Table(
    "room",
    "queueing",
    "Little's law and the room of the KV cache of one engine at the decided count: concurrency, static batching's waste, reservation, paging, sharing",
    (
        SCENARIO,
        CANDIDATE,
        integer("engines", "engines that share the traffic"),
        number("arrival_rate_requests_per_s", "requests per second of one of them", "request/s"),
        number(
            "residence_mean_s",
            "mean time from arrival to last token, by the birth-death chain; null: unstable",
            "s",
            nullable=True,
        ),
        number(
            "concurrent_requests", "requests inside: rate times residence (Little)", "request", nullable=True
        ),
        number(
            "kv_need_tokens",
            "KV cache that those hold on average, each its prompt and half of its output",
            "token",
            nullable=True,
        ),
        integer("kv_pool_tokens", "KV cache that there is; null: no limit", "token", nullable=True),
        integer("batch", "sequences of a full batch: max_num_seqs, or what the pool holds at mean length"),
        number(
            "static_utilisation",
            "share of decode slots that work if batches of that size ran until their longest member ends",
        ),
        number("static_utilisation_geometric", "the same for geometric output lengths of the same mean"),
        integer("longest_request_tokens", "longest request of the traffic, prompt and output", "token"),
        integer("mean_request_tokens", "mean request", "token"),
        integer("sequences_reserved", "sequences that fit if each reserves the longest", nullable=True),
        integer("sequences_paged", "sequences that fit in pages, each of mean length", nullable=True),
        integer(
            "prefix_tokens",
            "mean shared prefix of the prompts that have one; null: none has",
            "token",
            nullable=True,
        ),
        integer("sequences_sharing_prefix", "sequences that fit if all share one such prefix", nullable=True),
        integer("answers", "answers to one prompt; null: one", nullable=True),
        integer(
            "sequences_sharing_prompt", "answers that fit where those to one prompt share it", nullable=True
        ),
    ),
    ("scenario", "candidate_id"),
)

ENDPOINTS = Table(
    "endpoints",
    "queueing",
    "The size of an endpoint that is no LLM by the closed form (G/G/c), for each candidate and promise; the decision is a simulation's",
    (
        SCENARIO,
        CANDIDATE,
        text("class", "class of requests"),
        number("percentile", "percentile of the promise, 0 to 100"),
        number("limit_s", "the promise, arrival to answer", "s"),
        number("service_mean_s", "mean time that a request keeps a server", "s"),
        number("service_cv", "coefficient of variation of that time"),
        number("interarrival_cv", "coefficient of variation of the gaps between arrivals"),
        integer("servers_per_gpu", "servers of one GPU"),
        integer("servers", "least servers that keep the promise; null: no number does", nullable=True),
        integer("replicas", "GPUs of that many servers", nullable=True),
        number("utilisation", "offered load per server", nullable=True),
        number("e2e_s", "the promised percentile at that many servers", "s", nullable=True),
        number(
            "e2e_one_server_less_s",
            "the same with one server less; null: unstable, or none",
            "s",
            nullable=True,
        ),
        text("binding_limit", "what binds: latency, utilisation, stability, or why it is infeasible"),
    ),
    ("scenario", "candidate_id", "class", "percentile"),
)

TABLES = (QUEUEING, CHAIN_ERRORS, GOODPUT, ROOM, ENDPOINTS)
