"""Tables of the stage `roofline`: step times and bounds of every candidate."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, integer, number, text

BOUNDS = Table(
    "bounds",
    "roofline",
    "Bounds of each candidate that fits: what no scheduler could beat",
    (
        SCENARIO,
        CANDIDATE,
        number("ridge_flop_per_byte", "arithmetic intensity where compute and memory time meet", "FLOP/byte"),
        number("ridge_batch", "batch at which a decode step's products take as long as reading the weights"),
        integer("batch_by_memory", "most sequences of mean length that the KV cache holds"),
        number("lone_ttft_s", "time to first token of a lone request of mean length", "s"),
        number("lone_tpot_s", "time per output token of a lone request of mean length", "s"),
        number("throughput_tokens_per_s", "most output tokens per second of one replica", "token/s"),
        text("bound_by", "the roof at that throughput: compute, memory or overhead"),
    ),
    ("scenario", "candidate_id"),
)

ROOFLINES = Table(
    "rooflines",
    "roofline",
    "A decode step of each candidate that fits, by batch",
    (
        SCENARIO,
        CANDIDATE,
        integer("batch", "sequences that run at once"),
        integer(
            "step_sequences",
            "sequences of one step: all of them, of a pipeline those of its largest micro-batch",
        ),
        number(
            "step_s",
            "time of the step, from its start to its tokens: of a pipeline, all stages and sends",
            "s",
        ),
        number(
            "beat_s",
            "time after which the next step may start: the step's, of a pipeline its longest stage's",
            "s",
        ),
        number("compute_s", "its matrix products and attention at peak FLOP/s", "s"),
        number("memory_s", "its weights and KV cache read at full bandwidth", "s"),
        number(
            "overhead_s",
            "what the step takes beyond the greater of both: inefficiency, collectives, the engine",
            "s",
        ),
        number("intensity_flop_per_byte", "FLOPs of the step per byte that it reads", "FLOP/byte"),
        number(
            "throughput_tokens_per_s",
            "output tokens per second of one replica, with micro-batches in every stage",
            "token/s",
        ),
        text("bound_by", "the larger term: compute, memory or overhead"),
    ),
    ("scenario", "candidate_id", "batch"),
)

TABLES = (BOUNDS, ROOFLINES)
