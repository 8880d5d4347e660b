"""The stages of a plan: each rule is one verb, one log, one benchmark, and the parts that it fills."""


# The grid of the scenario: what fits, and what does not with its reason.
rule candidates:
    input:
        spec=ancient(spec_of),
    output:
        parts("candidates"),
    log:
        "results/logs/{scenario}/candidates.log",
    benchmark:
        "results/benchmarks/{scenario}/candidates.tsv"
    params:
        digest=digest_of("candidates"),
        code=code_fingerprint("candidates"),
    shell:
        job("candidates", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# Step times and bounds of every candidate that fits.
rule roofline:
    input:
        spec=ancient(spec_of),
        parts=parts("candidates"),
    output:
        parts("roofline"),
    log:
        "results/logs/{scenario}/roofline.log",
    benchmark:
        "results/benchmarks/{scenario}/roofline.tsv"
    params:
        digest=digest_of("roofline"),
        code=code_fingerprint("roofline"),
    shell:
        job("roofline", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# Simulations of the candidates that the bounds leave alive.
rule batching:
    input:
        spec=ancient(spec_of),
        parts=parts("candidates", "roofline"),
    output:
        parts("batching"),
    log:
        "results/logs/{scenario}/batching.log",
    benchmark:
        "results/benchmarks/{scenario}/batching.tsv"
    params:
        digest=digest_of("batching"),
        code=code_fingerprint("batching"),
    shell:
        job("batching", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# Where speculative decoding pays, and where it stops.
rule speculation:
    input:
        spec=ancient(spec_of),
        parts=parts("candidates", "roofline"),
    output:
        parts("speculation"),
    log:
        "results/logs/{scenario}/speculation.log",
    benchmark:
        "results/benchmarks/{scenario}/speculation.tsv"
    params:
        digest=digest_of("speculation"),
        code=code_fingerprint("speculation"),
    shell:
        job("speculation", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# The decision, with its evidence.
rule sizing:
    input:
        spec=ancient(spec_of),
        parts=parts("candidates", "roofline", "batching"),
    output:
        parts("sizing"),
    log:
        "results/logs/{scenario}/sizing.log",
    benchmark:
        "results/benchmarks/{scenario}/sizing.tsv"
    params:
        digest=digest_of("sizing"),
        code=code_fingerprint("sizing"),
    shell:
        job("sizing", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# Closed forms beside the simulations, about the decided count.
rule queueing:
    input:
        spec=ancient(spec_of),
        parts=parts("candidates", "sizing"),
    output:
        parts("queueing"),
    log:
        "results/logs/{scenario}/queueing.log",
    benchmark:
        "results/benchmarks/{scenario}/queueing.tsv"
    params:
        digest=digest_of("queueing"),
        code=code_fingerprint("queueing"),
    shell:
        job("queueing", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# What the fleet that a scenario names under `capacity` holds; empty where it names none.
rule capacity:
    input:
        spec=ancient(spec_of),
    output:
        parts("capacity"),
    log:
        "results/logs/{scenario}/capacity.log",
    benchmark:
        "results/benchmarks/{scenario}/capacity.tsv"
    params:
        digest=digest_of("capacity"),
        code=code_fingerprint("capacity"),
    shell:
        job("capacity", "{input.spec:q} --parts {PARTS:q}", "{wildcards.scenario}")


# Several scenarios on one stock of GPUs and one budget.
rule fleet:
    input:
        spec=ancient(fleet_of),
    output:
        parts("fleet"),
    log:
        "results/logs/{fleet}/fleet.log",
    benchmark:
        "results/benchmarks/{fleet}/fleet.tsv"
    params:
        digest=lambda wildcards: fleet_digest(FLEETS[wildcards.fleet][1]),
        code=code_fingerprint("fleet"),
    shell:
        job("fleet", "{input.spec:q} --parts {PARTS:q}", "{wildcards.fleet}")
