"""Tables of the stage `fleet`: several scenarios on one stock of GPUs and one budget; their first column is the fleet."""

from fleetplan.store.tables.dictionary import Table, flag, integer, number, text

FLEET = text("fleet", "name of the fleet")

FLEETS = Table(
    "fleets",
    "fleet",
    "One row a fleet: the cheapest assignment of its scenarios to the shared stock and budget, or why there is none",
    (
        FLEET,
        text("title", "its title"),
        text("verdict", "feasible or infeasible"),
        text("reason", "why it is infeasible; null if feasible", nullable=True),
        number("cost_usd_per_hour", "cost of all its scenarios; null if infeasible", "USD/h", nullable=True),
        number("budget_usd_per_hour", "most that they may cost; null: no limit", "USD/h", nullable=True),
        number("short_usd_per_hour", "what the budget lacks at least", "USD/h", nullable=True),
    ),
    ("fleet",),
)

FLEET_STOCK = Table(
    "fleet_stock",
    "fleet",
    "GPUs of a fleet by kind: what there is, what is taken, what is missing",
    (
        FLEET,
        text("gpu", "catalogue name of the GPU"),
        integer("stock_gpus", "most GPUs that there are; null: no limit", "GPU", nullable=True),
        integer("taken_gpus", "GPUs that the assignment takes", "GPU"),
        integer("short_gpus", "GPUs that are missing at least", "GPU"),
    ),
    ("fleet", "gpu"),
)

FLEET_PLANS = Table(
    "fleet_plans",
    "fleet",
    "The cheapest plan of each scenario of a fleet on each kind of GPU, and which one it gets",
    (
        FLEET,
        text("scenario", "name of the scenario"),
        text("gpu", "catalogue name of the GPU"),
        flag("taken", "whether the scenario gets this plan"),
        text("candidate_id", "the candidate; null: no plan of the scenario runs on it", nullable=True),
        text("candidate", "the candidate in words", nullable=True),
        integer("replicas", "replicas that serve", nullable=True),
        integer("gpus", "GPUs that the plan takes", "GPU", nullable=True),
        number("cost_usd_per_hour", "its cost", "USD/h", nullable=True),
        text("reason", "why no plan of the scenario runs on it; null: one does", nullable=True),
    ),
    ("fleet", "scenario", "gpu"),
)

TABLES = (FLEETS, FLEET_STOCK, FLEET_PLANS)
