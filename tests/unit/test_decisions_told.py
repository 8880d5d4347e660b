"""What the terminal says of decisions: the table, and a sentence where there is no fleet or noise is left."""

from fleetplan.cli.decisions import told
from fleetplan.cli.sizing import _told as of_sizing

FEASIBLE = {
    "scenario": "chat", "verdict": "feasible", "gpu": "h100-sxm", "gpus": 6, "replicas": 2, "spare_replicas": 1, "gpus_per_replica": 2,
    "prefill_replicas": None, "decode_replicas": None, "cost_usd_per_hour": 21.5, "binding_limit": "TPOT p95 of chat", "probability_holds": 0.6,
    "replicas_for_95_percent": 3, "decided": True, "certificate": "2 replicas hold at 95%", "reason": None, "nearest_change": None,
}  # fmt: skip
UNSURE = {
    **FEASIBLE,
    "scenario": "unsure",
    "decided": False,
    "certificate": "2 replicas hold, yet noise is not excluded",
}
INFEASIBLE = {**dict.fromkeys(FEASIBLE), "scenario": "dear", "verdict": "infeasible", "reason": "costs too much", "nearest_change": "raise policy.max_cost"}  # fmt: skip
SHARED = {"fleet": "both", "verdict": "feasible", "cost_usd_per_hour": 9.0, "stock": [{"gpu": "l4", "taken_gpus": 2, "stock_gpus": 4}, {"gpu": "h100-sxm", "taken_gpus": 0, "stock_gpus": 1}]}  # fmt: skip
SHORT = {"fleet": "short", "verdict": "infeasible", "reason": "the stock is too small", "stock": []}


def test_every_decision_has_a_line_and_what_is_wrong_a_sentence():
    lines = told([FEASIBLE, UNSURE, INFEASIBLE], [SHARED, SHORT]).splitlines()
    assert lines[2].split() == [
        "chat",
        "6",
        "×",
        "h100-sxm",
        "2",
        "+",
        "1",
        "spare",
        "21.50",
        "TPOT",
        "p95",
        "of",
        "chat",
        "60%",
        "3",
    ]
    assert lines[4].split() == ["dear", "none:", "infeasible"]
    assert lines[5:] == [
        "unsure: sampling noise is not excluded: 2 replicas hold, yet noise is not excluded",
        "dear: costs too much",
        "dear: nearest change: raise policy.max_cost",
        "fleet both: 2 × l4, 9.00 USD/h",
        "fleet short: infeasible: the stock is too small",
    ]


def test_a_store_of_fleets_alone_tells_them_alone():
    assert told([], [SHORT]) == "fleet short: infeasible: the stock is too small"
    assert told([], []) == "no scenario is decided"


def test_sizing_says_how_sure_it_is():
    assert of_sizing({"decisions": [FEASIBLE]}).splitlines()[1:] == [
        "beyond sampling noise: 2 replicas hold at 95%",
        "keeps every promise with 60% over what is not known; 3 replicas for 95%",
    ]
    assert "NOT beyond sampling noise" in of_sizing({"decisions": [UNSURE]})
    assert of_sizing({"decisions": [INFEASIBLE]}).endswith("nearest change: raise policy.max_cost")
