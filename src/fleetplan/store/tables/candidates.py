"""Tables of the stage `candidates`: the grid of a scenario and what fits."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

CANDIDATES = Table(
    "candidates",
    "candidates",
    "Every way to run the model that the scenario allows; what cannot fit is kept, with its reason",
    (
        SCENARIO,
        CANDIDATE,
        text("label", "the candidate in words, as reports show it"),
        text("gpu", "catalogue name of the GPU"),
        integer(
            "gpus_per_replica",
            "GPUs that one replica takes; of two pools, all of their ratio; null: each pool has its own count, and their replicas differ",
            "GPU",
            nullable=True,
        ),
        integer("tensor_parallel", "tensor-parallel degree"),
        integer("pipeline_parallel", "pipeline-parallel degree"),
        integer("data_parallel", "attention data-parallel degree inside a replica"),
        integer("expert_parallel", "expert-parallel degree"),
        text("weights", "weight precision scheme; none: no LLM"),
        text("kv_cache", "KV cache precision; none: no LLM"),
        text("engine", "serving engine; endpoint: no LLM, see label"),
        text("scheduler", "scheduling policy"),
        integer("max_num_seqs", "most sequences in a step"),
        integer("max_num_batched_tokens", "token budget of a step", "token", nullable=True),
        flag("prefix_caching", "whether common beginnings of prompts stay in the KV cache and are shared"),
        text(
            "preemption",
            "what becomes of who gives way where KV blocks run out: recompute, or swap to the host",
        ),
        integer(
            "swap_blocks",
            "KV blocks that the host keeps of one engine; null: nothing is swapped",
            "block",
            nullable=True,
        ),
        integer(
            "max_adapters", "LoRA adapters that are resident at once on one engine; null: none", nullable=True
        ),
        number(
            "adapter_load_s",
            "time that an adapter which is not resident adds to the step that admits its request; null: it holds none, or cannot run",
            "s",
            nullable=True,
        ),
        text("speculation", "speculative decoding in words; none without"),
        number(
            "expected_step_tokens",
            "tokens that a decoding sequence gets of one step, by the acceptance of its drafts; 1 without, null if it cannot run",
            "token",
            nullable=True,
        ),
        text(
            "layout",
            "colocated, or disaggregated: prefill in a pool of its own; the other columns are then those of decode",
        ),
        text("prefill_gpu", "catalogue name of the prefill pool's GPU; null where colocated", nullable=True),
        integer("prefill_tensor_parallel", "tensor-parallel degree of a prefill replica", nullable=True),
        text("prefill_scheduler", "scheduling policy of the prefill pool", nullable=True),
        integer("prefill_kv_blocks", "KV cache blocks of one prefill replica", "block", nullable=True),
        integer(
            "prefill_ratio",
            "prefill replicas to each decode_ratio of decode; null: one pool, or the count of each is searched",
            nullable=True,
        ),
        integer(
            "decode_ratio", "decode replicas to each prefill_ratio of prefill; null as above", nullable=True
        ),
        number("link_bytes_per_s", "bandwidth of the link that all KV shares", "byte/s", nullable=True),
        number("link_latency_s", "time that every crossing takes besides", "s", nullable=True),
        integer(
            "bypass_tokens", "longest prompt that the decode pool computes itself", "token", nullable=True
        ),
        flag(
            "fits",
            "whether weights and at least one request's KV cache fit in memory; of no LLM not looked at",
        ),
        text("reason", "why it cannot run; null if it can", nullable=True),
        integer("usable_bytes", "memory of one GPU that the driver reports as usable", "byte"),
        integer(
            "weights_bytes",
            "weights on the fullest GPU; null: the layout itself cannot be",
            "byte",
            nullable=True,
        ),
        integer(
            "other_bytes",
            "what the engine takes besides: activations, runtime, graphs, draft, adapters",
            "byte",
            nullable=True,
        ),
        integer(
            "draft_bytes",
            "the draft's part of other_bytes: its weights on the fullest GPU; its KV is in kv_bytes_per_token",
            "byte",
            nullable=True,
        ),
        integer(
            "adapters_bytes",
            "the part of other_bytes that the places of resident LoRA adapters take on one GPU",
            "byte",
            nullable=True,
        ),
        integer(
            "left_bytes",
            "left for the KV cache on one GPU; negative: short by so much",
            "byte",
            nullable=True,
        ),
        number(
            "kv_bytes_per_token",
            "KV cache of one token of a short sequence on one GPU",
            "byte/token",
            nullable=True,
        ),
        integer("kv_blocks", "KV cache blocks of one engine; null if it cannot run", "block", nullable=True),
        integer(
            "longest_request_tokens",
            "longest request of the traffic, which must fit whole",
            "token",
            nullable=True,
        ),
        integer(
            "concurrent_requests",
            "requests of mean length that one replica holds at once",
            "request",
            nullable=True,
        ),
    ),
    ("scenario", "candidate_id"),
)

TABLES = (CANDIDATES,)
