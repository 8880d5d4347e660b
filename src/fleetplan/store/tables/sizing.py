"""Tables of the stage `sizing`: the decision, with its evidence, the other plans, and what all of it assumed."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, money, number, text

LATENCIES = (
    number("ttft_p50_s", "median time to first token at this count; null: unbounded", "s", nullable=True),
    number("ttft_p99_s", "99th percentile of time to first token; null: unbounded", "s", nullable=True),
    number(
        "ttfvt_p99_s",
        "99th percentile of time to first visible token; null: unbounded, or no token is hidden",
        "s",
        nullable=True,
    ),
    number("tpot_p50_s", "median time per output token; null: unbounded", "s", nullable=True),
    number("tpot_p95_s", "95th percentile of time per output token; null: unbounded", "s", nullable=True),
)

SCENARIOS = Table(
    "scenarios",
    "sizing",
    "One row a scenario: what it asks",
    (
        SCENARIO,
        text("title", "its title"),
        text("model", "the model that is served"),
        text("traffic", "the traffic in words"),
        text("step_time", "the model of a step's time in words"),
        text(
            "notes",
            "where the simulation is more cautious than the spec's traffic, in words; null: nowhere",
            nullable=True,
        ),
        text("prices", "the price list, its date and its source"),
    ),
    ("scenario",),
)

SETTINGS = Table(
    "settings",
    "sizing",
    "Every setting of a scenario's meaning, defaults included",
    (SCENARIO, text("path", "dotted path in the spec"), text("value", "its value in SI units, as JSON")),
    ("scenario", "path"),
)

WORKLOADS = Table(
    "workloads",
    "sizing",
    "Facts of the traffic as simulated, by class",
    (
        SCENARIO,
        text("class", "class of requests; * for all"),
        number("mean_requests_per_s", "mean rate of requests", "request/s"),
        number("peak_minute_requests_per_s", "rate of the fullest minute", "request/s"),
        number("peak_second_requests_per_s", "requests of the fullest second", "request/s"),
        number("peak_minute_over_mean", "that rate over the mean rate"),
        number("peak_second_over_mean", "requests of the fullest second over the mean rate"),
        number("interarrival_cv", "coefficient of variation of the gaps between arrivals", nullable=True),
        number(
            "prefix_hit_share",
            "share of the prompts' tokens (of hashed ones, blocks) that a cache without end holds already; null: no prompt has a known beginning",
            nullable=True,
        ),
        number(
            "prefix_hit_share_cached",
            "the same with a cache of cache_tokens, least recently used dropped first, before all of this traffic",
            nullable=True,
        ),
        integer(
            "cache_tokens",
            "KV pool of one engine of the chosen candidate; null: none was chosen",
            "token",
            nullable=True,
        ),
        number("prompt_mean_tokens", "mean prompt length; null: no LLM", "token", nullable=True),
        number("prompt_p50_tokens", "median prompt length; null: no LLM", "token", nullable=True),
        number("prompt_p95_tokens", "95th percentile of prompt length; null: no LLM", "token", nullable=True),
        number("prompt_p99_tokens", "99th percentile of prompt length; null: no LLM", "token", nullable=True),
        number("output_mean_tokens", "mean output length; null: no LLM", "token", nullable=True),
        number("output_p50_tokens", "median output length; null: no LLM", "token", nullable=True),
        number("output_p95_tokens", "95th percentile of output length; null: no LLM", "token", nullable=True),
        number("output_p99_tokens", "99th percentile of output length; null: no LLM", "token", nullable=True),
        number(
            "length_correlation",
            "Pearson correlation of prompt and output length; null: one never changes",
            nullable=True,
        ),
        number(
            "length_rank_correlation",
            "Spearman rank correlation of prompt and output length; null as above",
            nullable=True,
        ),
        integer("simulated_requests", "requests of one replication", "request"),
        number("simulated_s", "simulated time of one replication", "s"),
    ),
    ("scenario", "class"),
)

ARRIVALS = Table(
    "arrivals",
    "sizing",
    "Requests per second through one replication of the traffic, by class",
    (
        SCENARIO,
        text("class", "class of requests"),
        number("time_s", "middle of the interval, from the start of the simulation", "s"),
        number("mean_requests_per_s", "rate in the interval", "request/s"),
    ),
    ("scenario", "class", "time_s"),
)

DISPERSIONS = Table(
    "dispersions",
    "sizing",
    "How bursty the arrivals are over scales: variance over mean of the counts in bins; 1 at all scales is Poisson",
    (
        SCENARIO,
        text("class", "class of requests; * for all"),
        number("scale_s", "width of the bins", "s"),
        number("dispersion", "variance over mean of the counts in them"),
    ),
    ("scenario", "class", "scale_s"),
)

HOURS = Table(
    "hours",
    "sizing",
    "Requests per second by hour of the day, where the traffic lasts a day or more",
    (
        SCENARIO,
        text("class", "class of requests; * for all"),
        integer("hour_h", "hour of the day, 0 to 23, from where its profile or recording begins", "h"),
        number("mean_requests_per_s", "mean rate in the hour", "request/s"),
    ),
    ("scenario", "class", "hour_h"),
)

DECISIONS = Table(
    "decisions",
    "sizing",
    "One row a scenario: the cheapest fleet whose simulation meets every promise, or why there is none",
    (
        SCENARIO,
        text("candidate_id", "the chosen candidate; null if none will do", nullable=True),
        text("verdict", "feasible or infeasible"),
        text("reason", "why it is infeasible; null if feasible", nullable=True),
        text(
            "nearest_change",
            "the nearest change that would make it feasible; null if feasible",
            nullable=True,
        ),
        text("gpu", "catalogue name of the GPU", nullable=True),
        integer(
            "replicas",
            "replicas that serve; of two pools, how many times their ratio, or those of both where the count of each is searched",
            nullable=True,
        ),
        integer("spare_replicas", "replicas on top that stand by, of all pools", nullable=True),
        integer(
            "gpus_per_replica",
            "GPUs that one replica takes; of two pools, all of their ratio; null: each pool has its own count, and their replicas differ",
            "GPU",
            nullable=True,
        ),
        integer("prefill_replicas", "replicas of the prefill pool that serve; null: one pool", nullable=True),
        integer("decode_replicas", "replicas of the decode pool that serve; null: one pool", nullable=True),
        integer(
            "gpus",
            "GPUs to buy: (replicas + spares) × GPUs per replica, rounded up to what can be bought",
            "GPU",
            nullable=True,
        ),
        number("utilisation", "offered rate over sustainable rate", nullable=True),
        number("max_utilisation", "cap on it"),
        number(
            "sustainable_requests_per_s",
            "saturated rate of the serving replicas, by simulation",
            "request/s",
            nullable=True,
        ),
        *money(),
        text(
            "binding_limit",
            "the limit that binds, e.g. TTFT p99 of chat, KV memory, utilisation cap",
            nullable=True,
        ),
        text("binding_reason", "what happens with one replica fewer, in words", nullable=True),
        integer(
            "lower_bound_replicas", "least count by the saturated rate and the utilisation cap", nullable=True
        ),
        integer("replications", "independent simulations behind the verdict", nullable=True),
        number("confidence", "level of the test of each promise"),
        flag(
            "decided",
            "whether sampling noise is excluded at that level, at N and at N - 1; false: 16 replications do not settle one of them, "
            "the certificate says which",
            nullable=True,
        ),
        text("certificate", "what N and N - 1 were shown to do, and how firmly, in words", nullable=True),
        text("spares_reason", "what the spares are for; null: there are none", nullable=True),
        integer("replicas_low", "lower end of the interval of the count", nullable=True),
        integer("replicas_high", "upper end of the interval of the count", nullable=True),
        number("interval_level", "level of that interval", nullable=True),
        number(
            "probability_holds",
            "probability that the decided count keeps every promise, over what is not known",
            nullable=True,
        ),
        integer(
            "replicas_for_95_percent",
            "replicas that keep every promise with probability 0.95; null: beyond what was searched",
            nullable=True,
        ),
        number(
            "cost_low_usd_per_hour",
            "lower end of the interval of the cost of what the draws need, at drawn prices; null: prices are taken as known",
            "USD/h",
            nullable=True,
        ),
        number(
            "cost_high_usd_per_hour",
            "upper end of it; null: known prices, or too many draws are beyond what was searched",
            "USD/h",
            nullable=True,
        ),
        number(
            "probability_cheapest",
            "probability that the chosen candidate stays the cheapest (at least, since others may be counted by their lower bounds); null: prices are taken as known",
            nullable=True,
        ),
        text("uncertain", "what was drawn anew for the interval, in words", nullable=True),
        text("step_time_basis", "where the step time of the chosen candidate comes from", nullable=True),
    ),
    ("scenario",),
)

EVIDENCE = Table(
    "evidence",
    "sizing",
    "The simulated verdicts around the decision, by promise: N - 1, N, N + 1; of two pools one of either fewer and more",
    (
        SCENARIO,
        CANDIDATE,
        integer("replicas", "replicas that serve, as decisions count them"),
        integer("prefill_replicas", "replicas of the prefill pool; 0: one pool"),
        integer("decode_replicas", "replicas of the decode pool; null: one pool", nullable=True),
        text("class", "class of requests"),
        text("metric", "ttft, ttfvt, tpot, itl, e2e, attainment, utilisation, deadline or throughput"),
        number("percentile", "percentile of the promise, 0 to 100; of the utilisation cap 100"),
        number("limit_s", "the promise; null: it is no single time", "s", nullable=True),
        number("simulated_s", "the simulated value; null: unbounded, or no single time", "s", nullable=True),
        number("promised_share", "share of the requests that must meet it"),
        number("met_share", "share that met it, by simulation"),
        number("low_share", "lower end of the interval of that share", nullable=True),
        number("high_share", "upper end of the interval of that share", nullable=True),
        flag("holds", "whether the promise is kept"),
        flag(
            "decided",
            "whether sampling noise is excluded for this promise: the interval of the share (low_share to high_share) is clear of the "
            "promised one, so that more replications would not turn `holds`; decisions.decided says it of the whole count",
        ),
        integer("requests", "requests judged", "request"),
        integer("replications", "independent simulations"),
        number("utilisation", "offered rate over sustainable rate at this count"),
    ),
    ("scenario", "candidate_id", "replicas", "prefill_replicas", "class", "metric", "percentile"),
)

PLANS = Table(
    "plans",
    "sizing",
    "What became of every candidate: its least count and cost, or the reason why it was not sized",
    (
        SCENARIO,
        CANDIDATE,
        text("status", "chosen, dearer, pruned, infeasible or cannot run"),
        text("reason", "why it was not chosen; null for the chosen one", nullable=True),
        integer("replicas", "least count that keeps every promise; null: not sized", nullable=True),
        integer(
            "gpus_per_replica",
            "GPUs that one replica takes; of two pools, all of their ratio; null: each pool has its own count, and their replicas differ",
            "GPU",
            nullable=True,
        ),
        integer(
            "prefill_replicas", "replicas of the prefill pool at that count; null: one pool", nullable=True
        ),
        integer(
            "decode_replicas", "replicas of the decode pool at that count; null: one pool", nullable=True
        ),
        integer("gpus", "GPUs to buy; null: not sized", "GPU", nullable=True),
        integer("lower_bound_replicas", "least count by its bounds", nullable=True),
        number(
            "sustainable_requests_per_s",
            "saturated rate of one replica, by simulation; where the counts of two pools are searched, at their best balance",
            "request/s",
            nullable=True,
        ),
        number("utilisation", "offered rate over sustainable rate at the count", nullable=True),
        *money(),
        *LATENCIES,
        number(
            "preemptions_per_request",
            "times that a request gave way for want of KV blocks, on average; null: not simulated at a count, or no LLM",
            nullable=True,
        ),
        number(
            "attempts_per_request",
            "times that a request was sent, on average; null: not simulated at a count, or clients send nothing again",
            nullable=True,
        ),
        flag(
            "on_frontier",
            "no other sized plan is both cheaper and faster (TTFT p99 and TPOT p95)",
            nullable=True,
        ),
    ),
    ("scenario", "candidate_id"),
)

TIMESERIES = Table(
    "timeseries",
    "sizing",
    "State over time of the decided candidate, at the decided count and at one replica fewer",
    (
        SCENARIO,
        CANDIDATE,
        integer("replicas", "replicas that serve"),
        number("time_s", "time from the start of the simulation", "s"),
        number("waiting_requests", "requests that have arrived and wait for their first step", "request"),
        number("running_requests", "requests in a batch", "request"),
    ),
    ("scenario", "candidate_id", "replicas", "time_s"),
)

LEVERS = Table(
    "levers",
    "sizing",
    "What one change would buy, each by a plan made anew",
    (
        SCENARIO,
        text("lever", "kind of the change"),
        text("change", "the change in words"),
        text(
            "verdict",
            "feasible or infeasible with it; dearer: not planned, its bounds alone make it 1.5 times dearer; cannot run: note says why",
        ),
        text("gpu", "GPU of the new plan", nullable=True),
        integer("replicas", "replicas of the new plan", nullable=True),
        integer("gpus", "GPUs of the new plan", "GPU", nullable=True),
        integer("saved_gpus", "GPUs fewer than today; negative: more", "GPU", nullable=True),
        number("cost_usd_per_hour", "cost of the new plan", "USD/h", nullable=True),
        number("saved_usd_per_hour", "USD/h less than today; negative: more", "USD/h", nullable=True),
        text("note", "why there is no plan, or what it became", nullable=True),
    ),
    ("scenario", "lever", "change"),
)

UNCERTAINTY = Table(
    "uncertainty",
    "sizing",
    "How probable each count of the chosen candidate is to keep every promise, over what is not known",
    (
        SCENARIO,
        integer("replicas", "replicas that serve"),
        number("probability_needed", "probability that this is the least count"),
        number("probability_holds", "probability that this count keeps every promise"),
        integer("draws", "Monte Carlo draws"),
    ),
    ("scenario", "replicas"),
)

DRAWS = Table(
    "draws",
    "sizing",
    "The Monte Carlo of the count: what was drawn, and the least count of the chosen candidate then",
    (
        SCENARIO,
        integer("draw", "number of the draw; its traffic has a seed of its own"),
        number("rate_factor", "factor on the rate"),
        number("output_length_factor", "factor on output lengths"),
        number("prompt_length_factor", "factor on prompt lengths"),
        number("acceptance_factor", "factor on the acceptance of drafts"),
        number("step_time_factor", "factor on step times, within the error band of the calibration"),
        integer(
            "replicas",
            "least count that keeps every promise; null: none up to four times the decided one",
            nullable=True,
        ),
    ),
    ("scenario", "draw"),
)

CHOICES = Table(
    "choices",
    "sizing",
    "What each candidate's fleet may cost and how probably it is the cheapest, over drawn needs and prices; empty where prices are taken as known",
    (
        SCENARIO,
        CANDIDATE,
        text(
            "basis",
            "where its GPUs come from: counted anew (in every draw), as decided, or lower bound (too kind to it)",
        ),
        number(
            "cost_low_usd_per_hour",
            "lower end of the interval of its cost at the level of policy.uncertainty",
            "USD/h",
            nullable=True,
        ),
        number("cost_p50_usd_per_hour", "median of its cost", "USD/h", nullable=True),
        number(
            "cost_high_usd_per_hour",
            "upper end; null: too many draws are beyond what was searched",
            "USD/h",
            nullable=True,
        ),
        number("probability_cheapest", "share of the draws in which it is the cheapest"),
    ),
    ("scenario", "candidate_id"),
)

TABLES = (
    SCENARIOS,
    SETTINGS,
    WORKLOADS,
    ARRIVALS,
    DISPERSIONS,
    HOURS,
    DECISIONS,
    EVIDENCE,
    PLANS,
    TIMESERIES,
    LEVERS,
    UNCERTAINTY,
    DRAWS,
    CHOICES,
)
