"""Classes of different priorities: the urgent keep their promises where first come first served would break them."""

import pytest

from fleetplan import spec
from fleetplan.errors import InputError
from fleetplan.sizing import decide
from fleetplan.sizing.candidates import expand

SPEC = """
scenario: ranked
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      priority: 0
      arrivals: {process: poisson, rate: 10 req/s}
      prompt_tokens: 300
      output_tokens: 60
      slo: {ttft: {p95: 300 ms}}
    - name: batch
      priority: 2
      arrivals: {process: gamma, rate: 20 req/s, cv: 6}
      prompt_tokens: 2000
      output_tokens: 200
      slo: {e2e: {p95: 200 s}}
candidates:
  gpu: [h100-sxm]
  scheduler: [%(schedulers)s]
step_time: {roofline: {efficiency: 0.5}}
policy: {prices: on-demand-2026-08, spare_replicas: 0, max_utilisation: 0.95, uncertainty: {draws: 0}}
simulation: {horizon: 200 s, replications: 1}
seed: 5
"""


def planned(*schedulers: str) -> decide.Plan:
    return decide.plan(spec.loads(SPEC % {"schedulers": ", ".join(schedulers)}, "ranked.yaml"))


def test_urgent_classes_need_fewer_replicas_with_priorities() -> None:
    shape = "policy: chunked, max_num_seqs: 32"
    subject = planned(
        f"{{{shape}, priority: none}}",
        f"{{{shape}}}",
        f"{{{shape}, priority: weighted, priority_weights: [8, 4, 1], max_wait: 60 s}}",
    )
    found = {
        o.machine.candidate.priority: o.found.replicas
        for o in decide.decide(subject, prune=False).options
        if o.found and o.found.replicas
    }
    assert set(found) == {"none", "strict", "weighted"}
    assert found["strict"] < found["none"]
    assert found["weighted"] <= found["none"]


def test_the_default_leaves_candidates_and_their_ids_as_they_were() -> None:
    plain, strict = (
        expand(spec.loads(SPEC % {"schedulers": text}, "ranked.yaml"))[0]
        for text in ("{policy: chunked}", "{policy: chunked, priority: strict}")
    )
    assert plain.candidate_id == strict.candidate_id
    none = expand(spec.loads(SPEC % {"schedulers": "{policy: chunked, priority: none}"}, "ranked.yaml"))[0]
    assert none.candidate_id != plain.candidate_id


def test_a_priority_without_a_weight_is_told_at_its_line() -> None:
    with pytest.raises(InputError) as caught:
        planned("{policy: chunked, priority: weighted, priority_weights: [8, 4]}")
    assert caught.value.lines == (
        "ranked.yaml:20:71: candidates.scheduler[0].priority_weights: has too few weights (got 2), and a class has priority 2; "
        "give 3, for the priorities 0 to 2",
    )


@pytest.mark.parametrize(
    "scheduler",
    ["{priority: weighted}", "{priority: strict, priority_weights: [1]}", "{priority: none, max_wait: 3 s}"],
)
def test_what_cannot_be_is_told_with_its_place(scheduler: str) -> None:
    with pytest.raises(InputError, match=r"candidates\.scheduler"):
        planned(scheduler)
