"""Tables of the stage `sizing` about the fleet once it is decided: faults, the day and the week, growth, money and power."""

from fleetplan.store.tables.dictionary import SCENARIO, Table, flag, integer, money, number, text

RESILIENCE = Table(
    "resilience",
    "sizing",
    "The decided fleet, spares running too, simulated through faults at the busiest time, by promise; empty unless policy.outages asks",
    (
        SCENARIO,
        text("event", "what happens"),
        text("class", "class of requests"),
        text("metric", "ttft, ttfvt, tpot, itl, e2e or attainment"),
        number("percentile", "percentile of the promise, 0 to 100"),
        integer("replicas", "replicas that run before the event, spares included"),
        integer("lost_replicas", "most of them that are away at once"),
        number("down_s", "when the event begins, in the first replication", "s"),
        number("up_s", "when the last replica is back", "s"),
        number(
            "lost_requests",
            "requests lost with a replica and started anew, mean of the replications",
            "request",
        ),
        integer("requests", "requests that arrived while replicas were away", "request"),
        number("promised_share", "share of the requests that must meet the promise"),
        number(
            "during_share",
            "share of the requests that arrived while replicas were away which met it; null: none arrived, or the metric is not by request",
            nullable=True,
        ),
        number("run_share", "share of all requests of the run that met it, those started anew included"),
        flag("holds", "whether the promise is kept while replicas are away"),
        integer(
            "needed_spare_replicas",
            "k of N + k: needed_replicas less the replicas that must serve without the event",
            nullable=True,
        ),
        integer(
            "needed_replicas",
            "least count, spares included, that keeps every promise while replicas are away; null: none that was tried does",
            nullable=True,
        ),
    ),
    ("scenario", "event", "class", "metric", "percentile"),
)

SCHEDULE = Table(
    "schedule",
    "sizing",
    "The fleet that follows the profile of day or week, slot by slot; empty unless policy.autoscaling asks",
    (
        SCENARIO,
        integer("slot", "number of the slot, from 0"),
        number("start_h", "start of the slot, from the start of the simulation", "h"),
        number("mean_requests_per_s", "mean rate of the slot", "request/s"),
        number("load_replicas", "replicas that the slot's traffic keeps busy all the time"),
        integer("static_replicas", "replicas of the fleet that stays, without spares"),
        integer("serving_replicas", "replicas that serve in the slot"),
        integer("static_gpus", "GPUs of the fleet that stays, spares included", "GPU"),
        number("paid_gpus", "GPUs paid in the slot, start-up, hold and spares included; mean", "GPU"),
    ),
    ("scenario", "slot"),
)

GROWTH = Table(
    "growth",
    "sizing",
    "What the decided candidate needs month by month, each count by simulation; empty unless policy.growth asks",
    (
        SCENARIO,
        integer("month", "months from now; 0 is the planned traffic"),
        number("mean_requests_per_s", "planned rate of that month", "request/s"),
        integer(
            "replicas", "replicas that must serve; null: no fleet that may be bought holds", nullable=True
        ),
        integer("spare_replicas", "replicas on top", nullable=True),
        integer("gpus", "GPUs to have", "GPU", nullable=True),
        integer("more_gpus", "GPUs more than the month before", "GPU", nullable=True),
        number(
            "needed_from_month",
            "when within the month before the replicas of that month cease to hold, to a sixteenth; null: they hold throughout",
            nullable=True,
        ),
        number("utilisation", "offered rate over sustainable rate", nullable=True),
        number("cost_usd_per_hour", "cost of that month's fleet", "USD/h", nullable=True),
        text("reason", "why no fleet holds; null: one does", nullable=True),
    ),
    ("scenario", "month"),
)

COSTS = Table(
    "costs",
    "sizing",
    "Ways to pay for the traffic, one row each; empty unless policy asks for autoscaling, power, ownership or an API",
    (
        SCENARIO,
        text("option", "how it is served and paid"),
        number("gpus", "GPUs paid; mean over the period", "GPU"),
        number("reserved_gpus", "of these, reserved and paid all the time", "GPU"),
        number("spot_gpus", "of these, on spot; mean over the period", "GPU"),
        number("interrupted_gpus", "of the spot GPUs, mean number that are away by interruptions", "GPU"),
        number("api_share", "share of the requests that an API serves"),
        *money(),
        number(
            "cost_low_usd_per_hour",
            "lower end of the interval of the cost over drawn prices; null: they are taken as known",
            "USD/h",
            nullable=True,
        ),
        number("cost_high_usd_per_hour", "upper end of it", "USD/h", nullable=True),
        number(
            "probability_cheapest",
            "share of the draws in which it is the cheapest of those that are not known to break a promise; null: prices are taken as known",
            nullable=True,
        ),
        number("capital_usd", "price of the GPUs, where they are bought", "USD", nullable=True),
        number(
            "break_even_requests_per_s",
            "rate from which it is cheaper than the API; null: no API price is given, or it is the API",
            "request/s",
            nullable=True,
        ),
        number(
            "power_w",
            "mean power with the site's overhead; null: not asked, or not known",
            "W",
            nullable=True,
        ),
        number(
            "energy_wh_per_million_tokens",
            "energy over all tokens that one's own GPUs serve, prompt and output",
            "Wh/1M tokens",
            nullable=True,
        ),
        number("carbon_g_per_million_tokens", "carbon over the same tokens", "g/1M tokens", nullable=True),
        flag(
            "holds",
            "whether every promise is kept, by a simulation (interruptions of spot in it), or by what an API states; null: not known",
            nullable=True,
        ),
        text("note", "what it consists of, in words"),
    ),
    ("scenario", "option"),
)

TABLES = (RESILIENCE, SCHEDULE, GROWTH, COSTS)
