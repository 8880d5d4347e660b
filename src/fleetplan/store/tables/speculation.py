"""Tables of the stage `speculation`: where speculative decoding pays and where it stops."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number

SPECULATION = Table(
    "speculation",
    "speculation",
    "Speed-up of speculative decoding by draft length, acceptance and batch",
    (
        SCENARIO,
        CANDIDATE,
        integer("drafts", "draft tokens per target pass"),
        number("acceptance", "chance that a draft is accepted given those before it"),
        integer("batch", "sequences that decode"),
        number("expected_output_tokens", "expected tokens per target pass", "token"),
        number("speedup", "output rate over that without speculation"),
        flag("pays", "whether the speed-up is above 1"),
    ),
    ("scenario", "candidate_id", "drafts", "acceptance", "batch"),
)

TABLES = (SPECULATION,)
