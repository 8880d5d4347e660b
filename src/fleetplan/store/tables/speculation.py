"""Tables of the stage `speculation`: where speculative decoding pays and where it stops, and what acceptance is."""

from fleetplan.store.tables.dictionary import CANDIDATE, SCENARIO, Table, flag, integer, number, text

SPECULATION = Table(
    "speculation",
    "speculation",
    "Speed-up of speculative decoding by draft length, acceptance and batch",
    (
        SCENARIO,
        CANDIDATE,
        integer("drafts", "draft tokens per target pass"),
        number(
            "acceptance",
            "chance that a draft is accepted given those before it; of a curve, the equal one of the same yield",
        ),
        integer("batch", "sequences that decode"),
        text(
            "basis", "where the acceptance is from: stated, measured: <row>, or what if (a sweep, no claim)"
        ),
        text("draft", "who drafts"),
        number("draft_cost", "one draft step over one target step at this batch"),
        number("context_tokens", "tokens cached for each sequence", "token"),
        number("expected_output_tokens", "expected tokens per target pass", "token"),
        number("speedup", "output rate over that without speculation"),
        number("speedup_textbook", "E/(1 + K·c): verification taken as free"),
        number("throughput_tokens_per_s_per_gpu", "output tokens per second and GPU", "token/s/GPU"),
        number(
            "energy_wh_per_million_tokens",
            "energy at the GPU's rated power; null: not known",
            "Wh/1M tokens",
            nullable=True,
        ),
        flag("pays", "whether the speed-up is above 1"),
    ),
    ("scenario", "candidate_id", "drafts", "acceptance", "batch"),
)

SPECULATION_CHOICES = Table(
    "speculation_choices",
    "speculation",
    "The best draft length by batch and context, the batch that ends it, and verification of the likeliest drafts only",
    (
        SCENARIO,
        CANDIDATE,
        text("basis", "where the acceptance is from"),
        number("acceptance", "as in the table speculation"),
        number("context_tokens", "tokens cached for each sequence", "token"),
        integer("batch", "sequences that decode"),
        integer("best_drafts", "draft length of the highest output rate; 0: do not speculate"),
        number("best_speedup", "speed-up at that length"),
        integer(
            "switch_off_batch",
            "batch from which on no length pays; null: beyond the batches looked at",
            nullable=True,
        ),
        integer(
            "adaptive_slots",
            "draft slots of the step worth verifying, the likeliest first, of batch × longest draft",
        ),
        number("adaptive_speedup", "speed-up with just those verified"),
    ),
    ("scenario", "candidate_id", "basis", "acceptance", "context_tokens", "batch"),
)

SAMPLING_ACCEPTANCE = Table(
    "sampling_acceptance",
    "speculation",
    "What sampling settings do to acceptance: speculative sampling run on a toy bigram pair of 8 tokens",
    (
        SCENARIO,
        text("setting", "settings of target and draft"),
        number("acceptance", "1 − total variation of the two laws, over all starts"),
        number("acceptance_measured", "share of drafts accepted in the run"),
        number("acceptance_standard_error", "standard error of that share"),
        number(
            "least_p_value", "least p-value of the chi-square tests of first and second token over the starts"
        ),
        integer("impossible_tokens", "tokens emitted that the target cannot emit", "token"),
    ),
    ("scenario", "setting"),
)

MEASURED_ACCEPTANCE = Table(
    "measured_acceptance",
    "speculation",
    "Measured acceptance by method, model and task: survival by draft position, fitted so that it never rises",
    (
        SCENARIO,
        text("name", "row of the table, as acceptance_from names it"),
        integer("position", "draft position"),
        number("survival", "chance that the draft and all before it are accepted"),
        number("acceptance", "chance that it is accepted given the ones before"),
        number("geometric_survival", "what the geometric law fitted at position 1 would say"),
        text("source", "where it was published"),
    ),
    ("scenario", "name", "position"),
)

TABLES = (SPECULATION, SPECULATION_CHOICES, SAMPLING_ACCEPTANCE, MEASURED_ACCEPTANCE)
